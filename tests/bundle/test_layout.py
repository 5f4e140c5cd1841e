import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangscope.bundle import layout, tarblocks
from hangscope.errors import BundleError, NewerFormat

from .shards import tar_of


def test_paths_and_places_are_inverse() -> None:
    for pid in (None, 4711):
        place = layout.place_of(layout.cell_path(3, "nccl_log", pid) + "/nccl_log.json")
        assert place is not None
        assert (place.sample, place.collector, place.pid, place.name) == (3, "nccl_log", pid, "nccl_log.json")
    table = layout.place_of(layout.intern_path("stacks", 41))
    assert table is not None and (table.table, table.first) == ("stacks", 41)
    top = layout.place_of("node.json")
    assert top is not None and top.top == "node.json"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/node.json",
        "../node.json",
        "s0/../node.json",
        "s0/threads/pid-1/../x",
        "s0/threads/pid--1/x",
        "S0/a/node/x",
        "s0/threads/node/.x",
        "s0/threads/node/x\n",
        "s0/threads/node/a/b",
        "intern/frames--1.json",
        "node.json/",
    ],
)
def test_a_path_outside_the_format_has_no_place(path: str) -> None:
    assert layout.place_of(path) is None


def test_shard_names_stay_in_their_folder() -> None:
    for host in ("node-a", "10.0.0.1", "../../etc", "", "ä b", "x" * 500, ".hidden"):
        name = layout.shard_name(host)
        assert layout.shard_of(layout.shard_path(name)) == name
    with pytest.raises(ValueError):
        layout.shard_path("../x")
    assert layout.shard_of("shards/../x.tar.gz") is None
    assert layout.shard_of("other/x.tar.gz") is None


def test_formats_that_are_read_and_refused() -> None:
    layout.check_format("hangscope-bundle/1")
    layout.check_format("hangscope-bundle/1.7")
    for newer in ("hangscope-bundle/2", "hangscope-bundle/12.1"):
        with pytest.raises(NewerFormat) as caught:
            layout.check_format(newer)
        assert "pip install --upgrade hangscope" in str(caught.value)
    for other in (
        None,
        1,
        "",
        "hangscope-bundle",
        "hangscope-bundle/0",
        "hangscope-bundle/1\n",
        "sosreport/2",
    ):
        with pytest.raises(BundleError) as refused:
            layout.check_format(other)
        assert not isinstance(refused.value, NewerFormat)


def test_a_header_is_what_the_standard_library_writes() -> None:
    ours = tarblocks.header("s0/threads/node/x.json", 5, 1700000000)
    theirs = tarblocks.parse(tar_of(("s0/threads/node/x.json", b"12345"))[:512])
    assert tarblocks.parse(ours) == theirs._replace(mtime=1700000000)
    assert tarblocks.parse(ours).kind in tarblocks.REGULAR
    for name, size in (("x" * 101, 0), ("", 0), ("x", -1), ("x", 8**11)):
        with pytest.raises(ValueError):
            tarblocks.header(name, size, 0)


def test_a_long_name_is_joined_from_its_prefix() -> None:
    name = "a/" * 60 + "b"
    assert tarblocks.parse(tar_of((name, b""))[:512]).name == name.encode()


@given(st.binary(min_size=500, max_size=520), st.integers(0, 511), st.integers(0, 255))
def test_parsing_a_header_raises_only_its_own_error(block: bytes, place: int, value: int) -> None:
    good = bytearray(tarblocks.header("node.json", 77, 5))
    good[place] = value
    for candidate in (block, bytes(good)):
        try:
            assert tarblocks.parse(candidate).size >= 0
        except tarblocks.BadHeader:
            continue

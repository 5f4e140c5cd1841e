"""Bundles made to do harm: each is refused or loses only the harmful part, and never raises anything else."""

import gzip
import io
import os
import random
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hangscope.bundle import tarblocks
from hangscope.bundle.inflate import Limits
from hangscope.bundle.reader import LIMITS, read_bundle, read_bundle_bytes
from hangscope.errors import BundleError
from hangscope.model.evidence import Evidence, Shard

from .shards import NODE, as_json, frame, shard_of, small_shard, special, tar_of

GOOD = ("s0/locks/node/locks.json", b"{}")
STATUS = ("s0/locks/node/status.json", as_json({"status": "ok", "artifacts": ["locks.json"]}))


def only(data: bytes, limits: Limits = LIMITS) -> Shard:
    return read_bundle_bytes(data, limits=limits).shards[0]


@pytest.mark.parametrize(
    ("member", "why"),
    [
        (("../escape.json", b"x"), "no place"),
        (("s0/../../escape.json", b"x"), "no place"),
        (("/etc/cron.d/x", b"x"), "no place"),
        ((b"s0/locks/node/\xff\xfe".decode("utf-8", "surrogateescape"), b"x"), "no place"),
        (("s0/locks/node/a\x1b[2J", b"x"), "no place"),
        ((special("s0/locks/node/a", tarfile.SYMTYPE, "/etc/shadow"), b""), "symbolic link"),
        ((special("s0/locks/node/a", tarfile.LNKTYPE, "node.json"), b""), "hard link"),
        ((special("s0/locks/node/a", tarfile.FIFOTYPE), b""), "FIFO"),
        ((special("s0/locks/node/a", tarfile.CHRTYPE), b""), "character device"),
        ((special("s0/locks/node/a", tarfile.BLKTYPE), b""), "block device"),
        ((special("s0/locks/node", tarfile.DIRTYPE), b""), "directory"),
        ((special("s0/locks/node/a", tarfile.GNUTYPE_SPARSE), b"xx"), "no regular file"),
        (("node.json", as_json(NODE)), "occurs twice"),
    ],
)
def test_a_harmful_member_is_dropped_and_the_rest_is_read(member: Any, why: str) -> None:
    shard = only(shard_of(member, GOOD, STATUS))
    assert [artifact.data for artifact in shard.artifacts] == [b"{}"]
    assert [cell.status for cell in shard.cells] == ["ok"]
    assert len(shard.notes) == 1 and why in shard.notes[0]
    assert shard.notes[0].isprintable()


def test_nothing_is_ever_written_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    read_bundle_bytes(shard_of(("../x", b"1"), ("x", b"1"), GOOD, STATUS))
    assert os.listdir(tmp_path) == []


def test_pax_and_gnu_headers_cannot_rename_a_member() -> None:
    info = tarfile.TarInfo("s0/locks/node/a")
    info.pax_headers = {"path": "../../outside", "comment": "x" * 300}
    shard = only(shard_of((info, b"1"), GOOD, STATUS, form=tarfile.PAX_FORMAT))
    assert {artifact.path for artifact in shard.artifacts} <= {
        "node-a!s0/locks/node/a",
        "node-a!s0/locks/node/locks.json",
    }
    shard = only(shard_of(("s0/" + "d/" * 80 + "x", b"1"), GOOD, STATUS, form=tarfile.GNU_FORMAT))
    assert [artifact.name for artifact in shard.artifacts] == ["locks.json"]


def test_a_decompression_bomb_ends_the_shard_early() -> None:
    bomb = shard_of(GOOD, STATUS, ("s0/memory/node/m.json", bytes(80 << 20)))
    shard = only(bomb)
    assert shard.problem is not None and "times its size" in shard.problem
    assert [cell.collector for cell in shard.cells] == ["locks", "memory"]
    assert shard.cells[1].reason == "stream cut"


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (LIMITS._replace(shard_bytes=4096), "bytes unpacked"),
        (LIMITS._replace(members=3), "more than 3 members"),
    ],
)
def test_limits_end_the_shard(limits: Limits, said: str) -> None:
    shard = only(small_shard(), limits)
    assert shard.problem is not None and said in shard.problem


def test_a_member_above_its_limit_is_skipped_not_held() -> None:
    big = ("s0/memory/node/m.json", os.urandom(20_000))
    shard = only(shard_of(big, GOOD, STATUS), LIMITS._replace(member_bytes=10_000))
    assert [artifact.name for artifact in shard.artifacts] == ["locks.json"]
    assert any("too large" in note for note in shard.notes)
    shard = only(small_shard(), LIMITS._replace(json_bytes=10))
    assert shard.node is None and shard.scan is None


def test_more_shards_than_the_limit_are_refused() -> None:
    data = tar_of(*((f"shards/n{n}.tar.gz", b"") for n in range(20)))
    with pytest.raises(BundleError, match="more than 10 members"):
        read_bundle_bytes(data, limits=LIMITS._replace(shards=10))


def test_a_header_that_states_an_enormous_size() -> None:
    block = bytearray(tarblocks.header("s0/locks/node/x.json", 0, 0))
    block[124:136] = b"\x80" + b"\x7f" * 11
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    data = tar_of(("node.json", as_json(NODE)))[:1024] + bytes(block) + bytes(2048)
    shard = only(gzip.compress(data))
    assert shard.problem == "stream cut" and shard.cells[0].status == "partial"
    outer = bytearray(block)
    outer[:100] = b"shards/a.tar.gz".ljust(100, b"\0")
    outer[148:156] = b" " * 8
    outer[148:156] = b"%06o\0 " % sum(outer)
    assert read_bundle_bytes(bytes(outer) + small_shard()).shards[0].sealed


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b'{"status": NaN}',
        b'{"status": "ok", "wall": 1e999}',
        b'{"status": "ok", "seconds": "fast"}',
        b'{"status": "ok", "artifacts": {"a": 1}}',
        b'{"status": 7}',
        b'"\xff\xfe"',
        b'{"status": "' + b"x" * 100_000 + b'"}',
    ],
)
def test_json_of_the_wrong_kind_makes_an_error_cell(text: bytes) -> None:
    shard = only(shard_of(GOOD, ("s0/locks/node/status.json", text)))
    assert [cell.status for cell in shard.cells] == ["error"] and shard.cells[0].reason
    assert [artifact.data for artifact in shard.artifacts] == [b"{}"]
    for name in (
        "node.json",
        "processes.json",
        "status.json",
        "intern/frames-0.json",
        "intern/stacks-0.json",
    ):
        shard = only(gzip.compress(tar_of((name, text), GOOD)))
        assert shard.frames == () and not shard.sealed and len(shard.artifacts) == 1


def test_a_status_that_promises_what_is_not_there() -> None:
    shard = only(
        shard_of(
            GOOD, ("s0/locks/node/status.json", as_json({"status": "ok", "artifacts": ["a", "locks.json"]}))
        )
    )
    assert (shard.cells[0].status, shard.cells[0].reason) == ("partial", "the bundle lacks a")
    shard = only(shard_of(("s0/locks/node/status.json", as_json({"status": "timeout"})), GOOD))
    assert shard.cells[0].reason == "no reason given" and shard.artifacts == ()
    assert "after its cell's status" in shard.notes[0]


def stacks_after(*parts: tuple[str, Any]) -> Shard:
    return only(shard_of(*((name, as_json(value)) for name, value in parts)))


def test_intern_tables_end_at_their_first_defect() -> None:
    frames = ("intern/frames-0.json", [frame(), frame(line=2)])
    good = stacks_after(frames, ("intern/stacks-0.json", [[0, 1], []]), ("intern/stacks-2.json", [[1]]))
    assert good.stacks == ((0, 1), (), (1,))
    for bad in ([2], [-1], [0, 10**30]):
        shard = stacks_after(
            frames, ("intern/stacks-0.json", [[0], bad, [1]]), ("intern/stacks-3.json", [[1]])
        )
        assert shard.stacks == ((0,),)
    gap = stacks_after(
        frames, ("intern/frames-3.json", [frame(line=9)]), ("intern/stacks-0.json", [[0], [2]])
    )
    assert len(gap.frames) == 2 and gap.stacks == ((0,),)
    wrong = stacks_after(frames, ("intern/frames-2.json", [{"name": 5}]), ("intern/frames-2.json", [frame()]))
    assert len(wrong.frames) == 2
    limited = only(
        shard_of(("intern/frames-0.json", as_json([frame()] * 30))), LIMITS._replace(table_entries=20)
    )
    assert limited.frames == ()


def test_drops_are_noted_up_to_a_limit() -> None:
    shard = only(shard_of(*((f"x{n}", b"") for n in range(500)), GOOD, STATUS))
    assert len(shard.notes) == 201 and shard.notes[-1] == "300 more members dropped"
    evidence = read_bundle_bytes(tar_of(("shards/a.tar.gz", b""), *((f"x{n}", b"") for n in range(500))))
    assert len(evidence.notes) == 200


def test_an_outer_member_that_is_no_shard_is_dropped() -> None:
    data = tar_of(
        (special("shards/a.tar.gz", tarfile.SYMTYPE, "/etc/passwd"), b""),
        ("shards/../../b.tar.gz", b"x"),
        ("shards/c.tar.gz", small_shard()),
        ("shards/c.tar.gz", small_shard()),
        ("evil", b"x"),
    )
    evidence = read_bundle_bytes(data)
    assert [shard.name for shard in evidence.shards] == ["c"]
    assert len(evidence.notes) == 4


def survives(data: bytes) -> Evidence | None:
    """The evidence, or None when it was refused properly; any other error fails the test."""
    try:
        evidence = read_bundle_bytes(data, limits=LIMITS._replace(ratio_from=1 << 20, json_bytes=1 << 20))
    except BundleError:
        return None
    for shard in evidence.shards:
        assert all(0 <= index < len(shard.frames) for stack in shard.stacks for index in stack)
        assert all(cell.status == "ok" or cell.reason for cell in shard.cells)
    return evidence


PLAIN = gzip.decompress(small_shard())
BUNDLE = tar_of(
    ("shards/a.tar.gz", small_shard()), ("manifest.json", as_json({"format": "hangscope-bundle/1"}))
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(["gzip", "tar", "bundle"]), st.integers(0, 2**32), st.integers(1, 6))
def test_mutated_bytes_never_raise_anything_else(form: str, seed: int, changes: int) -> None:
    rng = random.Random(seed)
    source = {"gzip": small_shard(), "tar": PLAIN, "bundle": BUNDLE}[form]
    data = bytearray(source)
    for _ in range(changes):
        place = rng.randrange(len(data))
        kind = rng.randrange(4)
        if kind == 0:
            data[place] = rng.randrange(256)
        elif kind == 1:
            del data[place : place + rng.randrange(1, 600)]
        elif kind == 2:
            data[place:place] = rng.randbytes(rng.randrange(1, 40))
        else:
            data[place:place] = data[: rng.randrange(1, 1024)]
    survives(bytes(data))
    survives(gzip.compress(bytes(data)) if form == "tar" else bytes(data[: len(data) // 2]))


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=2000))
def test_random_bytes_never_raise_anything_else(data: bytes) -> None:
    for head in (b"", b"\x1f\x8b\x08\x00" + bytes(6), tar_of(("node.json", as_json(NODE)))[:1024]):
        survives(head + data)


def test_reading_holds_large_data_once(tmp_path: Path) -> None:
    payload = os.urandom(24 << 20)
    stream = io.BytesIO(shard_of(("s0/kernel_log/node/kernel.txt", payload)))
    path = tmp_path / "n.tar.gz"
    path.write_bytes(stream.getvalue())
    del stream
    tracemalloc.start()
    evidence = read_bundle(str(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert evidence.shards[0].artifacts[0].data == payload
    assert peak < 1.5 * len(payload)

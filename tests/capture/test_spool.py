"""The stream on disk: readable at any moment, moving on from a full disk, gone once the bundle is there."""

import io
import os
import pathlib
import resource
import signal
import subprocess
from collections.abc import Iterator

import pytest

from hangscope.bundle.reader import read_bundle
from hangscope.bundle.writer import ShardWriter
from hangscope.capture.destination import Place
from hangscope.capture.spool import Spool

MANIFEST = {"tool": "0", "nodes": [{"name": "node-a", "status": "ok"}]}


def a_shard(cells: int = 3, size: int = 10) -> bytes:
    stream = io.BytesIO()
    writer = ShardWriter(stream)
    for sample in range(cells):
        writer.cell("locks", sample, None, "ok", None, 0.1, [("locks.json", os.urandom(size))])
    writer.seal(cells, [], [])
    return stream.getvalue()


def places(*directories: pathlib.Path | str, cap: int | None = None) -> Iterator[Place | str]:
    return iter([Place(directory=str(directory), file="b.tar", cap=cap) for directory in directories])


def test_what_has_arrived_can_be_read_while_the_capture_runs(tmp_path: pathlib.Path) -> None:
    spool = Spool(places(tmp_path), "node-a")
    spool.add(a_shard()[:-40])
    assert spool.partial == str(tmp_path / "b.tar.partial")
    shard = read_bundle(spool.partial).shards[0]
    assert shard.name == "node-a" and len(shard.cells) == 3 and not shard.sealed


def test_packing_leaves_the_bundle_and_nothing_else(tmp_path: pathlib.Path) -> None:
    spool = Spool(places(tmp_path), "node-a")
    spool.add(a_shard())
    assert spool.pack(dict(MANIFEST)) == str(tmp_path / "b.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["b.tar"]
    assert (tmp_path / "b.tar").stat().st_mode & 0o777 == 0o600
    assert read_bundle(str(tmp_path / "b.tar")).shards[0].sealed


def test_a_bundle_of_that_name_is_not_overwritten_but_another_place_found(tmp_path: pathlib.Path) -> None:
    (tmp_path / "b.tar").write_text("mine")
    other = tmp_path / "other"
    other.mkdir()
    spool = Spool(places(tmp_path, other), "node-a")
    spool.add(a_shard())
    assert spool.pack(dict(MANIFEST)) == str(other / "b.tar")
    assert (tmp_path / "b.tar").read_text() == "mine"


def test_two_captures_in_one_second_leave_each_other_alone(tmp_path: pathlib.Path) -> None:
    first = Spool(places(tmp_path), "node-a")
    first.add(a_shard())
    second = Spool(places(tmp_path), "node-a")
    second.add(a_shard())
    assert "b.tar.partial is there already" in second.notes[0]
    assert read_bundle(str(first.partial)).shards[0].sealed  # the second has not removed it
    own = tmp_path / f"b-{os.getpid()}.tar"
    assert (first.pack(dict(MANIFEST)), second.pack(dict(MANIFEST))) == (str(tmp_path / "b.tar"), str(own))
    assert sorted(tmp_path.iterdir()) == sorted([own, tmp_path / "b.tar"])
    third = Spool(places(tmp_path / "gone"), "node-a")
    assert third.partial is None and third.place is None


@pytest.fixture
def full_disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A file system of 64 KiB."""
    mount = tmp_path / "full"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount)], capture_output=True
    )
    if done.returncode:
        pytest.skip(f"mounting a small file system needs root: {done.stderr.decode().strip()}")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def test_on_a_full_disk_it_moves_on_and_says_where(full_disk: pathlib.Path, tmp_path: pathlib.Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    spool = Spool(places(full_disk, other), "node-a")
    data = a_shard(20, 10_000)
    for start in range(0, len(data), 4096):
        spool.add(data[start : start + 4096])
    assert "No space left on device; moving on" in spool.notes[0]
    assert spool.pack(dict(MANIFEST)) == str(other / "b.tar")
    assert len(read_bundle(str(other / "b.tar")).shards[0].cells) == 20
    assert list(full_disk.iterdir()) == []


def test_room_for_one_copy_is_enough(full_disk: pathlib.Path) -> None:
    spool = Spool(places(full_disk), "node-a")
    spool.add(a_shard(4, 9_000))
    assert spool.pack(dict(MANIFEST)) == str(full_disk / "b.tar")
    assert len(read_bundle(str(full_disk / "b.tar")).shards[0].cells) == 4


def test_a_file_size_limit_is_a_full_disk_too(tmp_path: pathlib.Path) -> None:
    """RLIMIT_FSIZE, which needs no root: no place takes it, the stream stays in memory, nothing is left."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, before[1]))
    try:
        spool = Spool(places(tmp_path), "node-a")
        spool.add(a_shard(10, 10_000))
        # the limit holds for the memory file as well: only the disk part is looked at here
        assert spool.place is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert spool.pack(dict(MANIFEST)) is None
    assert list(tmp_path.iterdir()) == []
    buffer = io.BytesIO()
    spool.stream_to(buffer, dict(MANIFEST))
    (tmp_path / "rescued.tar").write_bytes(buffer.getvalue())
    assert len(read_bundle(str(tmp_path / "rescued.tar")).shards[0].cells) == 10


def test_a_capped_place_takes_no_more_than_its_cap(tmp_path: pathlib.Path) -> None:
    spool = Spool(places(tmp_path, cap=1000), "node-a")
    spool.add(b"x" * 2000)
    assert spool.place is None and "no more than 1000 bytes" in spool.notes[0]
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_vanished_is_passed_over(tmp_path: pathlib.Path) -> None:
    spool = Spool(iter(["not here", *places(tmp_path / "gone", tmp_path)]), "node-a")
    assert spool.notes[0] == "not here" and "moving on" in spool.notes[1]
    assert spool.partial == str(tmp_path / "b.tar.partial")
    spool.discard()
    assert list(tmp_path.iterdir()) == []


def test_in_memory_only(tmp_path: pathlib.Path) -> None:
    spool = Spool(None, "node-a")
    spool.add(a_shard())
    assert spool.partial is None and spool.pack(dict(MANIFEST)) is None

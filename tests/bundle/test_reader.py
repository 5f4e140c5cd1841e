import gzip
import io
import os
from pathlib import Path

import pytest

from hangscope.bundle import pack
from hangscope.bundle.reader import read_bundle, read_bundle_bytes
from hangscope.bundle.writer import ShardWriter
from hangscope.errors import BundleError, NewerFormat
from hangscope.model.evidence import Shard

from .shards import NODE, SCAN, as_json, shard_of, small_shard, tar_of
from .test_pack import MANIFEST


def facts(shard: Shard) -> list[tuple[str, bytes]]:
    return [(artifact.path, artifact.data) for artifact in shard.artifacts]


def test_a_single_shard_is_understood(tmp_path: Path) -> None:
    path = tmp_path / "node-a.tar.gz"
    path.write_bytes(small_shard())
    evidence = read_bundle(str(path))
    shard = evidence.shards[0]
    assert (evidence.job, evidence.tool_version, shard.name) == ("train", "0.1.0", "node-a")
    assert shard.node is not None and shard.node.kernel == "6.1.0" and shard.node.agent_pid == 77
    assert shard.scan is not None and not shard.scan.complete and shard.scan.processes[0].role == "rank"
    assert facts(shard)[0] == ("node-a!s0/threads/pid-4711/threads.json", b'{"pid": 4711}')
    first = shard.artifacts[0]
    assert (first.node, first.collector, first.sample, first.pid, first.name) == (
        "node-a",
        "threads",
        0,
        4711,
        "threads.json",
    )
    assert first.wall > 1.7e9 and first.monotonic > 0
    cells = {(cell.collector, cell.sample, cell.pid): (cell.status, cell.reason) for cell in shard.cells}
    assert cells == {
        ("threads", 0, 4711): ("ok", None),
        ("stacks", 0, 4711): ("ok", None),
        ("gpus", 0, None): ("absent", "no driver"),
        ("output", 1, 4711): ("partial", "cut"),
    }
    assert shard.cells[0].seconds == 0.25
    assert shard.stacks == ((0, 1),) and shard.frames[1].name == "run"
    assert shard.sealed and shard.problem is None
    assert shard.abandoned == (99,) and shard.notes == ("one note",)


def test_a_shard_from_a_pipe_is_named_by_its_host() -> None:
    shard = read_bundle_bytes(small_shard()).shards[0]
    assert shard.name == "node-a" and shard.artifacts[0].path.startswith("node-a!s0/")
    assert {cell.node for cell in shard.cells} == {"node-a"}


def test_an_uncompressed_shard_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "n.tar").write_bytes(tar_of(("node.json", as_json(NODE)), ("processes.json", as_json(SCAN))))
    shard = read_bundle(str(tmp_path / "n.tar")).shards[0]
    assert shard.name == "n" and shard.scan is not None and shard.problem == "the agent did not finish"


def test_cut_at_any_byte_everything_before_the_cut_is_there(tmp_path: Path) -> None:
    whole = small_shard()
    complete = read_bundle_bytes(whole).shards[0]
    path = tmp_path / "node-a.tar.gz"
    seen = set()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        shard = read_bundle(str(path)).shards[0]
        count = len(shard.artifacts)
        assert facts(shard) == facts(complete)[:count]
        done = [cell for cell in shard.cells if cell.reason != "stream cut"]
        assert done == list(complete.cells[: len(done)])
        rest = [cell for cell in shard.cells if cell.reason == "stream cut"]
        assert len(rest) <= 1 and all(cell.status == "partial" for cell in rest)
        assert shard.frames in ((), complete.frames) and shard.stacks in ((), complete.stacks)
        assert shard.sealed or shard.problem == "stream cut"
        seen.add(count)
    assert seen == set(range(len(complete.artifacts) + 1))


def test_a_cell_that_was_cut_keeps_its_first_artifacts_with_a_time() -> None:
    stream = io.BytesIO()
    writer = ShardWriter(stream)
    writer.member("node.json", as_json(NODE))
    writer.member("s0/output/pid-1/a.json", b"{}")
    shard = read_bundle_bytes(stream.getvalue()).shards[0]
    assert [(cell.status, cell.reason) for cell in shard.cells] == [("partial", "stream cut")]
    artifact = shard.artifacts[0]
    assert artifact.monotonic - 5000.0 == pytest.approx(artifact.wall - 1700000000.0)


def test_zeros_where_the_file_system_lost_the_tail() -> None:
    whole = small_shard()
    half = len(whole) // 2
    cut = read_bundle_bytes(whole[:half]).shards[0]
    torn = read_bundle_bytes(whole[:half] + bytes(len(whole) - half)).shards[0]
    assert facts(torn)[: len(cut.artifacts)] == facts(cut)
    assert not torn.sealed and torn.problem is not None and torn.problem.startswith("damaged")


def test_a_bundle_cut_at_any_member_is_read(tmp_path: Path) -> None:
    shard = tmp_path / "s.tar.gz"
    shard.write_bytes(small_shard())
    pack.write_bundle(str(tmp_path / "b.tar"), MANIFEST, [("node-a", str(shard)), ("node-b", str(shard))])
    whole = (tmp_path / "b.tar").read_bytes()
    counts = set()
    for size in range(512, len(whole), 256):
        evidence = read_bundle_bytes(whole[:size])
        counts.add(len(evidence.shards))
        assert all(item.cells or item.problem for item in evidence.shards)
    assert counts == {1, 2}
    assert any("not read to its end" in note for note in read_bundle_bytes(whole[:1024]).notes)


def test_an_older_reader_ignores_what_a_newer_writer_adds() -> None:
    status = {"status": "ok", "reason": None, "seconds": 1, "wall": 5, "monotonic": 6, "artifacts": ["x.bin"]}
    shard = read_bundle_bytes(
        shard_of(
            ("later.json", b"{}"),
            ("processes.json", as_json({**SCAN, "colour": "blue"})),
            ("s0/threads/node/x.bin", b"\x00"),
            ("s0/threads/node/status.json", as_json({**status, "mood": {"a": [1]}})),
            ("status.json", as_json({"sealed": True, "samples": 1, "abandoned": [], "notes": [], "more": 1})),
        )
    ).shards[0]
    assert shard.sealed and shard.scan is not None
    assert [(cell.status, cell.seconds) for cell in shard.cells] == [("ok", 1.0)]
    assert (shard.artifacts[0].wall, shard.artifacts[0].monotonic) == (5.0, 6.0)


@pytest.mark.parametrize("where", ["node", "manifest", "directory"])
def test_a_newer_major_version_is_refused_with_advice(tmp_path: Path, where: str) -> None:
    manifest = as_json({"format": "hangscope-bundle/2", "nodes": "something new"})
    if where == "node":
        (tmp_path / "b").write_bytes(tar_of(("node.json", manifest)))
    elif where == "manifest":
        (tmp_path / "b").write_bytes(tar_of(("shards/a.tar.gz", b"new"), ("manifest.json", manifest)))
    else:
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / "manifest.json").write_bytes(manifest)
    with pytest.raises(NewerFormat) as caught:
        read_bundle(str(tmp_path / "b"))
    assert "try: pip install --upgrade" in str(caught.value)


def test_what_is_no_bundle_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("Thread 1 (idle)")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "other.tar").write_bytes(tar_of(("readme", b"hello")))
    (tmp_path / "foreign.tar").write_bytes(tar_of(("manifest.json", b'{"format": "sos/1"}')))
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    for name in ("text", "empty", "other.tar", "folder", "foreign.tar", "fifo", "missing"):
        with pytest.raises(BundleError) as caught:
            read_bundle(str(tmp_path / name))
        assert name in str(caught.value) or "no hangscope bundle" in str(caught.value)


def test_a_compressed_bundle_and_a_foreign_archive_are_told_apart(tmp_path: Path) -> None:
    bundle = gzip.compress(tar_of(("shards/a.tar.gz", small_shard()), ("manifest.json", as_json(MANIFEST))))
    with pytest.raises(BundleError, match="gunzip"):
        read_bundle_bytes(bundle)
    with pytest.raises(BundleError, match="no hangscope bundle"):
        read_bundle_bytes(gzip.compress(tar_of(("etc/passwd", b"x"))))


def test_a_changed_shard_is_noticed(tmp_path: Path) -> None:
    shard = tmp_path / "s.tar.gz"
    shard.write_bytes(small_shard())
    pack.write_directory(str(tmp_path / "b"), MANIFEST, [("node-a", str(shard))])
    inside = tmp_path / "b" / "shards" / "node-a.tar.gz"
    inside.write_bytes(small_shard(seal=False))
    (tmp_path / "b" / "shards" / "link.tar.gz").symlink_to(inside)
    (tmp_path / "b" / "shards" / "notes.txt").write_text("x")
    evidence = read_bundle(str(tmp_path / "b"))
    assert [item.name for item in evidence.shards] == ["node-a"]
    assert any("checksum" in note for note in evidence.notes)
    assert any("link.tar.gz: no regular file" in note for note in evidence.notes)
    assert any("notes.txt" in note for note in evidence.notes)


def test_a_damaged_manifest_costs_only_itself() -> None:
    for text in (
        b"{",
        b"[]",
        as_json({"format": "hangscope-bundle/1", "nodes": 5}),
        b"\xff",
        b'{"format": NaN}',
    ):
        evidence = read_bundle_bytes(tar_of(("shards/a.tar.gz", small_shard()), ("manifest.json", text)))
        assert evidence.shards[0].sealed and evidence.job == "train"
        assert "manifest.json is ignored" in evidence.notes[0]

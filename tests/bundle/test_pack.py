import errno
import io
import json
import os
import stat
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from hangscope.bundle import pack
from hangscope.bundle.reader import read_bundle, read_bundle_bytes
from hangscope.errors import BundleError

from .shards import small_shard
from .test_writer import schema

MANIFEST: dict[str, Any] = {
    "tool": "0.1.0",
    "created": 1700000000.5,
    "scheduler": "local",
    "job": "train",
    "ranks": [{"rank": 0, "node": "node-a", "pid": 4711}],
    "nodes": [
        {"name": "node-a", "status": "ok", "reason": None, "clock_offset_s": 0.0},
        {"name": "node-b", "status": "timeout", "reason": "no answer in 60 s"},
    ],
    "redaction": {"masked": 3},
}


@pytest.fixture
def shard(tmp_path: Path) -> str:
    path = tmp_path / "incoming.tar.gz"
    path.write_bytes(small_shard())
    return str(path)


def test_a_tar_bundle_comes_back(tmp_path: Path, shard: str) -> None:
    path = str(tmp_path / "b.tar")
    pack.write_bundle(path, MANIFEST, [("node-a", shard)])
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600 and os.stat(path).st_nlink == 1
    evidence = read_bundle(path)
    assert (evidence.job, evidence.tool_version, evidence.source) == ("train", "0.1.0", path)
    assert evidence.missing_nodes == (("node-b", "no answer in 60 s"),)
    assert [item.name for item in evidence.shards] == ["node-a"] and evidence.shards[0].sealed
    assert evidence.notes == ()
    assert sorted(os.listdir(tmp_path)) == ["b.tar", "incoming.tar.gz"]


def test_the_manifest_fits_its_schema_and_tells_the_checksums(tmp_path: Path, shard: str) -> None:
    pack.write_directory(str(tmp_path / "b"), MANIFEST, [("node-a", shard), ("node-c", shard)])
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text())
    jsonschema.validate(manifest, schema("manifest"))
    assert [node["name"] for node in manifest["nodes"]] == ["node-a", "node-b", "node-c"]
    assert manifest["nodes"][0]["bytes"] == os.path.getsize(shard)
    assert "sha256" not in manifest["nodes"][1]


def test_a_directory_bundle_says_the_same_as_the_tar(tmp_path: Path, shard: str) -> None:
    pack.write_directory(str(tmp_path / "b"), MANIFEST, [("node-a", shard)])
    pack.write_bundle(str(tmp_path / "b.tar"), MANIFEST, [("node-a", shard)])
    one, other = read_bundle(str(tmp_path / "b")), read_bundle(str(tmp_path / "b.tar"))
    assert one.shards == other.shards and one.missing_nodes == other.missing_nodes
    assert stat.S_IMODE(os.stat(tmp_path / "b").st_mode) == 0o700
    assert stat.S_IMODE(os.stat(tmp_path / "b" / "manifest.json").st_mode) == 0o600


def test_the_same_tar_goes_to_a_stream(tmp_path: Path, shard: str) -> None:
    stream = io.BytesIO()
    pack.stream_bundle(stream, MANIFEST, [("node-a", shard)])
    assert read_bundle_bytes(stream.getvalue()).shards[0].name == "node-a"


@pytest.mark.parametrize("write", [pack.write_bundle, pack.write_directory])
def test_nothing_that_exists_is_replaced_or_followed(tmp_path: Path, shard: str, write: Any) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to("elsewhere")
    for name in ("file", "link"):
        with pytest.raises(BundleError, match="exists"):
            write(str(tmp_path / name), MANIFEST, [("node-a", shard)])
    assert (tmp_path / "file").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["file", "incoming.tar.gz", "link"]


@pytest.mark.parametrize("write", [pack.write_bundle, pack.write_directory])
def test_a_failure_leaves_nothing_and_keeps_its_cause(tmp_path: Path, shard: str, write: Any) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(BundleError) as caught:
        write(str(tmp_path / "out" / "b"), MANIFEST, [("node-a", shard), ("node-b", str(tmp_path / "none"))])
    assert isinstance(caught.value.__cause__, OSError) and caught.value.__cause__.errno == errno.ENOENT
    with pytest.raises(ValueError):
        write(str(tmp_path / "out" / "b"), MANIFEST, [("node-a", shard), ("node-a", shard)])
    with pytest.raises(BundleError, match="No such file"):
        write(str(tmp_path / "none" / "b"), MANIFEST, [("node-a", shard)])
    assert os.listdir(tmp_path / "out") == []


def test_a_file_system_without_hard_links(
    tmp_path: Path, shard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_link(source: str, target: str) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_link)
    path = str(tmp_path / "b.tar")
    pack.write_bundle(path, MANIFEST, [("node-a", shard)])
    assert read_bundle(path).shards[0].sealed
    with pytest.raises(BundleError, match="exists"):
        pack.write_bundle(path, MANIFEST, [("node-a", shard)])


def test_a_shard_that_shrinks_while_it_is_packed_still_makes_a_tar() -> None:
    assert b"".join(pack._exactly(io.BytesIO(b"abc"), 5)) == b"abc\0\0"

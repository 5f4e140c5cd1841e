import io
import json
import shutil
import subprocess
import tarfile
import zlib
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

import hangscope.bundle
from hangscope.bundle.reader import read_bundle, read_bundle_bytes, stack_frames
from hangscope.bundle.writer import ShardWriter

from .shards import NODE, SCAN, as_json, frame, realistic_stacks, small_shard

SCHEMAS = Path(hangscope.bundle.__path__[0]) / "schema"


def schema(name: str) -> Any:
    return json.loads((SCHEMAS / f"{name}.schema.json").read_text())


def members(shard: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(shard), mode="r:gz") as tar:
        return {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]


def test_a_shard_is_an_ordinary_tar_with_its_members_in_order() -> None:
    assert list(members(small_shard())) == [
        "node.json",
        "processes.json",
        "s0/threads/pid-4711/threads.json",
        "s0/threads/pid-4711/status.json",
        "intern/frames-0.json",
        "intern/stacks-0.json",
        "s0/stacks/pid-4711/stacks.json",
        "s0/stacks/pid-4711/status.json",
        "s0/gpus/node/status.json",
        "s1/output/pid-4711/a.json",
        "s1/output/pid-4711/b.json",
        "s1/output/pid-4711/status.json",
        "status.json",
    ]


def test_what_the_writer_writes_fits_the_schemas() -> None:
    found = members(small_shard())
    assert len(found) == 13
    for name, data in found.items():
        kind = name.rpartition("/")[2].removesuffix(".json")
        if kind in ("node", "processes", "status"):
            jsonschema.validate(json.loads(data), schema(kind))
    for wrong in ({"status": "fine"}, {"sealed": False, "samples": 1, "abandoned": [], "notes": []}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema("status"))


def test_after_each_member_everything_so_far_can_be_read() -> None:
    stream = io.BytesIO()
    writer = ShardWriter(stream)
    writer.member("node.json", as_json(NODE))
    for sample in range(5):
        writer.cell("locks", sample, None, "ok", None, 0.0, [("locks.json", as_json(sample))])
        plain = zlib.decompressobj(31).decompress(stream.getvalue())
        assert len(plain) % 512 == 0
        assert len(read_bundle_bytes(stream.getvalue()).shards[0].cells) == sample + 1
    assert writer.bytes_written == len(stream.getvalue())


class Narrow(io.RawIOBase):
    """A raw stream that takes three bytes at a time, as a full pipe may."""

    def __init__(self) -> None:
        self.taken = b""

    def write(self, data: Any) -> int:
        self.taken += bytes(data[:3])
        return min(3, len(data))


def test_a_stream_that_takes_little_at_a_time_gets_all() -> None:
    stream = Narrow()
    writer = ShardWriter(stream)  # type: ignore[arg-type]
    writer.member("node.json", as_json(NODE))
    writer.cell("locks", 0, None, "ok", None, 0.0, [("locks.json", bytes(3 << 20))])
    writer.seal(1, [], [])
    assert len(members(stream.taken)["s0/locks/node/locks.json"]) == 3 << 20


def test_breaking_the_format_is_refused_before_anything_is_written() -> None:
    stream = io.BytesIO()
    writer = ShardWriter(stream)
    writer.cell("locks", 0, None, "ok", None, 0.0, [("locks.json", b"{}")])
    before = stream.getvalue()
    with pytest.raises(ValueError, match="before"):
        writer.cell("locks", 0, None, "ok", None, 0.0, [("other.json", b"{}")])
    with pytest.raises(ValueError, match="no place"):
        writer.cell("memory", 0, None, "ok", None, 0.0, [("ok.json", b""), ("../x", b"")])
    with pytest.raises(ValueError, match="reason"):
        writer.cell("memory", 0, None, "error", None, 0.0, [])
    assert stream.getvalue() == before
    writer.seal(1, [], [])
    with pytest.raises(ValueError, match="sealed"):
        writer.member("processes.json", b"{}")


def test_stacks_are_interned_and_rebuilt_without_loss() -> None:
    local = {"name": "group", "addr": 140737353863168, "arg": True, "repr": "<\udc80 ü \U0001f600>"}
    threads = [
        [frame(), frame(name="Worker.run", line=12)],
        [],
        [frame(), frame(name="Worker.run", line=12)],
        [frame(locals=[local]), frame(module="/lib/libc.so.6", line=0, is_entry=True)],
    ]
    stream = io.BytesIO()
    writer = ShardWriter(stream)
    indices = [writer.stack(frames) for frames in threads]
    assert indices == [0, 1, 0, 2]
    writer.cell("stacks", 0, 1, "ok", None, 0.0, [("stacks.json", b"[0]")])
    assert writer.stack([frame(), frame(name="Worker.run", line=12)]) == 0
    assert writer.stack([frame(line=1)]) == 3
    writer.cell("stacks", 1, 1, "ok", None, 0.0, [("stacks.json", b"[3]")])
    shard = read_bundle_bytes(stream.getvalue()).shards[0]
    assert len(shard.frames) == 5
    local["repr"] = "<? ü \U0001f600>"  # half a surrogate pair is no JSON
    for frames, index in zip([*threads, [frame(line=1)]], [*indices, 3], strict=True):
        rebuilt = stack_frames(shard, index)
        assert rebuilt is not None
        assert json.loads(msgspec.json.encode(rebuilt)) == frames
    assert stack_frames(shard, 4) is None and stack_frames(shard, -1) is None


def test_a_rank_of_forty_threads_in_two_samples_stays_small() -> None:
    """DESIGN's number: at most 40 kB compressed, /proc of every thread included."""
    status = Path("/proc/self/status").read_text()
    stat = Path("/proc/self/stat").read_text()
    stream = io.BytesIO()
    writer = ShardWriter(stream)
    writer.member("node.json", as_json(NODE))
    base = writer.bytes_written
    for sample in range(2):
        stacks = realistic_stacks(40, seed=7)
        stacks[0] = stacks[0][sample:]
        rows = [{"os_thread_id": 4711 + n, "stack": writer.stack(s)} for n, s in enumerate(stacks)]
        writer.cell("stacks", sample, 4711, "ok", None, 0.1, [("stacks.json", as_json({"threads": rows}))])
        threads = [
            {
                "tid": 4711 + n,
                "status": status.replace("0", str(n % 10)),
                "stat": stat,
                "schedstat": f"{n * 7919} {n} 4",
            }
            for n in range(40)
        ]
        writer.cell("threads", sample, 4711, "ok", None, 0.1, [("threads.json", as_json(threads))])
    assert writer.bytes_written - base <= 40_000


def python38() -> str | None:
    """An interpreter of the oldest version that the agent runs on, when there is one."""
    candidates = [
        shutil.which("python3.8"),
        *sorted(map(str, Path.home().glob(".pyenv/versions/3.8.*/bin/python"))),
    ]
    for candidate in candidates:
        if candidate is not None:
            done = subprocess.run(
                [candidate, "-c", "import sys; print(sys.version_info[1])"], capture_output=True
            )
            if done.stdout.strip() == b"8":
                return candidate
    return None


def test_the_writer_runs_on_the_oldest_python_that_a_node_may_have(tmp_path: Path) -> None:
    python = python38()
    if python is None:
        pytest.skip("no Python 3.8 here")
    program = f"""
import json, sys
sys.path.insert(0, {str(Path(hangscope.__path__[0]).parent)!r})
from hangscope.bundle.writer import ShardWriter
from hangscope.bundle.pack import write_bundle
path = {str(tmp_path)!r}
with open(path + "/s.tar.gz", "wb") as stream:
    writer = ShardWriter(stream)
    writer.member("node.json", {as_json(NODE)!r})
    writer.member("processes.json", {as_json(SCAN)!r})
    writer.cell("locks", 0, None, "ok", None, 0.1, [("locks.json", b"{{}}")])
    writer.seal(1, [], [])
write_bundle(path + "/b.tar", {{"job": "train", "nodes": []}}, [("node-a", path + "/s.tar.gz")])
"""
    subprocess.run([python, "-I", "-S", "-c", program], check=True)
    evidence = read_bundle(str(tmp_path / "b.tar"))
    assert evidence.job == "train" and evidence.shards[0].sealed

"""Builds shards for the tests: small real ones through the writer, hostile ones by hand."""

import gzip
import io
import json
import random
import tarfile
from typing import Any

from hangscope.bundle import layout
from hangscope.bundle.writer import ShardWriter

NODE: dict[str, Any] = {
    "format": layout.FORMAT,
    "host": "node-a",
    "boot_id": "6b1c",
    "pid_namespace": "pid:[4026531836]",
    "kernel": "6.1.0",
    "machine": "x86_64",
    "wall": 1700000000.0,
    "monotonic": 5000.0,
    "clock_ticks": 100,
    "page_size": 4096,
    "agent_version": "0.1.0",
    "agent_pid": 77,
    "agent_uid": 0,
    "python": "3.8.18",
}

SCAN: dict[str, Any] = {
    "job": "train",
    "complete": True,
    "processes": [
        {
            "pid": 4711,
            "ppid": 1,
            "start_ticks": 9,
            "comm": "python",
            "role": "rank",
            "rank": 0,
            "nspid": [4711],
        }
    ],
}

FRAME: dict[str, Any] = {
    "name": "wait",
    "filename": "/usr/lib/python3.11/threading.py",
    "module": None,
    "short_filename": "threading.py",
    "line": 320,
    "locals": None,
    "is_entry": False,
    "is_shim_entry": True,
}


def frame(**changes: Any) -> dict[str, Any]:
    return {**FRAME, **changes}


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def small_shard(seal: bool = True) -> bytes:
    """A whole shard in which everything occurs once."""
    stream = io.BytesIO()
    writer = ShardWriter(stream)
    writer.member("node.json", as_json(NODE))
    writer.member("processes.json", as_json(SCAN))
    writer.cell("threads", 0, 4711, "ok", None, 0.25, [("threads.json", b'{"pid": 4711}')])
    index = writer.stack([frame(), frame(name="run", line=7)])
    writer.cell("stacks", 0, 4711, "ok", None, 0.5, [("stacks.json", as_json({"stack": index}))])
    writer.cell("gpus", 0, None, "absent", "no driver", 0.0, [])
    writer.member("processes.json", as_json({**SCAN, "complete": False}))
    writer.cell("output", 1, 4711, "partial", "cut", 0.1, [("a.json", b"{}"), ("b.json", b"[1]")])
    if seal:
        writer.seal(2, [99], ["one note"])
    return stream.getvalue()


def tar_of(*members: "tuple[str | tarfile.TarInfo, bytes]", form: int = tarfile.USTAR_FORMAT) -> bytes:
    """A tar by the standard library, with whatever members a test wants."""
    stream = io.BytesIO()
    with tarfile.open(
        fileobj=stream, mode="w", format=form, encoding="utf-8", errors="surrogateescape"
    ) as tar:
        for name, data in members:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def shard_of(*members: "tuple[str | tarfile.TarInfo, bytes]", form: int = tarfile.USTAR_FORMAT) -> bytes:
    """A gzipped shard: a valid ``node.json``, then the members."""
    return gzip.compress(tar_of(("node.json", as_json(NODE)), *members, form=form))


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    return info


def realistic_stacks(threads: int, seed: int) -> list[list[dict[str, Any]]]:
    """Stacks as a training process has them: most threads idle in a few places, some deep and their own."""
    rng = random.Random(seed)
    files = [f"/opt/conda/lib/python3.11/site-packages/torch/pkg{n}/module_{n}.py" for n in range(40)]

    def call(depth: int) -> dict[str, Any]:
        number = rng.randrange(40)
        return frame(
            name=f"Module{number}.forward_{depth % 7}",
            filename=files[number],
            short_filename=f"module_{number}.py",
            line=rng.randrange(20, 900),
        )

    idle = [[frame(), *(call(depth) for depth in range(4))] for _ in range(5)]
    deep = [[call(depth) for depth in range(rng.randrange(20, 60))] for _ in range(threads // 4)]
    return deep + [idle[n % 5] for n in range(threads - len(deep))]

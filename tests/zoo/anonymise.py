"""Takes the recording machine out of a recorded bundle: its paths, its cgroup, its kernel log, its variables.

What the verdict rests on stays byte for byte: only names of places are replaced, the kernel log is emptied,
and environment variables whose values were masked anyway are left out.
"""

from __future__ import annotations

import gzip
import io
import json
import pathlib
import re
import sys
import tarfile
import tempfile

from hangscope.bundle.pack import write_bundle

Pairs = list[tuple[bytes, bytes]]


def anonymise(source: pathlib.Path, target: pathlib.Path) -> None:
    """Writes ``source`` to ``target`` (which must not exist) without what only concerns this machine."""
    pairs = places()
    with tempfile.TemporaryDirectory() as folder, tarfile.open(source) as bundle:
        shards = []
        manifest: dict[str, object] = {}
        for member in bundle.getmembers():
            stream = bundle.extractfile(member)
            assert stream is not None, member.name
            data = stream.read()
            if member.name == "manifest.json":
                manifest = json.loads(replaced(data, pairs))
                continue
            path = pathlib.Path(folder) / str(len(shards))
            path.write_bytes(shard(data, pairs))
            shards.append((member.name.removeprefix("shards/").removesuffix(".tar.gz"), str(path)))
        write_bundle(str(target), manifest, shards)


def places() -> Pairs:
    """(what to replace, by what), longest first."""
    root = pathlib.Path(__file__).parents[2]
    base = pathlib.Path(sys.base_prefix)
    pairs = {str(root): "/opt/hangscope", sys.prefix: "/opt/venv", str(base): "/usr/local/python"}
    if base.parent.name == "versions":  # pyenv
        pairs[str(base.parent.parent)] = "/usr/local/pyenv"
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        parts = pathlib.PurePosixPath(line.split(":", 2)[2]).parts[1:]
        for depth in range(len(parts)):
            pairs["/" + "/".join(parts[: depth + 1])] = "/site" + "/nested" * depth
    return sorted(
        ((old.encode(), new.encode()) for old, new in pairs.items()), key=lambda pair: -len(pair[0])
    )


def replaced(data: bytes, pairs: Pairs) -> bytes:
    for old, new in pairs:
        data = data.replace(old, new)
    return data


def shard(data: bytes, pairs: Pairs) -> bytes:
    """The shard with every member rewritten, in the same order."""
    buffer = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(gzip.decompress(data))) as old,
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as new,
    ):
        for member in old.getmembers():
            stream = old.extractfile(member)
            assert stream is not None, member.name
            content = cleaned(member.name, replaced(stream.read(), pairs))
            info = tarfile.TarInfo(member.name)
            info.size, info.mode, info.mtime = len(content), 0o600, member.mtime
            new.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def cleaned(name: str, content: bytes) -> bytes:
    if name.endswith("/kernel.txt"):
        return b""
    if name.endswith("/environment.json"):
        document = json.loads(content)
        document["variables"] = {
            key: value for key, value in document["variables"].items() if wanted(key, str(value))
        }
        return json.dumps(document).encode()
    return content


def wanted(key: str, value: str) -> bool:
    """Variables of the job, not of the machine that ran it."""
    shape = r"(RANK|LOCAL_|WORLD_|GROUP_|ROLE_|MASTER_|TORCH|NCCL_|GLOO_|CUDA_|OMP_|PYTHON|DS_)"
    masked = value.startswith("<redacted") or key.endswith("_DIR")
    return not masked and re.match(shape, key) is not None

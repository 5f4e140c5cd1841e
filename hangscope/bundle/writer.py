"""Writes one node's shard: a gzip stream of a tar that can be read however far it got.

Python >= 3.8, standard library only, and light: it runs inside the memory limit of the job that is stuck.
"""

import json
import time
import zlib
from typing import Any, BinaryIO, Dict, List, Optional, Sequence, Set, Tuple

from . import layout, tarblocks

SLICE = 1 << 20
"""Bytes handed to the compressor at a time, so that a large artifact is never held twice."""


class ShardWriter:
    """Streams members to any binary writable: a file, a pipe, standard output.

    Behind each member stands a full zlib flush, and the stream is flushed: what was written can be read when
    the stream ends at any later byte. Errors of the stream (a full disk, a closed pipe) come out as OSError;
    ValueError means that the caller broke the format (a name without a place, a cell that was there before).
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._deflate = zlib.compressobj(6, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        self._written: Set[str] = set()
        self._tables = {"frames": _Table("frames"), "stacks": _Table("stacks")}
        self._sealed = False
        self.bytes_written = 0
        """Compressed bytes so far."""

    def member(self, name: str, data: bytes) -> None:
        """Writes one member and flushes. Table entries that it could refer to are written first."""
        self._check(name)
        for table in ("frames", "stacks"):
            path, entries = self._tables[table].take()
            if entries:
                self._append(path, _json(entries))
        self._append(name, data)

    def cell(
        self,
        collector: str,
        sample: int,
        pid: Optional[int],
        status: str,
        reason: Optional[str],
        seconds: float,
        artifacts: Sequence[Tuple[str, bytes]],
    ) -> None:
        """Writes the artifacts of one cell, then its status with the clocks as they stand now.

        ``pid`` is None for a cell of the node; ``seconds`` is how long the collector took; ``reason`` may be
        None only when ``status`` is ok.
        """
        folder = layout.cell_path(sample, collector, pid)
        if reason is None and status != "ok":
            raise ValueError(f"{folder}: a cell that is {status} needs a reason")
        for name in [name for name, _ in artifacts] + [layout.STATUS]:
            self._check(f"{folder}/{name}")
        for name, data in artifacts:
            self.member(f"{folder}/{name}", data)
        record = {
            "status": status,
            "reason": reason,
            "seconds": round(seconds, 6),
            "wall": time.time(),
            "monotonic": time.monotonic(),
            "artifacts": [name for name, _ in artifacts],
        }
        self.member(f"{folder}/{layout.STATUS}", _json(record))

    def stack(self, frames: List[Dict[str, Any]]) -> int:
        """Interns a stack (frames as py-spy prints them, innermost first) and returns its table index.

        Equal frames and equal stacks are stored once. New entries go out before the next member.
        """
        indices = [self._tables["frames"].index(_json(frame), frame) for frame in frames]
        return self._tables["stacks"].index(_json(indices), indices)

    def seal(self, samples: int, abandoned: List[int], notes: List[str]) -> None:
        """Ends the shard: the agent finished. ``abandoned`` are pids of children that cannot be killed."""
        record = {"sealed": True, "samples": samples, "abandoned": abandoned, "notes": notes}
        self.member(layout.SEAL, _json(record))
        self._sealed = True
        self._send(self._deflate.compress(tarblocks.END) + self._deflate.flush(zlib.Z_FINISH))
        self._stream.flush()

    def _check(self, name: str) -> None:
        """Refuses what a reader would drop."""
        if self._sealed:
            raise ValueError(f"{name}: the shard is sealed")
        if layout.place_of(name) is None:
            raise ValueError(f"{name!r} has no place in a shard")
        if name in self._written and name != layout.PROCESSES:
            raise ValueError(f"{name} was written before")

    def _append(self, name: str, data: bytes) -> None:
        self._written.add(name)
        self._send(self._deflate.compress(tarblocks.header(name, len(data), int(time.time()))))
        view = memoryview(data)
        for start in range(0, len(data), SLICE):
            self._send(self._deflate.compress(view[start : start + SLICE]))
        self._send(self._deflate.compress(tarblocks.padding(len(data))))
        self._send(self._deflate.flush(zlib.Z_FULL_FLUSH))
        self._stream.flush()

    def _send(self, data: bytes) -> None:
        """Writes all of it: a raw file or pipe may take less at a time."""
        self.bytes_written += len(data)
        view = memoryview(data)
        while view:
            taken = self._stream.write(view)
            view = view[len(view) if taken is None else taken :]


class _Table:
    """An append-only list whose entries are found again by their JSON text."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._indices: Dict[bytes, int] = {}
        self._pending: List[Any] = []

    def index(self, key: bytes, entry: Any) -> int:
        found = self._indices.get(key)
        if found is None:
            found = self._indices[key] = len(self._indices)
            self._pending.append(entry)
        return found

    def take(self) -> Tuple[str, List[Any]]:
        """The part that was not written yet: its path and entries."""
        entries, self._pending = self._pending, []
        return layout.intern_path(self._name, len(self._indices) - len(entries)), entries


def _json(value: Any) -> bytes:
    """Compact JSON that every reader takes: no NaN (ValueError), and no half of a surrogate pair (``?``)."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.encode("utf-8", "replace")

"""``locks/node/locks.json``: /proc/locks. A second line of the same number with an arrow is a blocked waiter.

>>> sample = (b'{"locks": "1: FLOCK  ADVISORY  WRITE 41 fe:00:123 0 EOF\\\\n'
...   b'1: -> FLOCK  ADVISORY  WRITE 42 fe:00:123 0 EOF\\\\n"}')
>>> lock = read(sample, "x").locks[0]
>>> lock.holder_pid, lock.waiter_pids, lock.device_inode
(41, (42,), 'fe:00:123')
"""

from __future__ import annotations

import re

import msgspec

from hangscope.model.facts import FileLock, Ref

from .raw import decode

LINE = re.compile(
    r"^\s*(?P<id>\d{1,9}):\s+(?P<wait>->\s+)?(?P<kind>\w+)\s+\S+\s+(?P<mode>\w+)\s+(?P<pid>-?\d{1,10})\s+"
    r"(?P<inode>[0-9a-fA-F]+:[0-9a-fA-F]+:\d+)"
)


class _RawLocks(msgspec.Struct):
    locks: str | None


class LockTable(msgspec.Struct, frozen=True):
    """Locks of the whole node, holders first met first; paths are not known here."""

    locks: tuple[FileLock, ...]


def read(data: bytes, path: str) -> LockTable:
    """One FileLock a lock number. Locks of open file descriptions have the holder -1."""
    raw = decode(data, _RawLocks, path)
    found: dict[str, FileLock] = {}
    for index, text in enumerate((raw.locks or "").splitlines(), 1):
        line = LINE.match(text[:400])
        if line is None:
            continue
        pid = int(line["pid"])
        known = found.get(line["id"])
        if not line["wait"]:
            found[line["id"]] = FileLock(
                node="",
                kind=f"{line['kind']} {line['mode']}",
                holder_pid=pid,
                waiter_pids=(),
                device_inode=line["inode"],
                ref=Ref(path, index),
            )
        elif known is not None:
            found[line["id"]] = msgspec.structs.replace(known, waiter_pids=(*known.waiter_pids, pid))
    return LockTable(tuple(found.values()))

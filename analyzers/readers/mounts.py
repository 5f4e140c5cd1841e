"""``mounts/node/mounts.json``: the mounts that the job works on, each asked in a child that may be abandoned.

>>> sample = b'''{"mounts": [{"path": "/data", "fstype": "nfs4", "source": "srv:/x", "pids": [41],
...   "why": "cwd", "statvfs": null, "error": "timeout", "responsive": false}]}'''
>>> read(sample, "x").mounts[0].responsive
False
"""

from __future__ import annotations

import msgspec

from hangscope.model.facts import Mount

from .raw import decode


class _RawMount(msgspec.Struct):
    path: str
    fstype: str | None = None
    source: str | None = None
    statvfs: dict[str, object] | None = None
    error: str | None = None
    responsive: bool | None = None


class _RawMounts(msgspec.Struct):
    mounts: list[_RawMount]


class MountTable(msgspec.Struct, frozen=True):
    mounts: tuple[Mount, ...]


def read(data: bytes, path: str) -> MountTable:
    """``responsive``: True when statvfs answered, False when it did not in time, None when it was refused."""
    raw = decode(data, _RawMounts, path)
    return MountTable(
        tuple(
            Mount(
                node="",
                path=item.path,
                fstype=item.fstype or "?",
                source=item.source or "?",
                responsive=_responsive(item),
            )
            for item in raw.mounts
        )
    )


def _responsive(item: _RawMount) -> bool | None:
    if item.responsive is not None or item.statvfs is None:
        return item.responsive
    return True

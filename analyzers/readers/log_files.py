"""``output/pid-N/output.json``, ``nccl_log/pid-N/nccl_log.json``: size, mtime and masked tail of log files.

>>> sample = (b'{"files": [{"fd": 1, "path": "/job/out", "size": 10, "mtime": 5.5, "position": 10,'
...   b'"tail": "step 3"}]}')
>>> read_output(sample, "x").files[0].tail
'step 3'
"""

from __future__ import annotations

import msgspec

from .raw import decode


class LogFile(msgspec.Struct, frozen=True, kw_only=True):
    """``mtime``: wall seconds; ``tail`` None: not taken in this sample."""

    fd: int | None = None
    path: str | None = None
    size: int | None = None
    mtime: float | None = None
    position: int | None = None
    tail: str | None = None
    error: str | None = None


class OutputTable(msgspec.Struct, frozen=True):
    files: tuple[LogFile, ...]


class NcclLogTable(msgspec.Struct, frozen=True):
    files: tuple[LogFile, ...]


def read_output(data: bytes, path: str) -> OutputTable:
    """The regular files behind stdout and stderr."""
    return decode(data, OutputTable, path)


def read_nccl(data: bytes, path: str) -> NcclLogTable:
    """The files that NCCL_DEBUG_FILE names."""
    return decode(data, NcclLogTable, path)

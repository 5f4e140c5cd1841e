"""``memory/node/memory.json``: host memory, and the memory cgroups of the job with all their ancestors.

>>> sample = b'''{"meminfo": "MemTotal: 100 kB\\\\nMemAvailable: 60 kB\\\\n",
...   "pressure": {"memory": "some avg10=1.50 total=1"}, "shm": {"path": "/dev/shm", "total": 9, "used": 2},
...   "cgroups": [{"path": "/job", "version": 1, "level": 0, "pids": [41], "files": {
...   "memory.limit_in_bytes": "4096", "memory.usage_in_bytes": "4096", "memory.failcnt": "7",
...   "memory.oom_control": "oom_kill_disable 1\\\\nunder_oom 1\\\\noom_kill 0"}}]}'''
>>> table = read(sample, "x")
>>> table.total, table.cgroups[0].limit, table.cgroups[0].under_oom, table.cgroups[0].oom_kill_disable
(102400, 4096, True, True)
"""

from __future__ import annotations

import msgspec

from hangscope.model.facts import MemoryCgroup, Ref

from .raw import decode, fields, number, pressure

NO_LIMIT = 1 << 62
"""cgroup v1 writes "no limit" as the largest page-aligned signed 64-bit number."""


class _RawCgroup(msgspec.Struct):
    path: str
    version: int = 2
    level: int = 0
    pids: list[int] = []
    files: dict[str, str | None] = {}


class _RawShm(msgspec.Struct):
    path: str | None = None
    total: int | None = None
    used: int | None = None


class _RawMemory(msgspec.Struct):
    meminfo: str | None = None
    pressure: dict[str, str | None] | None = None
    cgroups: list[_RawCgroup] | None = None
    shm: _RawShm | None = None


class MemoryTable(msgspec.Struct, frozen=True, kw_only=True):
    """One node's memory in one sample; bytes and percentages. The cgroups' sample is set to 0."""

    total: int | None
    available: int | None
    shm_total: int | None
    shm_used: int | None
    pressure_memory: float | None
    pressure_io: float | None
    cgroups: tuple[MemoryCgroup, ...]
    ref: Ref


def read(data: bytes, path: str) -> MemoryTable:
    """Host memory and cgroups in the artifact's order."""
    raw = decode(data, _RawMemory, path)
    info = fields(raw.meminfo)
    shm = raw.shm or _RawShm()
    stalls = raw.pressure or {}
    return MemoryTable(
        total=_kilobytes(info.get("MemTotal")),
        available=_kilobytes(info.get("MemAvailable")),
        shm_total=shm.total,
        shm_used=shm.used,
        pressure_memory=pressure(stalls.get("memory")),
        pressure_io=pressure(stalls.get("io")),
        cgroups=tuple(_cgroup(item, path) for item in raw.cgroups or ()),
        ref=Ref(path),
    )


def _kilobytes(text: str | None) -> int | None:
    value = number(text)
    return None if value is None else value * 1024


def _cgroup(raw: _RawCgroup, path: str) -> MemoryCgroup:
    one = raw.version == 1
    files = raw.files
    control = fields(files.get("memory.oom_control"), " ")
    events = fields(files.get("memory.events"), " ")
    return MemoryCgroup(
        path=raw.path,
        version=raw.version,
        sample=0,
        level=raw.level,
        pids=tuple(raw.pids),
        limit=_limit(files.get("memory.limit_in_bytes" if one else "memory.max")),
        high=None if one else _limit(files.get("memory.high")),
        usage=number(files.get("memory.usage_in_bytes" if one else "memory.current")),
        failcnt=number(files.get("memory.failcnt")) if one else None,
        oom_kill_disable=_flag(control.get("oom_kill_disable")),
        under_oom=_flag(control.get("under_oom")),
        oom_kills=number(control.get("oom_kill") if one else events.get("oom_kill")),
        high_events=number(events.get("high")),
        max_events=number(events.get("max")),
        pressure_some_avg10=pressure(files.get("memory.pressure")),
        ref=Ref(path),
    )


def _limit(text: str | None) -> int | None:
    """None for ``max`` and for version 1's "no limit"."""
    value = number(text)
    return None if value is None or value >= NO_LIMIT else value


def _flag(text: str | None) -> bool | None:
    value = number(text)
    return None if value is None else value != 0

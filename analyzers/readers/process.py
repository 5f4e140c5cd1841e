"""``process/pid-N/process.json``: one process as the kernel shows it, with its open files.

>>> sample = b'''{"pid": 41, "stat": "41 (python3) Z 1 41 41 0 -1 0 0 0 0 0 1 2 0 0 20 0 1 0 900 0 0",
...   "statm": "100 25 3 1 0 9 0", "io": "rchar: 10\\\\nread_bytes: 4096\\\\n", "cwd": "/data",
...   "fds": [{"fd": 5, "target": "pipe:[77]", "pos": 0, "flags": "0100001"}], "freezer": "FROZEN"}'''
>>> facts = read(sample, "shard!process.json")
>>> facts.state, facts.resident_pages, facts.files[0].flags & 3, facts.frozen, facts.io_read
('Z', 25, 1, True, 4096)
"""

from __future__ import annotations

import msgspec

from hangscope.model.facts import OpenFile, Ref

from .raw import decode, fields, number, stat_line


class _RawFile(msgspec.Struct):
    fd: int
    target: str | None = None
    pos: int | str | None = None
    flags: int | str | None = None
    lock: str | list[str] | None = None


class _RawProcess(msgspec.Struct):
    pid: int
    stat: str | None = None
    status: str | None = None
    statm: str | None = None
    io: str | None = None
    cwd: str | None = None
    exe: str | None = None
    cmdline: list[str] | None = None
    fds: list[_RawFile] | None = None
    freezer: str | None = None
    mapped_gpu: list[str] | None = None


class ProcessFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One process in one sample. io in bytes, resident set in pages."""

    pid: int
    state: str
    comm: str
    ppid: int | None
    resident_pages: int | None
    io_read: int | None
    io_write: int | None
    exit_code: int | None
    """Wait status (stat field 52) of a zombie; None while it lives."""
    frozen: bool
    files: tuple[OpenFile, ...]
    locked: tuple[tuple[str, str], ...]
    """(fdinfo's ``lock:`` line, path) of the files it holds a lock on."""
    gpu_devices: tuple[str, ...]
    """``/dev/nvidia3`` and the like, open or mapped."""
    cwd: str | None
    exe: str | None
    arguments: tuple[str, ...] | None
    ref: Ref


def read(data: bytes, path: str) -> ProcessFacts:
    """The process; its open files in the order of their numbers as listed."""
    raw = decode(data, _RawProcess, path)
    stat = stat_line(raw.stat)
    status = fields(raw.status)
    io = fields(raw.io)
    state = stat.state if stat else status.get("State", "?")[:1] or "?"
    pages = (raw.statm or "").split()
    files = tuple(_open_file(item) for item in raw.fds or ())
    return ProcessFacts(
        pid=raw.pid,
        state=state,
        comm=stat.comm if stat else status.get("Name", ""),
        ppid=stat.ppid if stat else number(status.get("PPid")),
        resident_pages=number(pages[1]) if len(pages) > 1 else None,
        io_read=number(io.get("read_bytes")),
        io_write=number(io.get("write_bytes")),
        exit_code=stat.exit_code if stat and state in "ZX" else None,
        frozen=(raw.freezer or "").strip() in ("FROZEN", "FREEZING"),
        files=files,
        locked=tuple(_locks(raw.fds or [])),
        gpu_devices=_devices(files, raw.mapped_gpu or []),
        cwd=raw.cwd,
        exe=raw.exe,
        arguments=None if raw.cmdline is None else tuple(raw.cmdline),
        ref=Ref(path),
    )


def _open_file(raw: _RawFile) -> OpenFile:
    """fdinfo prints flags in octal; a collector may pass them as text or as a number."""
    flags = number(raw.flags, 8) if isinstance(raw.flags, str) else raw.flags
    return OpenFile(fd=raw.fd, target=raw.target or "", position=number(raw.pos), flags=flags)


def _locks(files: list[_RawFile]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for item in files:
        lines = [item.lock] if isinstance(item.lock, str) else item.lock or []
        found.extend((line, item.target or "") for text in lines for line in text.splitlines())
    return found


def _devices(files: tuple[OpenFile, ...], mapped: list[str]) -> tuple[str, ...]:
    names = {item.target for item in files} | set(mapped)
    return tuple(sorted(name for name in names if name.startswith("/dev/nvidia") and name[11:].isdigit()))

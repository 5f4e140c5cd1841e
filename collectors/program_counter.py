"""Where a thread that nothing can attach to stands in its native code: module + offset, and the symbol.

``/proc/PID/task/TID/syscall`` ends in the program counter of a blocked thread, also of one in a page fault
(number -1); ``maps`` tells the module. No ptrace stop is needed. Python >= 3.8.
"""

import os
import stat
import struct
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from . import guarded, procfs
from .interface import Context

BUDGET = 2.0
MOST = 64
"""Threads of one process that are looked up."""
TABLE_CAP = 1 << 20
"""Bytes of a symbol table, or string table, that is still read: libc's is 50 kB, libtorch's 20 MB."""


class Mapping(NamedTuple):
    start: int
    end: int
    path: str


def of_blocked(pid: int, tids: Sequence[int], ctx: Context) -> Dict[str, str]:
    """``{"<tid>": "libc.so.6+0x98109"}``, with `` (symbol)`` behind it where the module's own table of
    exported symbols covers the place. Threads that run, or may not be read, are left out."""
    counters = {}
    for tid in tids[:MOST]:
        counter = read_counter(pid, tid, ctx.proc)
        if counter is not None:
            counters[str(tid)] = counter
    if not counters:
        return {}
    timeout = ctx.remaining(BUDGET)
    outcome = guarded.call(_places, ctx.proc, pid, counters, timeout=timeout)
    places = outcome.value if isinstance(outcome.value, list) else []
    return dict(places)


def read_counter(pid: int, tid: int, proc: str = "/proc") -> Optional[int]:
    """The user program counter of a blocked thread; None when it runs or may not be read."""
    words = (procfs.read_text(f"{proc}/{pid}/task/{tid}/syscall", 4096)[0] or "").split()
    if len(words) < 3:
        return None
    try:
        return int(words[-1], 16)
    except ValueError:
        return None


def _places(proc: str, pid: int, counters: Dict[str, int]) -> Iterator[Tuple[str, str]]:
    """Runs in the killable child: ``maps`` may wait for ever, and so may the file system of a module."""
    text, _ = procfs.read_text(f"{proc}/{pid}/maps", 32 << 20)
    mappings = parse_maps(text or "")
    offsets = {tid: locate(counter, mappings) for tid, counter in counters.items()}
    for tid, found in offsets.items():
        if found is not None:
            yield tid, f"{os.path.basename(found[0])}+0x{found[1]:x}"
    for tid, found in offsets.items():
        symbol = None if found is None else _symbol(f"{proc}/{pid}/root{found[0]}", found[1])
        if found is not None and symbol is not None:
            yield tid, f"{os.path.basename(found[0])}+0x{found[1]:x} ({symbol})"


def parse_maps(text: str) -> List[Mapping]:
    """The mappings of files, in order of address.

    >>> parse_maps("7f00-7f10 r-xp 00001000 08:01 5    /usr/lib/libc.so.6")
    [Mapping(start=32512, end=32528, path='/usr/lib/libc.so.6')]
    """
    mappings = []
    for line in text.splitlines():
        words = line.split(None, 5)
        if len(words) == 6 and words[5].startswith("/"):
            start, _, end = words[0].partition("-")
            mappings.append(Mapping(int(start, 16), int(end, 16), words[5]))
    return mappings


def locate(counter: int, mappings: Sequence[Mapping]) -> Optional[Tuple[str, int]]:
    """(module, offset from where the module is loaded), or None for memory that no file backs."""
    for mapping in mappings:
        if mapping.start <= counter < mapping.end:
            base = min(other.start for other in mappings if other.path == mapping.path)
            return mapping.path, counter - base
    return None


def _symbol(path: str, offset: int) -> Optional[str]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return exported_symbol(descriptor, offset)
    except (OSError, OverflowError, struct.error, ValueError, IndexError):
        return None
    finally:
        os.close(descriptor)


def exported_symbol(descriptor: int, offset: int) -> Optional[str]:
    """The function of an ELF file's ``.dynsym`` whose extent covers ``offset``; None when none does, and for
    anything but a 64-bit little-endian ELF file with small tables. Raises struct.error for a broken file."""
    head = os.pread(descriptor, 64, 0)
    if head[:6] != b"\x7fELF\x02\x01":
        return None
    (sections_at,) = struct.unpack_from("<Q", head, 40)
    size, count = struct.unpack_from("<HH", head, 58)
    if size * count > TABLE_CAP:
        return None
    table = os.pread(descriptor, size * count, sections_at)
    sections: List[Tuple[Any, ...]] = [
        struct.unpack_from("<IIQQQQIIQQ", table, size * i) for i in range(count)
    ]
    symbols = next((section for section in sections if section[1] == 11), None)  # SHT_DYNSYM
    if symbols is None or symbols[5] > TABLE_CAP:
        return None
    strings = sections[symbols[6]]
    if strings[5] > TABLE_CAP:
        return None
    names = os.pread(descriptor, strings[5], strings[4])
    for name, info, _, _, value, extent in struct.iter_unpack("<IBBHQQ", _whole(descriptor, symbols)):
        if info & 15 == 2 and value <= offset < value + extent:  # STT_FUNC
            return names[name : names.index(b"\0", name)].decode("ascii", "replace")
    return None


def _whole(descriptor: int, section: Tuple[Any, ...]) -> bytes:
    data = os.pread(descriptor, section[5], section[4])
    return data[: len(data) // 24 * 24]

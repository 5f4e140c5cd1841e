"""Reads a variable of a live process by its symbol, through ``/proc/PID/mem``: no attach, no pause.

Nothing is read from disk but, for static executables, the executable itself: the dynamic linker's own tables
are in the process. Its list of loaded objects (``r_debug``, <link.h>) is walked in load order, which is the
order in which the linker itself looks a symbol up, so a copy relocation in the executable (Debian's python3)
is found before libc's unused original. 64-bit little-endian ELF; glibc and musl. All of it may block for ever
on a stuck mmap_lock: run it in a guarded child. Python >= 3.8, standard library only.
"""

import os
import struct
from typing import Dict, Iterator, NamedTuple, Optional, Tuple

AT_PHDR, AT_PHENT, AT_PHNUM = 3, 4, 5
PT_LOAD, PT_DYNAMIC = 1, 2
ELF_HEADER = 64
"""Bytes before the program headers, wherever a linker has written the file."""
DT_HASH, DT_STRTAB, DT_SYMTAB, DT_DEBUG, DT_GNU_HASH = 4, 5, 6, 21, 0x6FFFFEF5
SHT_SYMTAB = 2
MOST_OBJECTS = 4096
MOST_SYMBOLS = 1 << 16
TABLE_CAP = 64 << 20
"""Bytes of a static executable's symbol or string table that are still read."""


class NotFound(LookupError):
    """The process has no such symbol, or its tables are not in the form known here."""


class Memory:
    """The address space of a process. Every read raises OSError where nothing is mapped or allowed."""

    def __init__(self, place: str) -> None:
        self.descriptor = os.open(f"{place}/mem", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self.descriptor)

    def read(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes at ``address``, fewer where the mapping ends."""
        if not 0 < address < 1 << 63:
            raise NotFound(f"no memory at {address:#x}")
        return os.pread(self.descriptor, size, address)

    def unpack(self, layout: str, address: int) -> Tuple[int, ...]:
        """Unpacks a struct format (little-endian) at ``address``."""
        size = struct.calcsize("<" + layout)
        data = self.read(address, size)
        if len(data) < size:
            raise NotFound(f"the memory at {address:#x} ends early")
        return struct.unpack("<" + layout, data)

    def string(self, address: int, cap: int = 1 << 17) -> bytes:
        """The bytes up to the next NUL, at most ``cap``."""
        found = b""
        while len(found) < cap:
            chunk = self.read(address + len(found), 256)
            if not chunk:
                break
            head, end, _ = chunk.partition(b"\0")
            found += head
            if end:
                break
        return found[:cap]


class LoadedObject(NamedTuple):
    """``bias``: what is added to the file's addresses. ``tags``: its dynamic section."""

    bias: int
    tags: Dict[int, int]


def symbol_address(memory: Memory, place: str, name: bytes) -> int:
    """The address of a data symbol as the program itself sees it. ``place`` is ``/proc/PID``.

    Raises NotFound, or OSError for what may not be read.
    """
    bias, dynamic = _executable(memory, place)
    if dynamic is not None:
        for loaded in _loaded_objects(memory, bias, dynamic):
            address = _exported(memory, loaded, name)
            if address is not None:
                return address
    return bias + _in_symbol_table(f"{place}/exe", name)


def _executable(memory: Memory, place: str) -> Tuple[int, Optional[int]]:
    """(load bias, address of the dynamic section or None) of the main program, by the auxiliary vector."""
    descriptor = os.open(f"{place}/auxv", os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
    vector = dict(struct.iter_unpack("<QQ", data[: len(data) // 16 * 16]))
    table, size, count = vector.get(AT_PHDR, 0), vector.get(AT_PHENT, 0), vector.get(AT_PHNUM, 0)
    if size != 56 or not 0 < count < 256:
        raise NotFound("not a 64-bit ELF program")
    bias, dynamic = 0, None
    for number in range(count):
        kind, _, offset, address = memory.unpack("IIQQ", table + number * size)
        if kind == PT_LOAD and offset == 0:
            bias = table - ELF_HEADER - address
        elif kind == PT_DYNAMIC:
            dynamic = address
    return bias, None if dynamic is None else bias + dynamic


def _loaded_objects(memory: Memory, bias: int, dynamic: int) -> Iterator[LoadedObject]:
    """The program and its libraries in the linker's lookup order; the program alone if there is no list."""
    tags = _tags(memory, dynamic)
    debug = tags.get(DT_DEBUG, 0)
    entry = memory.unpack("Q", debug + 8)[0] if debug else 0
    if not entry:
        yield LoadedObject(bias, tags)
    for _ in range(MOST_OBJECTS):
        if not entry:
            return
        base, _, section, entry = memory.unpack("QQQQ", entry)
        yield LoadedObject(base, _tags(memory, section))


def _tags(memory: Memory, address: int) -> Dict[int, int]:
    tags: Dict[int, int] = {}
    for number in range(512):
        tag, value = memory.unpack("QQ", address + number * 16)
        if tag == 0:
            break
        tags.setdefault(tag, value)
    return tags


def _exported(memory: Memory, loaded: LoadedObject, name: bytes) -> Optional[int]:
    """Address of a symbol that the object defines, or None. Undefined symbols are in neither hash table
    of interest, or carry section 0."""
    bias = loaded.bias

    def at(tag: int) -> int:
        # glibc relocates these pointers in place on most machines, musl and the vDSO do not
        value = loaded.tags.get(tag, 0)
        return value if value >= bias or not value else value + bias

    symbols, strings = at(DT_SYMTAB), at(DT_STRTAB)
    if not symbols or not strings:
        return None
    if at(DT_GNU_HASH):
        candidates = _gnu_chain(memory, at(DT_GNU_HASH), name)
    elif at(DT_HASH):
        candidates = _sysv_chain(memory, at(DT_HASH), name)
    else:
        return None
    for index in candidates:
        offset, _, _, section, value = memory.unpack("IBBHQ", symbols + index * 24)
        if section and memory.string(strings + offset, len(name) + 1) == name:
            return bias + value
    return None


def _gnu_chain(memory: Memory, table: int, name: bytes) -> Iterator[int]:
    """Indices of the symbols whose GNU hash equals the name's."""
    wanted = 5381
    for byte in name:
        wanted = (wanted * 33 + byte) & 0xFFFFFFFF
    buckets, first, bloom, _ = memory.unpack("IIII", table)
    if not buckets:
        return
    start = table + 16 + bloom * 8
    index = memory.unpack("I", start + wanted % buckets * 4)[0]
    chain = start + buckets * 4
    for number in range(index, index + MOST_SYMBOLS if index >= max(first, 1) else index):
        value = memory.unpack("I", chain + (number - first) * 4)[0]
        if value | 1 == wanted | 1:
            yield number
        if value & 1:
            return


def _sysv_chain(memory: Memory, table: int, name: bytes) -> Iterator[int]:
    """Indices of the symbols in the name's bucket of a System V hash table (older musl programs)."""
    wanted = 0
    for byte in name:
        wanted = (wanted << 4) + byte
        high = wanted & 0xF0000000
        wanted = (wanted ^ high >> 24) & ~high
    buckets, chains = memory.unpack("II", table)
    if not buckets:
        return
    index = memory.unpack("I", table + 8 + wanted % buckets * 4)[0]
    for _ in range(min(chains, MOST_SYMBOLS)):
        if not index:
            return
        yield index
        index = memory.unpack("I", table + 8 + (buckets + index) * 4)[0]


def _in_symbol_table(path: str, name: bytes) -> int:
    """The value of a symbol in the static symbol table of an executable file. Raises NotFound."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        head = os.pread(descriptor, 64, 0)
        if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
            raise NotFound("not a 64-bit little-endian ELF program")
        place, size, count = struct.unpack("<Q10xHH", head[40:62])
        raw = os.pread(descriptor, size * count, place) if size == 64 else b""
        sections = list(struct.iter_unpack("<IIQQQQIIQQ", raw[: len(raw) // 64 * 64]))
        for section in sections:
            if section[1] != SHT_SYMTAB or section[6] >= len(sections):
                continue
            found = _search(descriptor, section, sections[section[6]], name)
            if found is not None:
                return found
    finally:
        os.close(descriptor)
    raise NotFound(f"no symbol {name.decode()}")


def _search(descriptor: int, symbols: Tuple[int, ...], text: Tuple[int, ...], name: bytes) -> Optional[int]:
    """The value of a symbol in one table; both arguments are section headers (4: offset, 5: size)."""
    if symbols[5] > TABLE_CAP or text[5] > TABLE_CAP:
        return None
    strings = os.pread(descriptor, text[5], text[4])
    table = os.pread(descriptor, symbols[5], symbols[4])
    end = len(name)
    for offset, _, _, section, value, _ in struct.iter_unpack("<IBBHQQ", table[: len(table) // 24 * 24]):
        # a linker lets ``environ`` share the end of ``__environ``: compare from the offset on
        if section and strings[offset : offset + end + 1] == name + b"\0":
            return int(value)
    return None

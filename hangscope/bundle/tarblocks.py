"""Tar headers, written and read one 512-byte block at a time.

A shard is a tar that may end anywhere, and what is read may be hostile: a header is one block with a
checksum (POSIX.1-1988 "ustar"), so the few lines that are needed stand here instead of an archive library
that seeks, follows extended headers and keeps every member. Python >= 3.8, standard library only.
"""

from typing import NamedTuple

BLOCK = 512
END = bytes(2 * BLOCK)
"""Two blocks of zeros close an archive."""

REGULAR = (b"0", b"\0")
EMPTY_TYPES = (b"1", b"2", b"3", b"4", b"5", b"6")
"""Links, devices, directories and FIFOs: no data follows their header, whatever size it states."""
LARGEST = 8**11 - 1
"""Bytes of the largest member that a ustar header can state."""

TYPE_NAMES = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"5": "a directory",
    b"6": "a FIFO",
}


class Header(NamedTuple):
    """One member: ``name`` (bytes as they stand, prefix joined), ``size`` in bytes, ``kind`` the type
    flag, ``mtime`` in seconds since the epoch."""

    name: bytes
    size: int
    kind: bytes
    mtime: int


class BadHeader(ValueError):
    """The block is no tar header."""


def header(name: str, size: int, mtime: int) -> bytes:
    """The block that announces a regular file of mode 0600, owned by nobody in particular.

    Raises ValueError for a name of more than 100 bytes or a size above ``LARGEST``.
    """
    path = name.encode("ascii")
    if not 0 < len(path) <= 100 or not 0 <= size <= LARGEST:
        raise ValueError(f"does not fit a tar header: {name!r}, {size} bytes")
    fields = [
        path.ljust(100, b"\0"),
        b"0000600\0" + b"0000000\0" * 2,
        b"%011o\0" % size,
        b"%011o\0" % max(0, min(mtime, LARGEST)),
        b" " * 8,
        b"0",
        bytes(100),
        b"ustar\0" + b"00",
    ]
    block = b"".join(fields).ljust(BLOCK, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def padding(size: int) -> bytes:
    """The zeros that fill a member's last block."""
    return bytes(-size % BLOCK)


def parse(block: bytes) -> Header:
    """Reads one header block. Raises BadHeader; never any other error."""
    if len(block) != BLOCK:
        raise BadHeader("short block")
    stated = _number(block[148:156])
    unsigned = sum(block) - sum(block[148:156]) + 8 * 32
    signed = unsigned - 256 * sum(byte > 127 for byte in block[:148] + block[156:])
    if stated not in (unsigned, signed):
        raise BadHeader("wrong checksum")
    name = block[:100].split(b"\0", 1)[0]
    if block[257:263] == b"ustar\0":
        prefix = block[345:500].split(b"\0", 1)[0]
        name = prefix + b"/" + name if prefix else name
    return Header(name, _number(block[124:136]), block[156:157], _number(block[136:148]))


def _number(field: bytes) -> int:
    """An octal field, or GNU's base-256 form (first bit set), never negative."""
    if field[0] & 0x80:
        if field[0] & 0x40:
            raise BadHeader("negative number")
        return int.from_bytes(bytes([field[0] & 0x3F]) + field[1:], "big")
    digits = field.split(b"\0", 1)[0].strip(b" ")
    if digits.strip(b"01234567"):
        raise BadHeader("not an octal number")
    return int(digits, 8) if digits else 0

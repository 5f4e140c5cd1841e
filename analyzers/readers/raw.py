"""The one way from an artifact's bytes to typed values, shared by the readers.

Artifacts are untrusted: torn, of other types, hostile. Whatever is wrong with one ends in
``UnreadableEvidence``, and nothing else.
"""

from __future__ import annotations

import functools
from typing import TypeVar

import msgspec

from hangscope.errors import UnreadableEvidence

T = TypeVar("T")


def decode(data: bytes, kind: type[T], path: str) -> T:
    """The JSON document as a value of ``kind``; unknown fields are ignored.

    Raises UnreadableEvidence when the JSON is torn or a known field has another type.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableEvidence(path, str(error)) from error


@functools.lru_cache(maxsize=1 << 14)
def number(text: str | int | float | None, base: int = 10) -> int | None:
    """The integer in ``text``; None when there is none.

    >>> number("42 kB"), number("0x1f", 16), number("max"), number(7)
    (42, 31, None, 7)

    Kept for the texts that every thread and process repeats (0, masks of no signal).
    """
    if text is None:
        return None
    if isinstance(text, (int, float)):
        return int(text) if abs(text) < 1 << 64 else None
    words = text.split(maxsplit=1)
    if not words or len(words[0]) > 40:
        return None
    try:
        return int(words[0], base)
    except ValueError:
        return None


def real(text: str | None) -> float | None:
    """The decimal number in ``text``; None when there is none, or no finite one."""
    try:
        value = float(text) if text is not None and len(text) < 40 else None
    except ValueError:
        return None
    return value if value is not None and abs(value) < 1e18 else None


def fields(text: str | None, separator: str = ":") -> dict[str, str]:
    """``Name: value`` lines as a dict, both stripped; the kernel's status, meminfo and io files.

    >>> fields("State:\\tS (sleeping)\\nThreads:\\t3\\n")
    {'State': 'S (sleeping)', 'Threads': '3'}
    """
    pairs = (line.strip().partition(separator) for line in (text or "").splitlines())
    return {name.strip(): value.strip() for name, found, value in pairs if found}


def pressure(text: str | None, line: str = "some") -> float | None:
    """``avg10`` in percent of a PSI file's line.

    >>> pressure("some avg10=20.72 avg60=5.00 avg300=1.20 total=99\\nfull avg10=0.00 total=1")
    20.72
    """
    for row in (text or "").splitlines():
        words = row.split()
        if words and words[0] == line:
            values = fields("\n".join(words[1:]), "=")
            return real(values.get("avg10"))
    return None


class StatLine(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a ``stat`` file that are used; numbers in proc_pid_stat(5)."""

    comm: str
    state: str
    ppid: int
    utime: int
    stime: int
    start_ticks: int
    exit_code: int | None


def stat_line(text: str | None) -> StatLine | None:
    """Understands ``/proc/PID/stat``; None when it is not one. A comm may hold blanks and parentheses.

    >>> stat_line("41 (a) b) D 7 41 41 0 -1 0 1 0 0 0 12 3 0 0 20 0 4 0 900 1 2").state
    'D'
    """
    text = text or ""
    opening, closing = text.find("("), text.rfind(")")
    rest = text[closing + 1 :].split()
    if opening < 0 or closing < opening or len(rest) < 20 or len(rest[0]) != 1:
        return None
    try:
        ppid, utime, stime, start = int(rest[1]), int(rest[11]), int(rest[12]), int(rest[19])
    except ValueError:
        return None
    return StatLine(
        comm=text[opening + 1 : closing],
        state=rest[0],
        ppid=ppid,
        utime=utime,
        stime=stime,
        start_ticks=start,
        exit_code=number(rest[49]) if len(rest) > 49 else None,
    )

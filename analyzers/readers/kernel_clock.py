"""The clocks that stand before a line of the kernel log, and the line without them.

Six places print the same text: dmesg (seconds since boot), ``dmesg -H`` (a day, then steps since the line
before), ``dmesg -T`` (local time), ``dmesg --time-format iso``, syslog and journalctl (date, host, and often
the boot clock too), ``/dev/kmsg`` and consoles (a level in angle brackets).

>>> plain = split("[ 1843.308145] NVRM: Xid")
>>> plain.seconds, plain.text
(1843.308145, 'NVRM: Xid')
>>> split("[  +0.000316] NVRM: Xid").seconds is None
True
>>> split("[Fri Aug 30 11:43:09 2024] NVRM: Xid").wall
1725018189.0
>>> line = split("Aug 29 16:58:38 node-a kernel: [14282.651831] NVRM: Xid")
>>> line.node, line.seconds, line.wall, line.text
('node-a', 14282.651831, None, 'NVRM: Xid')
"""

from __future__ import annotations

import re

import msgspec

from .clocks import MONTHS, dated
from .raw import real

_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_SYSLOG = r"(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} [ \d]\d (?:\d{4} )?\d\d:\d\d:\d\d(?:\.\d{1,9})?"
_LEVEL = re.compile(r"^(?:<\d{1,3}>|[a-z]{3,8} {0,4}:[a-z]{3,7} {0,4}: ?)")
_LOGGED = re.compile(
    rf"^(?:(?:[A-Z][a-z]{{2}} )?(?P<iso>{_ISO})(?: [A-Z]{{2,5}})?|(?P<date>{_SYSLOG})"
    r"|(?P<unix>\d{9,11}\.\d{1,9})|\[ *(?P<boot>\d{1,12}\.\d{1,9})\])? ?"
    r"(?:(?P<host>[A-Za-z0-9][\w.:-]{0,99}) )?kernel(?:\[\d{1,9}\])?: ?"
)
_BOOT = re.compile(r"^\[ *(?P<boot>\d{1,12}\.\d{1,9})\] ?")
_STEP = re.compile(r"^\[ {1,12}\+\d{1,9}\.\d{1,9}\] ?|^\[[A-Z][a-z]{2} ?\d{1,2} \d\d:\d\d\] ?")
_LOCAL = re.compile(
    r"^\[[A-Z][a-z]{2} (?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2}) "
    r"(?P<clock>\d\d:\d\d:\d\d) (?P<year>\d{4})\] ?"
)
_DMESG_ISO = re.compile(rf"^(?P<iso>{_ISO}) ")
_CALLER = re.compile(r"^\[ *[TC]\d{1,9}\] ?")


class KernelLine(msgspec.Struct, frozen=True):
    """``text`` without clocks. ``wall``: seconds since the epoch, a clock without zone read as UTC; None for
    syslog's dates, which have no year. ``seconds`` since boot; None where the clock shows steps only."""

    text: str
    seconds: float | None = None
    wall: float | None = None
    node: str | None = None


def split(line: str) -> KernelLine:
    """The line without its clocks, level and host, and what they said."""
    rest, level, node = line.strip(), None, None
    seconds = wall = None
    if (level := _LEVEL.match(rest)) is not None:
        rest = rest[level.end() :]
    if (logged := _LOGGED.match(rest)) is not None:
        rest = rest[logged.end() :]
        node = logged["host"]
        wall = _zoned(logged["iso"]) if logged["iso"] else real(logged["unix"])
        seconds = real(logged["boot"])
    elif (local := _LOCAL.match(rest)) is not None:
        rest = rest[local.end() :]
        wall = _wall(local["year"], local["month"], local["day"], local["clock"])
    elif (said := _DMESG_ISO.match(rest)) is not None:
        rest = rest[said.end() :]
        wall = _zoned(said["iso"])
    if (boot := _BOOT.match(rest)) is not None:
        rest = rest[boot.end() :]
        seconds = real(boot["boot"])
    elif (step := _STEP.match(rest)) is not None:
        rest = rest[step.end() :]
    if (caller := _CALLER.match(rest)) is not None:
        rest = rest[caller.end() :]
    return KernelLine(rest, seconds, wall, node)


def _zoned(text: str) -> float | None:
    stamp = dated(text)
    return stamp.wall if stamp is not None else None


def _wall(year: str, month: str, day: str, clock: str) -> float | None:
    """``dmesg -T``'s local time, read as UTC."""
    return _zoned(f"{year}-{int(MONTHS.get(month, '0')):02}-{int(day):02} {clock}")

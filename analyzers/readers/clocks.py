"""Dates and times in front of log lines, as seconds since the epoch.

Most logs name no time zone. Their times are taken as UTC: right among lines of one machine, and off by the
zone's offset against a flight recorder or a file's mtime. ``Stamp.exact`` says where a zone was written.
"""

from __future__ import annotations

import calendar
import functools
import re
import time
from typing import NamedTuple

_DAY = 86_400
_DATE = re.compile(
    r"(\d{4}[-/]\d\d[-/]\d\d[T _]{1,2}\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(?: ?(Z|[+-]\d\d:?\d\d))?"
)


class Stamp(NamedTuple):
    """``wall``: seconds since the epoch. ``exact``: the zone was written beside it."""

    wall: float
    exact: bool


def dated(text: str) -> Stamp | None:
    """The time that a full date tells; None for a date that no calendar has.

    >>> dated("2025-03-02T10:11:12.5Z"), dated("2025-03-02 10:11:12,500"), dated("2025-19-02 10:11:12")
    (Stamp(wall=1740910272.5, exact=True), Stamp(wall=1740910272.5, exact=False), None)
    """
    match = _DATE.match(text)
    if match is None:
        return None
    second = _second(match[1])
    if second is None:
        return None
    fraction, zone = match.groups()[1:]
    return Stamp(second + (float(f"0.{fraction}") if fraction else 0.0) - _offset(zone), zone is not None)


def undated(month: str, day: str, clock: str, mtime: float | None) -> float | None:
    """The time of a stamp without a year, in the last twelve months before the file was written; None where
    nobody knows when that was.

    >>> undated("12", "31", "23:00:00.25", 1767225600.0)
    1767222000.25
    """
    if mtime is None or not 0 < mtime < 1e11:
        return None
    seconds = _clock(clock[0:2], clock[3:5], clock[6:8], clock[9:])
    latest = mtime + _DAY
    for year in _years(int(latest)):
        start = _midnight(year, int(month), int(day))
        if start is not None and seconds is not None and start + seconds <= latest:
            return start + seconds
    return None


MONTHS = {name: str(number) for number, name in enumerate(calendar.month_abbr) if name}
"""``Jan`` … ``Dec`` (the C locale's) to the number as text."""


@functools.lru_cache(maxsize=4096)
def _second(text: str) -> float | None:
    """Logs have many lines a second: each is worked out once."""
    start = _midnight(int(text[:4]), int(text[5:7]), int(text[8:10]))
    clock = _clock(text[-8:-6], text[-5:-3], text[-2:], None)
    return None if start is None or clock is None else start + clock


@functools.lru_cache(maxsize=64)
def _years(latest: int) -> tuple[int, int]:
    year = time.gmtime(latest).tm_year
    return year, year - 1


@functools.lru_cache(maxsize=1024)
def _midnight(year: int, month: int, day: int) -> int | None:
    if not (1970 <= year < 2200 and 1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, month)[1]):
        return None
    return calendar.timegm((year, month, day, 0, 0, 0))


def _clock(hour: str, minute: str, second: str, fraction: str | None) -> float | None:
    if not (hour < "24" and minute < "60" and second <= "60"):
        return None
    part = int(fraction) / 10 ** len(fraction) if fraction else 0.0
    return int(hour) * 3600 + int(minute) * 60 + int(second) + part


def _offset(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    seconds = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
    return -seconds if zone[0] == "-" else seconds


def first_date(text: str) -> float | None:
    """The first full date anywhere in ``text``, as seconds since the epoch; None without one."""
    match = _DATE.search(text)
    stamp = None if match is None else dated(match.group())
    return None if stamp is None else stamp.wall

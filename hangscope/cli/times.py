"""Times on the command line: a date, or how long ago."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence

_UNITS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}
_AGO = re.compile(r"-?(\d{1,9}(?:\.\d{1,6})?) ?(s|min|m|h|d)(?: ago)?")
_FULL = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?Z|[+-]\d\d:?\d\d)?")
_SHORT = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d))?")


def moment(text: str) -> float:
    """An argparse type: seconds since the epoch, as the logs count them.

    Most logs write local time without a zone, and are read as if it were UTC. A time given here is taken the
    same way: ``2h`` (or ``-2h``) is two hours before this machine's local time.
    """
    from ..analyzers.readers.clocks import dated

    ago = _AGO.fullmatch(text)
    if ago is not None:
        now = time.time()
        return now + time.localtime(now).tm_gmtoff - float(ago[1]) * _UNITS[ago[2]]
    short = _SHORT.fullmatch(text)
    if short is not None:
        text = f"{short[1]} {short[2] or '00:00'}:00"
    stamp = dated(text) if _FULL.fullmatch(text) else None
    if stamp is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time (2026-01-31, 2026-01-31T13:45:00, 2h)")
    return stamp.wall


moment.__name__ = "time"


def with_times(argv: Sequence[str]) -> list[str]:
    """The command line with ``--since -2h`` as one word: argparse takes ``-2h`` for an option."""
    joined: list[str] = []
    for word in argv:
        if joined and joined[-1] in ("--since", "--until") and _AGO.fullmatch(word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined

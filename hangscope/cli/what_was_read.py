"""The line that says what was read of loose evidence, and the lines about what was not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..report.interface import printable

if TYPE_CHECKING:
    from ..analyzers.readers.documents import Reading
    from ..loose.reading import Gathered

MOST_LINES = 5
MOST_NAMES = 4
_SINGLE = {"FlightRecord": "flight record", "StackDump": "stack dump", "RasReport": "RAS report"}
"""Counted one by one; of everything else, the files are counted."""
_PER_FILE = {
    "LogEvent": "log",
    "Gpu": "GPU listing",
    "KernelEvent": "kernel log",
    "ProcessState": "process listing",
}


def said(gathered: Gathered, verbose: bool) -> list[str]:
    """Lines for people: one with what was read, some (``verbose``: all) with what was not."""
    read = ", ".join([*_bundles(gathered), *_counts(gathered.readings)]) or "nothing"
    strange = gathered.strange
    lines = [f"read {read}" + (f"; nothing told by: {_some(strange)}" if strange else "")]
    notes = gathered.notes if verbose else gathered.doubts
    if not verbose and len(notes) > MOST_LINES:
        notes = [*notes[:MOST_LINES], f"{len(notes) - MOST_LINES} more could not be read (-v shows all)"]
    return [printable(line) for line in [*lines, *notes]]


def _bundles(gathered: Gathered) -> list[str]:
    return [_many(len(gathered.evidence), "bundle")] if gathered.evidence else []


def _counts(readings: Iterable[tuple[str, Reading]]) -> list[str]:
    """``4 flight records``, ``1 log (torch-watchdog)``, in a fixed order."""
    singles = dict.fromkeys(_SINGLE, 0)
    files: dict[str, set[str]] = {kind: set() for kind in _PER_FILE}
    forms: dict[str, None] = {}
    short = 0
    for path, reading in readings:
        for fact in reading.facts:
            kind = type(fact).__name__
            short += getattr(fact, "partial", None) is not None
            if kind in singles:
                singles[kind] += 1
            else:
                files[kind].add(path)
        if any(type(fact).__name__ == "LogEvent" for fact in reading.facts):
            forms |= dict.fromkeys(reading.forms)
    cut = {"FlightRecord": f" ({short} of them cut short)"} if short else {}
    counted = [_many(count, _SINGLE[kind]) + cut.get(kind, "") for kind, count in singles.items() if count]
    for kind, paths in files.items():
        if paths:
            which = f" ({', '.join(forms)})" if kind == "LogEvent" else ""
            counted.append(_many(len(paths), _PER_FILE[kind]) + which)
    return counted


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count:,} {what}s"


def _some(names: list[str]) -> str:
    rest = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")

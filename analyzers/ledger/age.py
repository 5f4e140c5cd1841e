"""How long the waiting has lasted, as far as loose evidence tells: what is late looks like what stands."""

from __future__ import annotations

from hangscope.model.loose import FlightRecord, LogEvent, RasReport

from ..decide import PATIENCE
from .finding import Finding
from .picture import Picture

LASTED = frozenset(
    {
        "watchdog-timeout",
        "watchdog-status",
        "watchdog-ended",
        "heartbeat-stuck",
        "dump-sent",
        "dump-received",
        "desync-lagging",
        "desync-waiting",
        "barrier-missing",
        "wait-timeout",
        "store-timeout",
        "rendezvous-timeout",
        "gloo-timeout",
        "stall-missing",
        "stall-waiting",
        "engine-stuck",
    }
)
"""Texts that a program prints when something has lasted longer than it should."""


def doubt(picture: Picture, finding: Finding) -> str | None:
    """Why the named rank may only be slow; None where the waiting has lasted ``PATIENCE`` seconds.

    A file's own date counts as the end here: it may be too late, never too early.
    """
    if any(isinstance(fact, LogEvent) and fact.kind in LASTED for fact in picture.facts):
        return None
    if picture.ras.moved is False:
        return None  # two reports of RAS, ten seconds apart, with equal counts
    begun = [op.created_ns / 1e9 for op in finding.operations if op.created_ns]
    ends = [moment for fact in picture.facts for moment in _moments(fact)]
    if not begun or not ends:
        return "nothing tells how long it has lasted: a slow rank looks the same"
    lasted = max(ends) - max(begun)
    if lasted >= PATIENCE:
        return None
    return f"it had lasted {max(lasted, 0.0):.0f} s when this was written: a slow rank looks the same"


def _moments(fact: object) -> list[float]:
    if isinstance(fact, FlightRecord):
        times = [fact.written, fact.newest_ns / 1e9 if fact.newest_ns else None]
    elif isinstance(fact, LogEvent):
        times = [fact.origin.wall]
    elif isinstance(fact, RasReport):
        times = [fact.wall]
    else:
        times = []
    return [time for time in times if time]

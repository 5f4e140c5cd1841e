"""What the capture asks for after its first samples: further samples, native stacks, more haste."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ..model.evidence import Evidence
from ..model.verdict import Verdict

GAPS = (4.0, 8.0, 15.0)
"""Seconds before each further sample; the last is repeated as long as the patience lasts."""
MOST_NATIVE = 3
"""Processes whose native stacks are taken: each takes seconds and stops its threads for a moment."""
SPARE = 10.0
"""Seconds of the watchdog's time that are left to it: the job ends at its end, and its ranks with it."""
LEAST = 5.0
"""A deadline below this would capture nothing."""


def further_gaps(patience: float) -> Iterator[float]:
    """The gaps before further samples, as long as their sum stays within ``patience`` seconds.

    >>> list(further_gaps(27)), list(further_gaps(5)), list(further_gaps(60))
    ([4.0, 8.0, 15.0], [4.0], [4.0, 8.0, 15.0, 15.0, 15.0])
    """
    left = patience
    index = 0
    while left >= (gap := GAPS[min(index, len(GAPS) - 1)]):
        yield gap
        left -= gap
        index += 1


def native_suspects(verdict: Verdict, evidence: Evidence) -> tuple[int, ...]:
    """Processes of which native stacks could raise the confidence, the most suspect first; often none.

    They help where Python frames do not tell what a thread waits for: no verdict, or none above a rank
    whose wait has no name. A high verdict needs no more.
    """
    if verdict.confidence == "high" and verdict.kind != "undecided":
        return ()
    if verdict.kind in ("slow", "not-stuck", "rank-absent"):
        return ()
    pids = [root.pid for root in verdict.roots if root.pid is not None]
    if not pids or verdict.kind in ("undecided", "all-joined"):
        wanted = set(verdict.unknown) or set(verdict.waiting[:1])
        pids += [
            row.pid
            for shard in evidence.shards
            if shard.scan is not None
            for row in shard.scan.processes
            if row.role == "rank" and row.rank in wanted
        ]
    return tuple(dict.fromkeys(pids))[:MOST_NATIVE]


def watchdog_seconds(evidence: Evidence, now: float) -> tuple[float, str] | None:
    """Seconds until the job's own watchdog ends it, and what tells so; None when nothing tells.

    From the flight recorder's unfinished operations (``timeout_ms`` minus the age; torch 2.13). ``now`` is in
    wall seconds.
    """
    best: tuple[float, str] | None = None
    for shard in evidence.shards:
        for artifact in shard.artifacts:
            if artifact.collector == "recorder" and artifact.name == "fr_trace.json":
                for entry in _entries(artifact.data):
                    left = _left(entry, now)
                    if left is not None and (best is None or left < best[0]):
                        name = str(entry.get("profiling_name"))
                        best = (left, f"the watchdog's time-out of {name} (pid {artifact.pid})")
    return best


def _entries(data: bytes) -> list[dict[str, Any]]:
    try:
        dump = json.loads(data)
    except ValueError:
        return []
    entries = dump.get("entries") if isinstance(dump, dict) else None
    return [entry for entry in entries or () if isinstance(entry, dict)] if isinstance(entries, list) else []


def _left(entry: dict[str, Any], now: float) -> float | None:
    created, timeout = entry.get("time_created_ns"), entry.get("timeout_ms")
    if entry.get("retired") or entry.get("state") == "completed":
        return None
    if not isinstance(created, int | float) or not isinstance(timeout, int | float) or timeout <= 0:
        return None
    left = timeout / 1e3 - (now - created / 1e9)
    return left if left > 0 else None  # it has passed, and nothing happened: nobody watches


def shrunk_deadline(left: float, asked: float, spent: float) -> float:
    """The capture's whole deadline in seconds: as asked, or less where the watchdog leaves ``left`` from now.

    ``spent`` seconds are already gone.

    >>> shrunk_deadline(1800.0, 90.0, 3.0), shrunk_deadline(40.0, 90.0, 3.0), shrunk_deadline(2.0, 90.0, 3.0)
    (90.0, 33.0, 8.0)
    """
    return min(asked, spent + max(LEAST, left - SPARE))

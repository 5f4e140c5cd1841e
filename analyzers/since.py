"""Since when the job has been stuck: by the recorders' creation times, else by the last line of output."""

from __future__ import annotations

from typing import Literal

import msgspec

from .graph import Built
from .job import Job


class Since(msgspec.Struct, frozen=True, kw_only=True):
    """``wall``: seconds since the epoch, None where undated; ``age``: seconds before the last sample."""

    wall: float | None
    age: float
    source: str
    basis: Literal["recorder", "output", "told"]
    """``told``: other evidence than this capture says so."""


def last_wall(job: Job) -> float | None:
    """Wall time of the newest sample of any process, seconds since the epoch; None where none is dated."""
    walls = (s.wall for process in job.processes for s in process.samples[-1:])
    return max((wall for wall in walls if wall > 0), default=None)


def stuck_since(job: Job, built: Built, victims: tuple[int, ...]) -> Since | None:
    """When the last of the waiting ranks entered its operation; else the newest output of any rank. None
    when neither was captured."""
    wall = last_wall(job)
    told = job.capture.stuck_for
    if told is not None:
        begun = wall - told if wall is not None else None
        return Since(wall=begun, age=told, source="a time-out that was reported", basis="told")
    if wall is None:
        return None
    waiting = set(victims)
    entered = [
        joiner.entry.created_ns / 1e9
        for slot in built.slots.values()
        for joiner in slot.joiners
        if joiner.rank in waiting and joiner.entry is not None and joiner.entry.created_ns
    ]
    if entered:
        latest = max(entered)
        return Since(
            wall=latest,
            age=max(0.0, wall - latest),
            source="flight recorder: when the last waiting rank entered its operation",
            basis="recorder",
        )
    written = [
        sample.output_mtime
        for process in job.ranks.values()
        for sample in process.samples[-1:]
        if sample.output_mtime is not None and sample.output_mtime >= (process.start_wall or 0.0)
    ]
    if not written:
        return None
    latest = max(written)
    return Since(
        wall=latest, age=max(0.0, wall - latest), source="the ranks' last output (file mtime)", basis="output"
    )

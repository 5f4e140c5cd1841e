"""Since when the job has been stuck: by the recorders' creation times, else by the last line of output."""

from __future__ import annotations

from typing import Literal

import msgspec

from .graph import Built
from .job import Job


class Since(msgspec.Struct, frozen=True, kw_only=True):
    """``wall``: seconds since the epoch; ``age``: seconds before the last sample."""

    wall: float
    age: float
    source: str
    basis: Literal["recorder", "output"]


def last_wall(job: Job) -> float | None:
    """Wall time of the newest sample of any process, seconds since the epoch."""
    return max((s.wall for process in job.processes for s in process.samples[-1:]), default=None)


def stuck_since(job: Job, built: Built, victims: tuple[int, ...]) -> Since | None:
    """When the last of the waiting ranks entered its operation; else the newest output of any rank. None
    when neither was captured."""
    wall = last_wall(job)
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

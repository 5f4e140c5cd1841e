"""A job that moves: is somebody always last, or is it simply at work?"""

from __future__ import annotations

import msgspec

from ..model.facts import Process, Ref
from ..model.verdict import Kind
from .graph import Built
from .job import COMMUNICATION, Job
from .progress import Progress
from .solve import Solution

SHARE = 0.6
"""A straggler is missing in at least this share of the samples in which others wait."""
SAMPLES = 3
"""With fewer, chance alone can show the same rank last."""


class Calm(msgspec.Struct, frozen=True, kw_only=True):
    """``moves``: evidence of progress was found, with its texts."""

    kind: Kind
    moves: bool
    stragglers: tuple[int, ...] = ()
    more: bool = False
    texts: tuple[tuple[str, Ref | None], ...] = ()


def calm(job: Job, built: Built, solution: Solution) -> Calm:
    """``slow`` when in most samples some ranks wait for the same few others, else ``not-stuck``."""
    progress = Progress(job)
    texts = []
    for rank in sorted(job.ranks):
        motion = progress.rank(rank)
        process = job.ranks[rank]
        if not motion.moved:
            motion = progress.thread(process, process.pid)
        if motion.moved:
            texts.append((f"rank {rank}: {motion.text}", motion.ref))
    late, counted = _late(job)
    moves = bool(texts)
    if late and counted >= 2:
        more = job.capture.samples < SAMPLES
        return Calm(kind="slow", moves=moves, stragglers=late, more=more, texts=tuple(texts))
    return Calm(kind="not-stuck", moves=moves, texts=tuple(texts))


def _late(job: Job) -> tuple[tuple[int, ...], int]:
    """Ranks that are missing from communication in most samples in which others wait in it: a minority
    only. Also the number of those samples."""
    calls = _communication_calls(job)
    missing: dict[int, int] = {}
    counted = 0
    for number in range(job.capture.samples):
        states = {rank: _communicates(process, number, calls) for rank, process in job.ranks.items()}
        waiting = [rank for rank, state in states.items() if state]
        absent = [rank for rank, state in states.items() if state is False]
        if not waiting or not absent or len(absent) >= len(waiting):
            continue
        counted += 1
        for rank in absent:
            missing[rank] = missing.get(rank, 0) + 1
    late = tuple(
        sorted(rank for rank, count in missing.items() if count >= max(2, SHARE * job.capture.samples))
    )
    return late, counted


def _communication_calls(job: Job) -> set[tuple[str, str]]:
    """(function, file) of the frames at which any thread of the job waits in communication now."""
    found = set()
    for process in job.ranks.values():
        for tid in job.threads(process):
            wait = job.wait(process, tid)
            if wait.kind in COMMUNICATION and wait.frame is not None:
                found.add((wait.frame.function, wait.frame.file))
    return found


def _communicates(process: Process, number: int, calls: set[tuple[str, str]]) -> bool | None:
    for sample in process.samples:
        if sample.sample == number:
            for thread in sample.threads:
                if thread.tid == process.pid and thread.stack is not None:
                    return any((frame.function, frame.file) in calls for frame in thread.stack[:8])
    return None

"""The whole analysis: evidence → facts → waits → graph → roots → verdict. Nothing here prints."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

from ..model.evidence import Evidence
from ..model.facts import Capture
from ..model.verdict import Verdict
from .causes.interface import Context
from .decide import decide
from .facts import read_capture
from .graph import build
from .job import Job, WaitMap
from .membership import membership_of
from .presence import presences
from .progress import Progress
from .recorder import records_of
from .solve import solve
from .verdict import verdict_of
from .waits import waits_of
from .worlds import joined, worlds_of


def analyze(evidence: Evidence, *, provisional: bool = False) -> Verdict:
    """Returns the verdict on a capture. Never raises for what the evidence holds: what cannot be read is
    missing, and what is missing is said."""
    with _no_collection():
        capture = read_capture(evidence)
        return analyze_capture(capture, waits_of(capture), provisional=provisional)


def analyze_capture(capture: Capture, waits: WaitMap, *, provisional: bool = False) -> Verdict:
    """Returns the verdict on facts. ``waits``: (node, pid, tid) → what the thread waits for in its
    newest sample; a thread that is not in it is unknown. Where the capture holds several worlds, the verdict
    of the one that matters most, with the others under ``independent``."""
    worlds = worlds_of(capture)
    verdicts = [_of_world(world.capture, waits, provisional) for world in worlds]
    return joined(worlds, verdicts)


def _of_world(capture: Capture, waits: WaitMap, provisional: bool) -> Verdict:
    job = Job(capture, waits)
    seen = presences(job)
    membership = membership_of(job)
    records = records_of(job, membership)
    built = build(job, seen, membership, records, Progress(job))
    solution = solve(built.graph, built.starts)
    decision = decide(job, built, solution, records)
    context = Context(
        job=job,
        decision=decision,
        finding=decision.finding,
        built=built,
        solution=solution,
        membership=membership,
        presences=seen,
    )
    return verdict_of(context, provisional=provisional)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Holds back the cyclic collector: the facts are millions of small values that live to the end, and each
    full collection walks all of them. What the analysis leaves behind is collected later."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

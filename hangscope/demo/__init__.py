"""What ``hangscope demo`` runs: four real processes that really hang, captured and explained."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable

import msgspec

from ..errors import CaptureFailed, UsageError
from ..model.verdict import Verdict
from .job import BLOCKED_RANK, SIZE, DemoJob


class DemoResult(msgspec.Struct, frozen=True, kw_only=True):
    """``blocked_rank`` is the truth; ``saved`` the bundle's path, None unless it was to be kept."""

    verdict: Verdict
    blocked_rank: int
    saved: str | None
    seconds: float


def run(torch: bool = False, keep: bool = False, progress: Callable[[str], object] = str) -> DemoResult:
    """Starts the job, waits until it hangs, captures and analyses it, ends it.

    ``keep`` leaves the bundle in the working directory (or the next place that works). ``progress`` is told
    what happens, a line at a time. Nothing of the job is left behind, also not on an interrupt. Raises
    UsageError without torch for ``torch``, CaptureFailed when the job does not hang or nothing was captured.
    """
    start = time.monotonic()
    if torch and importlib.util.find_spec("torch") is None:
        raise UsageError("torch cannot be imported here", None, "hangscope demo, which needs no torch")
    progress(f"starting {SIZE} ranks" + (" with torch and gloo" if torch else ""))
    with DemoJob(torch) as job:
        job.wait_until_stuck()
        pids = ", ".join(str(pid) for pid in job.pids)
        progress(f"they hang (pids {pids}); capturing them as hangscope capture -p {job.pids[0]} would")
        verdict, saved = _capture(job, keep, progress)
        progress("ending the job")
    return DemoResult(
        verdict=verdict, blocked_rank=BLOCKED_RANK, saved=saved, seconds=time.monotonic() - start
    )


def _capture(job: DemoJob, keep: bool, progress: Callable[[str], object]) -> tuple[Verdict, str | None]:
    """As ``hangscope capture -p PID`` would, from the pid of a rank that only waits."""
    from ..capture.session import Request, capture

    output = None if keep else str(job.directory / "demo.tar")
    request = Request(pid=job.pids[0], job="demo", pids=tuple(job.pids), output=output)
    captured = capture(request, _Told(progress))
    if captured.interrupted:
        raise KeyboardInterrupt
    if captured.verdict is None:
        raise CaptureFailed(
            "the demo could not be captured", "; ".join(captured.notes) or None, captured.advice
        )
    return captured.verdict, os.path.abspath(captured.saved) if keep and captured.saved else None


class _Told:
    """A capture's progress, passed on as lines."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self.tell = tell

    def working(self, text: str) -> None:
        """What goes on now."""
        self.tell(text)

    def note(self, text: str) -> None:
        """A line that stays."""
        self.tell(text)

    def close(self) -> None:
        """Nothing is open."""

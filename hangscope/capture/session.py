"""One capture from beginning to end: place, agent, deadline, further samples, bundle, verdict.

The deadline is held out here: an agent that is killed or blocked inside the job's memory limit is a finding
about that limit, and what it had sent until then is used.
"""

from __future__ import annotations

import io
import itertools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from .. import __version__
from ..bundle.layout import shard_name
from ..bundle.reader import read_bundle, read_bundle_bytes
from ..collectors import guarded
from ..errors import CaptureFailed
from ..model.evidence import Evidence
from ..model.verdict import Verdict
from . import destination, followup, outcome
from .launch import AgentProcess
from .progress import Progress, show_event
from .request import Captured, Request
from .spool import Spool

__all__ = ["Captured", "Request", "Session", "capture"]

GRACE = 5.0
"""Seconds beyond the deadline that the agent gets for its own orderly end."""
LONG_GAP = 1.0
"""A gap of so many seconds has room for a provisional verdict."""
NATIVE_SECONDS = 8.0
"""Less than this left: no native stacks."""


class _Over(Exception):
    """The time is up, or the agent has ended before it was told to."""


def capture(request: Request, progress: Progress, *, verbose: bool = False) -> Captured:
    """Captures, saves and analyses. Raises UsageError for ``-o``, CaptureFailed when nothing was gathered.

    An interrupt ends the agent; what was gathered is saved and comes back without a verdict. Whatever else
    goes wrong, the bundle is saved first.
    """
    session = Session(request, progress, verbose)
    try:
        session.drive()
    except _Over:
        pass
    except KeyboardInterrupt:
        session.interrupted = True
    finally:
        session.stop()
        captured = session.keep()
    if captured.interrupted:
        return captured
    try:
        return session.conclude(captured)
    except KeyboardInterrupt:
        return msgspec.structs.replace(captured, interrupted=True)


class Session:
    """The state of one capture."""

    def __init__(self, request: Request, progress: Progress, verbose: bool) -> None:
        self.request = request
        self.progress = progress
        self.verbose = verbose
        self.interrupted = False
        self.sampled = 0
        self.ready = False
        self.failure: str | None = None
        self.name = destination.bundle_name(request.job or str(request.pid), time.time())
        self.spool = Spool(self._places(), shard_name(os.uname().nodename))
        self._said = 0
        if self.spool.partial is not None:  # told first: whatever kills this process leaves that
            progress.working(f"the evidence arrives in {self.spool.partial}")
        self.deadline = time.monotonic() + request.deadline
        self.agent = AgentProcess(request.agent_arguments(), self.spool.add, self._event)
        self.cgroup = outcome.memory_cgroup(self.agent.process.pid)

    def _places(self) -> Iterator[destination.Place | str] | None:
        output = self.request.output
        if output == "-":
            return None
        wanted = [destination.asked_for(output, self.name)] if output else []
        avoid = destination.blocked_mounts(self.request.pids or (self.request.pid,))
        return itertools.chain(wanted, destination.by_default(self.name, avoid, os.environ))

    def _event(self, event: dict[str, Any]) -> None:
        kind = event.get("event")
        if kind == "sample-end":
            self.sampled += 1
        elif kind == "ready":
            self.ready = True
        elif kind == "failed":
            self.failure = str(event.get("text"))
        show_event(self.progress, event, self.verbose)

    def _until(self, reached: Callable[[], bool]) -> None:
        """Listens to the agent until it got there. Raises ``_Over`` when that cannot come any more."""
        while not reached():
            left = self.deadline - time.monotonic()
            if not self.agent.pump(left):
                raise _Over
            if left <= -GRACE:
                raise _Over
            self._say_where()

    def _say_where(self) -> None:
        for note in self.spool.notes[self._said :]:
            self.progress.note(note)
        self._said = len(self.spool.notes)

    def drive(self) -> None:
        """Takes the samples that were asked for, then those that could decide, then native stacks."""
        request = self.request
        self._until(lambda: self.sampled > 0)
        self._make_haste()
        if request.samples > 1 and request.interval >= LONG_GAP:
            self._provisional()
        self._until(lambda: self.ready)
        if request.patience < min(followup.GAPS) and not self._native_wanted():
            self._finish()
            return
        verdict = self._judge()
        for gap in followup.further_gaps(request.patience):
            if not verdict.more_samples_would_decide or gap + GRACE > self._left():
                break
            self.progress.working(f"waiting {gap:.0f} s: a further sample could decide")
            self._ask(f"sample {gap:g}")
            verdict = self._judge()
        self._take_native(verdict)
        self._finish()

    def _finish(self) -> None:
        """What the agent takes once no sample comes any more: dumps of armed ranks, a second RAS report."""
        self._ask("finish")

    def _native_wanted(self) -> bool:
        request = self.request
        return "native" not in request.skip and (not request.only or "native" in request.only)

    def _take_native(self, verdict: Verdict) -> None:
        if not self._native_wanted():
            return
        pids = followup.native_suspects(verdict, self._evidence())
        if pids and self._left() >= NATIVE_SECONDS:
            self.progress.working("native stacks of " + ", ".join(f"pid {pid}" for pid in pids))
            self._ask("native " + ",".join(str(pid) for pid in pids))

    def _ask(self, line: str) -> None:
        self.ready = False
        self.agent.send(line)
        self._until(lambda: self.ready)

    def _left(self) -> float:
        return self.deadline - time.monotonic()

    def _provisional(self) -> None:
        verdict = self._judge()
        who = ", ".join(f"rank {rank}" for rank in verdict.initiators) or "nobody named yet"
        self.progress.note(
            f"provisional, after one sample: {verdict.kind}, {who} [{verdict.confidence}]"
            + (f": {verdict.deciding_fact}" if verdict.deciding_fact else "")
        )

    def _make_haste(self) -> None:
        """Shrinks the deadline to what the job's watchdog leaves, where that can be known."""
        found = followup.watchdog_seconds(self._evidence(), time.time())
        if found is None:
            return
        spent = time.monotonic() - self.agent.started
        deadline = followup.shrunk_deadline(found[0], self.request.deadline, spent)
        if deadline < self.request.deadline:
            self.deadline = self.agent.started + deadline
            self.progress.note(
                f"{found[1]} leaves {found[0]:.0f} s: the capture ends after {deadline:.0f} s instead of "
                f"{self.request.deadline:.0f} s"
            )

    def _judge(self) -> Verdict:
        return _analyze(self._evidence(), provisional=True)

    def _evidence(self) -> Evidence:
        return read_bundle_bytes(bytes(self.spool.data), "the capture in progress")

    def stop(self) -> None:
        """Ends the agent: orderly when it waits for commands, else by signals; at once when asked twice."""
        try:
            if self.interrupted or not self.ready:
                self.agent.end()
            else:
                self.agent.finish(time.monotonic() + GRACE)
        except KeyboardInterrupt:
            self.interrupted = True
            self.agent.end(gently=False)
        self._say_where()
        if guarded.abandoned:  # a probe of a dead directory, of this process itself
            show_event(self.progress, {"event": "abandoned", "pids": guarded.abandoned}, self.verbose)

    def keep(self) -> Captured:
        """As ``save``; an interrupt of it leaves the stream as it arrived, and says where."""
        try:
            return self.save()
        except KeyboardInterrupt:
            if self.spool.partial is not None:
                self.progress.note(f"not packed; what was gathered stands in {self.spool.partial}")
            raise

    def save(self) -> Captured:
        """Packs the bundle, whatever there is. Raises CaptureFailed when there is nothing."""
        problem = outcome.agent_problem(self.agent, self.failure, self.cgroup, self.interrupted)
        if not self.spool.data:
            self.spool.discard()
            if self.interrupted:
                raise KeyboardInterrupt
            raise CaptureFailed(
                "nothing was captured", problem, "hangscope capture -v, for what the agent says"
            )
        evidence = self._evidence()
        manifest = outcome.manifest(evidence, self.request.job, self.spool.node, problem, __version__)
        saved: str | None = None
        data: bytes | None = None
        if self.request.output == "-":
            buffer = io.BytesIO()
            self.spool.stream_to(buffer, manifest)
            data = buffer.getvalue()
        else:
            saved = self.spool.pack(manifest)
            self._say_where()
        notes = [problem] if problem else []
        if saved is None and data is None:
            notes.append("the evidence could not be saved anywhere; the verdict below is all there is")
        return Captured(
            evidence=evidence,
            verdict=None,
            saved=saved,
            notes=tuple(notes),
            bundle=data,
            interrupted=self.interrupted,
        )

    def conclude(self, captured: Captured) -> Captured:
        """The final verdict, from the bundle itself: the one that anybody gets who reads it later."""
        self.progress.working("analysing")
        if captured.saved is not None:
            evidence = read_bundle(captured.saved)
        elif captured.bundle is not None:
            evidence = read_bundle_bytes(captured.bundle)
        else:
            evidence = msgspec.structs.replace(self._evidence(), notes=captured.notes)
        return msgspec.structs.replace(captured, evidence=evidence, verdict=_analyze(evidence))


def _analyze(evidence: Evidence, provisional: bool = False) -> Verdict:
    # loaded when the first sample is in: before, it would take a processor away from the stacks
    from ..analyzers.analysis import analyze

    return analyze(evidence, provisional=provisional)

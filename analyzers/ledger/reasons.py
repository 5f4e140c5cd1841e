"""Why a rank has not joined: what its own stack shows, read by the analysis of captures.

The stack is tied to the operation that the rank did not join. A rank whose stack waits in communication
itself has not been shown to start anything.
"""

from __future__ import annotations

import msgspec

from hangscope.model.facts import Capture, Ref
from hangscope.model.ranges import ranks_phrase
from hangscope.model.verdict import Action, EvidenceLine, NextStep, RootEntry
from hangscope.model.waits import WaitKind

from ..causes import explain
from ..causes.interface import Context
from ..classify import Classifier
from ..decide import Decision as StackDecision
from ..finding import Finding as StackFinding
from ..graph import build
from ..hard import hard_nodes
from ..job import LIVE, Job, WaitMap
from ..membership import membership_of
from ..naming import pid_argument
from ..places import place, root_entries, shown
from ..presence import presences
from ..progress import Progress
from ..recorder import records_of
from ..solve import solve


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank's stack says. ``communicates``: it waits for other ranks, or for its device."""

    rank: int
    communicates: bool
    where: str | None = None
    roots: tuple[RootEntry, ...] = ()
    cause: str | None = None
    fact: str | None = None
    live: bool = False
    """It runs or sleeps: whether it ever comes back, one look cannot tell."""
    wanted: tuple[str, str] | None = None
    """Its frames do not tell what it waits for: the other kind of stack (native, Python) and its command."""
    action: Action | None = None
    next: tuple[NextStep, ...] = ()
    evidence: tuple[EvidenceLine, ...] = ()


class Stacks:
    """The stacks of a capture, asked for one rank after the other."""

    def __init__(self, capture: Capture, waits: WaitMap) -> None:
        self.job = Job(capture, waits)
        self._presences = presences(self.job)
        self._membership = membership_of(self.job)
        self._records = records_of(self.job, self._membership)
        self._built = build(self.job, self._presences, self._membership, self._records, Progress(self.job))

    def reason(self, rank: int) -> Reason | None:
        """What holds the rank; None where there is no stack of it, or nothing in it tells."""
        process = self.job.ranks.get(rank)
        if process is None or not self.job.threads(process):
            return None
        talking = self.job.communicating(process)
        if talking:
            wait = self.job.wait(process, talking[0])
            at = place(shown(wait))
            ref = wait.ref or self.job.threads(process)[talking[0]].stack_ref
            text = f"rank {rank} {wait.why or wait.kind.value}" + (f" at {at}" if at else "")
            return Reason(rank=rank, communicates=True, where=at, fact=text, evidence=(_line(text, ref),))
        return self._held(rank)

    def _held(self, rank: int) -> Reason | None:
        solution = solve(self._built.graph, {rank: self._built.starts.get(rank, ())})
        classifier = Classifier(
            self.job, self._built, solution, self._records, hard_nodes(self.job, solution)
        )
        findings = [classifier.finding(root) for root in solution.roots]
        own = [f for f in findings if f.kind != "undecided" and set(f.ranks) <= {rank}]
        if len(own) != 1 or len(findings) != 1:
            return self._standing(rank)
        finding = own[0]
        context = Context(
            job=self.job,
            decision=StackDecision(kind=finding.kind, finding=finding),
            finding=finding,
            built=self._built,
            solution=solution,
            membership=self._membership,
            presences=self._presences,
        )
        cause, explanation = explain(context)
        live = finding.live or finding.wait in LIVE
        roots = root_entries(self.job, finding, solution, self._presences)
        return Reason(
            rank=rank,
            communicates=False,
            where=roots[0].at if roots else None,
            roots=roots,
            cause=None if live else cause,
            fact=_fact(context, finding, explanation.fact if explanation is not None and not live else None),
            live=live,
            action=explanation.action if explanation is not None and not live else None,
            next=explanation.next if explanation is not None and not live else (),
            evidence=_evidence(context, explanation.evidence if explanation is not None and not live else ()),
        )

    def _standing(self, rank: int) -> Reason | None:
        """Where its main thread stands, when nothing tells what that waits for."""
        process = self.job.ranks[rank]
        thread = self.job.threads(process).get(process.pid)
        wait = self.job.wait(process, process.pid) if thread is not None else None
        frames = (thread.stack or thread.native or ()) if thread is not None else ()
        if thread is None or wait is None or wait.kind is not WaitKind.UNKNOWN or not frames:
            return None
        frame = frames[0]
        at = place(frame) if frame.file else frame.library
        text = f"its main thread is in {frame.function}" + (f" at {at}" if at else "")
        pid = pid_argument(process.pid)
        wanted = ("native", f"py-spy dump --native --pid {pid}") if thread.native is None else None
        if not thread.stack:
            wanted = ("Python", f"py-spy dump --pid {pid}")
        return Reason(
            rank=rank,
            communicates=False,
            where=place(frame) if frame.file else None,
            fact=text,
            wanted=wanted,
            evidence=(_line(text.replace("its", f"rank {rank}'s", 1), thread.stack_ref or thread.ref),),
        )


def _fact(context: Context, finding: StackFinding, told: str | None) -> str:
    if told:
        return told
    node = next(iter(context.blocked()), None)
    wait = node.wait if node is not None else None
    what = (wait.why or wait.kind.value.replace("-", " ")) if wait is not None else finding.kind
    at = place(shown(wait))
    return what + (f" at {at}" if at and at not in what else "")


def _evidence(context: Context, told: tuple[EvidenceLine, ...]) -> tuple[EvidenceLine, ...]:
    lines = list(told)
    for node in context.blocked()[:2]:
        thread = context.thread(node)
        at = place(shown(node.wait))
        what = node.wait.why if node.wait is not None and node.wait.why else node.label
        process = context.job.by_pid.get((node.host or "", node.pid or -1))
        who = ranks_phrase([node.rank]) if node.rank is not None else f"pid {node.pid}"
        if process is not None and process.role != "rank" and node.rank is not None:
            who += f"'s {process.role}"
        ref = (thread.stack_ref or thread.ref) if thread is not None else None
        lines.append(_line(f"{who}, thread {node.label}: {what}" + (f" at {at}" if at else ""), ref))
    return tuple(dict.fromkeys(lines))


def _line(text: str, ref: Ref | None) -> EvidenceLine:
    return EvidenceLine(
        text=text,
        artifact=ref.artifact if ref is not None else None,
        line=ref.line if ref is not None else None,
    )

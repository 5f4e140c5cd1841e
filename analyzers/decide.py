"""The choice among the findings: which one is the verdict, whether it is proven, what else would decide."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..model.ranges import ranks_phrase
from ..model.verdict import Kind
from ..model.waits import WaitKind
from .classify import Classifier
from .doubts import ambiguous, left_by_absent, unknown_members
from .finding import Finding, blocked_at, merged
from .graph import Built
from .hard import hard_nodes
from .job import COMMUNICATION, Job
from .nameless import nameless, nameless_doubt
from .recorder import Records
from .since import Since, stuck_since
from .slow import Calm, calm
from .solve import Solution, certainty_of

PATIENCE = 28.0
"""Seconds that the samples must span before *equal stacks* alone count: 2 + 4 + 8 + 15, less a little."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """``finding`` is None for a calm job. ``doubts``: why nobody is named though a root was found."""

    kind: Kind
    finding: Finding | None
    others: tuple[Finding, ...] = ()
    since: Since | None = None
    more: bool = False
    doubts: str = ""
    calm: Calm | None = None
    also_unknown: tuple[int, ...] = ()
    """Uncaptured ranks that could be the root as well."""
    also_late: tuple[Finding, ...] = ()
    """Other roots under the same victims: ranks that run and have not joined either."""
    watched: bool = False
    """Progress was looked for and none was found: over long enough, or by an independent age."""


def decide(job: Job, built: Built, solution: Solution, records: Records) -> Decision:
    """Chooses the verdict's finding. A root is named only when it is proven that it does not move, and
    nobody while two processes claim one rank."""
    made = _choose(job, built, solution, records)
    if not job.doubled or made.kind in ("slow", "not-stuck"):
        return made
    doubt = f"several processes claim {ranks_phrase(job.doubled)}, and nothing tells them apart"
    return msgspec.structs.replace(made, kind="undecided", doubts=doubt)


def _choose(job: Job, built: Built, solution: Solution, records: Records) -> Decision:
    classifier = Classifier(job, built, solution, records, hard_nodes(job, solution))
    findings = merged([classifier.finding(root) for root in solution.roots])
    findings = [_sure(finding, solution, built) for finding in findings[:64]] + findings[64:]
    pending = [finding for finding in findings if not _lonely(job, finding, solution)]
    if not pending:
        return _nobody(job, built, solution, findings)
    first, rest = pending[0], pending[1:]
    since = stuck_since(job, built, first.victims)
    same = [f for f in rest if set(f.victims) & set(first.victims) or not first.victims]
    unknown = tuple(sorted({rank for finding in same for rank in finding.unknown}))
    made = Decision(
        kind=first.kind,
        finding=first,
        others=tuple(f for f in rest if f.kind != "undecided" and not f.live),
        since=since,
        also_unknown=unknown,
        also_late=tuple(f for f in same if f.live and f is not first),
    )
    if first.kind == "undecided":
        more = job.observed < PATIENCE and bool(first.split)
        return msgspec.structs.replace(made, doubts=first.why, more=more)
    absent = [finding for finding in findings if finding.kind == "rank-absent" and finding is not first]
    made = msgspec.structs.replace(made, others=_with_absent(made.others, absent))
    doubt = (
        ambiguous(first, pending, solution) or unknown_members(first, same) or left_by_absent(first, absent)
    )
    if doubt:
        return msgspec.structs.replace(made, kind="undecided", doubts=doubt)
    return _proven(job, solution, made, first)


def _sure(finding: Finding, solution: Solution, built: Built) -> Finding:
    root = certainty_of(finding.root, solution, built.starts)
    return msgspec.structs.replace(finding, root=root)


def _lonely(job: Job, finding: Finding, solution: Solution) -> bool:
    """No rank but those that are blocked there waits for it, and it may end by itself: no hang of the job.
    Servers that wait for work look like that."""
    here = {node.rank for id in finding.root.nodes for node in blocked_at(id, solution)}
    waiting = set(finding.victims) - (here if finding.type == "link" else set())
    lasting = finding.hard and finding.wait not in (None, WaitKind.PIPE, WaitKind.FIFO)
    if waiting or lasting or job.world_size == 1:
        return False
    return finding.kind in ("rank-absent", "rank-blocked", "undecided")


def _proven(job: Job, solution: Solution, made: Decision, first: Finding) -> Decision:
    """Names the finding when it is hard, was watched long enough, or has an age of its own."""
    if made.also_unknown and first.wait in (WaitKind.SOCKET, WaitKind.POLL):
        doubt = f"{ranks_phrase(first.ranks)} may wait for a rank that was not captured"
        return msgspec.structs.replace(made, kind="undecided", doubts=doubt)
    if first.hard and first.kind != "cycle":
        return msgspec.structs.replace(made, watched=_watched(job, solution, first, made.since))
    if first.hard:
        return msgspec.structs.replace(made, watched=job.capture.samples > 1)
    since = made.since
    aged = since is not None and since.age >= PATIENCE and (since.basis != "output" or not first.live)
    long = job.observed >= PATIENCE and job.capture.samples > 1
    more = not (aged or long)
    moved = _moves(solution, first)
    if job.capture.samples < 2 and not aged:
        doubt = "one sample cannot tell a wait that lasts from one that ends"
        return msgspec.structs.replace(made, kind="undecided", doubts=doubt, more=True)
    if first.live and (more or moved is None):
        doubt = _live_doubt(job, first, moved)
        return msgspec.structs.replace(made, kind="undecided", doubts=doubt, more=more)
    if first.live and made.also_unknown:
        doubt = "it runs, and other ranks were not captured"
        return msgspec.structs.replace(made, kind="undecided", doubts=doubt, more=more)
    if moved is None and not aged:
        doubt = "nothing shows whether it moves or stands"
        return msgspec.structs.replace(made, kind="undecided", doubts=doubt, more=more)
    if more and first.kind == "rank-blocked":
        doubt = f"{job.observed:.0f} s of standing still are too short to tell slow from stuck"
        return msgspec.structs.replace(made, kind="undecided", doubts=doubt, more=True)
    return msgspec.structs.replace(made, more=more, watched=not more)


def _live_doubt(job: Job, first: Finding, moved: bool | None) -> str:
    who = ranks_phrase(first.ranks)
    if moved is None:
        return f"{who} can go on, and the stacks do not tell whether it moves"
    return f"{who} can go on: {job.observed:.0f} s are too short to tell slow from stuck"


def _moves(solution: Solution, finding: Finding) -> bool | None:
    """False when no progress was found where it counts: at the root's own threads, or for a knot or an
    operation at the operations themselves."""
    states = []
    for id in finding.nodes or finding.root.nodes:
        blocked = blocked_at(id, solution) if solution.nodes[id].type == "resource" else [solution.nodes[id]]
        states += [node.progress for node in blocked]
    if finding.kind in ("cycle", "mismatch", "rank-diverged", "all-joined"):
        states += [solution.nodes[id].progress for id in finding.root.nodes]
        states += [
            solution.nodes[edge.source].progress
            for id in finding.root.nodes
            for edge in solution.predecessors.get(id, ())
        ]
    return False if False in states else None


def _watched(job: Job, solution: Solution, finding: Finding, since: Since | None) -> bool:
    """Whether the victims were seen to stand still as well."""
    if since is not None and since.age >= PATIENCE:
        return True
    if not finding.victims:
        return job.capture.samples > 1
    victims = set(finding.victims)
    return any(
        node.type == "thread" and node.rank in victims and node.progress is False
        for id, node in solution.nodes.items()
        if id not in solution.released
    )


def _with_absent(others: tuple[Finding, ...], absent: Iterable[Finding]) -> tuple[Finding, ...]:
    """A rank that is not there is always told, also where no rank is seen to wait for it."""
    known = {id for finding in others for id in finding.root.nodes}
    return others + tuple(f for f in absent if not known & set(f.root.nodes))


def _nobody(job: Job, built: Built, solution: Solution, findings: list[Finding]) -> Decision:
    """No root that anybody waits for: the job moves, is idle, or cannot be judged."""
    unseen = tuple(sorted({rank for finding in findings for rank in finding.unknown}))
    rested = calm(job, built, solution)
    if not any(job.threads(process) for process in job.ranks.values()):
        doubt = "no rank of the job was captured"
        if nameless(job):
            doubt = nameless_doubt(job)
        return Decision(kind="undecided", finding=None, doubts=doubt, also_unknown=unseen, calm=rested)
    blocked = [f for f in findings if f.kind == "rank-blocked" and not f.live and f.wait is not None]
    if rested.moves:
        return Decision(kind=rested.kind, finding=None, calm=rested, more=rested.more, also_unknown=unseen)
    if unseen:
        doubt = "what some ranks do is not known"
        return Decision(kind="undecided", finding=None, doubts=doubt, also_unknown=unseen, calm=rested)
    ended = tuple(rank for f in findings if f.kind == "rank-absent" for rank in f.ranks)
    if ended:
        doubt = f"{ranks_phrase(ended)} ended or never came, and no rank waits for it"
        return Decision(kind="undecided", finding=None, doubts=doubt, calm=rested)
    if blocked:
        doubt = "ranks wait for something outside the job, and no rank waits for them"
        more = job.observed < PATIENCE
        return Decision(kind="undecided", finding=None, doubts=doubt, calm=rested, more=more)
    pending = [
        node
        for node in solution.nodes.values()
        if node.type == "thread" and node.wait is not None and node.wait.kind in COMMUNICATION
    ]
    if pending and any(node.id not in solution.released for node in pending):
        doubt = "ranks wait in communication, and nothing shows for whom"
        return Decision(kind="undecided", finding=None, doubts=doubt, calm=rested)
    if job.capture.loose and any(finding.live for finding in findings):
        doubt = "ranks run in the program's own code, and one look does not tell whether they move"
        return Decision(kind="undecided", finding=None, doubts=doubt, calm=rested)
    return Decision(kind="not-stuck", finding=None, calm=rested)

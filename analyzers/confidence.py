"""How sure the verdict is, and why it is not surer.

*high*: every edge observed (or the one inferred edge to a thread that shares the waiting caller's source),
all members captured, no progress over the samples, nothing that contradicts. *medium*: an inferred edge,
or something of that list missing. *low*: a possible edge among unseen ranks, or a majority alone.
"""

from __future__ import annotations

from ..model.verdict import Confidence
from ..model.waits import WaitKind
from .decide import Decision
from .finding import Cap, Finding
from .job import Job
from .kinship import kin_of_root
from .membership import Membership
from .presence import Presence
from .solve import Solution

LEVELS: tuple[Confidence, ...] = ("low", "medium", "high")


def confidence_of(
    job: Job,
    decision: Decision,
    solution: Solution,
    membership: Membership,
    presences: dict[int, Presence],
) -> tuple[Confidence, str | None]:
    """Returns the confidence and, below *high*, the reason that weighs most."""
    finding = decision.finding
    if decision.kind == "undecided":
        return "low", decision.doubts or "nothing decides"
    caps = _common(job, membership, presences)
    if finding is None:
        caps += _calm(decision)
    else:
        caps += _edges(job, finding, solution, membership)
        caps += _standstill(job, decision, finding)
        caps += _split(finding)
        caps += _crossing(finding, solution)
        caps += _contradictions(decision, finding, presences)
    if not caps:
        return "high", None
    return min(caps, key=lambda cap: LEVELS.index(cap[0]))


def _common(job: Job, membership: Membership, presences: dict[int, Presence]) -> list[Cap]:
    caps: list[Cap] = []
    unknown = [rank for rank, presence in presences.items() if presence.being == "unknown"]
    if unknown:
        caps.append(("medium", f"{len(unknown)} of {len(job.members)} ranks were not captured"))
    if job.world_size is None:
        caps.append(("medium", "the number of ranks of the job is not known"))
    if job.doubled:
        caps.append(("medium", "several processes claim one rank"))
    if job.capture.loose:
        caps.append(("medium", "saved stack dumps show neither all threads nor what the kernel says of them"))
    if membership.gpu:
        caps.append(("medium", "evidence of NCCL groups has not been tried on enough real hangs"))
    return caps


def _calm(decision: Decision) -> list[Cap]:
    rested = decision.calm
    if rested is None or not rested.moves:
        return [("medium", "no progress was seen; only that no rank waits for one that cannot come")]
    if rested.more:
        return [("medium", "seen in two samples only")]
    return []


def _edges(job: Job, finding: Finding, solution: Solution, membership: Membership) -> list[Cap]:
    root = finding.root
    if root.certainty == "possible":
        return [("medium", f"named as the only one outside communication: {membership.source}")]
    if root.certainty == "inferred":
        if root.inferred_edges == 1 and kin_of_root(job, solution, root.nodes):
            return []
        if root.inferred_edges == 1:
            return [("medium", "that the waiting thread waits for the blocked one is inferred")]
        return [("medium", f"{root.inferred_edges} of the waits are inferred")]
    return []


def _standstill(job: Job, decision: Decision, finding: Finding) -> list[Cap]:
    caps: list[Cap] = []
    if decision.more:
        caps.append(("medium", f"watched for {job.observed:.0f} s only"))
    elif not decision.watched:
        caps.append(("medium", "that the waiting ranks stand still was not seen in two samples"))
    if finding.live:
        caps.append(("medium", "it runs: only time tells a spin from slow work"))
    if not finding.victims and finding.kind != "cycle" and len(finding.ranks) < len(job.members):
        caps.append(("medium", "no rank was seen to wait for it"))
    if decision.also_unknown and not any(cap[1].endswith("not captured") for cap in caps):
        caps.append(("medium", "a rank that was not captured could be the root as well"))
    return caps


def _split(finding: Finding) -> list[Cap]:
    if finding.split is None or finding.split.majority is None:
        if finding.kind in ("mismatch", "all-joined"):
            return [("medium", "the stacks alone show the operations")] if finding.kind == "mismatch" else []
        return []
    if finding.split.ordered or finding.split.recorded:
        return [("medium", "the majority decides who left the common path")]
    return [("low", "only the majority says who left the common path")]


def _crossing(finding: Finding, solution: Solution) -> list[Cap]:
    """Operations used in another order, or one of them skipped: where ranks outside of the knot stand in one
    of its operations too, some of its ranks may only be where everybody should be."""
    nodes = [solution.nodes[id] for id in finding.root.nodes]
    if finding.kind != "cycle" or any(node.type == "lock" for node in nodes):
        return []
    for node in nodes:
        edges = solution.predecessors.get(node.id, ()) if node.type == "operation" else ()
        joined = {solution.nodes[e.source].rank for e in edges if solution.nodes[e.source].type == "thread"}
        if joined - set(finding.ranks) - {None}:
            return [("medium", "a rank that skipped an operation would look the same")]
    return []


def _contradictions(decision: Decision, finding: Finding, presences: dict[int, Presence]) -> list[Cap]:
    caps: list[Cap] = []
    if any(presences[rank].transient for rank in finding.ranks if rank in presences):
        caps.append(("medium", "it ended during the capture"))
    if decision.also_late:
        caps.append(("medium", "another rank runs and has not joined either"))
    if finding.wait is WaitKind.FILE_LOCK and finding.type == "rank" and not finding.root.is_cycle:
        caps.append(("medium", "who holds the file lock is not known"))
    if finding.type == "link":
        caps.append(("medium", "the network itself was not tested"))
    if finding.type == "gpu" or finding.wait in (WaitKind.DEVICE, WaitKind.DRIVER):
        caps.append(("medium", "evidence of GPUs has not been tried on enough real hangs"))
    return caps

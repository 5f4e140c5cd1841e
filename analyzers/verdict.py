"""From the decision to the verdict: the chain, the evidence, the action, everything a person reads."""

from __future__ import annotations

import datetime

from ..model.ranges import ranks_phrase
from ..model.verdict import Action, EvidenceLine, IndependentFinding, NextStep, RootEntry, Verdict
from ..model.waits import WaitKind
from .causes import Explanation, explain
from .causes.interface import Context
from .chain import chain
from .confidence import confidence_of
from .decide import Decision
from .finding import Finding
from .grounds import against, evidence, ruled_out
from .missing import communicating_ranks, missing_facts
from .places import gpu_of, place, root_entries, shown
from .since import last_wall


def verdict_of(context: Context, *, provisional: bool = False) -> Verdict:
    """Returns the verdict. ``initiators`` are the ranks among ``roots``; nobody is named in it but by a
    finding that ``decide`` has proven."""
    decision, job, finding = context.decision, context.job, context.finding
    cause, explanation = explain(context)
    named = finding is not None and decision.kind != "undecided"
    roots = root_entries(job, finding, context.solution, context.presences) if named and finding else ()
    initiators = tuple(sorted({root.rank for root in roots if root.rank is not None}))
    confidence, why_not = confidence_of(
        job, decision, context.solution, context.membership, context.presences
    )
    stuck = decision.kind not in ("slow", "not-stuck")
    since = decision.since if stuck else None
    return Verdict(
        job=job.capture.job,
        kind=decision.kind,
        initiators=initiators,
        cause=cause,
        confidence=confidence,
        why_not_higher=why_not,
        coverage=_coverage(context),
        world_size=job.world_size,
        waiting=_waiting(context, initiators),
        unknown=_unknown(context),
        stragglers=decision.calm.stragglers if decision.calm is not None and decision.kind == "slow" else (),
        stuck_since=_iso(since.wall) if since is not None and since.wall is not None else None,
        stuck_since_source=since.source if since is not None else None,
        roots=roots,
        chain=chain(job, finding, context.built, context.solution) if finding is not None else (),
        evidence=evidence(context, explanation.evidence if explanation else ())
        if stuck
        else _calm(explanation),
        against=against(context),
        ruled_out=ruled_out(context),
        missing=missing_facts(context),
        action=explanation.action if explanation is not None else _action(decision, initiators),
        next=(*(explanation.next if explanation is not None else ()), *_next(context)),
        independent=tuple(_independent(context, other) for other in decision.others[:5]),
        captured=tuple((rank, p.node, p.pid, gpu_of(p)) for rank, p in sorted(job.ranks.items())),
        deciding_fact=explanation.fact if explanation is not None else _fact(context, roots),
        samples=job.capture.samples,
        observed_seconds=round(job.observed, 3),
        captured_wall=last_wall(job),
        provisional=provisional,
        more_samples_would_decide=decision.more,
        unresolved=_unresolved(context),
    )


def _coverage(context: Context) -> str:
    seen = sum(p.being != "unknown" and p.process is not None for p in context.presences.values())
    return f"{seen}/{context.job.world_size if context.job.world_size is not None else '?'}"


def _waiting(context: Context, initiators: tuple[int, ...]) -> tuple[int, ...]:
    finding = context.finding
    if finding is None or context.decision.kind == "undecided":
        return communicating_ranks(context)
    return tuple(rank for rank in finding.victims if rank not in initiators)


def _unknown(context: Context) -> tuple[int, ...]:
    unseen = {rank for rank, presence in context.presences.items() if presence.being == "unknown"}
    finding = context.finding
    if context.decision.kind == "undecided" and finding is not None:
        unseen |= set(finding.unknown)
    return tuple(sorted(unseen | set(context.decision.also_unknown)))


def _iso(wall: float) -> str:
    moment = datetime.datetime.fromtimestamp(wall, datetime.timezone.utc)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _fact(context: Context, roots: tuple[RootEntry, ...]) -> str | None:
    """The deciding fact where no rule has one of its own."""
    decision, finding = context.decision, context.finding
    if decision.kind == "undecided":
        return decision.doubts or None
    if decision.kind == "not-stuck":
        texts = decision.calm.texts if decision.calm is not None else ()
        return texts[0][0] if texts else "no rank waits for another"
    if decision.kind == "all-joined":
        return "every member is in the operation, and every transport thread is in its normal wait"
    if finding is None or not roots:
        return None
    root = roots[0]
    nodes = context.blocked()
    why = nodes[0].wait.why if nodes and nodes[0].wait is not None else ""
    what = why or (root.wait or "").replace("-", " ") or (root.label or "")
    head = root.thread or root.label or ""
    state = f" in {root.state}" if root.state else ""
    at = f" at {root.at}" if root.at else ""
    return f"{head}{state}: {what}{at}".strip(": ")


def _action(decision: Decision, initiators: tuple[int, ...]) -> Action:
    if decision.kind == "undecided":
        text = "keep the job as it is until the missing fact is captured"
        return Action(kind="collect-more", safe_to_kill=False, text=text)
    if decision.kind in ("slow", "not-stuck"):
        return Action(kind="wait", safe_to_kill=False, text="nothing has to be done")
    if decision.kind == "all-joined":
        text = "restart; should it happen again, test the network between these nodes alone"
        return Action(kind="restart", safe_to_kill=True, text=text)
    if decision.kind in ("cycle", "mismatch", "rank-diverged"):
        text = "a restart meets the same order again: compare the two places above"
        return Action(kind="fix-code", safe_to_kill=True, text=text)
    who = ranks_phrase(initiators) if initiators else "the resource"
    return Action(kind="restart", safe_to_kill=True, text=f"see why {who} is blocked, then restart")


def _next(context: Context) -> tuple[NextStep, ...]:
    if context.decision.kind in ("slow", "not-stuck"):
        return ()
    first = next((fact for fact in missing_facts(context) if fact.command), None)
    if context.decision.kind == "undecided" and first is not None:
        return (NextStep(text=f"get {first.what}", command=first.command),)
    return ()


def _calm(explanation: Explanation | None) -> tuple[EvidenceLine, ...]:
    return explanation.evidence if explanation is not None else ()


def _independent(context: Context, finding: Finding) -> IndependentFinding:
    roots = root_entries(context.job, finding, context.solution, context.presences)
    who = (
        ranks_phrase(finding.ranks)
        if finding.ranks
        else (roots[0].label or "a resource" if roots else "nobody")
    )
    where = f" at {roots[0].at}" if roots and roots[0].at else ""
    verb = "wait" if len(finding.victims) > 1 else "waits"
    text = f"{finding.kind}: {who}{where}; {ranks_phrase(finding.victims)} {verb} for it"
    return IndependentFinding(kind=finding.kind, initiators=finding.ranks, cause=None, roots=roots, text=text)


def _unresolved(context: Context) -> tuple[str, ...]:
    found = []
    for id, node in context.solution.nodes.items():
        if (
            node.type != "thread"
            or node.wait is None
            or node.wait.resolved
            or id in context.solution.released
        ):
            continue
        thread = context.thread(node)
        frame = node.wait.frame or shown(node.wait) or ((thread.stack or (None,))[0] if thread else None)
        if frame is not None:
            found.append(f"{frame.function} ({place(frame)})")
        elif node.wait.kind is WaitKind.UNKNOWN and thread is not None and thread.wchan:
            found.append(f"kernel {thread.wchan}")
    return tuple(sorted(set(found)))

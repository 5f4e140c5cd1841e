"""The ledger's verdict with what the stacks of the named ranks say: what each does instead of joining."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from hangscope.model.ranges import ranks_phrase
from hangscope.model.verdict import Action, ChainLink, MissingFact, NextStep, RootEntry, Verdict

from .joined import undecided
from .reasons import Reason


def with_reasons(verdict: Verdict, reasons: Mapping[int, Reason], *, firm: bool) -> Verdict:
    """The ledger's verdict with what the stacks of the ranks that it names say. ``firm``: it is proven that
    they had not entered the operation when they were read."""
    if verdict.kind not in ("rank-blocked", "rank-diverged") or not verdict.initiators:
        return verdict
    if any(root.type != "rank" for root in verdict.roots):
        return _noted(verdict, reasons.values())
    seen = {rank: reasons[rank] for rank in verdict.initiators if rank in reasons}
    talking = [reason for reason in seen.values() if reason.communicates]
    if talking and verdict.kind == "rank-blocked":
        return _contradicted(verdict, talking, firm)
    if not seen or verdict.kind == "rank-diverged":
        return _noted(verdict, seen.values())
    return _explained(verdict, seen)


def _contradicted(verdict: Verdict, talking: list[Reason], firm: bool) -> Verdict:
    """The rank waits in communication itself: for whom, its stack does not tell."""
    ranks = [reason.rank for reason in talking]
    inside = "" if firm else ", or stands inside of the call that its counter does not show yet"
    fact = f"{ranks_phrase(ranks)} had not joined, and waits in communication itself{inside}"
    lines = tuple(line for reason in talking for line in reason.evidence)
    left = tuple(root for root in verdict.roots if root.rank not in ranks)
    if left:
        kept = tuple(sorted({root.rank for root in left if root.rank is not None}))
        return msgspec.structs.replace(
            verdict, roots=left, initiators=kept, confidence="low", why_not_higher=fact,
            against=(*verdict.against, *lines), waiting=tuple(sorted({*verdict.waiting, *ranks})),
        )  # fmt: skip
    chain = tuple(
        msgspec.structs.replace(link, waits_for="communication: for whom is not known")
        if link.ranks == verdict.initiators
        else link
        for link in verdict.chain
    )
    return undecided(msgspec.structs.replace(verdict, chain=chain), fact, lines)


def _explained(verdict: Verdict, seen: Mapping[int, Reason]) -> Verdict:
    roots: list[RootEntry] = []
    for root in verdict.roots:
        reason = seen.get(root.rank) if root.rank is not None else None
        if reason is None:
            roots.append(root)
        elif not reason.roots:
            roots.append(msgspec.structs.replace(root, at=root.at or reason.where))
        else:
            roots += [_placed(own, root) for own in reason.roots]
    reasons = list(seen.values())
    causes = {reason.cause for reason in reasons}
    cause = causes.pop() if len(causes) == 1 and len(seen) == len(verdict.initiators) else None
    first = reasons[0]
    agreed = not any(reason.live for reason in reasons)
    return msgspec.structs.replace(
        verdict,
        roots=tuple(roots),
        chain=(
            *(link for link in verdict.chain if link.ranks != verdict.initiators),
            *(ChainLink(ranks=(r.rank,), waits_for=r.fact or "not known", at=r.where) for r in reasons[:4]),
        ),
        cause=cause or verdict.cause,
        deciding_fact=f"{verdict.deciding_fact}: {first.fact}" if first.fact else verdict.deciding_fact,
        evidence=(*(line for reason in reasons for line in reason.evidence), *verdict.evidence),
        action=first.action or _action(verdict, reasons),
        next=first.next or _next(verdict, reasons),
        missing=(
            *_wanted(reasons),
            *(fact for fact in verdict.missing if not fact.what.startswith("the stack of")),
        ),
        why_not_higher=_why(verdict, agreed, bool(_wanted(reasons))),
    )


def _wanted(reasons: Iterable[Reason]) -> list[MissingFact]:
    """The stacks that would tell what the named ranks wait for."""
    facts = []
    for reason in reasons:
        if reason.wanted is not None:
            which, command = reason.wanted
            other = "Python" if which == "native" else "C"
            why = f"its {other} frames do not tell what it waits for"
            facts.append(
                MissingFact(what=f"the {which} stack of rank {reason.rank}", why=why, command=command)
            )
    return facts[:3]


def _action(verdict: Verdict, reasons: Sequence[Reason]) -> Action:
    """What holds the rank is still to be seen, or what it stands in is to be looked at."""
    if verdict.action.kind != "collect-more":
        return verdict.action
    wanted = _wanted(reasons)
    who = ranks_phrase([reason.rank for reason in reasons])
    over = verdict.action.safe_to_kill
    if wanted and over:
        text = f"the job has ended: when it hangs again, get {wanted[0].what} first"
    elif wanted:
        text = f"get {wanted[0].what} before the job is killed"
    elif len(reasons) < len(verdict.initiators):
        return verdict.action
    elif any(reason.live for reason in reasons) and over:
        text = f"the job has ended: when it hangs again, look at {who} twice, as it may only be slow"
    elif any(reason.live for reason in reasons):
        text = f"look at {who} again before the job is killed: it may only be slow"
    else:
        return Action(kind="restart", safe_to_kill=True, text=f"see why {who} is blocked, then restart")
    return msgspec.structs.replace(verdict.action, text=text)


def _next(verdict: Verdict, reasons: Iterable[Reason]) -> tuple[NextStep, ...]:
    """The C frames of who is named; what else was asked for, less what is there now or decides nothing."""
    steps = tuple(NextStep(text=f"get {fact.what}", command=fact.command) for fact in _wanted(reasons))
    kept = tuple(s for s in verdict.next if not s.text.startswith(("get the stack of", "get the number of")))
    return steps[:1] or kept


def _why(verdict: Verdict, agreed: bool, unread: bool) -> str | None:
    if verdict.why_not_higher != "what it does instead was not captured":
        return verdict.why_not_higher
    if unread:
        return "what it waits for there is not told by its frames"
    return "seen in one stack only" if agreed else "it runs: one look cannot tell slow from stuck"


def _placed(own: RootEntry, root: RootEntry) -> RootEntry:
    """The stack's root with what the ledger knows of the rank. Numbers below zero stand for unknown pids."""
    pid = own.pid if own.pid is not None and own.pid > 0 else root.pid
    tid = own.tid if own.tid is not None and own.tid > 0 else None
    rank = own.rank if own.rank is not None else (root.rank if own.type == "rank" else None)
    return msgspec.structs.replace(
        own, rank=rank, node=own.node or root.node, pid=pid, tid=tid, impact=max(own.impact, root.impact)
    )


def _noted(verdict: Verdict, reasons: Iterable[Reason]) -> Verdict:
    lines = tuple(line for reason in reasons for line in reason.evidence)
    return msgspec.structs.replace(verdict, evidence=(*verdict.evidence, *lines[:4]))

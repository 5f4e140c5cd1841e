"""One verdict from two: the ledger's, and that of stacks or of a capture.

Sequence numbers beat stacks. Where one of them names and the other has no say, its name stands; where they
name the same, both grounds stand together; where they contradict, nobody is named unless sequence numbers
settle it, and then at most *low*.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from hangscope.model.ranges import ranks_phrase
from hangscope.model.verdict import (
    Confidence,
    EvidenceLine,
    MissingFact,
    Verdict,
)

from .decide import LEVELS
from .picture import Picture

HARD_STATES = frozenset({"D", "T", "t", "Z", "X"})


def joined(ledger: Verdict, stacks: Verdict | None, picture: Picture) -> Verdict:
    """Returns the one verdict. ``stacks``: that of the stacks, or of a capture, of the same job."""
    if stacks is None:
        return ledger
    if not picture.lanes.by_key and not _names(ledger):
        return _with_ground(stacks, ledger)
    if ledger.kind == "slow":
        return _shown(ledger, stacks)
    if not _names(stacks):
        return _shown(ledger, stacks)
    if not _names(ledger):
        return _only_stacks(ledger, stacks, picture)
    if set(ledger.initiators) == set(stacks.initiators) and ledger.initiators:
        return _agreeing(ledger, stacks)
    return _disagreeing(ledger, stacks, picture)


def _names(verdict: Verdict) -> bool:
    return bool(verdict.initiators or verdict.roots) and verdict.kind != "undecided"


def _only_stacks(ledger: Verdict, stacks: Verdict, picture: Picture) -> Verdict:
    """The stacks name, the ledger does not. Who joined every operation that others wait in did not start it,
    unless it is gone, or a thread of it is blocked in the kernel."""
    innocent = set(stacks.initiators) & joined_all(picture)
    hard = stacks.kind in ("rank-absent", "cycle") or all(
        (root.state or "") in HARD_STATES for root in stacks.roots
    )
    if innocent and not hard:
        fact = f"the stacks name {ranks_phrase(stacks.initiators)}, which had joined what the others wait in"
        return undecided(ledger, fact, stacks.evidence[:3])
    found = _with_ground(stacks, ledger)
    if ledger.kind == "undecided" and ledger.unknown:
        return found
    why = f"the sequence numbers do not name it: {ledger.deciding_fact}"
    return _at_most(found, "medium", why)


def joined_all(picture: Picture) -> set[int]:
    """Ranks that wait in an operation themselves, and lack in none that others wait in."""
    lacking = {rank for operation in picture.operations for rank in operation.lacking}
    lacking |= {rank for transfer in picture.transfers for rank in (*transfer.lacking, *transfer.behind)}
    return set(picture.waiting) - lacking


def _agreeing(ledger: Verdict, stacks: Verdict) -> Verdict:
    """The same name on two grounds: the richer one, which is that of the stacks, with both."""
    best = max((ledger, stacks), key=lambda verdict: LEVELS.index(verdict.confidence))
    found = _with_ground(stacks, ledger)
    return msgspec.structs.replace(
        found,
        kind=stacks.kind if stacks.kind != "undecided" else ledger.kind,
        cause=stacks.cause or ledger.cause,
        confidence=best.confidence,
        why_not_higher=best.why_not_higher,
    )


def _disagreeing(ledger: Verdict, stacks: Verdict, picture: Picture) -> Verdict:
    """Sequence numbers settle it where they prove that whom the stacks name had joined."""
    lines: tuple[EvidenceLine, ...] = ()
    if stacks.initiators:
        told = stacks.deciding_fact or stacks.kind
        lines = (EvidenceLine(text=f"the stacks speak for {ranks_phrase(stacks.initiators)}: {told}"),)
    if stacks.initiators and set(stacks.initiators) <= joined_all(picture) and ledger.initiators:
        found = msgspec.structs.replace(ledger, against=(*ledger.against, *lines, *stacks.evidence[:2]))
        return _at_most(found, "low", "the stacks speak for another rank")
    if not stacks.initiators and stacks.roots and set(ledger.initiators) <= set(stacks.waiting):
        return _with_ground(stacks, ledger)  # a resource or link under the rank that the ledger names
    one, other = ranks_phrase(ledger.initiators), ranks_phrase(stacks.initiators)
    fact = f"the sequence numbers speak for {one}, the stacks for {other}"
    return undecided(ledger, fact, (*lines, *stacks.evidence[:2]))


def _with_ground(found: Verdict, other: Verdict) -> Verdict:
    """The verdict with what only the other one knows."""
    return msgspec.structs.replace(
        found,
        job=found.job or other.job,
        world_size=found.world_size or other.world_size,
        stuck_since=found.stuck_since or other.stuck_since,
        stuck_since_source=found.stuck_since_source or other.stuck_since_source,
        evidence=tuple(dict.fromkeys((*found.evidence, *_seen(other)[:4]))),
        missing=_asked(found),
        against=tuple(dict.fromkeys((*found.against, *other.against))),
        independent=(*found.independent, *other.independent)[:8],
        waiting=tuple(sorted({*found.waiting, *other.waiting} - set(found.initiators))),
    )


def _seen(verdict: Verdict) -> tuple[EvidenceLine, ...]:
    """Its evidence that stands somewhere: that a rank has no stack is said by what is missing."""
    return tuple(line for line in verdict.evidence if line.artifact is not None)


def _asked(verdict: Verdict) -> tuple[MissingFact, ...]:
    """What it misses and the other source does not have: recorders or logs are there."""
    return tuple(fact for fact in verdict.missing if not fact.what.startswith(_THERE))


_THERE = ("the flight recorder of", "the processes of")


def _shown(ledger: Verdict, stacks: Verdict) -> Verdict:
    """The ledger's verdict with what the stacks show beside it."""
    return msgspec.structs.replace(
        ledger,
        evidence=tuple(dict.fromkeys((*ledger.evidence, *_seen(stacks)[:4]))),
        unresolved=tuple(dict.fromkeys((*ledger.unresolved, *stacks.unresolved))),
        missing=_both(ledger, stacks),
    )


def _both(ledger: Verdict, stacks: Verdict) -> tuple[MissingFact, ...]:
    """What both miss. Stacks of which nobody knows the rank may be those that the ledger asks for."""
    if ledger.kind == "undecided":
        return (*ledger.missing, *_asked(stacks)[:2])
    if any(fact.what.startswith("the stack of") for fact in ledger.missing):
        return (*(f for f in stacks.missing if f.what.startswith("which rank")), *ledger.missing)
    return ledger.missing


def undecided(verdict: Verdict, fact: str, against: Iterable[EvidenceLine]) -> Verdict:
    """Nobody is named: two sources contradict each other."""
    return msgspec.structs.replace(
        verdict,
        kind="undecided",
        initiators=(),
        roots=(),
        cause=None,
        confidence="low",
        why_not_higher=fact,
        deciding_fact=fact,
        waiting=tuple(sorted({*verdict.waiting, *verdict.initiators})),
        against=(*verdict.against, *against),
        action=msgspec.structs.replace(
            verdict.action,
            kind="collect-more",
            safe_to_kill=False,
            text="keep the job as it is, if it still runs, until the missing fact is there",
            commands=(),
        ),
    )


def _at_most(verdict: Verdict, level: Confidence, why: str) -> Verdict:
    if LEVELS.index(verdict.confidence) <= LEVELS.index(level):
        return verdict
    return msgspec.structs.replace(verdict, confidence=level, why_not_higher=why)

"""One verdict a world: the one that matters most is the answer, the others stand beside it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...model.facts import Process
from ...model.ranges import ranks_phrase
from ...model.verdict import IndependentFinding, MissingFact, Verdict
from .facts import World

OTHERS = 8


def joined(worlds: Sequence[World], verdicts: Sequence[Verdict]) -> Verdict:
    """Returns the verdict of the world that is stuck with the most ranks (the youngest of equal ones), with
    the others under ``independent``. ``verdicts`` in the order of ``worlds``."""
    order = sorted(range(len(worlds)), key=lambda number: _key(worlds[number], verdicts[number]))
    main = verdicts[order[0]]
    if len(worlds) == 1 and not worlds[0].homeless:
        return main
    others = [found for number in order[1:] for found in _told(worlds[number], verdicts[number])]
    asked = _asked(worlds[order[0]].homeless)
    return msgspec.structs.replace(
        main,
        independent=(*main.independent, *others)[:OTHERS],
        missing=(*asked, *main.missing),
        more_samples_would_decide=any(verdict.more_samples_would_decide for verdict in verdicts),
    )


def _key(world: World, verdict: Verdict) -> tuple[object, ...]:
    named = bool(verdict.initiators or verdict.roots)
    level = {"undecided": 2, "slow": 3, "not-stuck": 4}.get(verdict.kind, 0 if named else 1)
    ranks = min((rank for rank, *_rest in verdict.captured), default=0)
    return (level, -len(verdict.waiting), -len(verdict.captured), -world.started, ranks, world.label or "")


def _told(world: World, verdict: Verdict) -> list[IndependentFinding]:
    """Another world's verdict as one line, and what is independent in it."""
    root = verdict.roots[0] if verdict.roots else None
    text = f"{world.label}: {verdict.kind}"
    if verdict.initiators:
        text += f": {ranks_phrase(verdict.initiators)}"
    elif root is not None:
        text += f": {root.label or root.type}"
    if root is not None and root.at:
        text += f" at {root.at}"
    if verdict.kind == "undecided" and verdict.deciding_fact:
        text += f": {verdict.deciding_fact}"
    if verdict.waiting:
        text += f"; {ranks_phrase(verdict.waiting)} wait"
    found = IndependentFinding(
        kind=verdict.kind, initiators=verdict.initiators, cause=verdict.cause, roots=verdict.roots, text=text
    )
    return [found, *verdict.independent]


def _asked(homeless: Sequence[Process]) -> list[MissingFact]:
    return [
        MissingFact(
            what=f"to which world rank {process.rank} (pid {process.pid}) belongs",
            why="the capture holds several worlds, and its environment does not tell",
            command=f"tr '\\0' '\\n' < /proc/{process.pid}/environ | grep -E 'MASTER|WORLD_SIZE|RUN_ID'",
        )
        for process in homeless[:3]
    ]

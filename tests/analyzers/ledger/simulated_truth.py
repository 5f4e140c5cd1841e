"""Programs of small training jobs, and the one thing that goes wrong in each."""

from __future__ import annotations

import random

import msgspec

from .simulated_run import Call, Run

BEGIN = 1_767_600_000.0
LIMIT = 600.0
KINDS = ("all_reduce", "_all_gather_base", "_reduce_scatter_base", "broadcast", "all_reduce", "reduce")
HANGS = (
    "blocked", "skip", "extra", "differs", "order", "ring", "send", "wedged", "device", "killed", "inside",
)  # fmt: skip
TRUTHS = (*HANGS, "slow", "healthy")


class Truth(msgspec.Struct, kw_only=True):
    """A job with what is really wrong with it. Only ``guilty`` may be named, and for a cycle ``knot``."""

    what: str
    run: Run
    guilty: frozenset[int]
    knot: frozenset[int] = frozenset()
    at: int = 0
    """Number of the call at which it goes wrong."""
    now: float = 0.0
    """When the evidence is gathered."""
    names: tuple[str, ...] = ()
    inside: int | None = None
    """A rank that stands inside of its last call, which its counters do not show."""


def groups_of(chance: random.Random, size: int) -> dict[str, tuple[int, ...]]:
    """World alone, or with tensor, data and pipeline groups; names are GUIDs as torch counts them."""
    groups = {"0 default_pg": tuple(range(size))}
    if size % 2 or size < 4 or chance.random() < 0.3:
        return groups
    width = 4 if size % 4 == 0 and chance.random() < 0.4 else 2
    number = 1
    for start in range(0, size, width):
        groups[f"{number} tp"] = tuple(range(start, start + width))
        number += 1
    for start in range(width):
        groups[f"{number} dp"] = tuple(range(start, size, width))
        number += 1
    return groups


def _desc(group: str) -> str:
    return group.partition(" ")[2]


def program(chance: random.Random, groups: dict[str, tuple[int, ...]], gpu: bool) -> list[list[Call]]:
    """Iterations of one loop, the same for all ranks."""
    size = len(groups["0 default_pg"])
    kinds = sorted({_desc(group) for group in groups})
    shared = gpu or chance.random() < 0.5
    lines = []
    for line in range(chance.randint(2, 7)):
        desc = chance.choice(kinds)
        kind = chance.choice(KINDS) if shared else "all_reduce"
        length = chance.choice([8, 1024, 4096])
        lines.append((desc, kind, length, 20 + line, chance.random() < 0.4))
    stages = [group for group in groups if _desc(group) == "dp"] if chance.random() < 0.4 else []
    found: list[list[Call]] = [[] for _ in range(size)]
    for _step in range(chance.randint(3, 8)):
        for desc, kind, length, line, sync in lines:
            for group, members in groups.items():
                if _desc(group) != desc:
                    continue
                for rank in members:
                    found[rank].append(
                        Call(group=group, kind=kind, size=length, place=line, sync=sync or not gpu)
                    )
        for group in stages:
            _pipeline(found, group, groups[group])
    for calls in found:
        for call in calls:
            call.think = chance.uniform(0.001, 0.2)
    return found


def _pipeline(found: list[list[Call]], group: str, members: tuple[int, ...]) -> None:
    """One micro-batch through the stages and back."""
    for way in (members, members[::-1]):
        line = 80 if way is members else 90
        for place, rank in enumerate(way):
            if place:
                found[rank].append(Call(group=group, kind="recv", peer=way[place - 1], place=line))
            if place + 1 < len(way):
                found[rank].append(Call(group=group, kind="send", peer=way[place + 1], place=line + 1))


def truth_of(seed: int | str, what: str | None = None) -> Truth:
    """The job of a seed. Draws again until the hang is one: somebody waits, and nobody came to his end."""
    chance = random.Random(f"job {seed}")
    what = what or chance.choice(TRUTHS)
    while True:
        found = _drawn(chance, what)
        if found is not None:
            return found


def _drawn(chance: random.Random, what: str) -> Truth | None:
    size = chance.choice([2, 3, 4, 4, 6, 8, 8, 16])
    gpu = chance.random() < 0.65
    groups = groups_of(chance, size)
    run = Run(programs=program(chance, groups, gpu), groups=groups, gpu=gpu)
    run.one_stream = not gpu or chance.random() < 0.5
    run.ahead = chance.choice([1, 2, 4, 1000]) if gpu else 1
    run.lenient = chance.random() < 0.3
    guilty = 0 if what == "extra" else chance.randrange(size)
    mine = run.programs[guilty]
    if len(mine) < 4:
        return None
    at = chance.randrange(1, len(mine) - 1) if chance.random() < 0.9 else 0
    truth = Truth(what=what, run=run, guilty=frozenset({guilty}), at=at)
    if not _wronged(chance, truth, guilty):
        return None
    run.execute(BEGIN)
    truth.names = tuple(groups)
    truth.knot = frozenset(run.knots())
    if what in ("slow", "healthy"):
        return _timed(chance, truth, guilty)
    if not run.stuck or run.ended:
        return None
    truth.now = run.last + LIMIT
    return truth


def _timed(chance: random.Random, truth: Truth, guilty: int) -> Truth | None:
    calls = [call for program in truth.run.programs for call in program]
    if truth.run.stuck:
        return None
    if truth.what == "slow":
        call = truth.run.programs[guilty][truth.at]
        truth.now = call.launched - chance.uniform(1.0, 60.0)
    else:
        end = max(call.finished for call in calls)
        truth.now = chance.uniform(BEGIN + 1, end - 0.5) if end > BEGIN + 2 else end
        truth.guilty = frozenset()
    truth.knot = frozenset()
    return truth


def _wronged(chance: random.Random, truth: Truth, guilty: int) -> bool:
    """Puts the fault into the programs; False where this job cannot have it."""
    run, at = truth.run, truth.at
    mine = run.programs[guilty]
    call = mine[at]
    if truth.what in ("blocked", "killed"):
        call.halt = True
    elif truth.what == "inside":
        call.dead_device = True
        mine[at + 1].halt = True
        truth.inside = guilty
        return run.gpu
    elif truth.what == "slow":
        call.think = 120.0
    elif truth.what == "skip":
        del mine[at]
    elif truth.what == "extra":
        mine.insert(at, Call(group=chance.choice(mine).group, kind=chance.choice(KINDS), place=70, size=1))
    elif truth.what == "differs":
        return _differs(chance, truth, guilty)
    elif truth.what == "order":
        other = at + 1
        if mine[other].group == call.group or (call.p2p and mine[other].p2p):
            return False
        mine[at], mine[other] = mine[other], mine[at]
        mine[at].sync = True
    elif truth.what == "ring":
        _ring(truth)
    elif truth.what == "send":
        if call.kind != "send":
            return False
        del mine[at]
    elif truth.what == "wedged":
        call.lost = True
        truth.guilty = frozenset()
        return not call.p2p and len(run.groups[call.group]) > 1
    elif truth.what == "device":
        call.dead_device = True
        return run.gpu and not call.p2p
    return True


def _differs(chance: random.Random, truth: Truth, guilty: int) -> bool:
    call = truth.run.programs[guilty][truth.at]
    if call.p2p:
        return False
    how = chance.choice(["size", "dtype", "kind", "root"])
    if how == "size" and call.kind in ("all_reduce", "broadcast", "reduce"):
        call.size = call.size // 2
    elif how == "dtype" and call.kind in ("all_reduce", "broadcast", "reduce"):
        call.dtype = "BFloat16"
    elif how == "kind":
        call.kind = "all_reduce" if call.kind != "all_reduce" else "_all_gather_base"
    elif how == "root" and call.kind == "broadcast":
        call.root = 1
    else:
        return False
    if chance.random() < 0.5:
        call.place += 30
    return True


def _ring(truth: Truth) -> None:
    run = truth.run
    group = "0 default_pg"
    everyone = run.groups[group]
    truth.guilty = frozenset(everyone)
    step = min(truth.at, min(len(program) for program in run.programs))
    for rank in everyone:
        following, before = (rank + 1) % run.ranks, (rank - 1) % run.ranks
        send = Call(group=group, kind="send", peer=following, place=60)
        receive = Call(group=group, kind="recv", peer=before, place=61)
        run.programs[rank][step:step] = [send, receive]

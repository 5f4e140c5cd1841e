"""Simulated hangs of every sort and size: the rank that started it is named, or nobody is."""

from __future__ import annotations

import random

import pytest

from hangscope.analyzers.loose import analyze_facts
from hangscope.model.verdict import Verdict

from .simulated import END, Program, Simulation, Step

KINDS = ("all_reduce", "all_gather", "broadcast", "barrier", "reduce_scatter")


def _groups(chance: random.Random) -> dict[str, tuple[int, ...]]:
    size = chance.choice([2, 3, 4, 6, 8])
    groups = {"0": tuple(range(size))}
    if size % 2 == 0 and size > 2 and chance.random() < 0.8:
        for start in range(0, size, 2):
            groups[f"tp{start}"] = (start, start + 1)
        for start in range(2):
            groups[f"dp{start}"] = tuple(range(start, size, 2))
    if chance.random() < 0.3:
        groups["other"] = tuple(range(size))
    return groups


def _programs(chance: random.Random, groups: dict[str, tuple[int, ...]]) -> list[Program]:
    """The same program for all: each line is for all groups of one name."""
    size = len(groups["0"])
    programs: list[Program] = [[] for _ in range(size)]
    names = sorted({name.rstrip("0123456789") or "0" for name in groups})
    for line in range(chance.randint(4, 12)):
        name, kind = chance.choice(names), chance.choice(KINDS)
        for group, members in groups.items():
            if (group.rstrip("0123456789") or "0") == name:
                for rank in members:
                    programs[rank].append(Step(group, kind, f"train.py:{10 + line}"))
    return programs


def _verdict(job: Simulation) -> Verdict:
    return analyze_facts(job.dumps().facts())[0]


@pytest.mark.parametrize("seed", range(120))
def test_a_rank_that_stops_is_named_and_nobody_else(seed: int) -> None:
    chance = random.Random(seed)
    groups = _groups(chance)
    programs = _programs(chance, groups)
    guilty = chance.randrange(len(programs))
    where = chance.randrange(len(programs[guilty]))
    programs[guilty].insert(where, END)
    job = Simulation(programs, groups, ahead=chance.choice([1, 1, 2, 5])).run()
    verdict = _verdict(job)
    assert job.stuck
    assert verdict.kind == "rank-blocked"
    assert verdict.initiators == (guilty,)
    assert guilty not in verdict.waiting and verdict.confidence != "high"


@pytest.mark.parametrize("what", ["skip", "extra", "swap", "other"])
@pytest.mark.parametrize("seed", range(60))
def test_a_rank_that_takes_another_path_is_the_only_one_that_may_be_named(what: str, seed: int) -> None:
    chance = random.Random(f"{what} {seed}")
    groups = _groups(chance)
    programs = _programs(chance, groups)
    guilty = chance.randrange(len(programs))
    mine = programs[guilty]
    where = chance.randrange(len(mine) - 1)
    if what == "skip":
        del mine[where]
    elif what == "extra":
        mine.insert(where, Step(chance.choice([s.group for s in mine]), chance.choice(KINDS), "eval.py:3"))
    elif what == "swap":
        mine[where], mine[where + 1] = mine[where + 1], mine[where]
    else:
        mine[where] = Step(mine[where].group, chance.choice(KINDS), "eval.py:7")
    job = Simulation(programs, groups, ahead=chance.choice([1, 1, 3])).run()
    verdict = _verdict(job)
    if not job.stuck:
        assert verdict.initiators == ()
    elif verdict.kind == "cycle":
        assert guilty in verdict.initiators
    else:
        assert set(verdict.initiators) <= {guilty}, (what, verdict.kind, verdict.deciding_fact)

"""What must hold for every job: names follow ranks, order and copies change nothing, a lost fact names nobody
else."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangscope.analyzers.loose import analyze_facts
from hangscope.model.facts import Ref
from hangscope.model.loose import FlightRecord, LooseFact
from hangscope.model.verdict import Verdict

from .builder import LedgerBuilder
from .simulated import END, Simulation
from .test_simulated_hangs import KINDS, _groups, _programs


def _job(seed: int) -> tuple[Simulation, int]:
    """A job whose rank stops, skips, or takes another operation."""
    chance = random.Random(seed)
    groups = _groups(chance)
    programs = _programs(chance, groups)
    guilty = chance.randrange(len(programs))
    mine = programs[guilty]
    where = chance.randrange(len(mine) - 1)
    what = chance.choice(["stop", "stop", "skip", "other"])
    if what == "stop":
        mine.insert(where, END)
    elif what == "skip":
        del mine[where]
    else:
        mine[where] = msgspec.structs.replace(mine[where], kind=chance.choice(KINDS), place="eval.py:7")
    return Simulation(programs, groups, ahead=chance.choice([1, 1, 4])).run(), guilty


def _only(facts: list[LooseFact]) -> Verdict:
    found = analyze_facts(facts)
    assert len(found) == 1
    return found[0]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_removing_a_dump_never_names_another(seed: int) -> None:
    job, _guilty = _job(seed)
    facts = job.dumps().facts()
    whole = set(_only(facts).initiators)
    for index in range(len(facts)):
        left = facts[:index] + facts[index + 1 :]
        assert set(_only(left).initiators) <= whole


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), data=st.data())
def test_the_order_of_the_facts_changes_nothing(seed: int, data: st.DataObject) -> None:
    facts = _job(seed)[0].dumps().facts()
    shuffled = data.draw(st.permutations(facts))
    assert _only(shuffled) == _only(facts)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), data=st.data())
def test_names_follow_the_ranks(seed: int, data: st.DataObject) -> None:
    facts = _job(seed)[0].dumps().records()
    before = _only(list(facts))
    size = len(facts)
    new = data.draw(st.permutations(range(size)))
    after = _only([_renamed(record, new) for record in facts])
    assert after.kind == before.kind
    assert set(after.initiators) == {new[rank] for rank in before.initiators} or _tied(before)


def _tied(found: Verdict) -> bool:
    """Several roots with equally many victims: the lowest rank stands first."""
    return bool(found.independent)


def _renamed(record: FlightRecord, new: list[int]) -> FlightRecord:
    groups = tuple(
        msgspec.structs.replace(
            group,
            members=None
            if group.members is None
            else tuple(range(len(new)))
            if group.name == "0"
            else tuple(new[rank] for rank in group.members),
        )
        for group in record.groups
    )
    rank = new[record.origin.rank or 0]
    origin = msgspec.structs.replace(record.origin, rank=rank)
    return msgspec.structs.replace(record, origin=origin, groups=groups, ref=Ref(f"dumps/rank_{rank}"))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), data=st.data())
def test_a_copy_of_a_dump_changes_nothing(seed: int, data: st.DataObject) -> None:
    facts = _job(seed)[0].dumps().facts()
    copy = data.draw(st.sampled_from(facts))
    found = _only([*facts, copy])
    assert (found.kind, found.initiators) == (_only(facts).kind, _only(facts).initiators)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_one_more_healthy_rank_changes_no_name(seed: int) -> None:
    """A rank that does all that rank 0 does, in groups of its own beside the world."""
    job, guilty = _job(seed)
    if guilty == 0:
        return
    before = _only(job.dumps().facts())
    if len(job.programs) < 3 or before.kind != "rank-blocked":
        return
    size = len(job.programs)
    job.programs.append([step for step in job.programs[0] if step.group in ("0", "other")])
    groups = {
        name: (*members, size) if name in ("0", "other") else members for name, members in job.groups.items()
    }
    wider = Simulation(job.programs, groups, ahead=job.ahead).run()
    assert _only(wider.dumps().facts()).initiators in (before.initiators, ())


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_no_cycle_without_one(seed: int) -> None:
    """All ranks run one program, and one of them stops: nobody waits in a circle."""
    chance = random.Random(seed)
    groups = _groups(chance)
    programs = _programs(chance, groups)
    programs[chance.randrange(len(programs))].insert(chance.randrange(3), END)
    job = Simulation(programs, groups, ahead=chance.choice([1, 3])).run()
    assert _only(job.dumps().facts()).kind != "cycle"


@pytest.mark.parametrize("drop", range(6))
def test_removing_a_line_never_names_another(drop: int) -> None:
    job = LedgerBuilder(4)
    job.without = set(range(4))
    job.event("restart", world_size=4)
    for rank in (0, 1, 3):
        job.event(
            "watchdog-timeout", rank, sequence=5, operation="all_reduce", group="0", group_desc="default_pg"
        )
    job.event("dump-received", 2, enqueued=4, completed=4, group="0", group_desc="default_pg")
    job.event("exit", about=(0,), code=-6)
    facts = job.facts()
    assert _only(facts).initiators == (2,)
    assert set(_only(facts[:drop] + facts[drop + 1 :]).initiators) <= {2}

"""Jobs of which nobody says how many ranks they have: what must exist counts, and proves nothing more."""

from __future__ import annotations

import msgspec
import pytest

from hangscope.analyzers.loose import analyze_facts
from hangscope.model.facts import Ref
from hangscope.model.loose import LogEvent, LooseFact, Origin
from hangscope.model.verdict import Verdict

from .builder import LedgerBuilder


def of_unknown_size(job: LedgerBuilder, at_least: int | None = None) -> list[LooseFact]:
    """The dumps as gloo writes them: no members, no world size."""
    return [
        msgspec.structs.replace(
            record,
            world_size=None,
            at_least=at_least,
            groups=tuple(msgspec.structs.replace(group, members=None) for group in record.groups),
        )
        for record in job.records()
    ]


def verdict(facts: list[LooseFact]) -> Verdict:
    (found,) = analyze_facts(facts)
    return found


def test_a_gap_in_the_ranks_is_a_rank_of_which_nothing_is_known() -> None:
    job = LedgerBuilder(4).run(times=3).stuck(on=[0, 1, 3])
    whole = verdict(of_unknown_size(job))
    assert (whole.kind, whole.initiators, whole.unknown) == ("rank-blocked", (2,), ())
    job.without = {2}
    found = verdict(of_unknown_size(job))
    assert (found.kind, found.initiators, found.unknown) == ("undecided", (), (2,))
    assert found.missing[0].what == "the flight recorder or the log of rank 2"


def test_a_majority_of_what_was_read_is_none_of_the_job() -> None:
    """Ranks 1 to 3 are in one operation, 0 and 4 in another: without the dumps of 2 and 3 nobody is odd."""
    job = LedgerBuilder(5).run(times=2).stuck("all_reduce", on=[0, 4], at="a.py:1")
    job.stuck("all_gather", on=[1, 2, 3], at="b.py:2")
    assert verdict(of_unknown_size(job)).initiators == (0, 4)
    job.without = {2, 3}
    assert verdict(of_unknown_size(job)).initiators == ()
    job.without = {1, 2, 3}
    assert verdict(of_unknown_size(job, at_least=5)).initiators == ()


def test_a_dump_that_lists_more_ranks_than_were_read() -> None:
    job = LedgerBuilder(4).run(times=3).stuck(on=[0, 1])
    job.without = {2, 3}
    found = verdict(of_unknown_size(job, at_least=4))
    assert (found.kind, found.unknown) == ("undecided", (2, 3))


def event(kind: str, rank: int | None, line: int, **fields: object) -> LogEvent:
    fields.setdefault("text", kind)
    origin = Origin(rank=rank, source="prefix" if rank is not None else None)
    return LogEvent(kind=kind, origin=origin, ref=Ref("job.log", line), **fields)  # type: ignore[arg-type]


def clients(rank: int | None, come: int, size: int) -> LogEvent:
    return event("rendezvous-timeout", rank, 1, key="store clients", code=come, world_size=size)


def address(rank: int | None, line: int) -> LogEvent:
    """The rank waits for where rank 0 listens."""
    key = "/default_pg/0//cpu//0/0"
    return event(
        "store-timeout", rank, line, key=key, about=(0,), about_group_ranks=True, group="0",
        group_desc="default_pg",
    )  # fmt: skip


def test_the_store_counts_who_has_come() -> None:
    found = verdict([clients(0, 3, 4), address(1, 2), address(2, 3)])
    assert (found.kind, found.initiators, found.cause) == ("rank-absent", (3,), "store-wait-missing-rank")
    assert found.waiting == (0, 1, 2) and found.coverage == "3/?"


@pytest.mark.parametrize(
    "facts",
    [
        [clients(None, 3, 4), address(None, 2), address(None, 3)],
        [clients(0, 2, 4), address(1, 2)],
        [address(1, 2), address(2, 3)],
        [address(None, 2)],
    ],
    ids=["nobody's lines", "two are missing", "the host says nothing", "one line"],
)
def test_the_host_of_the_store_is_not_blamed_for_who_has_not_come(facts: list[LooseFact]) -> None:
    assert 0 not in verdict(facts).initiators


def test_under_a_launcher_rank_0_hosts_no_store() -> None:
    ended = event("exit-first", 1, 9, code=1)
    found = verdict([address(1, 2), address(2, 3), ended])
    assert found.initiators in ((0,), ())
    assert found.action.safe_to_kill and not found.action.text.endswith("before the job is killed")


def test_transports_that_gave_up_show_where_to_look_and_name_nobody() -> None:
    facts: list[LooseFact] = [event("gloo-timeout", rank, rank) for rank in (1, 2, 3)]
    found = verdict(facts)
    assert (found.kind, found.initiators, found.waiting, found.unknown) == ("undecided", (), (1, 2, 3), (0,))


def test_shapes_that_torch_refused_differ_though_they_have_as_many_elements() -> None:
    shapes = {0: "[16, 128]", 1: "[128, 16]", 2: "[16, 128]"}
    facts: list[LooseFact] = []
    for rank, shape in shapes.items():
        facts.append(
            event("fingerprint-mismatch", rank, 3 * rank + 1, sequence=2, about=(rank, 1 if rank != 1 else 0))
        )
        facts.append(
            event(
                "fingerprint",
                rank,
                3 * rank + 2,
                sequence=2,
                operation="all_gather",
                sizes=shape,
                group_rank=rank,
                counter="fingerprint",
            )
        )
    found = verdict(facts)
    assert (found.kind, found.initiators) == ("mismatch", (1,))
    unrefused = [fact for fact in facts if getattr(fact, "kind", "") != "fingerprint-mismatch"]
    assert verdict(unrefused).initiators == ()

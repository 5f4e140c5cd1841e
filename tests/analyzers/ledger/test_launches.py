"""NCCL's own log in the ledger: launches that are missing, communicators that were never formed."""

from __future__ import annotations

from hangscope.analyzers.loose import analyze_facts
from hangscope.model.verdict import Verdict

from .nccl_job import Rank, events_of

WORLD = 0xC0FFEE


def _ranks(size: int) -> list[Rank]:
    return [Rank(rank).bootstrap().start(0x10 + rank, size, WORLD) for rank in range(size)]


def _formed(size: int) -> list[Rank]:
    return [rank.complete(0x10 + rank.rank, size, WORLD) for rank in _ranks(size)]


def _verdict(ranks: list[Rank]) -> Verdict:
    """All ranks write one log, each line whole, one after the other."""
    longest = max(len(rank.lines) for rank in ranks)
    lines = [rank.lines[at] for at in range(longest) for rank in ranks if at < len(rank.lines)]
    return analyze_facts(events_of({"job.log": lines}))[0]


def test_the_rank_that_has_not_launched_is_named_at_most_medium() -> None:
    ranks = _formed(4)
    for rank in ranks:
        for _ in range(12 if rank.rank == 2 else 13):
            rank.coll(0x10 + rank.rank, size=4)
    found = _verdict(ranks)
    assert (found.kind, found.initiators) == ("rank-blocked", (2,))
    assert found.confidence != "high" and found.waiting == (0, 1, 3)
    assert any("#12" in line.text for line in found.evidence)


def test_equal_launches_name_nobody() -> None:
    ranks = _formed(4)
    for rank in ranks:
        for _ in range(5):
            rank.coll(0x10 + rank.rank, size=4)
    assert _verdict(ranks).initiators == ()


def test_another_collective_at_one_count_is_a_mismatch_by_majority() -> None:
    ranks = _formed(4)
    for rank in ranks:
        rank.coll(0x10 + rank.rank, size=4)
        rank.coll(0x10 + rank.rank, size=4, name="Broadcast" if rank.rank == 1 else "AllReduce")
    found = _verdict(ranks)
    assert (found.kind, found.initiators) == ("mismatch", (1,))


def test_a_rank_that_never_began_to_form_it_is_not_named_without_its_log() -> None:
    found = _verdict([rank for rank in _ranks(4) if rank.rank != 3])
    assert (found.kind, found.initiators) == ("undecided", ())
    assert found.waiting == (0, 1, 2)

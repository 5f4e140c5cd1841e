"""Captures and documents beside loose facts."""

from __future__ import annotations

import pathlib

import msgspec

from hangscope.analyzers.analysis import analyze
from hangscope.analyzers.ledger.joined import joined
from hangscope.analyzers.ledger.picture import Picture, picture_of
from hangscope.analyzers.loose import analyze_facts, analyze_loose
from hangscope.analyzers.readers.interface import Document
from hangscope.bundle.reader import read_bundle
from hangscope.model.evidence import Evidence
from hangscope.model.verdict import RootEntry, Verdict

from .builder import LedgerBuilder

BUNDLES = pathlib.Path(__file__).parents[3] / "fixtures" / "bundles"


def bundle(name: str) -> Evidence:
    return read_bundle(str(BUNDLES / name / "bundle.tar"))


def test_a_capture_alone_is_judged_as_ever() -> None:
    evidence = bundle("02-read-before-collective")
    assert analyze_facts([], evidence=[evidence]) == (analyze(evidence),)


def test_a_log_that_agrees_stands_beside_the_capture() -> None:
    evidence = bundle("02-read-before-collective")
    alone = analyze(evidence)
    assert alone.initiators
    guilty = alone.initiators[0]
    job = LedgerBuilder(alone.world_size or 4).run(times=3)
    facts = job.stuck(on=[rank for rank in range(job.ranks) if rank != guilty]).facts()
    (found,) = analyze_facts(facts, evidence=[evidence])
    assert (found.kind, found.initiators, found.cause) == (alone.kind, alone.initiators, alone.cause)
    assert found.confidence == alone.confidence
    artifacts = {line.artifact for line in found.evidence}
    assert any((artifact or "").startswith("dumps/") for artifact in artifacts)


def test_a_log_that_contradicts_the_capture_takes_the_name_away() -> None:
    evidence = bundle("02-read-before-collective")
    alone = analyze(evidence)
    guilty = alone.initiators[0]
    other = (guilty + 1) % (alone.world_size or 4)
    job = LedgerBuilder(alone.world_size or 4).run(times=3)
    facts = job.stuck(on=[rank for rank in range(job.ranks) if rank != other]).facts()
    (found,) = analyze_facts(facts, evidence=[evidence])
    assert guilty not in found.initiators
    assert found.confidence == "low"
    assert any(f"rank {guilty}" in line.text for line in found.against)


def test_documents_are_read_and_what_is_not_understood_is_noted() -> None:
    text = (
        b"[rank0]:[E814 13:15:55.5 ProcessGroupNCCL.cpp:607] [Rank 0] "
        b"Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE, NumelIn=8, "
        b"NumelOut=8, Timeout(ms)=600000) ran for 600077 milliseconds before timing out.\n"
    )
    documents = [Document(path="a.log", data=text), Document(path="b.bin", data=b"\0\1\2\3" * 50)]
    (found,) = analyze_loose(documents)
    assert found.kind == "undecided" and found.waiting == (0,)
    assert any("b.bin" in line.text for line in found.against)


def _stacks(kind: str, ranks: tuple[int, ...], **fields: object) -> Verdict:
    """The verdict of stacks that name these ranks."""
    base = analyze_facts(LedgerBuilder(4).facts())[0]
    roots = tuple(RootEntry(type="rank", rank=rank, state="S", wait="poll") for rank in ranks)
    return msgspec.structs.replace(
        base, kind=kind, initiators=ranks, roots=roots, confidence="high", why_not_higher=None, **fields
    )


def _picture(job: LedgerBuilder) -> tuple[Verdict, Picture]:
    return analyze_facts(job.facts())[0], picture_of(job.facts())


def test_who_had_joined_is_not_named_by_its_stack_unless_it_is_gone() -> None:
    ledger, picture = _picture(LedgerBuilder(4).run(times=2).stuck())
    assert joined(ledger, _stacks("rank-blocked", (1,)), picture).initiators == ()
    gone = joined(ledger, _stacks("rank-absent", (1,)), picture)
    assert (gone.initiators, gone.confidence) == ((1,), "medium")


def test_where_the_ledger_lacks_a_rank_the_stacks_may_name_it() -> None:
    job = LedgerBuilder(4).run(times=2).stuck(on=[0, 1, 3])
    job.without.add(2)
    ledger, picture = _picture(job)
    found = joined(ledger, _stacks("rank-blocked", (2,)), picture)
    assert (found.kind, found.initiators) == ("rank-blocked", (2,))


def test_two_names_that_contradict_leave_nobody_or_the_numbers_at_low() -> None:
    ledger, picture = _picture(LedgerBuilder(4).run(times=2).stuck(on=[0, 1, 3]))
    settled = joined(ledger, _stacks("rank-blocked", (1,)), picture)
    assert (settled.initiators, settled.confidence) == ((2,), "low")
    both = joined(ledger, _stacks("rank-blocked", (1, 2)), picture)
    assert (both.kind, both.initiators) == ("undecided", ())
    assert "the stacks for ranks 1-2" in (both.deciding_fact or "")


def test_a_resource_under_the_named_rank_is_the_root() -> None:
    ledger, picture = _picture(LedgerBuilder(4).run(times=2).stuck(on=[0, 1, 3]))
    mount = _stacks("rank-blocked", (), waiting=(0, 1, 2, 3))
    mount = msgspec.structs.replace(mount, roots=(RootEntry(type="mount", label="/scratch"),))
    found = joined(ledger, mount, picture)
    assert found.roots[0].type == "mount" and found.initiators == ()


def test_what_moves_is_slow_whatever_the_stacks_say() -> None:
    ledger, picture = _picture(LedgerBuilder(4).run(times=2).stuck(on=[0, 1, 3]))
    slow = msgspec.structs.replace(ledger, kind="slow", initiators=(), roots=())
    assert joined(slow, _stacks("rank-blocked", (2,)), picture).kind == "slow"

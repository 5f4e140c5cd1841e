"""Flight-recorder dumps: torchfrtrace's known errors, and what the alignment must never do."""

from __future__ import annotations

import random

import msgspec
import pytest

from hangscope.analyzers.loose import analyze_facts
from hangscope.model.facts import Ref
from hangscope.model.loose import FlightRecord, LooseFact, Origin
from hangscope.model.verdict import Verdict

from .builder import START, LedgerBuilder


def verdict(job: LedgerBuilder) -> Verdict:
    facts = job.facts()
    first = analyze_facts(facts)[0]
    shuffled = list(facts)
    random.Random(7).shuffle(shuffled)
    assert analyze_facts(shuffled)[0] == first, "the order of the facts must not matter"
    return first


def test_the_rank_that_has_not_joined_is_named_with_its_grounds() -> None:
    job = LedgerBuilder(4).run(times=11).stuck(on=[0, 1, 3])
    job.written = dict.fromkeys(range(4), START / 1e9 + 600.0)
    found = verdict(job)
    assert (found.kind, found.initiators, found.cause) == ("rank-blocked", (2,), None)
    assert found.waiting == (0, 1, 3) and found.coverage == "4/4" and found.confidence == "medium"
    assert any("#12" in line.text and line.artifact == "dumps/rank_0" for line in found.evidence)
    assert any("nothing above #11" in line.text for line in found.evidence)
    assert "ranks 0-1,3: joined all_reduce #12" in [line.text for line in found.ruled_out]
    assert found.chain[0].ranks == (0, 1, 3) and found.stuck_since is not None
    assert any("stack of rank 2" in fact.what and fact.command for fact in found.missing)


def test_a_rank_that_may_only_be_late_is_named_at_low() -> None:
    job = LedgerBuilder(4).run(times=11).stuck(on=[0, 1, 3])
    found = verdict(job)
    assert (found.initiators, found.confidence) == ((2,), "low")
    assert "a slow rank looks the same" in str(found.why_not_higher)
    job.written = dict.fromkeys(range(4), START / 1e9 + 15.0)
    young = verdict(job)
    assert (young.initiators, young.confidence) == ((2,), "low")
    assert "had lasted 3 s" in str(young.why_not_higher) or "had lasted 4 s" in str(young.why_not_higher)


def test_all_stuck_in_one_operation_names_nobody_and_proposes_experiments() -> None:
    found = verdict(LedgerBuilder(4).run(times=3).stuck())
    assert (found.kind, found.initiators) == ("all-joined", ())
    assert {step.command for step in found.next} >= {"NCCL_NET=Socket", "NCCL_P2P_DISABLE=1"}


def test_the_odd_rank_is_found_even_if_it_is_read_first() -> None:
    job = LedgerBuilder(4).run(times=10).stuck(on=[0, 1, 2]).stuck("barrier", on=[3], at="eval.py:5")
    facts = job.records()
    for order in (facts, facts[::-1], [facts[3], *facts[:3]]):
        found = analyze_facts(order)[0]
        assert (found.kind, found.initiators) == ("rank-diverged", (3,))
        assert found.cause == "rank-skips-collective"
        assert found.roots[0].at == "eval.py:5"


@pytest.mark.parametrize("fields", [{"sizes": "[[512]]"}, {"dtype": "Half"}, {"kind": "broadcast"}])
def test_one_place_and_another_operation_size_or_dtype_is_a_mismatch(fields: dict[str, str]) -> None:
    kind = fields.pop("kind", "all_reduce")
    found = verdict(LedgerBuilder(4).run(times=2).stuck(on=[0, 1, 3]).stuck(kind, on=[2], **fields))
    assert (found.kind, found.initiators, found.cause) == ("mismatch", (2,), "collective-order-mismatch")


def test_without_a_majority_a_mismatch_names_nobody() -> None:
    for size, odd in ((2, [1]), (4, [2, 3])):
        rest = [rank for rank in range(size) if rank not in odd]
        found = verdict(LedgerBuilder(size).run(times=2).stuck(on=rest).stuck("broadcast", on=odd))
        assert (found.kind, found.initiators) == ("mismatch", ())
        assert "ambiguous" in (found.why_not_higher or "")


def test_sizes_that_may_differ_by_right_are_no_mismatch() -> None:
    job = LedgerBuilder(4).stuck("all_to_all", on=[0, 1, 2]).stuck("all_to_all", on=[3], sizes="[[7]]")
    assert verdict(job).kind == "all-joined"
    job = LedgerBuilder(4).stuck(on=[0, 1, 2], sizes="[[2, 8]]").stuck(on=[3], sizes="[[16]]")
    assert verdict(job).kind == "all-joined"


def test_the_first_difference_counts_even_where_it_completed() -> None:
    job = LedgerBuilder(4).run(times=4)
    job.run(on=[0, 1, 2]).run("broadcast", on=[3], at="eval.py:3").run()
    found = verdict(job.stuck(on=[0, 1, 2]).stuck("barrier", on=[3], at="eval.py:3"))
    assert (found.kind, found.initiators) == ("rank-diverged", (3,))
    assert "#5" in (found.deciding_fact or "")


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_groups_in_opposite_order_are_one_cycle(ranks: int) -> None:
    job = LedgerBuilder(ranks)
    for rank in range(ranks):
        job.group(f"ring{rank}", sorted({rank, (rank + 1) % ranks}))
    for rank in range(ranks):
        job.stuck(on=[rank], group=f"ring{rank}")
    found = verdict(job)
    if ranks == 2:
        assert found.kind == "cycle"
    assert (found.kind, found.initiators) == ("cycle", tuple(range(ranks)))
    assert found.cause == "cross-pg-order-deadlock"


def test_a_skipped_operation_of_a_second_group_with_the_same_members() -> None:
    job = LedgerBuilder(4).run(times=4).group("async", range(4))
    found = verdict(job.stuck(on=[0, 1, 2], group="async").stuck("barrier", on=[3]))
    assert (found.kind, found.initiators) == ("rank-diverged", (3,))


def test_what_a_gloo_recorder_does_not_list_is_not_known() -> None:
    job = LedgerBuilder(4, backend="gloo").run(times=4).group("async", range(4))
    job.stuck(on=[0, 1, 2], group="async").stuck("barrier", on=[3])
    records = [_without_empty(record) for record in job.records()]
    found = analyze_facts(records)[0]
    assert found.initiators == () and found.kind == "undecided"


def _without_empty(record: FlightRecord) -> FlightRecord:
    """A recorder lists a group from its first operation on."""
    kept = tuple(group for group in record.groups if group.operations)
    return msgspec.structs.replace(record, groups=kept)


def test_a_missing_dump_is_unknown_and_asked_for() -> None:
    job = LedgerBuilder(4).run(times=11).stuck(on=[0, 1, 3])
    job.without.add(2)
    found = verdict(job)
    assert (found.kind, found.initiators, found.unknown) == ("undecided", (), (2,))
    assert found.waiting == (0, 1, 3) and found.missing[0].command


def test_a_cut_dump_proves_nothing_of_what_is_not_in_it() -> None:
    job = LedgerBuilder(4).run(times=11).stuck(on=[0, 1, 3])
    job.partial[2] = "the file ends early"
    assert verdict(job).kind == "undecided"
    job = LedgerBuilder(4).run(times=11).stuck()
    job.partial[2] = "the file ends early"
    assert verdict(job).kind == "all-joined"


def test_an_unknown_rank_beside_a_proven_one_is_said() -> None:
    job = LedgerBuilder(5).run(times=3).stuck(on=[0, 1, 2])
    job.without.add(4)
    found = verdict(job)
    assert (found.initiators, found.unknown, found.confidence) == ((3,), (4,), "low")


def test_a_wrapped_ring_misses_nobody() -> None:
    job = LedgerBuilder(3, window=2).run(times=60)
    job.group("tp", [0, 1]).run(group="tp", times=900, on=[0]).run(group="tp", times=900, on=[1])
    found = verdict(job.stuck(on=[0, 1]))
    assert (found.kind, found.initiators) == ("rank-blocked", (2,))


def test_an_entry_counts_whatever_the_counter_says() -> None:
    job = LedgerBuilder(3).run(times=4).stuck()
    records = []
    for record in job.records():
        group = msgspec.structs.replace(record.groups[0], enqueued=4)
        records.append(msgspec.structs.replace(record, groups=(group,)))
    assert analyze_facts(records)[0].kind == "all-joined"


def test_who_finished_is_innocent_under_dump_skew() -> None:
    job = LedgerBuilder(4).run(times=11).run(on=[2], times=3).stuck(on=[0, 1, 3])
    found = verdict(job)
    assert found.kind == "undecided" and found.initiators == ()
    assert "finished on rank 2" in (found.deciding_fact or "")


def test_a_dump_of_an_earlier_moment_names_nobody() -> None:
    """Rank 2 stands at 5 where others have finished 11: nobody finishes an all-reduce before all joined."""
    job = LedgerBuilder(4).run(times=5).run(on=[0, 1, 3], times=6).stuck(on=[0, 1, 3])
    found = verdict(job)
    assert (found.kind, found.initiators) == ("undecided", ())
    assert any("read at another moment" in line.text for line in found.against)


def test_a_dump_that_was_written_before_the_others_began_proves_nothing() -> None:
    job = LedgerBuilder(4).run(times=11).stuck(on=[0, 1, 3])
    entered = START / 1e9 + 12
    job.written = {0: entered + 600, 1: entered + 600, 2: entered - 3, 3: entered + 600}
    assert verdict(job).kind == "undecided"
    job.written[2] = entered + 600
    assert verdict(job).initiators == (2,)


def test_a_device_that_has_not_started_is_the_root_where_others_have() -> None:
    job = LedgerBuilder(4).run(times=5).stuck(on=[0, 1, 3]).stuck(on=[2], started=False)
    found = verdict(job)
    assert (found.kind, found.initiators, found.roots[0].type) == ("rank-blocked", (2,), "gpu")
    assert found.confidence != "high"
    nobody = LedgerBuilder(4).run(times=5).stuck(started=False)
    assert verdict(nobody).kind == "all-joined"


def test_a_device_at_work_on_another_operation_is_followed_there() -> None:
    job = LedgerBuilder(4).run(times=5).group("tp", [2, 3])
    job.stuck(on=[0, 1]).stuck(on=[2], group="tp").stuck(on=[2], started=False).stuck(on=[3], started=False)
    found = verdict(job)
    assert found.initiators == (3,), found


def test_a_chain_over_groups_ends_at_the_rank_that_waits_for_nobody() -> None:
    job = LedgerBuilder(8).run(times=2)
    job.group("tp", [6, 7], "tp")
    found = verdict(job.stuck(on=[6], group="tp").stuck(on=[0, 1, 2, 3, 4, 5]))
    assert (found.kind, found.initiators) == ("rank-blocked", (7,))
    assert [link.ranks for link in found.chain] == [(0, 1, 2, 3, 4, 5), (6,), (7,)]


def test_where_half_of_a_group_has_not_joined_nobody_is_named() -> None:
    found = verdict(LedgerBuilder(4).run(times=2).stuck(on=[0]))
    assert (found.kind, found.initiators) == ("undecided", ())
    assert "entered one too many" in (found.deciding_fact or "")


def test_a_minority_that_is_ahead_by_its_own_path_is_the_one() -> None:
    job = LedgerBuilder(4).run(times=3, at="train.py:1")
    for step in range(3):
        job.run(on=[1, 2, 3], at=f"train.py:{20 + step}").run(on=[0], at=f"train.py:{19 + step}")
    found = verdict(job.stuck(on=[0], at="train.py:22"))
    assert (found.kind, found.initiators, found.confidence) == ("rank-diverged", (0,), "low")


def test_two_call_sites_by_right_change_nothing() -> None:
    job = LedgerBuilder(4)
    for _ in range(4):
        job.run(on=[0], at="train.py:5").run(on=[1, 2, 3], at="train.py:7")
        job.run(at="train.py:9")
    found = verdict(job.stuck(on=[0, 1, 3]))
    assert (found.kind, found.initiators) == ("rank-blocked", (2,))


def test_completed_transfers_are_no_hang() -> None:
    job = LedgerBuilder(4).run(times=2)
    for rank in range(3):
        job.transfer(rank, rank, rank + 1, finished=True).transfer(rank + 1, rank, rank + 1, finished=True)
    assert verdict(job).kind == "not-stuck"


def test_sends_in_a_ring_are_a_cycle() -> None:
    job = LedgerBuilder(4)
    for rank in range(4):
        job.transfer(rank, rank, (rank + 1) % 4)
    found = verdict(job)
    assert (found.kind, found.initiators, found.cause) == ("cycle", (0, 1, 2, 3), "pp-p2p-order-cycle")


def test_both_send_first_and_receive_later_is_a_cycle() -> None:
    job = LedgerBuilder(2).transfer(0, 0, 1).transfer(0, 1, 0).transfer(1, 1, 0).transfer(1, 0, 1)
    assert verdict(job).kind == "cycle"


def test_a_pipeline_ends_at_the_stage_that_sends_nothing() -> None:
    job = LedgerBuilder(4).run(times=3)
    for stage in (1, 2, 3):
        job.transfer(stage, stage - 1, stage)
    found = verdict(job)
    assert (found.kind, found.initiators) == ("rank-blocked", (0,))
    job.without.add(0)
    assert verdict(job).kind == "undecided"


def test_a_coalesced_batch_waits_in_all_of_its_transfers() -> None:
    job = LedgerBuilder(3).run(times=1)
    for source, target in ((0, 1), (0, 2)):
        job.transfer(0, source, target)
        job._numbers[0, "p2p:0"] = 0  # one batch has one number
    job.transfer(1, 0, 1)
    assert verdict(job).initiators == (2,)


def test_healthy_dumps_are_not_stuck() -> None:
    assert verdict(LedgerBuilder(4).run(times=9)).kind == "not-stuck"
    job = LedgerBuilder(4).run(times=9)
    job.without.add(1)
    assert verdict(job).kind == "undecided"


def test_an_empty_recorder_has_entered_nothing() -> None:
    job = LedgerBuilder(3).stuck(on=[0, 1])
    facts: list[LooseFact] = list(job.records())
    facts[2] = FlightRecord(
        origin=Origin(rank=2, source="name"), backend="gloo", entries=0, ref=Ref("dumps/rank_2")
    )
    found = analyze_facts(facts)[0]
    assert found.initiators == (2,)


def test_groups_of_one_name_without_a_common_rank_are_two() -> None:
    """Each pair makes its own group and calls it ``1``: 0 and 1 are at its third operation, 2 and 3 at its
    first."""
    one = LedgerBuilder(4).run(times=2).group("1", [0, 1]).run(group="1", times=2).stuck(on=[0], group="1")
    other = LedgerBuilder(4).run(times=2).group("1", [2, 3]).run(group="1")
    found = analyze_facts([*one.records()[:2], *other.records()[2:]])[0]
    assert (found.kind, found.initiators) == ("rank-blocked", (1,))
    assert found.waiting == (0,)


def test_a_batch_beside_what_is_in_it_is_no_mismatch() -> None:
    job = LedgerBuilder(3).run(times=2)
    job.stuck("_all_gather_base", on=[0, 1]).stuck("coalesced", on=[2])
    assert verdict(job).kind == "all-joined"


def test_members_that_differed_before_and_a_third_that_has_not_joined_is_low() -> None:
    job = LedgerBuilder(5).run(times=2)
    job.run(on=[0, 2, 3, 4]).run("broadcast", on=[1])
    found = verdict(job.stuck(on=[0, 1, 2, 3]))
    assert (found.initiators, found.confidence) == ((4,), "low")
    assert "#3" in (found.why_not_higher or "")


def test_two_members_whose_paths_parted_are_ambiguous() -> None:
    job = LedgerBuilder(2).run(times=2, at="train.py:1")
    for step in range(2):
        job.run(on=[0], at=f"train.py:{20 + step}").run(on=[1], at=f"train.py:{19 + step}")
    found = verdict(job.stuck(on=[1], at="train.py:22"))
    assert found.kind == "undecided" and "from #3 on" in (found.deciding_fact or "")


def test_the_minority_that_parted_and_has_not_joined_diverged() -> None:
    job = LedgerBuilder(4).run(times=3, at="train.py:1")
    for step in range(3):
        job.run(on=[1, 2, 3], at=f"train.py:{20 + step}").run(on=[0], at=f"eval.py:{19 + step}")
    found = verdict(job.stuck(on=[1, 2, 3], at="train.py:24"))
    assert (found.kind, found.initiators) == ("rank-diverged", (0,))
    assert found.cause == "rank-local-condition-divergence"

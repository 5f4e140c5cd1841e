"""Communicators from the logs of many processes."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangscope.analyzers.ledger.communicator import Communicator
from hangscope.analyzers.ledger.nccl import communicators

from .nccl_job import Rank, events_of, interleaved, world

POINTER = 0x5500


def found(files: dict[str, list[str]], written: dict[str, float] | None = None) -> dict[str, Communicator]:
    return {one.key: one for one in communicators(events_of(files), written)}


def only(files: dict[str, list[str]], written: dict[str, float] | None = None) -> Communicator:
    (one,) = found(files, written).values()
    return one


def behind(size: int, late: int, launches: int = 5, *, version: str = "2.27") -> list[Rank]:
    ranks = world(size, version=version)
    for rank in ranks:
        for step in range(launches - (rank.rank == late)):
            rank.coll(POINTER, size, count=1024 + step)
    return ranks


class TestJoins:
    def test_equal_pointers_of_two_communicators_do_not_meet(self) -> None:
        first, second = world(2, identity=0xA), world(2, identity=0xB)
        for rank in second:
            rank.node = "node-b"
            rank.lines = [line.replace("node-a", "node-b") for line in rank.lines]
        both = found({"a": interleaved(first), "b": interleaved(second)})
        assert {key: {member.node for member in one.members} for key, one in both.items()} == {
            f"{0xA:016x}": {"node-a"},
            f"{0xB:016x}": {"node-b"},
        }
        assert not any(one.world for one in both.values())

    def test_a_pointer_that_is_used_again_is_another_communicator(self) -> None:
        ranks = world(2, identity=0xA)
        for rank in ranks:
            rank.coll(POINTER, 2).coll(POINTER, 2).end(POINTER, 2)
            rank.start(POINTER, 2, 0xB).complete(POINTER, 2, 0xB).coll(POINTER, 2)
        both = found({"a": interleaved(ranks)})
        assert [m.launched for m in both[f"{0xA:016x}"].members] == [2, 2]
        assert [m.ended for m in both[f"{0xA:016x}"].members] == ["destroy", "destroy"]
        assert [m.launched for m in both[f"{0xB:016x}"].members] == [1, 1]

    def test_a_second_start_without_an_end_is_another_communicator_too(self) -> None:
        ranks = world(2, identity=0xA)
        for rank in ranks:
            rank.start(POINTER, 2, 0xB).complete(POINTER, 2, 0xB)
        assert len(found({"a": interleaved(ranks)})) == 2

    @pytest.mark.parametrize("version", ["2.23", "2.24", "2.27", "2.29"])
    def test_splits_meet_on_parent_number_and_colour(self, version: str) -> None:
        ranks = world(4, version=version, identity=0xA)
        for rank in ranks:
            rank.split(0x7700, 2, rank=rank.rank // 2, parent=POINTER, number=0, color=rank.rank % 2)
            rank.split(0x7800, 2, rank=rank.rank % 2, parent=POINTER, number=1, color=rank.rank // 2)
        splits = [one for one in found({"a": interleaved(ranks)}).values() if one.joined_by == "split"]
        members = sorted(tuple(member.global_rank for member in one.members) for one in splits)
        assert members == [(0, 1), (0, 2), (1, 3), (2, 3)]
        assert {one.parent for one in splits} == {f"{0xA:016x}"}

    def test_without_identities_the_order_joins_and_unclear_ranks_are_disputed(self) -> None:
        ranks = world(4, version="2.14")
        for rank in ranks:
            rank.complete(0x6600, 2, 0, rank=rank.rank % 2)
        joined = found({"a": interleaved(ranks)})
        assert joined["size 4 #1"].joined_by == "order" and joined["size 4 #1"].world
        assert joined["size 2 #1"].disputed == (0, 1) and joined["size 2 #1"].members == ()

    def test_a_log_that_begins_later_is_joined_by_size_where_prefixes_tell_the_ranks(self) -> None:
        ranks = behind(3, late=1)
        for rank in ranks:
            rank.lines = rank.lines[5:]
        one = only({"a": interleaved(ranks, prefix="[rank{rank}]: ")})
        assert (one.joined_by, one.counter) == ("size", "opCount")
        assert one.lag is not None and one.lag.behind == (1,) and one.lag.doubts == ()
        assert [(m.launched, m.low_water) for m in one.members] == [(None, 2)] * 3
        assert found({"a": interleaved(ranks)}) == {}

    def test_two_processes_that_claim_a_rank_are_disputed(self) -> None:
        ranks = [*world(2), Rank(1, node="node-b", pid=9).start(POINTER, 2, 0xABC1)]
        one = only({"a": interleaved(ranks)})
        assert one.disputed == (1,) and [m.rank for m in one.members] == [0] and not one.world

    def test_a_torn_head_finds_its_process_by_its_pid(self) -> None:
        ranks = behind(2, late=-1)
        lines = interleaved(ranks)
        lines[-2:] = ["torn via direct pointer" + lines[-2], lines[-1]]
        assert [m.launched for m in only({"a": lines}).members] == [5, 5]


class TestForming:
    def test_who_has_not_begun(self) -> None:
        ranks = [Rank(rank).bootstrap() for rank in range(3)]
        for rank in ranks[:2]:
            rank.start(POINTER, 3, 0xA)
        one = only({"a": interleaved(ranks)})
        assert one.forming == (0, 1) and one.absent == (2,) and one.world
        assert one.outsiders == (("node-a", 4020),) and one.start_is_early is True
        assert one.global_rank(2) == 2 and one.member(2) is None

    @pytest.mark.parametrize(
        ("line", "early"),
        [
            ("NCCL version 2.22.3+cuda12.5", False),
            ("NCCL version 2.23.4+cuda12.6", True),
            ("RCCL version 2.21.5-HEAD", False),
            ("nothing", None),
        ],
    )
    def test_the_version_tells_what_start_means(self, line: str, early: bool | None) -> None:
        ranks = [Rank(rank, version="2.23").bootstrap().start(POINTER, 2, 0xA) for rank in range(2)]
        assert only({"a": [line, *interleaved(ranks)]}).start_is_early is early

    def test_the_line_of_the_topology_places_a_rank(self) -> None:
        rank = Rank(0).start(POINTER, 2, 0xA)
        rank.say("comm 0x5500 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0")
        (member,) = only({"a": rank.lines}).members
        assert member.placed and member.pci == "0000:1b:00"

    def test_abort_is_an_end(self) -> None:
        ranks = world(2)
        ranks[1].end(POINTER, 2, how="Abort")
        assert [m.ended for m in only({"a": interleaved(ranks)}).members] == [None, "abort"]


class TestLag:
    def test_in_one_log(self) -> None:
        lag = only({"a": interleaved(behind(4, late=2))}).lag
        assert lag is not None and (lag.sequence, lag.behind, lag.ahead) == (5, (2,), (0, 1, 3))
        assert lag.doubts == () and lag.missing is not None and lag.missing.sizes == "1028"

    def test_none_where_all_are_equal(self) -> None:
        one = only({"a": interleaved(behind(4, late=-1))})
        assert one.lag is None and one.counter == "launches" and {m.position for m in one.members} == {5}

    def test_none_where_launches_are_not_logged(self) -> None:
        one = only({"a": interleaved(world(2))})
        assert one.counter is None and one.lag is None and {m.launched for m in one.members} == {None}

    def test_files_of_unknown_end_are_in_doubt(self) -> None:
        files = {f"r{rank.rank}": rank.lines for rank in behind(3, late=1)}
        doubted = only(files).lag
        assert doubted is not None and "not known" in doubted.doubts[0]
        written = dict.fromkeys(files, 1000.0)
        equal = only(files, written).lag
        assert equal is not None and equal.doubts == ()
        earlier = only(files, {**written, "r1": 900.0}).lag
        assert earlier is not None and "earlier" in earlier.doubts[0]

    def test_a_torn_launch_behind_the_last_one_is_in_doubt(self) -> None:
        ranks = behind(3, late=1)
        torn = "AllReduce: opCount 4 sendbuff 0x7f00 recv"
        ranks[1].say(torn)
        lag = only({"a": interleaved(ranks)}).lag
        assert lag is not None and "torn" in lag.doubts[0]
        headless = only(
            {"a": [*interleaved(behind(3, late=1)), "0x7f0 count 9 comm 0x5500 [nranks=3] st"]}
        ).lag
        assert headless is not None and "torn" in headless.doubts[0]

    def test_a_torn_launch_in_the_middle_does_no_harm(self) -> None:
        lines = interleaved(behind(3, late=1))
        place = next(i for i, line in enumerate(lines) if "4020" in line and "opCount 1" in line)
        one = only({"a": [*lines[:place], lines[place][:60], *lines[place + 1 :]]})
        assert one.counter == "opCount" and one.lag is not None
        assert one.lag.behind == (1,) and one.lag.doubts == () and one.difference is None

    def test_ends_at_several_places_are_in_doubt(self) -> None:
        ranks = behind(4, late=2)
        ranks[0].coll(POINTER, 4)
        lag = only({"a": interleaved(ranks)}).lag
        assert lag is not None and "buffers" in lag.doubts[0]

    def test_lines_in_blocks_are_in_doubt(self) -> None:
        ranks = behind(2, late=1, launches=24)
        blocks = [rank.lines[start : start + 12] for start in (0, 12, 24) for rank in ranks]
        lag = only({"a": [line for block in blocks for line in block]}).lag
        assert lag is not None and "in blocks" in lag.doubts[0]

    def test_a_rank_that_is_not_in_the_logs_is_in_doubt(self) -> None:
        ranks = behind(4, late=2)
        lag = only({"a": interleaved(ranks[1:])}).lag
        assert lag is not None and lag.doubts == ("no launches of rank 0 are in the logs",)

    def test_a_rank_that_launched_nothing_here_and_something_elsewhere(self) -> None:
        ranks = world(2, identity=0xA)
        for rank in ranks:
            rank.start(0x6600, 2, 0xB).complete(0x6600, 2, 0xB).coll(0x6600, 2)
        ranks[0].coll(POINTER, 2)
        lag = found({"a": interleaved(ranks)})[f"{0xA:016x}"].lag
        assert lag is not None and lag.behind == (1,) and lag.sequence == 1

    def test_transfers_are_counted_apart(self) -> None:
        ranks = behind(2, late=-1)
        ranks[0].coll(POINTER, 2, name="Send", root=1)
        one = only({"a": interleaved(ranks)})
        assert one.lag is None and [m.transfers for m in one.members] == [1, 0]
        ranks[0].say("Recv: opCount 6 sendbu")
        assert only({"a": interleaved(ranks)}).counter is None

    def test_the_same_log_twice_is_one_log(self) -> None:
        lines = interleaved(behind(3, late=1))
        one = only({"copy": lines[:-4], "whole": lines})
        assert [m.launched for m in one.members] == [5, 4, 5]

    def test_a_log_that_was_rotated_goes_on_in_the_next_file(self) -> None:
        ranks = behind(2, late=1, launches=6)
        files = {f"r{r.rank}.{part}": r.lines[part * 6 : part * 6 + 6] for r in ranks for part in (0, 1)}
        one = only(files)
        assert [m.launched for m in one.members] == [6, 5]
        files["r0.1"] = files["r0.1"][1:]
        assert [m.launched for m in only(files).members] == [None, 5]


class TestDifference:
    def test_the_first_place_is_told(self) -> None:
        ranks = world(3)
        for rank in ranks:
            rank.coll(POINTER, 3).coll(POINTER, 3, count=7 if rank.rank == 1 else 8)
            rank.coll(POINTER, 3, name="Broadcast", root=rank.rank)
        found_one = only({"a": interleaved(ranks)}).difference
        assert found_one is not None and found_one.position == 2
        assert [ranks for _, ranks in found_one.views] == [(0, 2), (1,)]
        assert "AllReduce of 8 bfloat16" in found_one.views[0][0]

    def test_by_opcount_where_the_head_is_cut(self) -> None:
        ranks = world(2)
        for rank in ranks:
            rank.coll(POINTER, 2).coll(POINTER, 2).coll(POINTER, 2, count=rank.rank)
            rank.lines = rank.lines[4:]
        one = only({"a": interleaved(ranks, prefix="[rank{rank}]: ")})
        assert one.difference is not None and one.difference.position == 3


class TestWorld:
    def test_prefixes_beat_the_ranks_of_a_communicator(self) -> None:
        ranks = world(2)
        lines = [f"[rank{rank.rank + 4}]: {line}" for rank in ranks for line in rank.lines]
        one = only({"a": lines})
        assert not one.world and [m.global_rank for m in one.members] == [4, 5]

    def test_one_nodes_part_of_a_larger_job_is_no_world(self) -> None:
        ranks = world(2, identity=0xA)
        for rank in ranks:
            identity = 0xB0 + rank.rank
            rank.start(0x6600, 2, identity, rank=1).complete(0x6600, 2, identity, rank=1)
        assert not any(one.world for one in found({"a": interleaved(ranks)}).values())

    def test_an_earlier_attempt_is_superseded(self) -> None:
        first, second = world(2, identity=0xA), world(2, identity=0xB)
        for rank in second:
            rank.lines = [line.replace(f":{rank.pid}:", f":{rank.pid + 500}:") for line in rank.lines]
        both = found({"a": interleaved(first) + interleaved(second)})
        assert both[f"{0xA:016x}"].superseded and not both[f"{0xB:016x}"].superseded
        assert both[f"{0xB:016x}"].world

    def test_several_gpus_of_one_process(self) -> None:
        rank = Rank(0)
        for own, pointer in ((0, 0x51), (1, 0x52)):
            text = f"comm 0x{pointer:x} rank {own} nranks 2 cudaDev {own} nvmlDev {own} busId {own + 1}b000"
            rank.say(f"ncclCommInitAll {text} commId 0xa - Init START")
            rank.say(f"ncclCommInitAll {text} commId 0xa - Init COMPLETE")
        one = only({"a": [f"[rank0]: {line}" for line in rank.lines]})
        assert one.world and [m.global_rank for m in one.members] == [0, 1]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 30), one_file=st.booleans())
def test_the_order_of_files_and_ranks_changes_nothing(seed: int, one_file: bool) -> None:
    ranks = behind(4, late=2)
    for rank in ranks:
        rank.split(0x7700, 2, rank=rank.rank // 2, parent=POINTER, number=0, color=rank.rank % 2)
    shuffle = random.Random(seed)
    expected = shape(communicators(events_of({f"{r.rank}": r.lines for r in ranks})))
    if one_file:
        queues = [list(rank.lines) for rank in ranks]
        lines = []
        while any(queues):
            lines.append(shuffle.choice([queue for queue in queues if queue]).pop(0))
        files = {"all": lines}
    else:
        shuffled = shuffle.sample(ranks, len(ranks))
        files = {f"{index}": rank.lines for index, rank in enumerate(shuffled)}
    events = events_of(files)
    shuffle.shuffle(events)
    assert shape(communicators(events)) == expected


def shape(found_ones: tuple[Communicator, ...]) -> list[object]:
    """What must not depend on where the lines stood."""
    return [
        (
            one.key,
            one.world,
            [(m.rank, m.global_rank, m.pid, m.launched, m.position, m.complete) for m in one.members],
            one.lag and (one.lag.sequence, one.lag.behind, one.lag.ahead),
            one.difference,
        )
        for one in found_ones
    ]


def test_a_large_log_takes_linear_time() -> None:
    def seconds(launches: int) -> float:
        ranks = behind(4, late=1, launches=launches)
        events = events_of({"a": interleaved(ranks)})
        begin = time.process_time()
        (one,) = communicators(events)
        assert one.lag is not None and one.lag.behind == (1,)
        return time.process_time() - begin

    small, large = seconds(1500), seconds(12000)
    assert large < 8 * 2.5 * small + 0.2

"""Jobs with a known fault, in the forms that people have: nobody but who is guilty is named, in any order of
the documents, and without any one of them. ``simulated_job`` hunts further."""

from __future__ import annotations

import msgspec
import pytest

from hangscope.analyzers.loose import analyze_facts, analyze_loose
from hangscope.analyzers.readers.interface import Document
from hangscope.model.facts import Ref
from hangscope.model.loose import (
    FlightRecord,
    GroupRecord,
    LogEvent,
    LooseFact,
    Origin,
    RasCommunicator,
    RasRank,
    RasReport,
)
from hangscope.model.verdict import Verdict

from .builder import LedgerBuilder
from .simulated_job import case_of, complaints, verdict_of
from .simulated_truth import HANGS
from .test_logs import Log

BLOCK = 12


@pytest.mark.parametrize("first", range(0, 120, BLOCK))
def test_nobody_but_the_guilty_is_named(first: int) -> None:
    found = {}
    for seed in range(first, first + BLOCK):
        case = case_of(seed)
        if case.documents and (told := complaints(case, removals=1)):
            found[seed, case.truth.what, case.evidence] = told
    assert not found


@pytest.mark.parametrize("what", ["blocked", "skip", "extra", "differs", "order", "killed", "device"])
def test_whole_recorders_of_nccl_show_the_fault(what: str) -> None:
    """Another root, and sizes that may differ by right, are in no recorder: hence not all."""
    cases = [case_of(seed, what, "fr") for seed in range(10)]
    gpu = [case for case in cases if case.truth.run.gpu]
    told = [verdict_of(case.documents).kind not in ("undecided", "all-joined", "not-stuck") for case in gpu]
    assert len(gpu) > 4 and sum(told) >= 0.5 * len(told)


@pytest.mark.parametrize("what", HANGS)
def test_a_job_that_hangs_is_never_called_well(what: str) -> None:
    for seed in range(2):
        for evidence in ("stacks", "mixed"):
            case = case_of(seed, what, evidence)
            assert not case.documents or verdict_of(case.documents).kind not in ("slow", "not-stuck")


def one(facts: list[LooseFact]) -> Verdict:
    (found,) = analyze_facts(facts)
    return found


def counts(table: dict[int, int], *, other: bool = False) -> RasReport:
    """RAS: how many all-reduces each rank has launched; ``other``: ranks 0 and 1 have a communicator more."""
    ranks = tuple(
        RasRank(rank=r, node="10.0.0.1", pid=4000 + r, counts={"AllReduce": n}) for r, n in table.items()
    )
    found = [RasCommunicator(hash="0xa", size=len(table), ranks=ranks)]
    if other:
        pair = tuple(RasRank(rank=r, node="10.0.0.1", pid=4000 + r, counts={"AllGather": 9}) for r in (0, 1))
        found.append(RasCommunicator(hash="0xb", size=2, ranks=pair))
    return RasReport(communicators=tuple(found), gpus=len(table), ref=Ref("ras.json", 1))


def test_launches_name_only_who_cannot_wait_elsewhere() -> None:
    assert one([counts({0: 9, 1: 8, 2: 9, 3: 9})]).initiators == (1,)
    assert one([counts({0: 9, 1: 8, 2: 8, 3: 9})]).initiators == ()
    hidden = one([counts({0: 9, 1: 8, 2: 9, 3: 9}, other=True)])
    assert (hidden.kind, hidden.initiators) == ("undecided", ())
    assert "may wait in communicator" in (hidden.deciding_fact or "")
    assert one([counts({0: 9, 1: 8})]).initiators == ()


C10D = "[rank{p}]:[E1107 09:14:02.1 ProcessGroupGloo.cpp:67] "
BARRIER = C10D + "[Rank 0]: Ranks {who} failed to pass monitoredBarrier"
REACHED = (
    C10D + "Rank {p} successfully reached monitoredBarrier, but received errors while waiting for send/recv "
    "from rank 0."
)
AGENT = "I1107 08:00:00.279000 2606 torch/distributed/elastic/agent/server/api.py:553] "
START = "\n".join(
    AGENT + text
    for text in (
        "[default] Rendezvous complete for workers. Result:",
        "  restart_count=0",
        "  global_ranks=[0, 1, 2, 3]",
        "  global_world_sizes=[4, 4, 4, 4]",
    )
)


def log(*lines: str) -> Verdict:
    data = "".join(line + "\n" for line in lines).encode()
    (found,) = analyze_loose([Document(path="job.log", data=data)])
    return found


def test_group_ranks_of_a_barrier_are_global_only_where_that_is_proven() -> None:
    missing = BARRIER.format(p=0, who="1, 3")
    bare = log(missing)
    assert (bare.kind, bare.initiators) == ("undecided", ())
    assert any("process group of the report" in fact.what for fact in bare.missing)
    assert log(START, missing).initiators == (1, 3)
    assert log(BARRIER.format(p=0, who="1"), REACHED.format(p=2)).initiators == (1,)
    assert log(START, BARRIER.format(p=0, who="1")).initiators == ()


def desync(printer: int, own: int, waiting: list[int], lagging: list[int]) -> list[str]:
    return [
        f"[rank{printer}]:[E1107 09:14:02.1 ProcessGroupNCCL.cpp:683] [Rank {own}] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
        "Timeout(ms)=600000) ran for 600020 milliseconds before timing out.",
        f"\t - [{own}] Timeout at collective: ALLREDUCE, #5",
        "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:",
        f"\t   - {waiting} joined but didn't finish collective #5 (count from 1)",
        f"\t     {lagging} finished collective #4, but didn't join collective #5 (count from 1)",
    ]  # fmt: skip


def test_group_ranks_of_a_desync_report_are_global_only_where_that_is_proven() -> None:
    assert log(START, *desync(0, 0, [0, 1, 3], [2])).initiators == (2,)
    assert log(*desync(3, 3, [0, 1, 3], [2])).initiators == (2,)
    assert log(*desync(0, 0, [0, 1], [2])).initiators == ()
    assert log(START, *desync(2, 0, [0], [1])).initiators == ()


def test_who_did_not_come_and_waits_itself_is_not_the_beginning() -> None:
    wait = (
        "[rank1]: RuntimeError: [/b/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.9]:47"
    )
    assert log(START, BARRIER.format(p=0, who="1, 3"), wait).initiators == ()


def test_a_rank_of_whom_only_others_speak_is_not_named() -> None:
    events = [
        LogEvent(
            kind="desync-lagging", origin=Origin(rank=0), about=(2,), sequence=4, counter="desync", group="0",
            group_desc="default_pg", text="x", ref=Ref(path, 1),
        )
        for path in ("logs/rank_0.log", "job.log")
    ]  # fmt: skip
    waits = [
        LogEvent(
            kind="desync-waiting", origin=Origin(rank=0), about=(0, 1), sequence=5, counter="desync",
            group="0", group_desc="default_pg", text="x", ref=Ref(event.ref.artifact, 2),
        )
        for event in events
    ]  # fmt: skip
    world = LogEvent(kind="restart", world_size=3, text="x", ref=Ref("launcher.log", 1))
    assert one([world, events[0], waits[0]]).initiators == ()
    assert one([world, events[1], waits[1]]).initiators == (2,)


def test_the_last_work_of_a_group_with_transfers_is_no_collective() -> None:
    job = Log(4).world()
    for rank in (0, 1, 2):
        job.fired(rank, 40)
    job.fired(3, 5, group="10", group_desc="dp", group_rank=1)
    job.status(3, 17, 17, "watchdog-status", sequence=5, group="10", group_desc="dp", group_rank=1)
    job.status(3, 39, 39)
    (found,) = analyze_facts(job.facts())
    assert found.initiators == () and 3 in found.waiting


def test_a_line_of_an_unnamed_group_is_not_of_the_group_of_all() -> None:
    job = Log(4).world().fired(0, 4).fired(1, 4).fired(2, 4)
    job.fired(3, 4, operation="broadcast", group=None, group_desc=None, group_rank=0)
    (found,) = analyze_facts(job.facts())
    assert found.initiators == ()


def test_an_operation_that_had_just_begun_names_nobody() -> None:
    job = LedgerBuilder(4).run(times=11).stuck(on=[0, 1, 3])
    newest = max(record.newest_ns or 0 for record in job.records()) / 1e9
    job.written = dict.fromkeys(range(4), newest + 1.5)
    assert one(job.facts()).initiators == ()
    job.written = dict.fromkeys(range(4), newest + 60)
    assert one(job.facts()).initiators == (2,)


def test_a_cut_dump_does_not_tell_that_a_device_is_behind() -> None:
    job = LedgerBuilder(3).run(times=5).run(on=[0, 1, 2], finished=False, started=True)
    records = job.records()
    assert one(list(records)).kind == "all-joined"
    cut = cut_short(records[1])
    assert one([records[0], cut, records[2]]).initiators == ()


def cut_short(record: FlightRecord) -> FlightRecord:
    """The same dump without the state of its last operation."""

    def unstarted(group: GroupRecord) -> GroupRecord:
        last = msgspec.structs.replace(group.operations[-1], state="scheduled", started_ns=None)
        return msgspec.structs.replace(group, operations=(*group.operations[:-1], last), started=5)

    groups = tuple(unstarted(group) if group.operations else group for group in record.groups)
    return msgspec.structs.replace(record, groups=groups, partial="the bytes end")


@pytest.mark.parametrize(("code", "named"), [(1, ()), (3, (1,))])
def test_exit_code_1_may_be_a_time_out(code: int, named: tuple[int, ...]) -> None:
    job = Log(3).world().event("exit-first", 1, code=code)
    (found,) = analyze_facts(job.facts())
    assert found.initiators == named

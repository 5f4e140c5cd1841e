"""Events of machines tied to ranks: whose they are, which came first, and when nobody can tell."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hangscope.analyzers.ledger.machine import Machine, machine_events, owners_asked
from hangscope.analyzers.ledger.placement import Identity, identities_of, same_node, short
from hangscope.model.facts import Gpu, KernelEvent, Ref
from hangscope.model.loose import LogEvent, LooseFact, Origin, StackDump

TWO_NODES = tuple(
    Identity(rank, "node-a" if rank < 2 else "node-b", 100 + rank % 2, f"0000:{0x40 + rank % 2:02x}:00")
    for rank in range(4)
)
"""Ranks 0 and 2 have the same pid and the same PCI address, on two nodes."""
BLIND = (Identity(0, None, 100), Identity(1, None, 101))


def kernel(kind: str, line: int = 1, **fields: Any) -> KernelEvent:
    base: dict[str, Any] = {
        "node": "node-a", "seconds": float(line), "text": f"{kind} {line}", "ref": Ref("dmesg.txt", line),
    }  # fmt: skip
    return KernelEvent(kind=kind, **{**base, **fields})


def lost(**fields: Any) -> Gpu:
    base: dict[str, Any] = {
        "node": "node-a", "sample": 0, "index": 0, "uuid": None, "lost": True, "ref": Ref("smi.txt", 3),
    }  # fmt: skip
    return Gpu(**{**base, **fields})


def first(machine: Machine) -> list[int | None]:
    return sorted({event.rank for event in machine.first}, key=lambda rank: rank if rank is not None else -1)


def test_an_xid_is_the_ranks_on_that_gpu_of_that_node() -> None:
    for node, rank in (("node-a", 1), ("node-b", 3), ("node-b.cluster.example", 3)):
        machine = machine_events([kernel("xid-79", pci="0000:41:00", node=node)], TWO_NODES)
        (event,) = machine.first
        assert (event.rank, event.tie, event.cause) == (rank, "pci", "gpu-lost-xid79")
        assert machine.doubt == "" and set(machine.by_rank) == {rank}


def test_without_the_node_a_pci_address_is_nobodys() -> None:
    machine = machine_events([kernel("xid-79", pci="0000:41:00", node="")], TWO_NODES, world_size=4)
    assert (machine.first, machine.by_rank) == ((), {})
    assert machine.context[0].candidates == (1, 3)


def test_the_files_name_may_tell_the_node() -> None:
    for path in ("dmesg-node-b.txt", "logs/node-b/dmesg", "node-b_dmesg.log"):
        event = kernel("xid-79", pci="0000:41:00", node="", ref=Ref(path, 1))
        assert first(machine_events([event], TWO_NODES)) == [3]
    for path in ("dmesg-node-bb.txt", "node-a/node-b/dmesg", "xnode-b.txt"):
        event = kernel("xid-79", pci="0000:41:00", node="", ref=Ref(path, 1))
        assert first(machine_events([event], TWO_NODES)) == []


def test_on_the_only_node_of_a_whole_job_no_name_is_needed() -> None:
    event = kernel("xid-79", pci="0000:41:00", node="")
    assert first(machine_events([event], TWO_NODES[:2], world_size=2)) == [1]
    assert first(machine_events([event], TWO_NODES[:2], world_size=4)) == []
    assert first(machine_events([event], TWO_NODES[:2])) == []


def test_a_pid_is_tied_on_its_node_or_where_it_is_one_ranks_only() -> None:
    assert first(machine_events([kernel("oom-kill", pid=101, node="node-b")], TWO_NODES)) == [3]
    assert first(machine_events([kernel("oom-kill", pid=101, node="")], BLIND)) == [1]
    unplaced = machine_events([kernel("oom-kill", pid=101, node="")], TWO_NODES)
    assert unplaced.first == () and unplaced.context[0].candidates == (1, 3)
    one_of_many = (*TWO_NODES[:1], Identity(5, "node-b", 777))
    assert first(machine_events([kernel("oom-kill", pid=777, node="")], one_of_many)) == []


def test_a_processs_xid_with_another_pid_is_not_the_ranks() -> None:
    app = kernel("xid-31", pid=999, pci="0000:41:00")
    assert machine_events([app], TWO_NODES).by_rank == {}
    assert first(machine_events([msgspec.structs.replace(app, pid=101)], TWO_NODES)) == [1]
    assert machine_events([msgspec.structs.replace(app, pid=100)], TWO_NODES).by_rank == {}
    assert first(machine_events([msgspec.structs.replace(app, pid=None)], TWO_NODES)) == [1]


def test_a_gpu_wide_xid_counts_whichever_process_met_it() -> None:
    gsp = kernel("xid-119", pid=999, pci="0000:41:00")
    (event,) = machine_events([gsp], TWO_NODES).first
    assert (event.rank, event.cause) == (1, "gpu-or-driver-stuck")
    by_pid = machine_events([kernel("xid-79", pid=101, pci="0000:99:00", node="")], BLIND)
    assert [(event.rank, event.tie) for event in by_pid.first] == [(1, "pid")]


def test_followers_symptoms_and_notes_are_never_first() -> None:
    for kind in ("xid-45", "xid-43", "xid-109", "xid-63", "xid-154", "oom-invoked", "nfs-not-responding"):
        machine = machine_events([kernel(kind, pid=101, pci="0000:41:00")], TWO_NODES)
        assert machine.first == () and machine.doubt == ""


def test_of_a_chain_the_origin_is_the_first_that_follows_nothing() -> None:
    chain = [
        kernel("xid-45", 1, pid=100, pci="0000:40:00", text="45, caused by previous Xid 149"),
        kernel("xid-149", 2, pci="0000:41:00", text="149, NETIR_LINK_EVT Fatal"),
        kernel("xid-145", 3, pci="0000:40:00", text="145, RLW_SRC_TRACK Nonfatal"),
    ]
    machine = machine_events(chain, TWO_NODES)
    assert [(event.rank, event.kind, event.cause) for event in machine.first] == [
        (1, "xid-149", "nvlink-error-xid")
    ]
    assert set(machine.by_rank) == {0, 1}


def test_the_first_event_of_a_node_wins_by_line_and_by_clock() -> None:
    two = [kernel("xid-79", 1, pci="0000:40:00"), kernel("xid-79", 2, pci="0000:41:00")]
    assert first(machine_events(two, TWO_NODES)) == first(machine_events(two[::-1], TWO_NODES)) == [0]
    stepped = [msgspec.structs.replace(event, seconds=None) for event in two]
    assert first(machine_events(stepped, TWO_NODES)) == [0]
    other = msgspec.structs.replace(two[1], ref=Ref("kern.log", 9), seconds=0.5)
    assert first(machine_events([two[0], other], TWO_NODES)) == [1]
    dated = [
        msgspec.structs.replace(two[0], seconds=None, wall=50.0),
        msgspec.structs.replace(other, seconds=None, wall=40.0),
    ]
    assert first(machine_events(dated, TWO_NODES)) == [1]
    clockless = machine_events([two[0], msgspec.structs.replace(other, seconds=None)], TWO_NODES)
    assert first(clockless) == [0, 1] and "order is not known" in clockless.doubt


def on_two_nodes(gap: float, kinds: tuple[str, str] = ("xid-79", "xid-79")) -> list[KernelEvent]:
    return [
        kernel(kinds[0], 1, pci="0000:40:00", wall=1000.0, ref=Ref("a.txt", 1)),
        kernel(kinds[1], 1, pci="0000:41:00", wall=1000.0 + gap, node="node-b", ref=Ref("b.txt", 1)),
    ]


def test_between_nodes_only_a_measured_offset_orders() -> None:
    unknown = machine_events(on_two_nodes(3600.0), TWO_NODES)
    assert first(unknown) == [0, 3] and unknown.doubt
    for offsets in ({("node-a", "node-b"): 2.0}, {("node-b", "node-a"): -2.0}):
        assert first(machine_events(on_two_nodes(3.5), TWO_NODES, offsets=offsets)) == [0]
        near = machine_events(on_two_nodes(2.5), TWO_NODES, offsets=offsets)
        assert first(near) == [0, 3] and near.doubt


def test_with_unknown_offsets_the_cause_decides() -> None:
    machine = machine_events(on_two_nodes(-3600.0, ("xid-79", "xid-31")), TWO_NODES)
    assert first(machine) == [0] and machine.doubt == ""


def test_a_weaker_event_before_a_stronger_one_on_a_node_is_a_doubt() -> None:
    events = [
        kernel("hung-task", 1, pid=100, seconds=500.0, text="blocked for more than 120 seconds"),
        kernel("xid-79", 2, pci="0000:41:00", seconds=501.0),
    ]
    machine = machine_events(events, TWO_NODES)
    assert machine.doubt and first(machine) == [0]
    late = msgspec.structs.replace(events[0], seconds=700.0)
    assert first(machine_events([late, events[1]], TWO_NODES)) == [1]


def test_a_weaker_event_in_a_file_without_clocks_is_a_doubt() -> None:
    events = [
        kernel("xid-79", 1, pci="0000:41:00"),
        kernel("hung-task", 1, pid=100, seconds=None, ref=Ref("kern.log", 1)),
    ]
    machine = machine_events(events, TWO_NODES)
    assert first(machine) == [0, 1] and "another rank" in machine.doubt


def test_strangers_and_what_came_before_the_job_are_context() -> None:
    events = [kernel("oom-kill", 1, pid=4242, wall=100.0), kernel("xid-79", 2, pci="0000:41:00", wall=100.0)]
    machine = machine_events(events, TWO_NODES, since=5000.0)
    assert machine.first == () and len(machine.context) == 2
    assert machine.context[1].text.startswith("before the job: ")
    assert first(machine_events(events, TWO_NODES, since=50.0)) == [1]


def test_lost_gpus_of_nvidia_smi_and_of_single_lines() -> None:
    machine = machine_events([lost(pci="0000:41:00"), lost(pci="0000:40:00", lost=False)], TWO_NODES)
    assert [(event.rank, event.text) for event in machine.first] == [
        (1, "nvidia-smi: GPU 0000:41:00 is lost")
    ]
    assert first(machine_events([lost(pci=None, pids=(101,))], TWO_NODES)) == [1]
    said = LogEvent(
        kind="gpu-lost", origin=Origin(node="node-b"), pci="0000:40:00", text="x", ref=Ref("l", 1)
    )
    assert first(machine_events([said], TWO_NODES)) == [2]
    nameless = LogEvent(kind="gpu-lost", text="slurm", ref=Ref("l", 2))
    machine = machine_events([nameless, msgspec.structs.replace(nameless, kind="exit"), object()], TWO_NODES)
    assert machine.first == () and len(machine.context) == 1


def test_nobody_is_known_nobody_is_named() -> None:
    machine = machine_events([kernel("xid-79", pci="0000:41:00"), kernel("oom-kill", pid=7)], ())
    assert machine.first == () and len(machine.context) == 2 and machine.by_rank == {}


def test_what_may_be_some_ranks_is_asked_for() -> None:
    events = [
        kernel("xid-79", 1, pci="0000:99:00"),
        kernel("oom-kill", 2, pid=7, node=""),
        kernel("xid-45", 3),
    ]
    asked = owners_asked(machine_events(events, ()))
    assert [fact.what for fact in asked] == [
        "which rank works on GPU 0000:99:00 on node-a",
        "which rank is pid 7",
    ]
    nameless = LogEvent(kind="gpu-lost", text="slurm", ref=Ref("l", 2))
    assert [fact.what for fact in owners_asked(machine_events([nameless], ()))] == ["which GPU is lost"]
    assert owners_asked(machine_events(events, TWO_NODES, world_size=4)) == ()
    assert len(owners_asked(machine_events(events, TWO_NODES, world_size=8))) == 2


# --- who runs where


def event(kind: str = "exit", pci: str | None = None, **origin: Any) -> LogEvent:
    return LogEvent(kind=kind, origin=Origin(**origin), pci=pci, text="x", ref=Ref("log", 1))


def test_identities_come_from_lines_dumps_and_nccl() -> None:
    facts: list[LooseFact] = [
        event(rank=0, node="node-a.cluster", pid=100),
        event("nccl-init-complete", "0000:40:00", node="node-a", pid=100),
        event("nccl-init-complete", "0000:99:00", node="node-a", pid=555),
        StackDump(tool="py-spy", origin=Origin(rank=1, pid=101), ref=Ref("p", 1)),
        event(rank=1, node="node-a"),
        event(rank=2),
    ]
    assert identities_of(facts) == (
        Identity(0, "node-a", 100, "0000:40:00"), Identity(1, "node-a", 101), Identity(2),
    )  # fmt: skip


def test_a_pid_in_nvidia_smis_table_tells_the_gpu() -> None:
    facts: list[LooseFact] = [
        event(rank=0, pid=100), event(rank=1, node="node-b", pid=100),
        lost(pci="0000:44:00", pids=(100,), lost=False),
    ]  # fmt: skip
    assert identities_of(facts) == (Identity(0, "node-a", 100, "0000:44:00"), Identity(1, "node-b", 100))
    twice = [*facts, lost(node="node-c", pci="0000:45:00", pids=(100,), lost=False)]
    assert identities_of(twice)[0] == Identity(0, None, 100)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("node-a", "NODE-A.cluster", True),
        ("node-a", "node-b", False),
        ("", "node-b", None),
        (None, None, None),
    ],
)
def test_names_of_one_host(left: str | None, right: str | None, same: bool | None) -> None:
    assert same_node(left, right) is same
    assert short("10.0.0.7") == "10.0.0.7"

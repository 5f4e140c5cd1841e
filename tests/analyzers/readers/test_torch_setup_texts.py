"""Stores, rendezvous, gloo, barriers, fingerprints, desync reports, elastic's lines and tables."""

from __future__ import annotations

import pytest

from hangscope.analyzers.readers import (
    elastic_table,
    elastic_text,
    fr_analyzer_text,
    gloo_text,
    monitored_barrier,
    torch_debug_server,
    torch_desync,
    torch_fingerprint,
    torch_store,
    torch_wait_counters,
)
from hangscope.analyzers.readers.interface import Facts, Line
from hangscope.model.loose import NOBODY, LogEvent, ProcessState, StackDump


def lines(*texts: str) -> list[Line]:
    return [Line(number, text, NOBODY, "x.log") for number, text in enumerate(texts, 1)]


def events(facts: Facts) -> list[LogEvent]:
    found = [fact for fact in facts if isinstance(fact, LogEvent)]
    assert len(found) == len(facts)
    return found


@pytest.mark.parametrize(
    ("key", "about", "group"),
    [
        ("/default_pg/0//cpu//0/2", (2,), "0"),
        ("/default_pg/0//12//cpu//0/1", (1,), "12"),
        ("/default_pg/0//cuda//0:1", (), None),
        ("/mine/2", (), None),
    ],
)
def test_the_key_of_gloos_mesh_names_who_did_not_come(
    key: str, about: tuple[int, ...], group: str | None
) -> None:
    (event,) = events(torch_store.read(lines(f"DistStoreError: wait timeout after 3000ms, keys: {key}")[0]))
    assert (event.kind, event.about, event.group, event.limit) == ("store-timeout", about, group, 3.0)
    assert event.about_group_ranks is bool(about)


def test_the_exchange_of_the_communicators_id() -> None:
    text = (
        "[3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store "
        "by key '0:1', but store->get('0:1') got error: wait timeout after 600000ms, keys: "
        "/default_pg/0//7//cuda//0:1. This may indicate"
    )
    (event,) = events(torch_store.read(lines(text)[0]))
    assert (event.about, event.about_group_ranks, event.group, event.group_rank) == ((0,), True, "7", 3)
    assert (event.key, event.limit) == ("/default_pg/0//7//cuda//0:1", 600.0)


def test_a_try_that_is_repeated_is_no_event() -> None:
    text = "TCP client failed to connect/validate to host a:29500 - {} (try=0, timeout=3000ms): The client"
    tail = " socket has timed out after 3000ms while trying to connect to (a, 29500)."
    assert torch_store.read(lines(text.format("retrying") + tail)[0]) == []
    (event,) = events(torch_store.read(lines(text.format("timed out") + tail)[0]))
    assert (event.kind, event.key, event.limit) == ("connect-timeout", "a:29500", 3.0)


def test_a_limit_in_days() -> None:
    text = (
        "Timed out initializing process group in store based barrier on rank: 2, for key: k:0 (world_size=4, "
    )
    (event,) = events(torch_store.read(lines(text + "worker_count=3, timeout=2 days, 1:00:00)")[0]))
    assert (event.origin.rank, event.limit) == (2, 49 * 3600.0)


@pytest.mark.parametrize(
    ("text", "kind", "key"),
    [
        (
            "[../gloo/transport/tcp/pair.cc:537] Read error [10.0.0.2]:41: Connection reset",
            "gloo-closed",
            "10.0.0.2:41",
        ),
        (
            "Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.cc:144] no error",
            "connect-timeout",
            None,
        ),
        ("gloo/transport/tcp/pair.cc:2] Connect timeout [10.0.0.2]:41", "connect-timeout", "10.0.0.2:41"),
        ("Application timeout caused pair closure", "gloo-timeout", None),
        ("misc/socket.cc:500 NCCL WARN Net : Connection closed by peer [10.0.0.2]:41", None, None),
        ("[/gloo/transport/tcp/device.cc:99] Unable to resolve hostname to a (local) address.", None, None),
    ],
)
def test_gloos_errors(text: str, kind: str | None, key: str | None) -> None:
    found = events(gloo_text.read(lines(text)[0]))
    assert [(event.kind, event.key) for event in found] == ([(kind, key)] if kind else [])


def test_a_mismatch_is_of_the_group_and_names_nobody_guilty() -> None:
    text = (
        "Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint("
        "SequenceNumber=5, OpType=ALLREDUCE), but Rank 0 is running collective: CollectiveFingerPrint("
        "SequenceNumber=4, OpType=ALLREDUCE).Collectives differ in the following aspects: \t Sequence "
        "number: 5vs 4"
    )
    mismatch, own, other = events(torch_fingerprint.read(lines(text)[0]))
    assert (mismatch.about, mismatch.about_group_ranks, mismatch.sequence) == ((1, 0), True, None)
    assert mismatch.key == "Sequence number: 5vs 4"
    assert [(event.group_rank, event.sequence, event.origin.rank) for event in (own, other)] == [
        (1, 5, None),
        (0, 4, None),
    ]
    assert torch_fingerprint.read(lines("CollectiveFingerPrint(")[0]) == []


def test_monitored_barriers_own_limit() -> None:
    (event,) = events(monitored_barrier.read(lines("Rank 3 timed out in monitoredBarrier after 2000 ms.")[0]))
    assert (event.kind, event.limit) == ("wait-timeout", 2.0)
    assert monitored_barrier.read(lines("calling monitoredBarrier now")[0]) == []


def test_finished_ranks_of_a_snapshot_are_no_laggards() -> None:
    rows = lines(
        "\t - Snapshot of ranks' latest states:",
        "\t   #4 finished ranks:",
        "\t     [2] finished ALLREDUCE",
        "\t   #5 started ranks:",
        "\t     [0, 1] started ALLREDUCE",
        "bye",
    )
    facts, end = torch_desync.read(rows, 0)
    assert end == 5
    assert [(event.kind, event.about, event.sequence) for event in events(facts)] == [
        ("desync-waiting", (0, 1), 5)
    ]
    assert torch_desync.read(lines("nothing"), 0) == ([], 0)


def test_a_worker_asleep_in_the_kernel_is_a_process() -> None:
    text = "[default] Worker pid=7 stuck in uninterruptible sleep (D-state) for 60.2s (>= 60.0s); marking"
    (state,) = elastic_text.read(lines(text)[0])
    assert isinstance(state, ProcessState) and (state.pid, state.state) == (7, "D")


def test_attempts_and_signals() -> None:
    said = (
        "[default] Worker group FAILED. 1/3 attempts left; will restart worker group",
        "Detected 2 new nodes from group_rank=0; will restart worker group",
        "SignalException: Process 22743 got signal: 15",
        "[default] worker group successfully finished. Waiting 300 seconds for other agents to finish.",
        "Sending process 5 closing signal SIGNOTHING",
    )
    found = [event for text in said for event in events(elastic_text.read(lines(text)[0]))]
    assert [(event.kind, event.origin.attempt, event.code) for event in found] == [
        ("restart", 3, None),
        ("restart", None, None),
        ("job-ended", None, 15),
        ("exit", None, 0),
        ("terminated-by-launcher", None, None),
    ]


def test_a_table_that_was_cut_keeps_what_is_whole() -> None:
    rows = lines(
        "Failures:", "[1]:", "  host      : node-a", "  rank : 3 (local_rank: 3)", "  exitcode : -7 (pid: 9)",
        "[2]:", "  rank      : 4 (local_rank: 4)",
    )  # fmt: skip
    facts, end = elastic_table.read_failures(rows, 0)
    (event,) = events(facts)
    assert (event.kind, event.code, event.origin.rank, event.origin.node, end) == ("exit", -7, 3, "node-a", 7)
    assert elastic_table.read_failures(lines("Failures: none so far"), 0) == ([], 0)


def test_localhost_is_no_name_of_a_node() -> None:
    rows = lines("Failures:", "  host      : localhost", "  exitcode  : 1 (pid: 9)")
    (event,) = events(elastic_table.read_failures(rows, 0)[0])
    assert event.origin.node is None and event.origin.rank is None


def test_the_start_of_an_attempt_tells_who_is_where() -> None:
    rows = lines(
        "[default] Rendezvous complete for workers. Result:", "  restart_count=2", "  master_addr=node-a",
        "  master_port=29500", "  group_rank=1", "  global_ranks=[4, 5]", "  global_world_sizes=[8, 8]", "x",
    )  # fmt: skip
    (event,), end = elastic_table.read_start(rows, 0)
    assert isinstance(event, LogEvent) and end == 7
    assert (event.origin.attempt, event.about, event.world_size, event.key) == (2, (4, 5), 8, "node-a:29500")
    assert elastic_table.read_start(rows[:1], 0) == ([], 0)
    assert elastic_table.read_start(lines("Worker group"), 0) == ([], 0)


def test_the_debug_servers_rank_beats_a_title() -> None:
    rows = lines(
        "=== Rank 1: http://[fd00::7]:41001/handler/pyspy_dump ===",
        "Process 5: env RANK=9 python train.py",
        "Python v3.11.7 (/usr/bin/python3.11)",
        'Thread 5 (idle): "MainThread"',
        "    step (train.py:3)",
        "=== Rank 2: http://node-b:41001 ===",
    )
    (dump,), end = torch_debug_server.read(rows, 0)
    assert isinstance(dump, StackDump) and end == 5
    assert (dump.origin.rank, dump.origin.node, dump.origin.pid) == (1, "fd00::7", 5)
    assert torch_debug_server.read(rows, 5) == ([], 6)
    assert torch_debug_server.read(lines("=== Rank 2 ==="), 0) == ([], 0)


def test_waits_that_are_over_are_no_events() -> None:
    text = '{"pytorch.wait_counter.TCPStore__wait":{"active_count":0}}'
    assert torch_wait_counters.read(lines(text), 0) == ([], 1)
    assert torch_wait_counters.read(lines('x "pytorch.wait_counter.a"'), 0) == ([], 0)


def test_torchfrtrace_is_marked_as_such() -> None:
    rows = lines(
        "Input/output mismatch in the collective sequence number: 3", "group info: 0:default_pg", "end"
    )
    facts, end = fr_analyzer_text.read(rows, 0)
    (event,) = events(facts)
    assert (event.counter, event.about, event.sequence, end) == ("torchfrtrace", (), 3, 2)
    assert fr_analyzer_text.read(lines("Not all ranks joining collective 5 at entry 4", "x"), 0) == ([], 0)
    assert fr_analyzer_text.read(lines("Collective bargaining"), 0) == ([], 0)

"""Watchdog, heartbeat monitor, stack of the failed collective, wrapped lines."""

from __future__ import annotations

import pytest

from hangscope.analyzers.readers import torch_failed_stack, torch_heartbeat, torch_watchdog, torch_wrapped
from hangscope.analyzers.readers.interface import Facts, Line
from hangscope.model.loose import NOBODY, LogEvent, LooseFact, Origin

TIMEOUT = (
    "[E ProcessGroupNCCL.cpp:563] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL("
    "SeqNum=1580, OpType=ALLREDUCE, NumelIn=25600, NumelOut=25600, Timeout(ms)=600000) ran for 600021 "
    "milliseconds before timing out."
)
STATUS = (
    "[E1107 09:14:02.5 ProcessGroupNCCL.cpp:2241] [PG ID 0 PG GUID 0(default_pg) Rank 1]  failure detected "
    "by watchdog at work sequence id: 42 PG status: last enqueued work: 43, last completed work: 41"
)
SIGNAL = (
    "[PG ID 0 PG GUID 0(default_pg) Rank 2] Received a dump signal due to a collective timeout from {} and "
    "we will try our best to dump the debug info. Last enqueued NCCL work: 41, last completed NCCL work: 40."
    "This is most likely caused by incorrect usages of collectives, e.g., wrong sizes used across ranks"
)


def lines(*texts: str, origin: Origin = NOBODY) -> list[Line]:
    return [Line(number, text, origin, "x.log") for number, text in enumerate(texts, 1)]


def only(facts: Facts) -> LogEvent:
    (fact,) = facts
    assert isinstance(fact, LogEvent)
    return fact


@pytest.mark.parametrize(
    ("work", "facts"),
    [
        ("WorkNCCL(OpType=BROADCAST, Timeout(ms)=1800000)", (None, "broadcast", None, 1800.0, "torch")),
        ("WorkNCCL(SeqNum=8, OpType=REDUCE, Timeout(ms)=1000)", (8, "reduce", None, 1.0, "torch")),
        (
            "WorkNCCL(SeqNum=3, OpType=_ALLGATHER_BASE, TensorShape=[4, 2], Timeout(ms)=1000)",
            (3, "_all_gather_base", "[4, 2]", 1.0, "torch"),
        ),
        (
            "WorkHCCL(SeqNum=3, OpType=SEND, NumelIn=4, NumelOut=5, Timeout(ms)=1000)",
            (3, "send", "4 -> 5", 1.0, "torch-p2p"),
        ),
        ("WorkXCCL(", (None, None, None, None, "torch")),
    ],
)
def test_the_work_of_every_version(work: str, facts: tuple[object, ...]) -> None:
    text = f"[Rank 2] Watchdog caught collective operation timeout: {work} ran for 5 milliseconds before"
    event = only(torch_watchdog.read(lines(f"{text} timing out.")[0]))
    assert (event.kind, event.seconds) == ("watchdog-timeout", 0.005)
    assert (event.sequence, event.operation, event.sizes, event.limit, event.counter) == facts


@pytest.mark.parametrize(
    ("status", "found"),
    [
        ("last enqueued NCCL work: 3, last completed NCCL work: 1", (3, None, 1)),
        ("last enqueued work: 3, last completed work: -1", (3, None, -1)),
        ("last enqueued NCCL work: 1, last completed NCCL work: 18446744073709551615", (1, None, -1)),
        ("last enqueued NCCL work: 1, last completed NCCL work: 3435973836", (1, None, -1)),
        (
            "last enqueued work: 39, last started work: 19 (_ALLGATHER_BASE), last completed work: 17",
            (39, 19, 17),
        ),
        ("last enqueued work: 9 (SEND), last started work: 99, last completed work: 8", (9, None, 8)),
    ],
)
def test_what_a_status_tells(status: str, found: tuple[int | None, ...]) -> None:
    event = only(torch_watchdog.read(lines(f"[PG 0 Rank 2] Timeout at NCCL work: 3, {status}.")[0]))
    assert (event.kind, event.sequence) == ("watchdog-status", 3)
    assert (event.enqueued, event.started, event.completed) == found


def test_an_impossible_status_is_none() -> None:
    text = (
        "[PG 0 Rank 2] Timeout at NCCL work: 3, last enqueued NCCL work: 18446744073709551615, last completed"
    )
    assert torch_watchdog.read(lines(f"{text} NCCL work: 1.")[0]) == []
    assert torch_watchdog.status_of("nothing of that") is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Some NCCL operations have failed or timed out. Due to the asynchronous nature", "watchdog-ended"),
        (f"[Rank 1] NCCL watchdog thread terminated with exception: {TIMEOUT[30:]}", "watchdog-ended"),
        ("Work WorkNCCL(SeqNum=2, OpType=REDUCE, Timeout(ms)=1) timed out in blocking wait.", "wait-timeout"),
        (
            "found async exception when checking for NCCL errors: NCCL error: unhandled cuda error",
            "nccl-warning",
        ),
        (
            "WorkNCCL(SeqNum=2, OpType=REDUCE, Timeout(ms)=1) raised the following async exception: "
            "NCCL error: remote process exited or there was a network error, NCCL version 2.21.5",
            "nccl-network",
        ),
        ("[TC] timeout - collective operation timed out [comm=world]", "watchdog-timeout"),
    ],
)
def test_other_words_of_the_watchdog(text: str, kind: str) -> None:
    assert only(torch_watchdog.read(lines(text)[0])).kind == kind


def test_a_scheduler_with_a_watchdog_says_nothing() -> None:
    assert torch_watchdog.read(lines("Scheduler watchdog timeout (self.watchdog_timeout=300)")[0]) == []


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        (TIMEOUT, 80),
        (TIMEOUT, 132),
        (STATUS, 120),
        (STATUS, 160),
        (SIGNAL, 100),
        (SIGNAL, 132),
        (SIGNAL, 160),
    ],
)
def test_a_wrapped_line_reads_like_the_whole_one(text: str, columns: int) -> None:
    text = text.format(" rank 0")
    pieces = [text[start : start + columns] for start in range(0, len(text), columns)]
    rows = [*lines(*pieces), *lines("step 4")]
    facts, end = torch_wrapped.read(rows, 0)
    whole = [*torch_watchdog.understood(lines(text)[0]), *torch_heartbeat.understood(lines(text)[0])]
    assert [(fact.kind, fact.sequence, fact.enqueued, fact.seconds) for fact in facts] == [  # type: ignore[union-attr]
        (fact.kind, fact.sequence, fact.enqueued, fact.seconds) for fact in whole
    ]
    assert whole and len(pieces) - 1 <= end <= len(pieces)
    alone: list[LooseFact] = [*torch_watchdog.read(rows[0]), *torch_heartbeat.read(rows[0])]
    assert alone == []


def test_whole_lines_are_not_read_twice() -> None:
    assert torch_wrapped.read(lines(TIMEOUT, "step 4"), 0) == ([], 0)


def test_a_wrapped_line_does_not_swallow_another_ranks() -> None:
    rows = [Line(1, TIMEOUT[:90], Origin(rank=1), "x"), Line(2, TIMEOUT[90:], Origin(rank=2), "x")]
    facts, end = torch_wrapped.read(rows, 0)
    assert end == 1 and [fact.origin.rank for fact in facts] == [1]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("who", "kind", "about"),
    [
        ("this local rank", "dump-sent", ()),
        (" rank 4", "dump-received", (4,)),
        ("rank 11", "dump-received", (11,)),
    ],
)
def test_a_dump_signal_tells_victims_from_the_others(who: str, kind: str, about: tuple[int, ...]) -> None:
    event = only(torch_heartbeat.read(lines(SIGNAL.format(who))[0]))
    assert (event.kind, event.about, event.enqueued, event.completed) == (kind, about, 41, 40)
    assert event.origin.rank == 2
    assert torch_watchdog.read(lines(SIGNAL.format(who))[0]) == []


@pytest.mark.parametrize(
    ("text", "kind", "key"),
    [
        (
            "Received a dump signal from this local rank and will start to dump the debug info.",
            "dump-sent",
            None,
        ),
        ("Heartbeat monitor timed out! Process will be terminated", "heartbeat-stuck", None),
        ("Could not acquire GIL within 300 ms on exit, possible GIL induced hang", "heartbeat-stuck", "GIL"),
        ("Broadcasting flight recorder dump signal to other processes via TCPStore.", "dump-sent", None),
        ("Dump signal received through pipe, triggering FR dump.", None, None),
        ("ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1", None, None),
    ],
)
def test_words_of_the_heartbeat_monitor(text: str, kind: str | None, key: str | None) -> None:
    facts = torch_heartbeat.read(lines(text)[0])
    assert [(fact.kind, fact.key) for fact in facts] == ([(kind, key)] if kind else [])  # type: ignore[union-attr]


def test_a_failed_stack_needs_its_frames_in_order() -> None:
    head = "[rank1]:[E812 09:00:01.5 f.cpp:801] Stack trace of the failed collective:"
    assert torch_failed_stack.read(lines(head, "step 4"), 0) == ([], 0)
    assert torch_failed_stack.read(
        lines("Stack trace of the failed collective not found, potentially"), 0
    ) == ([], 0)
    rows = lines(head, "#0 f from /a.py:1", "#2 g from /a.py:2")
    facts, end = torch_failed_stack.read(rows, 0)
    assert end == 2 and len(facts) == 1
    facts, end = torch_failed_stack.read(lines(head + " #0 f from /a.py:1", "#1 c10d::g from /b.cpp:2"), 0)
    (thread,) = facts[0].threads  # type: ignore[union-attr]
    assert [(frame.function, frame.library) for frame in thread.frames] == [("f", None), ("c10d::g", "?")]

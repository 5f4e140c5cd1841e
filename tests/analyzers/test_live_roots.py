"""Ranks that can go on by themselves: what shows that they stand, and what only looks like it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hangscope.analyzers.analysis import analyze_capture
from hangscope.analyzers.moved import loops_of, waits_in_loop
from hangscope.model.facts import Capture, Frame, ProcessSample, Socket
from hangscope.model.verdict import Verdict
from hangscope.model.waits import ReleasedBy, WaitKind

from .builder import MAIN_LOOP, PATIENT, SHORT, Doing, JobBuilder, doing, fifo, frame, running, socket_wait

FLAG = (54, "while not flag:")
SHARDS = (53, "for shard in shards:")


def answer(verdict: Verdict) -> tuple[str, tuple[int, ...]]:
    return verdict.kind, verdict.initiators


def verdict_of(what: Doing) -> Verdict:
    return JobBuilder(4, times=PATIENT).main(1, what).verdict()


def busy(*frames: Frame, kind: WaitKind = WaitKind.RUNNING, **more: Any) -> Doing:
    more.setdefault("switches", [7, 9, 12, 20, 40])
    return doing(kind, ReleasedBy.ITSELF, frames, caller=0, state="R", wchan="0", why="runs", **more)


def test_a_loop_that_only_a_condition_ends_is_a_spin() -> None:
    assert answer(verdict_of(busy(frame("spin", line=55, loops=[FLAG]), MAIN_LOOP))) == ("rank-blocked", (1,))


@pytest.mark.parametrize(
    "frames",
    [
        (frame("tokenize", line=55, loops=[SHARDS]), MAIN_LOOP),
        (frame("scan", line=55, loops=[SHARDS, FLAG]), MAIN_LOOP),
        (frame("scan", line=55, loops=[FLAG]), frame("main", line=90, loops=[(88, "for x in y:"), SHARDS])),
        (frame("decompose", line=55, text="torch.linalg.svd(a)"), MAIN_LOOP),
    ],
    ids=["items", "a wait for each item", "items of a caller", "one call in C"],
)
def test_work_that_may_take_its_next_item_unseen_is_not_called_stuck(frames: tuple[Frame, ...]) -> None:
    verdict = verdict_of(busy(*frames))
    assert answer(verdict) == ("undecided", ())
    assert "whether it moves" in (verdict.why_not_higher or "")


def test_a_line_that_is_the_loops_header_is_in_the_loop() -> None:
    header = frame("spin", line=FLAG[0], text=FLAG[1])
    assert answer(verdict_of(busy(header, MAIN_LOOP))) == ("rank-blocked", (1,))
    first, second = (header, MAIN_LOOP), (frame("spin", line=55, text="pass", loops=[FLAG]), MAIN_LOOP)
    stacks = [first, second, second, first, second]
    assert answer(verdict_of(busy(*first, stacks=stacks))) == ("rank-blocked", (1,))


def test_compiling_is_never_proof_of_standing() -> None:
    compiling = busy(frame("compile", line=55, loops=[FLAG]), MAIN_LOOP, kind=WaitKind.COMPILE)
    assert answer(verdict_of(compiling)) == ("undecided", ())


def test_one_long_sleep_stands_and_many_short_ones_may_not() -> None:
    nap = (frame("retry", line=55, text="time.sleep(delay)", loops=[SHARDS]), MAIN_LOOP)
    one = doing(WaitKind.SLEEP, ReleasedBy.ITSELF, nap, caller=0, wchan="hrtimer_nanosleep")
    assert answer(verdict_of(one)) == ("rank-blocked", (1,))
    many = doing(WaitKind.SLEEP, ReleasedBy.ITSELF, nap, caller=0, switches=[7, 9, 12, 20, 40])
    assert answer(verdict_of(many)) == ("undecided", ())


def test_a_program_without_stacks_that_never_ran_has_not_moved() -> None:
    job = JobBuilder(2, times=PATIENT)
    stack = [frame("run", "/usr/lib/python3.11/subprocess.py", 548), frame("export", line=30)]
    job.main(1, doing(WaitKind.CHILD, ReleasedBy.CHILDREN, stack, why="waits for its child"))
    nap = doing(WaitKind.SLEEP, ReleasedBy.ITSELF, (), wchan="hrtimer_nanosleep")
    child = job.child(1, "helper", nap)
    job.processes[child].threads[child] = ("sleep", None, nap)
    assert answer(job.verdict()) == ("rank-blocked", (1,))
    nap.switches = [7, 8, 9, 10, 11]
    assert answer(job.verdict()) == ("undecided", ())


def test_a_pipe_needs_patience() -> None:
    verdict = JobBuilder(4, times=SHORT).main(1, fifo()).verdict()
    assert answer(verdict) == ("undecided", ()) and verdict.more_samples_would_decide
    assert answer(verdict_of(fifo())) == ("rank-blocked", (1,))


def with_download(capture: Capture, rank: int, received: list[int], remote: str = "192.0.2.7:443") -> Capture:
    """A connection of the rank to an address outside the job."""

    def fed(sample: ProcessSample) -> ProcessSample:
        socket = Socket(
            inode=77,
            pid=1000 + 100 * rank,
            fd=9,
            family="tcp",
            state="ESTABLISHED",
            local="192.0.2.1:5000",
            remote=remote,
            bytes_received=received[sample.sample],
        )
        return msgspec.structs.replace(sample, sockets=(*sample.sockets, socket))

    return msgspec.structs.replace(
        capture,
        processes=tuple(
            msgspec.structs.replace(p, samples=tuple(fed(s) for s in p.samples)) if p.rank == rank else p
            for p in capture.processes
        ),
    )


def test_a_download_that_goes_on_is_slow_and_one_that_stands_is_stuck() -> None:
    capture, waits = JobBuilder(4, times=PATIENT).main(0, socket_wait(None, "192.0.2.7:443")).build()
    moving = with_download(capture, 0, [0, 10, 20, 30, 40])
    assert answer(analyze_capture(moving, waits))[1] == ()
    assert answer(analyze_capture(with_download(capture, 0, [5] * 5), waits)) == ("rank-blocked", (0,))


def test_telemetry_beside_a_spin_is_no_progress_and_a_bulk_transfer_is() -> None:
    capture, waits = JobBuilder(4, times=PATIENT).main(1, running()).build()
    beats = with_download(capture, 1, [0, 900, 1800, 2700, 3600])
    assert answer(analyze_capture(beats, waits)) == ("rank-blocked", (1,))
    bulk = with_download(capture, 1, [n << 20 for n in range(5)])
    assert answer(analyze_capture(bulk, waits))[1] == ()


def test_every_loop_of_its_own_must_wait_for_a_condition() -> None:
    stack = (frame("scan", line=55, loops=[SHARDS, FLAG]), MAIN_LOOP)
    loops = loops_of(stack)
    assert [loop[2] for loop in loops] == [54, 53, 88]
    assert waits_in_loop(stack, loops[:1]) and not waits_in_loop(stack, loops[:2])
    assert not waits_in_loop(stack, []) and not waits_in_loop(None, loops[:1])


def test_output_of_another_thread_does_not_move_one_that_never_ran() -> None:
    job = JobBuilder(3, times=PATIENT).main(1, fifo())
    job.of(1).output = [(100 * n, 1.0) for n in range(5)]
    assert answer(job.verdict()) == ("rank-blocked", (1,))
    job.main(1, fifo(switches=[7, 9, 12, 20, 40]))
    assert answer(job.verdict())[1] == ()

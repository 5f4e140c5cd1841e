"""Whether a thread runs: its CPU time between the samples, and who owns the interpreter lock in both."""

from __future__ import annotations

from hangscope.model.facts import Process, ProcessSample, ThreadSample

MOST = 0.6
"""Share of the time between two samples from which a thread counts as running."""
GIL_WAKES = 40.0
"""A thread that waits for the interpreter lock wakes every 5 ms (CPython's switch interval) to ask for it:
about 200 times a second. No other wait of a thread with Python frames on a futex does that."""
LITTLE = 0.2
"""Share up to which a thread that was met running was only passing by."""


def previous(process: Process, sample: ProcessSample) -> ProcessSample | None:
    """The sample before this one; None for the first."""
    earlier = [item for item in process.samples if item.sample < sample.sample]
    return earlier[-1] if earlier else None


def share(process: Process, sample: ProcessSample, thread: ThreadSample) -> float | None:
    """CPU time per wall time between the previous sample and this one, 0 to about 1; None when unknown."""
    before = previous(process, sample)
    if before is None or thread.run_ns is None:
        return None
    old = next((item for item in before.threads if item.tid == thread.tid), None)
    seconds = sample.monotonic - before.monotonic
    if old is None or old.run_ns is None or seconds <= 0:
        return None
    return max(0.0, (thread.run_ns - old.run_ns) / 1e9 / seconds)


def wakes(process: Process, sample: ProcessSample, thread: ThreadSample) -> float | None:
    """Voluntary context switches a second since the previous sample; None when unknown."""
    before = previous(process, sample)
    old = next((item for item in before.threads if item.tid == thread.tid), None) if before else None
    if before is None or old is None or old.voluntary is None or thread.voluntary is None:
        return None
    seconds = sample.monotonic - before.monotonic
    return (thread.voluntary - old.voluntary) / seconds if seconds > 0 else None


def gil_owner(process: Process, sample: ProcessSample) -> int | None:
    """The thread that owns the interpreter lock in this sample and, blocked, in the one before: nobody else
    of the process can run Python. None when it moves on, or there is only one sample."""
    before = previous(process, sample)
    if before is None:
        return None
    now = [item for item in sample.threads if item.owns_gil and item.state != "R"]
    then = {item.tid for item in before.threads if item.owns_gil}
    return now[0].tid if len(now) == 1 and now[0].tid in then else None

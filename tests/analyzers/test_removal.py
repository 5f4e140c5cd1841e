"""Removing any single fact may cost the answer, never turn it into another name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from hangscope.analyzers.analysis import analyze_capture
from hangscope.model.facts import Capture, Process, ProcessSample
from hangscope.model.waits import ReleasedBy, Wait, WaitKind

from .scenarios import SCENARIOS

replace = msgspec.structs.replace
Job = tuple[Capture, dict[tuple[str, int, int], Wait]]
KEPT = {
    WaitKind.STOPPED,
    WaitKind.DEAD,
    WaitKind.HOST_MEMORY,
    WaitKind.KERNEL,
    WaitKind.FIFO,
    WaitKind.RUNNING,
}
"""What the kernel alone tells of a thread."""


def with_process(job: Job, process: Process) -> Job:
    capture, waits = job
    others = tuple(process if p.pid == process.pid else p for p in capture.processes)
    return replace(capture, processes=others), waits


def blind(wait: Wait) -> Wait:
    """The wait of a thread whose stack was not captured."""
    if wait.kind in KEPT:
        return replace(wait, frame=None, caller=None, chain=(), lock=None, held=())
    if wait.kind in (WaitKind.TRANSPORT_IDLE, WaitKind.RUNTIME):
        return wait
    return Wait(kind=WaitKind.UNKNOWN, released_by=ReleasedBy.NOBODY, resolved=False)


def without_stacks(job: Job, process: Process, tids: set[int]) -> Job:
    def cut(sample: ProcessSample) -> ProcessSample:
        return replace(
            sample, threads=tuple(replace(t, stack=None) if t.tid in tids else t for t in sample.threads)
        )

    capture, waits = with_process(job, replace(process, samples=tuple(cut(s) for s in process.samples)))
    return capture, {k: blind(w) if k[1] == process.pid and k[2] in tids else w for k, w in waits.items()}


def without_sources(job: Job, process: Process) -> Job:
    def cut(sample: ProcessSample) -> ProcessSample:
        return replace(
            sample,
            threads=tuple(
                replace(t, stack=tuple(replace(f, source=None) for f in t.stack) if t.stack else t.stack)
                for t in sample.threads
            ),
        )

    capture, waits = with_process(job, replace(process, samples=tuple(cut(s) for s in process.samples)))
    return capture, {
        k: replace(w, held=(), lock=None) if k[1] == process.pid else w for k, w in waits.items()
    }


def of_process(job: Job, process: Process) -> Iterator[tuple[str, Job]]:
    _capture, waits = job
    bare = {key: wait for key, wait in waits.items() if key[1] != process.pid}
    yield "all samples", (with_process(job, replace(process, samples=(), recorders=()))[0], bare)
    for number in range(len(process.samples)):
        kept = tuple(s for s in process.samples if s.sample != number)
        records = tuple(r for r in process.recorders if r.sample != number)
        newest = number == len(process.samples) - 1
        yield (
            f"sample {number}",
            (
                with_process(job, replace(process, samples=kept, recorders=records))[0],
                waits
                if not newest or not kept
                else {**bare, **{k: w for k, w in waits.items() if k[1] == process.pid}},
            ),
        )
    tids = {t.tid for s in process.samples for t in s.threads}
    yield "stacks", without_stacks(job, process, tids)
    for tid in sorted(tids):
        yield f"stack of {tid}", without_stacks(job, process, {tid})
    yield "sources", without_sources(job, process)
    yield "recorder", with_process(job, replace(process, recorders=()))
    for number in range(len(process.recorders)):
        kept_records = tuple(r for r in process.recorders if r.sample != number)
        yield f"recorder {number}", with_process(job, replace(process, recorders=kept_records))
    for name in ("sockets", "files"):
        yield (
            name,
            with_process(
                job, replace(process, samples=tuple(replace(s, **{name: ()}) for s in process.samples))
            ),
        )
    yield "environment", with_process(job, replace(process, environment={}))
    yield "cgroups of it", with_process(job, replace(process, cgroups=()))
    yield "world size of it", with_process(job, replace(process, world_size=None))


def of_capture(job: Job) -> Iterator[tuple[str, Job]]:
    capture, waits = job
    names = ("cgroups", "memory", "locks", "mounts", "kernel", "cells", "complete_nodes", "sample_times")
    changes: dict[str, Any] = dict.fromkeys((*names, "expected_ranks"), ())
    changes |= {"single_node": None, "world_size": None}
    for name, value in changes.items():
        yield name, (replace(capture, **{name: value}), waits)
    for number in range(capture.samples):
        for name in ("sockets", "files"):
            processes = tuple(
                replace(
                    p, samples=tuple(replace(s, **{name: ()}) if s.sample == number else s for s in p.samples)
                )
                for p in capture.processes
            )
            yield f"{name} of sample {number}", (replace(capture, processes=processes), waits)
    every = tuple(
        replace(p, samples=tuple(replace(s, sockets=()) for s in p.samples)) for p in capture.processes
    )
    yield "all sockets", (replace(capture, processes=every), waits)


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_single_fact_turns_the_verdict_to_another_name(name: str) -> None:
    job = SCENARIOS[name][0]().build()
    whole = analyze_capture(*job)
    allowed = {whole.initiators, ()}
    wrong = []
    variants = list(of_capture(job))
    for process in job[0].processes:
        variants += [(f"pid {process.pid}: {what}", variant) for what, variant in of_process(job, process)]
    for what, variant in variants:
        verdict = analyze_capture(*variant)
        if verdict.initiators not in allowed:
            wrong.append((what, verdict.kind, verdict.initiators, verdict.confidence))
        if verdict.confidence == "high" and whole.initiators and not verdict.initiators:
            wrong.append((what, verdict.kind, "high without a name", verdict.confidence))
    assert wrong == []

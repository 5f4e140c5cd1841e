"""The recorders of one process in one sample, made one: torch keeps NCCL's operations apart from all others.

A process group of both back ends has one name and two counters, one in each recorder: they must not be taken
for each other. All ranks of a job run one build, so what stands beside NCCL's recorder is renamed on all of
them, whether or not NCCL has been used yet.
"""

from __future__ import annotations

import msgspec

from hangscope.model.facts import Recorder

NCCL = "/nccl_trace.json"
OTHERS = " (not NCCL)"


def merged(found: list[tuple[int, Recorder]]) -> tuple[Recorder, ...]:
    """One recorder a sample, in their order, from (sample, what one artifact says)."""
    samples: dict[int, list[Recorder]] = {}
    for sample, recorder in found:
        samples.setdefault(sample, []).append(msgspec.structs.replace(recorder, sample=sample))
    return tuple(_one(recorders) for _, recorders in sorted(samples.items()))


def _one(recorders: list[Recorder]) -> Recorder:
    nccl = [item for item in recorders if item.ref.artifact.endswith(NCCL)]
    others = [item for item in recorders if item not in nccl]
    if not nccl or not others:
        return recorders[-1]
    first, second = nccl[-1], _renamed(others[-1])
    pending = sorted((*first.pending, *second.pending), key=lambda item: item.created_ns or 0)
    return msgspec.structs.replace(
        first,
        groups=tuple(sorted((*first.groups, *second.groups))),
        last_enqueued=tuple(sorted((*first.last_enqueued, *second.last_enqueued))),
        last_completed=tuple(sorted((*first.last_completed, *second.last_completed))),
        pending=tuple(pending),
        low_water=tuple(sorted((*first.low_water, *second.low_water))),
        timed=first.timed or second.timed,
    )


def _renamed(recorder: Recorder) -> Recorder:
    def pairs(table: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        return tuple((group + OTHERS, number) for group, number in table)

    return msgspec.structs.replace(
        recorder,
        groups=tuple(group + OTHERS for group in recorder.groups),
        last_enqueued=pairs(recorder.last_enqueued),
        last_completed=pairs(recorder.last_completed),
        low_water=pairs(recorder.low_water),
        pending=tuple(msgspec.structs.replace(item, group=item.group + OTHERS) for item in recorder.pending),
    )

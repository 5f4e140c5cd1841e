"""Two recorders of one process, NCCL's and the others': one picture, in which equal names are not equal."""

from __future__ import annotations

import json
from typing import Any

from hangscope.analyzers.facts.capture import read_capture
from hangscope.model.evidence import Evidence
from hangscope.model.facts import Recorder

from .evidence_builder import NodeBuilder


def trace(backend: str, *sequences: int, pending: int | None = None) -> dict[str, Any]:
    entries = [
        {
            "process_group": ["0", "default_pg"],
            "collective_seq_id": number,
            "profiling_name": f"{backend}:all_reduce",
            "time_created_ns": number,
            "state": "scheduled" if number == pending else "completed",
            "retired": number != pending,
            "is_p2p": False,
        }
        for number in sequences
    ]
    return {"version": "2.10", "entries": entries}


def recorders(*samples: dict[str, dict[str, Any]]) -> tuple[Recorder, ...]:
    node = NodeBuilder(world_size=1)
    node.process(10, rank=0)
    for sample, artifacts in enumerate(samples):
        for name, body in artifacts.items():
            node.add("recorder", name, json.loads(json.dumps(body)), 10, sample)
    return read_capture(Evidence(job=None, shards=(node.shard(),))).processes[0].recorders


def test_one_recorder_stays_as_it_is() -> None:
    (first, second) = recorders(
        {"fr_trace.json": trace("gloo", 4, 5)}, {"nccl_trace.json": trace("nccl", 7, 8, pending=8)}
    )
    assert (first.sample, first.last_enqueued) == (0, (("0", 5),))
    assert (second.sample, second.last_enqueued, len(second.pending)) == (1, (("0", 8),), 1)


def test_equal_names_of_two_back_ends_are_two_groups() -> None:
    (both,) = recorders(
        {
            "fr_trace.json": trace("gloo", 4, 5, pending=5),
            "nccl_trace.json": trace("nccl", 7, 8, pending=8),
        }
    )
    assert both.last_enqueued == (("0", 8), ("0 (not NCCL)", 5))
    assert both.last_completed == (("0", 7), ("0 (not NCCL)", 4))
    assert [(item.group, item.sequence) for item in both.pending] == [("0 (not NCCL)", 5), ("0", 8)]
    assert both.groups == ("0", "0 (not NCCL)")
    assert both.ref.artifact.endswith("nccl_trace.json")


def test_a_rank_that_has_not_used_nccl_yet_names_its_other_groups_alike() -> None:
    (early,) = recorders({"fr_trace.json": trace("gloo", 4), "nccl_trace.json": trace("nccl")})
    assert early.last_enqueued == (("0 (not NCCL)", 4),)

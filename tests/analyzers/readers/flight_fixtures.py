"""Writes the made-up cases of ``fixtures/loose/flight-recorder-*``: ``python -m
tests.analyzers.readers.flight_fixtures``.

The real gloo cases come from ``python -m tests.benchmarks.record_flight_dumps``; those are left alone.
"""

from __future__ import annotations

import json
import pathlib
import pickle
import shutil

from . import flight_scenarios as jobs
from .flight_dumps import Dump, written

LOOSE = pathlib.Path(__file__).parents[3] / "fixtures" / "loose"
PICKLES = LOOSE / "flight-recorder-pickle"
JSONS = LOOSE / "flight-recorder-json"


def pickles(root: pathlib.Path) -> None:
    """The cases of pickles."""
    for name, dumps, version, prefix in (
        ("nccl-torch-2.8-lagging", jobs.lagging(), "2.10", "comm_lib_trace_rank_"),
        ("nccl-torch-2.2-lagging", jobs.lagging(), "1.0", "nccl_trace_rank_"),
        ("nccl-torch-2.3-lagging", jobs.lagging(), "2.1", "nccl_trace_rank_"),
        ("nccl-torch-2.5-subgroup", jobs.in_subgroup(), "2.4", "nccl_trace_rank_"),
        ("nccl-odd-rank-three", jobs.odd_rank_three(), "2.9", "nccl_trace_rank_"),
        ("nccl-two-group-cycle", jobs.two_group_cycle(), "2.10", "nccl_trace_rank_"),
        ("nccl-wrapped-ring", jobs.wrapped_ring(), "2.10", "nccl_trace_rank_"),
        ("nccl-dump-skew", jobs.dump_skew(), "2.10", "nccl_trace_rank_"),
        ("nccl-all-stuck", jobs.all_stuck(), "2.10", "nccl_trace_rank_"),
        ("nccl-sizes-differ", jobs.sizes_differ(), "2.10", "nccl_trace_rank_"),
        ("nccl-send-ring", jobs.send_ring(), "2.10", "nccl_trace_rank_"),
        ("nccl-batched-receive", jobs.batched_receive(), "2.10", "nccl_trace_rank_"),
        ("nccl-uneven-batches", jobs.uneven_batches(), "2.10", "nccl_trace_rank_"),
        ("nccl2-lagging", jobs.lagging("nccl2"), "2.10", "comm_lib_trace_rank_"),
        ("xccl-lagging", jobs.lagging("xccl"), "2.10", "comm_lib_trace_rank_"),
        ("hccl-lagging", jobs.lagging("hccl"), "2.4", "hccl_trace_rank_"),
        ("torchcomms-lagging", jobs.lagging("ncclx"), "2.10", "comm_lib_trace_rank_"),
        ("hook-lagging", jobs.lagging("c10d"), "2.10", "comm_lib_trace_rank_"),
        ("host-names", jobs.lagging(), "2.10", "nccl_trace_rank_node-a-07_"),
        ("healthy", jobs.healthy(), "2.10", "nccl_trace_rank_"),
    ):
        _emptied(root / name)
        written(root / name, dumps, version, prefix)
    _cut(root / "one-cut-short", jobs.lagging())
    _mixed(_emptied(root / "mixed-versions"), jobs.lagging())
    written(_emptied(root / "one-rank-missing"), [dump for dump in jobs.lagging() if dump.rank != 2])


def _cut(folder: pathlib.Path, dumps: list[Dump]) -> None:
    """Rank 2's file ends in the middle."""
    written(_emptied(folder), dumps)
    file = folder / "nccl_trace_rank_2"
    file.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])


def _mixed(folder: pathlib.Path, dumps: list[Dump]) -> None:
    """Two nodes with different torch, and one dump that a person loaded and wrote again."""
    for dump in dumps:
        data = dump.pickle("2.4" if dump.rank < 2 else "2.10")
        if dump.rank == 3:
            data = pickle.dumps(json.loads(json.dumps(dump.value())), protocol=4)
        (folder / f"nccl_trace_rank_{dump.rank}").write_bytes(data)


def jsons(root: pathlib.Path) -> None:
    """The cases of JSON."""
    for name, dumps in (("nccl-worker-server", jobs.lagging()), ("nccl-subgroup", jobs.in_subgroup())):
        folder = _emptied(root / name)
        for dump in dumps:
            (folder / f"fr_trace_rank_{dump.rank}.json").write_bytes(dump.json())
    folder = _emptied(root / "with-frames")
    for dump in jobs.odd_rank_three():
        (folder / f"rank_{dump.rank}.json").write_text(json.dumps(dump.value(), indent=1) + "\n")
    folder = _emptied(root / "one-cut-short")
    for dump in jobs.lagging():
        data = dump.json()
        (folder / f"fr_trace_rank_{dump.rank}.json").write_bytes(
            data[: len(data) // 2] if dump.rank == 2 else data
        )


def _emptied(folder: pathlib.Path) -> pathlib.Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


if __name__ == "__main__":
    pickles(PICKLES)
    jsons(JSONS)

"""Flight Recorder dumps as torch writes them, by version and back end, of small jobs made up for tests."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tests.benchmarks.c10d_pickler import FrameDict, pickled, shared_frames

START = 1_767_600_000_000_000_000
SECOND = 1_000_000_000
SCRIPT = "/workspace/train.py"
TORCH = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
ORDER_BEFORE_2_5 = (
    "record_id", "pg_id", "process_group", "collective_seq_id", "p2p_seq_id", "op_id", "profiling_name",
    "time_created_ns", "input_sizes", "input_dtypes", "output_sizes", "output_dtypes", "state",
    "time_discovered_started_ns", "time_discovered_completed_ns", "retired", "is_p2p", "frames",
)  # fmt: skip
"""TraceUtils.h, versions 2.0 to 2.2 of the format."""
ORDER_BEFORE_2_3 = (
    "id", "pg_id", "seq_id", "profiling_name", "time_created_ns", "input_sizes", "output_sizes", "state",
    "frames",
)  # fmt: skip
"""TraceUtils.h of torch 2.1 and 2.2: the dump is the bare list."""
ORDER = (
    "frames", "record_id", "pg_id", "process_group", "thread_name", "thread_id", "collective_seq_id",
    "p2p_seq_id", "op_id", "profiling_name", "time_created_ns", "input_sizes", "input_dtypes", "output_sizes",
    "output_dtypes", "state", "time_discovered_started_ns", "time_discovered_completed_ns", "retired",
    "timeout_ms", "is_p2p",
)  # fmt: skip
"""FlightRecorderDetail.hpp, version 2.10."""


class Group(msgspec.Struct, frozen=True):
    """A process group as its members know it."""

    name: str
    desc: str
    ranks: tuple[int, ...]


class Dump:
    """One rank's recorder. Operations are added in the order of the program."""

    def __init__(self, rank: int, groups: Sequence[Group], backend: str = "nccl") -> None:
        self.rank, self.groups, self.backend = rank, list(groups), backend
        self.entries: list[dict[str, Any]] = []
        self._counts: dict[tuple[str, str], int] = {}
        self._frames: dict[tuple[str, int], FrameDict] = {}
        self._now = START

    def call(
        self,
        kind: str,
        group: int = 0,
        *,
        state: str = "completed",
        line: int = 40,
        sizes: Sequence[Sequence[int]] = ((1024,),),
        p2p: bool = False,
        part: bool = False,
        number: int | None = None,
    ) -> Dump:
        """An operation. ``part``: of a coalesced region, it takes no number; ``number`` overrides the
        count."""
        at = self.groups[group]
        counter = "p2p" if p2p and not part and kind != "coalesced" else "collective"
        if not part:
            self._counts[at.name, counter] = self._counts.get((at.name, counter), 0) + 1
        self._counts[at.name, "op"] = self._counts.get((at.name, "op"), 0) + (kind != "coalesced")
        self._now += SECOND // 10
        started = self._now + 1000 if state != "scheduled" and self.backend not in ("gloo", "c10d") else None
        collective = number if number is not None else self._counts.get((at.name, "collective"), 0)
        untold = self.backend in ("gloo", "c10d")
        times = {"gather": len(at.ranks), "scatter": 1 / len(at.ranks)}
        factor = next((value for word, value in times.items() if word in kind), 1)
        outputs = [[int(factor * number) for number in size[:1]] + list(size[1:]) for size in sizes]
        self.entries.append(
            {
                "frames": [self._frame("call", TORCH, 2900), self._frame(f"step_{line}", SCRIPT, line)],
                "record_id": len(self.entries), "pg_id": group, "process_group": (at.name, at.desc),
                "thread_name": "pt_main_thread", "thread_id": "140112233445566",
                "collective_seq_id": collective, "p2p_seq_id": self._counts.get((at.name, "p2p"), 0),
                "op_id": self._counts[at.name, "op"], "profiling_name": f"{self.backend}:{kind}",
                "time_created_ns": self._now, "input_sizes": [list(size) for size in sizes],
                "input_dtypes": ["Float"] * len(sizes), "output_sizes": outputs,
                "output_dtypes": ["Float"] * len(sizes), "state": "scheduled" if untold else state,
                "time_discovered_started_ns": started,
                "time_discovered_completed_ns": started + 5000 if started and state == "completed" else None,
                "retired": state == "completed", "timeout_ms": 600_000, "is_p2p": p2p,
            }
        )  # fmt: skip
        return self

    def steps(self, kinds: Iterable[str], count: int, group: int = 0) -> Dump:
        """Completed operations, ``count`` times the same."""
        for _ in range(count):
            for place, kind in enumerate(kinds):
                self.call(kind, group, line=20 + place)
        return self

    def wrapped(self, size: int) -> Dump:
        """Only the newest entries are still there."""
        self.entries = self.entries[-size:]
        return self

    def value(self, version: str = "2.10") -> Any:
        """What torch would pickle."""
        if version.startswith("1"):
            return [self._old(entry) for entry in self.entries]
        order = ORDER if float(version.partition(".")[2]) >= 3 else ORDER_BEFORE_2_5
        entries = [{key: entry[key] for key in order} for entry in self.entries]
        config = {
            at.name: {"name": at.name, "desc": at.desc, "ranks": str(list(at.ranks))} for at in self.groups
        }
        if self.backend == "gloo":
            config = {"": {"name": "", "desc": "", "ranks": "[0, 1]"}}
        if order is ORDER_BEFORE_2_5:
            return {"entries": entries, "version": version, "pg_config": config}
        status = {str(number): self._status(at.name) for number, at in enumerate(self.groups)}
        return {
            "version": version, "pg_config": config, "comm_lib_version": "2.27.5", "pg_status": status,
            "entries": entries,
        }  # fmt: skip

    def pickle(self, version: str = "2.10") -> bytes:
        """The file."""
        value = self.value(version)
        shared_frames(value if isinstance(value, dict) else {"entries": value})
        return pickled(value)

    def json(self) -> bytes:
        """What a worker server answers: no frames, times that are not known are 0, statuses are strings."""
        value = self.value()
        for entry in value["entries"]:
            del entry["frames"]
            for key in ("time_discovered_started_ns", "time_discovered_completed_ns"):
                entry[key] = entry[key] or 0
        for status in value["pg_status"].values():
            status.update({key: str(number) for key, number in status.items()})
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    def _old(self, entry: dict[str, Any]) -> dict[str, Any]:
        known = {
            **entry,
            "id": entry["record_id"],
            "seq_id": entry["collective_seq_id"] + entry["p2p_seq_id"],
        }
        return {key: known[key] for key in ORDER_BEFORE_2_3}

    def _status(self, name: str) -> dict[str, int]:
        own = [item for item in self.entries if item["process_group"][0] == name and not item["is_p2p"]]
        done = [item["collective_seq_id"] for item in own if item["retired"]]
        numbers = [item["collective_seq_id"] for item in own]
        return {
            "last_enqueued_collective": max(numbers, default=-1),
            "last_started_collective": max(numbers, default=-1) if self.backend != "gloo" else -1,
            "last_completed_collective": max(done, default=-1),
        }

    def _frame(self, name: str, file: str, line: int) -> FrameDict:
        key = (file, line)
        return self._frames.setdefault(key, FrameDict({"name": name, "filename": file, "line": line}))


def written(
    folder: pathlib.Path, dumps: Iterable[Dump], version: str = "2.10", prefix: str = "nccl_trace_rank_"
) -> None:
    """Writes each rank's pickle under the name that torch gives it."""
    folder.mkdir(parents=True, exist_ok=True)
    for dump in dumps:
        (folder / f"{prefix}{dump.rank}").write_bytes(dump.pickle(version))


def world(size: int) -> Group:
    """The default group."""
    return Group("0", "default_pg", tuple(range(size)))

"""Flight Recorder dumps of a synthetic NCCL job of any size: world, tensor, pipeline and data parallel
groups.

All ranks run one program; one rank never enqueues one all_gather of its tensor-parallel group, and everybody
who then needs a rank that is blocked is blocked too, in the order of the program. The job is synchronous: no
rank launches ahead of an operation that has not completed."""

from __future__ import annotations

import functools
import random
import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from .c10d_pickler import C10dPickler, FrameDict

ENTRIES = 2000
DEPTH = 18
START_NS = 1_767_600_000_000_000_000
STEP_NS = 3_000_000
PROGRAM = (
    ("tp", "_all_gather_base", 1024, "attention.py", 211),
    ("tp", "_reduce_scatter_base", 8192, "attention.py", 268),
    ("tp", "_all_gather_base", 1024, "mlp.py", 97),
    ("tp", "_reduce_scatter_base", 8192, "mlp.py", 141),
    ("pp", "broadcast", 4096, "schedule.py", 402),
    ("tp", "_all_gather_base", 1024, "backward.py", 58),
    ("tp", "all_reduce", 1024, "backward.py", 90),
    ("pp", "broadcast", 4096, "schedule.py", 455),
    ("dp", "_reduce_scatter_base", 65536, "optimizer.py", 310),
    ("dp", "_all_gather_base", 8192, "optimizer.py", 377),
    ("world", "all_reduce", 1, "clip.py", 24),
)
"""One step: group, operation, size, and the place that calls it."""


Groups = dict[str, tuple[str, str, tuple[int, ...]]]


class Layout(msgspec.Struct, frozen=True):
    """Which ranks are in which group."""

    ranks: int
    tensor: int
    pipeline: int

    def groups(self, rank: int) -> Groups:
        """By kind: name, description and members of the group that the rank is in."""
        width, stage = self.ranks // self.pipeline, rank // (self.ranks // self.pipeline)
        tensor, place = rank // self.tensor, rank % width
        tensors = self.ranks // self.tensor
        data = stage * self.tensor + rank % self.tensor
        return {
            "world": ("0", "default_pg", tuple(range(self.ranks))),
            "tp": (str(1 + tensor), "tp", tuple(range(tensor * self.tensor, (tensor + 1) * self.tensor))),
            "pp": (str(1 + tensors + place), "pp", tuple(range(place, self.ranks, width))),
            "dp": (
                str(1 + tensors + width + data),
                "dp",
                tuple(range(stage * width + rank % self.tensor, (stage + 1) * width, self.tensor)),
            ),
        }


def layout(ranks: int) -> Layout:
    """Tensor parallel 8, pipeline 4 at 64 ranks, 8 at 256 and 1,024, 16 at 4,096."""
    return Layout(ranks, 8, 4 if ranks <= 64 else 8 if ranks <= 1024 else 16)


class Job(msgspec.Struct, frozen=True):
    """A job that hangs. ``missed``: number in the program of the operation that ``lagging`` does not
    enqueue."""

    layout: Layout
    lagging: int
    missed: int
    seed: int

    def stops(self) -> list[int]:
        """By rank: the number of the operation that it is stuck in (for the lagging one: never enqueued)."""
        ranks = self.layout.ranks
        stops: list[int | None] = [None] * ranks
        stops[self.lagging] = self.missed
        membership = [self.layout.groups(rank) for rank in range(ranks)]
        number = self.missed
        while None in stops:
            kind = PROGRAM[number % len(PROGRAM)][0]
            blocked = {membership[rank][kind][0] for rank in range(ranks) if stops[rank] is not None}
            for rank in range(ranks):
                if stops[rank] is None and membership[rank][kind][0] in blocked:
                    stops[rank] = number
            number += 1
        return [stop for stop in stops if stop is not None]

    def dumps(self) -> Iterator[tuple[int, bytes]]:
        """(rank, pickle) of every rank."""
        writer = _Writer(self)
        for rank, stop in enumerate(self.stops()):
            yield rank, writer.dump(rank, stop)


def job(ranks: int, seed: int) -> Job:
    """The job of a seed: a random rank misses a random all_gather after some thousands of operations."""
    chance = random.Random(seed * 7919 + ranks)
    gathers = [at for at, item in enumerate(PROGRAM) if item[:2] == ("tp", "_all_gather_base")]
    missed = chance.randrange(400, 600) * len(PROGRAM) + chance.choice(gathers)
    return Job(layout(ranks), chance.randrange(ranks), missed, seed)


class _Body(msgspec.Struct, frozen=True):
    """The entries as bytes. ``times``: where the times of the newest ones stand, with their values."""

    data: bytes
    times: tuple[tuple[int, int], ...]
    thread: int
    """Where the thread's number stands."""


class _Writer:
    """Writes dumps. Entries are equal on all ranks that stopped at one place but for times and thread; they
    are written once for every memo that a header leaves behind, and changed where the ranks differ."""

    def __init__(self, job: Job) -> None:
        self.job = job
        c10d = "/opt/venv/lib/python3.11/site-packages/torch/distributed/"
        outer = [_frame("main", "/workspace/pretrain.py", 88 + place) for place in range(DEPTH - 7)]
        self.sites = []
        for at, (_, operation, _, file, line) in enumerate(PROGRAM):
            inner = [_frame(operation.strip("_"), c10d + "distributed_c10d.py", 2800 + 40 * at)]
            inner.append(_frame("wrapper", c10d + "c10d_logger.py", 81))
            inner += [
                _frame(f"call_{at}_{depth}", f"/workspace/model/{file}", line + depth) for depth in range(5)
            ]
            self.sites.append(inner + outer)
        self._bodies: dict[tuple[object, ...], _Body] = {}

    def dump(self, rank: int, stop: int) -> bytes:
        """The dump of a rank that is stuck in operation ``stop``."""
        groups = self.job.layout.groups(rank)
        lags = rank == self.job.lagging
        header = self._header(groups, stop, lags)
        key = (stop, lags, header.memo(word for name, desc, _ in groups.values() for word in (name, desc)))
        if key not in self._bodies:
            self._bodies[key] = self._body(header.copy(), groups, stop, lags)
        body = self._bodies[key]
        data = bytearray(body.data)
        late = 1000 * (rank * 7919 % 997)
        for place, time in body.times:
            struct.pack_into("<q", data, place, time + late)
        data[body.thread : body.thread + 15] = str(140_000_000_000_000 + rank * 4096).encode()
        return bytes(header.data + data)

    def _header(self, groups: Groups, stop: int, lags: bool) -> C10dPickler:
        pickler = C10dPickler()
        pickler.open_dict()
        config = {
            name: {"name": name, "desc": desc, "ranks": str(list(ranks))}
            for name, desc, ranks in groups.values()
        }
        status = {str(at): _status(kind, stop, lags) for at, kind in enumerate(groups)}
        for key, value in (
            ("version", "2.10"), ("pg_config", config), ("comm_lib_version", "2.27.5"), ("pg_status", status),
        ):  # fmt: skip
            pickler.push(key)
            pickler.push(value)
        return pickler

    def _body(self, pickler: C10dPickler, groups: Groups, stop: int, lags: bool) -> _Body:
        pickler.data.clear()
        pickler.push("entries")
        pickler.data += b"]("
        last = stop - 1 if lags else stop
        places: list[tuple[int, int]] = []
        for number in range(max(last - ENTRIES + 1, 0), last + 1):
            before = len(pickler.data)
            pickler.push(self._entry(groups, number, number == stop))
            if number > last - 50:
                places += _times(bytes(pickler.data), before)
        pickler.data += b"eu"
        thread = pickler.data.find(b"140000000000000")
        return _Body(pickler.finished(), tuple(places), thread)

    def _entry(self, groups: Groups, number: int, stuck: bool) -> dict[str, Any]:
        at = number % len(PROGRAM)
        kind, operation, size, _, _ = PROGRAM[at]
        name, desc, ranks = groups[kind]
        created = START_NS + number * STEP_NS
        sequence = _sequence(kind, number)
        output = (
            size * len(ranks)
            if "all_gather" in operation
            else size // len(ranks)
            if "scatter" in operation
            else size
        )
        return {
            "frames": self.sites[at], "record_id": number, "pg_id": list(groups).index(kind),
            "process_group": (name, desc), "thread_name": "pt_main_thread", "thread_id": "140000000000000",
            "collective_seq_id": sequence, "p2p_seq_id": 0, "op_id": sequence,
            "profiling_name": f"nccl:{operation}", "time_created_ns": created,
            "input_sizes": [[size, 4096]], "input_dtypes": ["BFloat16"],
            "output_sizes": [[output, 4096]], "output_dtypes": ["BFloat16"],
            "state": "started" if stuck else "completed", "time_discovered_started_ns": created + 400_000,
            "time_discovered_completed_ns": None if stuck else created + 2_000_000,
            "retired": not stuck, "timeout_ms": 600_000, "is_p2p": False,
        }  # fmt: skip


@functools.cache
def _frame(name: str, file: str, line: int) -> FrameDict:
    return FrameDict({"name": name, "filename": file, "line": line})


def _sequence(kind: str, number: int) -> int:
    """How many operations of that kind the program has up to that one."""
    steps, rest = divmod(number + 1, len(PROGRAM))
    return steps * sum(item[0] == kind for item in PROGRAM) + sum(item[0] == kind for item in PROGRAM[:rest])


def _status(kind: str, stop: int, lags: bool) -> dict[str, int]:
    completed = _sequence(kind, stop - 1)
    enqueued = completed if lags else _sequence(kind, stop)
    return {
        "last_enqueued_collective": enqueued,
        "last_started_collective": enqueued,
        "last_completed_collective": completed,
    }


def _times(data: bytes, start: int) -> list[tuple[int, int]]:
    """Places and values of the eight-byte numbers behind ``start``: only times are that large."""
    found = []
    place = data.find(b"\x8a\x08", start)
    while place >= 0:
        value = struct.unpack_from("<q", data, place + 2)[0]
        if abs(value - START_NS) < 1 << 50:
            found.append((place + 2, value))
        place = data.find(b"\x8a\x08", place + 10)
    return found

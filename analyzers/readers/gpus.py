"""``gpus/node/nvml.json``: what NVML answered for each GPU; ``{"error": NAME}`` in place of any value.

>>> sample = b'''{"driver": "570.1", "gpus": [{"index": 0, "uuid": "GPU-aa", "minor": 0,
...   "pci": "00000000:53:00.0", "utilization": 100, "power_watts": 71.5, "lost": false,
...   "memory_used": {"error": "NotSupported"},
...   "processes": [{"pid": 41, "kind": "compute", "memory": 5}]}]}'''
>>> gpu = read(sample, "x").gpus[0].gpu
>>> gpu.uuid, gpu.utilization, gpu.memory_used, gpu.pids
('GPU-aa', 100, None, (41,))
"""

from __future__ import annotations

from typing import Any

import msgspec

from hangscope.model.facts import Gpu, Ref

from .raw import decode


class _RawGpu(msgspec.Struct):
    index: int
    uuid: Any = None
    pci: Any = None
    name: Any = None
    minor: Any = None
    utilization: Any = None
    power_watts: Any = None
    memory_used: Any = None
    memory_total: Any = None
    processes: Any = None
    lost: bool = False
    error: Any = None
    no_answer: Any = None


class _RawTable(msgspec.Struct):
    gpus: list[_RawGpu]


class GpuRow(msgspec.Struct, frozen=True):
    """A GPU, and the number N of its ``/dev/nvidiaN``. Node and sample are set by the caller."""

    gpu: Gpu
    minor: int | None


class GpuTable(msgspec.Struct, frozen=True):
    gpus: tuple[GpuRow, ...]


def read(data: bytes, path: str) -> GpuTable:
    """The GPUs in NVML's order. A value that is not available is None, never 0."""
    raw = decode(data, _RawTable, path)
    return GpuTable(tuple(_row(item, path) for item in raw.gpus))


def _row(raw: _RawGpu, path: str) -> GpuRow:
    processes = raw.processes if isinstance(raw.processes, list) else []
    pids = [_integer(item.get("pid")) for item in processes if isinstance(item, dict)]
    gpu = Gpu(
        node="",
        sample=0,
        index=raw.index,
        uuid=_text(raw.uuid),
        pci=_text(raw.pci),
        name=_text(raw.name),
        utilization=_integer(raw.utilization),
        power_watts=_float(raw.power_watts),
        memory_used=_integer(raw.memory_used),
        memory_total=_integer(raw.memory_total),
        pids=tuple(sorted({pid for pid in pids if pid is not None})),
        lost=raw.lost or _error(raw.uuid) == "GpuIsLost" or _text(raw.error) == "GpuIsLost",
        error=_text(raw.error) or _error(raw.error) or _hung(raw.no_answer),
        ref=Ref(path),
    )
    return GpuRow(gpu, _integer(raw.minor))


def _hung(call: object) -> str | None:
    """The call that never returned: its name as the collector noted it."""
    return f"no answer: {call[:80]} never returned" if isinstance(call, str) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and abs(value) < 1e12 else None


def _error(value: object) -> str | None:
    return _text(value.get("error")) if isinstance(value, dict) else None

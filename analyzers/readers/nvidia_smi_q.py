"""``nvidia-smi -q`` as text: one indented section a GPU, ``name : value`` lines.

>>> from .interface import Line
>>> from hangscope.model.loose import NOBODY
>>> text = '''==============NVSMI LOG==============
...
... Attached GPUs                             : 1
... GPU 00000000:44:00.0
...     Product Name                          : NVIDIA H100 80GB HBM3
...     GPU UUID                              : GPU-aa
...     FB Memory Usage
...         Total                             : 81559 MiB
...         Used                              : 9120 MiB
...     Utilization
...         Gpu                               : 100 %
...     GPU Power Readings
...         Power Draw                        : N/A
...     Processes
...         Process ID                        : 4711
...             Type                          : C'''
>>> lines = [Line(at, text, NOBODY, "q.txt") for at, text in enumerate(text.splitlines(), 1)]
>>> (gpu,), after = read(lines, 0)
>>> gpu.pci, gpu.uuid, gpu.utilization, gpu.power_watts, gpu.memory_used >> 20, gpu.pids, after
('0000:44:00', 'GPU-aa', 100, None, 9120, (4711,), 16)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hangscope.model.facts import Gpu

from . import pci
from .interface import BlockForm, Facts, Line
from .raw import number, real

MOST_LINES = 40_000
_GPU = re.compile(rf"^GPU (?P<pci>{pci.ADDRESS})\s*$")
_ENTRY = re.compile(r"^(?P<indent>\s{1,40})(?P<name>\S.{0,60}?)\s*(?: : (?P<value>.{0,300}))?$")
_TOP = re.compile(r"^(?:Timestamp|Driver Version|CUDA Version|Attached GPUs|=+NVSMI LOG=+)")
POWER = ("Power Draw", "Instantaneous Power Draw", "Average Power Draw")
"""Newer drivers tell the average and the instantaneous draw apart."""


def read(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """The GPUs in the log's order. A value that is not available is None, never 0."""
    if "NVSMI LOG" not in lines[start].text and _GPU.match(lines[start].text) is None:
        return (), start
    found: list[dict[str, Any]] = []
    section, at = "", start
    while at < min(len(lines), start + MOST_LINES):
        text = lines[at].text[:400].rstrip()
        gpu, entry = _GPU.match(text), _ENTRY.match(text)
        if gpu is not None:
            found.append(_begun(lines[at], gpu["pci"], len(found)))
        elif entry is not None and found:
            if entry["value"] is None:
                section = entry["name"]
            _entry(found[-1], section, entry["name"], (entry["value"] or entry["name"]).strip())
        elif (text and _TOP.match(text) is None) or (at > start and "NVSMI LOG" in text):
            break
        at += 1
    return [Gpu(**fields) for fields in found], at


def _begun(line: Line, address: str, index: int) -> dict[str, Any]:
    node = line.origin.node or ""
    return {
        "node": node, "sample": 0, "index": index, "uuid": None, "pci": pci.normal(address), "ref": line.ref,
    }  # fmt: skip


def _entry(gpu: dict[str, Any], section: str, name: str, value: str) -> None:
    if "GPU is lost" in value:
        gpu["lost"] = True
    elif value in ("Unknown Error", "ERR!", "[Unknown Error]", "GPU requires reset", "[GPU requires reset]"):
        gpu["error"] = value.strip("[]")
    elif name == "Product Name":
        gpu["name"] = value
    elif name in ("GPU UUID", "UUID"):
        gpu["uuid"] = value if value.startswith(("GPU-", "MIG-")) else None
    elif name == "Process ID":
        pid = number(value)
        gpu["pids"] = tuple(sorted({*gpu.get("pids", ()), *([pid] if pid is not None else [])}))
    elif name in POWER and section in ("GPU Power Readings", "Power Readings"):
        watts = real(value.split(" ")[0])
        gpu["power_watts"] = gpu.get("power_watts") if watts is None else watts
    else:
        _number(gpu, section, name, value)


def _number(gpu: dict[str, Any], section: str, name: str, value: str) -> None:
    place = (section, name)
    if place == ("Utilization", "Gpu") or place == ("Utilization", "GPU"):
        gpu["utilization"] = number(value)
    elif section in ("FB Memory Usage", "Memory Usage") and name in ("Used", "Total"):
        mebibytes = number(value)
        gpu[f"memory_{name.lower()}"] = None if mebibytes is None else mebibytes << 20
    elif section == "Temperature" and name in ("GPU Current Temp", "Gpu"):
        gpu["temperature"] = number(value)


FORM = BlockForm(
    name="nvidia-smi-q",
    title="nvidia-smi -q: text",
    openers=("NVSMI LOG", "GPU 0000"),
    read=read,
)

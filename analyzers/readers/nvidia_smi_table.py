"""The table that plain ``nvidia-smi`` prints, drivers 3xx to 57x, also damaged by pasting.

Two rows a GPU until 440, three since (MIG). Separators are not looked at, as chats and Markdown eat them: a
GPU's first row is known by its bus id, the second by its memory. Process rows give the pids.

>>> from .interface import Line
>>> from hangscope.model.loose import NOBODY
>>> table = '''+---------------------------------------------------------------------------------------+
... | NVIDIA-SMI 535.104.05             Driver Version: 535.104.05   CUDA Version: 12.2     |
... |-----------------------------------------+----------------------+----------------------+
... | GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |
... |=========================================+======================+======================|
... |   0  NVIDIA H100 80GB HBM3          On  | 00000000:44:00.0 Off |                    0 |
... | N/A   34C    P0             118W / 700W |   9120MiB / 81559MiB |    100%      Default |
... |                                         |                      |             Disabled |
... +-----------------------------------------+----------------------+----------------------+
... | Processes:                                                                            |
... |  GPU   GI   CI        PID   Type   Process name                            GPU Memory |
... |    0   N/A  N/A      4711      C   Unknown Error                              9110MiB |
... +---------------------------------------------------------------------------------------+'''
>>> lines = [Line(at, text, NOBODY, "smi.txt") for at, text in enumerate(table.splitlines(), 1)]
>>> (gpu,), after = read(lines, 1)
>>> gpu.pci, gpu.utilization, gpu.power_watts, gpu.memory_used >> 20, gpu.temperature, gpu.pids, gpu.lost
('0000:44:00', 100, 118.0, 9120, 34, (4711,), False)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hangscope.model.facts import Gpu

from . import pci
from .interface import BlockForm, Facts, Line

MOST_LINES = 3000
BLANKS = 3
"""Empty lines between the tables of one print."""
_FIRST = re.compile(
    rf"^\s*\|?\s*(?P<index>\d{{1,3}})\s+(?P<name>\S.{{0,60}}?)\s+(?:(?:On|Off|N/A|ERR!)\s*)?\|\s*(?P<pci>{pci.ADDRESS})(?:\s|\|)"
)
_MEMORY = re.compile(
    r"\|\s*(?P<used>\d{1,9}|N/A|ERR!|Unknown Error)\s*(?:Mi?B)?"
    r"\s*/\s*(?P<total>\d{1,9})?\s*(?:Mi?B|N/A|ERR!)?"
)
_TEMPERATURE = re.compile(r"(?<![\d.])(\d{1,3})C\b")
_POWER = re.compile(r"(?<![\d.])(\d{1,5}(?:\.\d{1,3})?)W\s*/")
_LOAD = re.compile(r"\|\s*(\d{1,3})\s?%")
_PROCESS = re.compile(
    r"^\s*\|?\s*(?P<gpu>\d{1,3})\s+(?:(?:N/A|\d{1,3})\s+(?:N/A|\d{1,3})\s+)?(?P<pid>\d{1,9})\s+\D"
)
_LOST = re.compile(r"GPU is lost|\bLost\b")
_INSIDE = re.compile(r"^\s*[|+]|^\s*\d{1,3}\s{2,}\S.{0,100}\||MiB|No running processes|^[\s=+|-]*$")


def read(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """The GPUs in the table's order; what the table does not tell is None."""
    if re.search(r"NVIDIA-SMI \d|Bus-Id +Disp", lines[start].text) is None:
        return (), start
    found: list[dict[str, Any]] = []
    section, at, blanks = "gpus", start, 0
    while at < min(len(lines), start + MOST_LINES):
        line = lines[at]
        blanks = 0 if line.text.strip() else blanks + 1
        if blanks > BLANKS or _INSIDE.search(line.text) is None:
            break
        if at > start and "NVIDIA-SMI " in line.text:
            break
        section = _section(line.text, section)
        if section == "gpus":
            _gpu_row(line, found)
        elif section == "processes":
            _process_row(line.text, found)
        at += 1
    return [Gpu(**fields) for fields in found], at


def _section(text: str, section: str) -> str:
    """Which of the tables the rows from here on belong to: MIG rows look like others."""
    if "MIG devices:" in text:
        return "mig"
    if "rocesses:" in text:
        return "processes"
    return section


def _gpu_row(line: Line, found: list[dict[str, Any]]) -> None:
    text = line.text[:400]
    first = _FIRST.match(text)
    if first is not None:
        found.append(
            {
                "node": line.origin.node or "",
                "sample": 0,
                "index": int(first["index"]),
                "uuid": None,
                "pci": pci.normal(first["pci"]),
                "name": first["name"],
                "ref": line.ref,
            }
        )
        # rows of a GPU that was lost while it was read
        _troubles(text, found[-1])
        return
    if not found:
        return
    gpu = found[-1]
    _troubles(text, gpu)
    memory = _MEMORY.search(text)
    if memory is None or "memory_used" in gpu:
        return
    gpu["memory_used"] = int(memory["used"]) << 20 if memory["used"].isdigit() else None
    gpu["memory_total"] = int(memory["total"]) << 20 if memory["total"] else None
    left, right = text[: memory.start()], text[memory.end() :]
    gpu["temperature"] = int(said[1]) if (said := _TEMPERATURE.search(left)) else None
    gpu["power_watts"] = float(said[1]) if (said := _POWER.search(left)) else None
    gpu["utilization"] = int(said[1]) if (said := _LOAD.search(right)) else None


def _troubles(text: str, gpu: dict[str, Any]) -> None:
    if _LOST.search(text) is not None:
        gpu["lost"] = True
    elif "ERR!" in text or "Unknown Error" in text:
        gpu["error"] = "ERR!" if "ERR!" in text else "Unknown Error"


def _process_row(text: str, found: list[dict[str, Any]]) -> None:
    """Adds the pid to its GPU: a process whose name cannot be told any more is a pid all the same."""
    row = _PROCESS.match(text[:400])
    if row is None:
        return
    for gpu in found:
        if gpu["index"] == int(row["gpu"]):
            gpu["pids"] = tuple(sorted({*gpu.get("pids", ()), int(row["pid"])}))


FORM = BlockForm(
    name="nvidia-smi-table",
    title="nvidia-smi: the table, drivers 3xx to 57x",
    openers=("NVIDIA-SMI ", "Bus-Id "),
    read=read,
)

"""gpustat's rows: one a GPU, below a line with the host's name.

>>> from .interface import Line
>>> from hangscope.model.loose import NOBODY
>>> rows = '''node-a              Thu May  2 10:04:41 2024  535.104.05
... [0] NVIDIA A100 80GB PCIe | 52'C, 100 %, 71 / 300 W | 10151 / 81920 MB | ann:python3/4711(10142M)
... [1] NVIDIA A100 80GB PCIe | ??'C,  ?? % |     0 / 81920 MB | (null)'''
>>> lines = [Line(at, text, NOBODY, "x") for at, text in enumerate(rows.splitlines(), 1)]
>>> gpus, after = read(lines, 1)
>>> [(gpu.node, gpu.index, gpu.utilization, gpu.power_watts, gpu.pids) for gpu in gpus]
[('node-a', 0, 100, 71.0, (4711,)), ('node-a', 1, None, None, ())]
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangscope.model.facts import Gpu

from .interface import BlockForm, Facts, Line
from .raw import number, real

MOST_ROWS = 256
_ROW = re.compile(
    r"^\s{0,8}\[(?P<index>\d{1,3})\] (?P<name>\S.{0,60}?)\s*\|\s*(?P<temperature>\d{1,3}|\?{1,3})'C"
    r"(?:,\s*(?P<fan>\d{1,3}|\?{1,3}) %(?=,\s*[\d?]{1,3} %))?,\s*(?P<load>\d{1,3}|\?{1,3}) %"
    r"(?:,\s*(?P<watts>\d{1,5}|\?{1,3})\s*/\s*(?:\d{1,5}|\?{1,3}) W)?"
    r"\s*\|\s*(?P<used>\d{1,9}|\?{1,3})\s*/\s*(?P<total>\d{1,9}|\?{1,3}) MB(?P<rest>.{0,2000})"
)
_HOST = re.compile(
    r"^(?P<host>[A-Za-z0-9][\w.-]{0,99})\s+(?:\(\S{1,40}\)\s+)?"
    r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}"
)
_PID = re.compile(r"/(\d{1,9})\(")


def read(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """The GPUs of one print. ``??`` is no value; pids stand there with ``gpustat -p`` only."""
    head = _HOST.match(lines[start - 1].text) if start > 0 else None
    node = head["host"] if head is not None else lines[start].origin.node or ""
    found: list[Gpu] = []
    at = start
    while at < min(len(lines), start + MOST_ROWS):
        row = _ROW.match(lines[at].text)
        if row is None or (found and int(row["index"]) <= found[-1].index):
            break
        used, total = number(row["used"]), number(row["total"])
        found.append(
            Gpu(
                node=node,
                sample=0,
                index=int(row["index"]),
                uuid=None,
                name=row["name"],
                utilization=number(row["load"]),
                power_watts=real(row["watts"]),
                memory_used=None if used is None else used << 20,
                memory_total=None if total is None else total << 20,
                pids=tuple(sorted({int(pid) for pid in _PID.findall(row["rest"])})),
                temperature=number(row["temperature"]),
                ref=lines[at].ref,
            )
        )
        at += 1
    return found, at


FORM = BlockForm(name="gpustat", title="gpustat rows", openers=("'C,",), read=read)

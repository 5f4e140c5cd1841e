r"""cuda-gdb's ``info cuda kernels``: which kernel is resident on which device, one event a row.

A resident communication kernel is a fact about the *waiting* side: it has been launched and does not end.
Source: CUDA-GDB manual, "info cuda kernels" (Kernel, Parent, Dev, Grid, Status, SMs Mask, GridDim, BlockDim,
Invocation).

>>> from .interface import Line
>>> from hangscope.model.loose import NOBODY
>>> sample = '''(cuda-gdb) info cuda kernels
...   Kernel Parent Dev   Grid Status   SMs Mask GridDim BlockDim Invocation
... *      0      -   0 4711 Active 0x00000003 (2,1,1) (512,1,1) ncclDevKernel_AllReduce_Sum_bf16_RING_LL'''
>>> lines = [Line(n, text, NOBODY, "x.txt") for n, text in enumerate(sample.split(chr(10)), 1)]
>>> (event,), end = read(lines, 0)
>>> event.kind, event.operation, event.key, end
('gpu-kernel', 'all_reduce', 'device 0', 3)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangscope.model.loose import LogEvent

from .gdb_frames import cleaned
from .interface import BlockForm, Facts, Line

MOST_KERNELS = 4_096

_HEAD = re.compile(r"\s{0,8}Kernel\s{1,8}Parent\s{1,8}Dev\s{1,8}Grid\s{1,8}Status\b")
_ROW = re.compile(
    r"\s{0,4}\*?\s{0,8}\d{1,6}\s{1,8}(?:-|\d{1,6})\s{1,8}(?P<device>\d{1,4})\s{1,12}\d{1,20}\s{1,8}"
    r"(?P<status>[A-Z]\w{1,20})\s{1,8}0x[0-9a-f]{1,64}\s{1,8}\([\d,]{1,40}\)\s{1,8}\([\d,]{1,40}\)\s{1,8}(?P<kernel>\S.{0,1000})"
)
_NCCL = re.compile(
    r"nccl(?:DevKernel|Kernel)?_?(?P<what>AllReduce|ReduceScatter|AllGather|Broadcast|Reduce|SendRecv|Generic)"
)
_OPERATIONS = {
    "AllReduce": "all_reduce",
    "ReduceScatter": "reduce_scatter",
    "AllGather": "all_gather",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "SendRecv": "send_recv",
}


def read(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """An event a resident kernel, and the index behind the table. ``No CUDA kernels.`` gives none."""
    index = start
    while index < len(lines) and index <= start + 2 and not _HEAD.match(cleaned(lines[index].text)):
        if "No CUDA kernels." in lines[index].text:
            return (), index + 1
        index += 1
    if index >= len(lines) or not _HEAD.match(cleaned(lines[index].text)):
        return (), start
    events: list[LogEvent] = []
    index += 1
    while index < len(lines) and len(events) < MOST_KERNELS:
        text = cleaned(lines[index].text).rstrip()
        found = _ROW.fullmatch(text)
        if found is None:
            break
        events.append(_event(lines[index], text, found))
        index += 1
    return events, index


def _event(line: Line, text: str, found: re.Match[str]) -> LogEvent:
    kernel = _NCCL.search(found["kernel"])
    return LogEvent(
        kind="gpu-kernel",
        origin=line.origin,
        operation=_OPERATIONS.get(kernel["what"]) if kernel is not None else None,
        key=f"device {found['device']}",
        text=text.strip()[:400],
        ref=line.ref,
    )


FORM = BlockForm(
    name="cuda-gdb",
    title="cuda-gdb info cuda kernels",
    openers=("info cuda kernels", "No CUDA kernels.", "Kernel Parent Dev"),
    read=read,
)

"""Lines of torch's watchdog and heartbeat monitor that a narrow terminal or a pager wrapped.

>>> from hangscope.model.loose import Origin
>>> text = '''[E ProcessGroupNCCL.cpp:563] [Rank 3] Watchdog caught collective operation timeo
... ut: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=25600, NumelOut=25600, Timeo
... ut(ms)=600000) ran for 600021 milliseconds before timing out.'''
>>> lines = [Line(n, row, Origin(), "x.log") for n, row in enumerate(text.splitlines(), 1)]
>>> (event,), end = read(lines, 0)
>>> event.kind, event.sequence, event.operation, event.seconds, end
('watchdog-timeout', 1580, 'all_reduce', 600.021, 3)
"""

from __future__ import annotations

from collections.abc import Sequence

from . import torch_heartbeat, torch_watchdog
from .interface import BlockForm, Facts, Line

_MOST_PIECES = 6
_PREFIX = 40
"""Characters that the first line may have lost with its prefix: the others may be longer by them."""


def read(lines: Sequence[Line], index: int) -> tuple[Facts, int]:
    """The events of one message over several lines; nothing for a whole line, which the line forms read."""
    first = lines[index]
    if not torch_watchdog.is_cut(first.text):
        return [], index
    text, end = first.text, index + 1
    while end < len(lines) and end - index < _MOST_PIECES and not torch_watchdog.is_whole(text):
        piece = lines[end]
        foreign = piece.origin.rank not in (None, first.origin.rank) or piece.text.startswith("[")
        if foreign or len(piece.text) > len(first.text) + _PREFIX:
            break
        text, end = text + piece.text, end + 1
    whole = Line(first.number, text, first.origin, first.path)
    return [*torch_watchdog.understood(whole), *torch_heartbeat.understood(whole)], end


FORM = BlockForm(
    name="torch-wrapped",
    title="torch watchdog and dump-signal lines that a terminal wrapped",
    openers=("Watchdog caught", "detected by watchdog", "Timeout at NCCL work", "dump signal due to"),
    read=read,
)

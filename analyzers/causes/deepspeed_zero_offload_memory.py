"""``deepspeed-zero-offload-memory``: a ZeRO rank's offload waits for host memory, its peers for the rank.

The flagship: peers wait for ZeRO's parameters in an all-gather, one rank never joins it, since a thread of
it that offloads is blocked on host memory.
"""

from __future__ import annotations

import msgspec

from ...model.facts import Frame
from .host_memory_limit import explain as explain_memory
from .interface import Context, Explanation, Rule, line

ZERO = ("deepspeed/runtime/zero/", "deepspeed/runtime/swap_tensor/", "deepspeed/ops/adam/")
"""Where ZeRO, its swapping and its CPU optimizer live (DeepSpeed 0.19)."""


def explain(context: Context) -> Explanation | None:
    """Host memory at its limit, and ZeRO's frames on the wait path of the rank or of its victims."""
    memory = explain_memory(context)
    if memory is None or context.finding is None:
        return None
    frame = _zero_frame(context)
    if frame is None:
        return None
    text = f"DeepSpeed ZeRO on the wait path: {frame.function} ({frame.file.rpartition('/')[2]}:{frame.line})"
    return msgspec.structs.replace(memory, evidence=(*memory.evidence, line(text)))


def _zero_frame(context: Context) -> Frame | None:
    finding = context.finding
    assert finding is not None
    owners = tuple(rank for node in context.blocked() for rank in context.ranks_of(node))
    for node in context.blocked():
        for frame in context.frames(node):
            if is_zero(frame):
                return frame
    for wait in context.waits((*owners, *finding.victims[:64])):
        if wait.frame is not None and is_zero(wait.frame):
            return wait.frame
        for frame in wait.chain:
            if is_zero(frame):
                return frame
    return None


def is_zero(frame: Frame) -> bool:
    """True for a frame of DeepSpeed's ZeRO, swapping or CPU optimizer."""
    return any(part in frame.file for part in ZERO)


RULE = Rule(
    id="deepspeed-zero-offload-memory",
    kinds=("rank-blocked",),
    needs="host memory at its limit, and frames of DeepSpeed ZeRO",
    explain=explain,
)

"""The call site of a recorded operation, cut to what tells one place of a program from another."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from hangscope.model.facts import Frame

_API = (
    "/distributed_c10d.py",
    "/c10d_logger.py",
    "/_functional_collectives.py",
    "/_contextlib.py",
    "/_ops.py",
)
_TORCH = ("/torch/", "/torch_npu/", "/intel_extension_for_pytorch/")
_RUNTIME = ("/multiprocessing/", "/concurrent/futures/", "/runpy.py", "<frozen ", "/threading.py", "<string>")
_DEEPEST = 6
_INSIDE = 2


def call_site(frames: Iterable[tuple[str, str, int]]) -> tuple[Frame, ...]:
    """The (function, file, line) frames that tell one place of a program from another, innermost first.

    c10d's own wrappers are left out; of torch's inside (FSDP, DDP, autograd) the innermost two are kept, then
    the program's, six in all.

    >>> [frame.line for frame in call_site([("all_reduce", "/x/torch/distributed/distributed_c10d.py", 9),
    ...     ("step", "/job/train.py", 4)])]
    [4]
    """
    return _call_site(tuple(frames))


@functools.lru_cache(maxsize=1 << 13)
def _call_site(frames: tuple[tuple[str, str, int], ...]) -> tuple[Frame, ...]:
    python = [item for item in frames if item[1].endswith(".py") or item[1].startswith("<")]
    kept: list[Frame] = []
    inside = 0
    for function, file, line in python or frames:
        if file.endswith(_API) or any(part in file for part in _RUNTIME):
            continue
        if any(part in file for part in _TORCH):
            inside += 1
            if inside > _INSIDE:
                continue
        kept.append(_frame(function, file, line))
        if len(kept) == _DEEPEST:
            break
    return tuple(kept)


@functools.lru_cache(maxsize=1 << 14)
def _frame(function: str, file: str, line: int) -> Frame:
    """One object a frame: a job's ranks stand in a few hundred places."""
    return Frame(function=function[:200], file=file[:400], line=line)

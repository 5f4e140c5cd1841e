"""What the Python stack says: the innermost known frames decide, the outer ones say where."""

from __future__ import annotations

import msgspec

from hangscope.model.facts import Frame
from hangscope.model.waits import ReleasedBy, WaitKind

from ..dictionary import DEFAULT_RELEASE, Match, Row, lookup

EVERYDAY_PHASES = frozenset(
    {"collective", "collective.object", "p2p", "barrier", "functional", "pipeline.p2p"}
)
"""Phases that only repeat the operation: any other phase on the stack says more."""

PRIMITIVE = frozenset(
    {"Python", "torch.distributed", "torch", "torch autograd", "zmq", "urllib3", "filelock", "fsspec"}
)
"""Frameworks whose frames are the wait itself, not its caller."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """``kind`` None: nothing on the stack decides. ``index``: the deciding frame, else the leaf."""

    kind: WaitKind | None = None
    released_by: ReleasedBy | None = None
    operation: str | None = None
    framework: str | None = None
    phase: str | None = None
    wait_phase: str | None = None
    """The deciding row's own phase."""
    thread_pattern: str | None = None
    joined_by_source: bool = False
    index: int = 0
    leaf: int = 0
    implied: WaitKind | None = None
    """What the place of the leaf implies when nothing else decides."""
    implied_operation: str | None = None
    known_leaf: bool = False
    """The dictionary knows the leaf's function."""
    caller: Frame | None = None
    chain: tuple[Frame, ...] = ()


def read_stack(stack: tuple[Frame, ...]) -> Reading:
    """Reads a stack, innermost frame first. An unknown frame ends the search for what decides: what is
    above it was not waiting, it called something."""
    matches = [lookup(frame) for frame in stack]
    leaf = next(
        (i for i, frame in enumerate(stack) if frame.library is None and not _is_wrapper(matches[i])), 0
    )
    decided, index, implied = _decide(stack, matches, leaf)
    caller = _caller(stack, matches, index if decided is None else index + 1)
    operation = decided[1] if decided else None
    row = decided[0] if decided else None
    first = matches[leaf] if stack else None
    framework, phase = _place(matches)
    return Reading(
        kind=row.kind if row else None,
        released_by=row.released_by or DEFAULT_RELEASE.get(row.kind) if row else None,
        operation=operation,
        framework=framework or (row.framework if row else None),
        phase=phase,
        wait_phase=row.phase if row else None,
        thread_pattern=row.thread_pattern if row else None,
        joined_by_source=row is not None and row.joined == "source",
        index=index,
        leaf=leaf,
        implied=implied.row.kind if implied else None,
        implied_operation=implied.operation if implied else None,
        known_leaf=first is not None,
        caller=caller,
        chain=tuple(
            frame
            for i, frame in enumerate(stack)
            if i > index and frame.library is None and not _is_wrapper(matches[i])
        ),
    )


def _decide(
    stack: tuple[Frame, ...], matches: list[Match | None], leaf: int
) -> tuple[tuple[Row, str | None] | None, int, Match | None]:
    """(deciding row and operation, index of its frame, row of the leaf when that is only a place)."""
    decided: tuple[Row, str | None] | None = None
    index = leaf
    for i in range(leaf, len(stack)):
        found = matches[i]
        if stack[i].library is not None or _is_wrapper(found):
            continue
        if found is None:
            break
        row = found.row
        if row.role == "place":
            return decided, index, (found if decided is None and i == leaf else None)
        if decided is None:
            decided, index = (row, found.operation), i
        elif row.role == "outer":
            decided, index = (row, found.operation or decided[1]), i
        else:
            break
    return decided, index, None


def _is_wrapper(found: Match | None) -> bool:
    return found is not None and found.row.role == "wrapper"


def _place(matches: list[Match | None]) -> tuple[str | None, str | None]:
    """(framework, phase) of the innermost frame that says more than the operation; else of the innermost of
    a framework; else of the innermost with a phase at all."""
    rows = [found.row for found in matches if found is not None and found.row.phase is not None]
    framework = [row for row in rows if row.framework != "Python"]
    telling = next((row for row in framework if row.phase not in EVERYDAY_PHASES), None)
    row = telling or next(iter(framework + rows), None)
    return (row.framework, row.phase) if row else (None, None)


def _caller(stack: tuple[Frame, ...], matches: list[Match | None], start: int) -> Frame | None:
    """The innermost frame, from ``start`` outwards, that is no primitive of waiting."""
    for i in range(start, len(stack)):
        found = matches[i]
        if stack[i].library is not None or _is_wrapper(found):
            continue
        if found is None or (found.row.framework not in PRIMITIVE and found.row.phase not in EVERYDAY_PHASES):
            return stack[i]
    return None

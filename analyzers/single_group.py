"""Ranks that stand in different operations of one process group.

A group has one operation a sequence slot, so this is no cycle: some rank took another path. Who, is a
matter of the callers above the collective and of a strict majority, the weakest evidence there is; the
minority is often ahead, and two ranks have no majority.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ..model.facts import Frame
from ..model.waits import ReleasedBy
from .graph.slots import ChainKey, Joiner, Slot

SplitKind = Literal["mismatch", "rank-diverged", "undecided"]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks in one operation from one call chain."""

    label: str
    chain: ChainKey
    shape: tuple[str | None, str | None]
    """Sizes and dtype, where a recorder tells them."""
    joiners: tuple[Joiner, ...]

    @property
    def vague(self) -> bool:
        """Its ranks wait for something that they have issued, and nothing tells that it is a collective: a
        receive that nobody answers looks the same."""
        return any(j.entry is None and j.wait.released_by is ReleasedBy.PEER for j in self.joiners)

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({joiner.rank for joiner in self.joiners}))


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """``initiators`` is empty without a majority. ``ordered``: program order agrees with the majority."""

    kind: SplitKind
    initiators: tuple[int, ...]
    majority: Part | None
    parts: tuple[Part, ...]
    ordered: bool = False
    recorded: bool = False
    """The recorders show different operations at one sequence number."""


def split(slots: list[Slot], members: int) -> Split:
    """Partitions the ranks by (operation, call chain). ``members``: how many ranks the group has, those
    that were not captured included: a majority is one of all of them."""
    parts = _parts(slots)
    largest = parts[0]
    recorded = (
        len(slots) > 1 and len({slot.sequence for slot in slots}) == 1 and slots[0].sequence is not None
    )
    vague = len(parts) > 1 and any(part.vague for part in parts)
    if members >= 3 and not vague and 2 * len(largest.ranks) > members:
        minority = [part for part in parts if part is not largest]
        same_place = all(part.chain == largest.chain for part in minority)
        return Split(
            kind="mismatch" if same_place else "rank-diverged",
            initiators=tuple(sorted({rank for part in minority for rank in part.ranks} - set(largest.ranks))),
            majority=largest,
            parts=tuple(parts),
            ordered=all(_in_order(largest, part) for part in minority),
            recorded=recorded,
        )
    same_place = len({part.chain for part in parts}) == 1
    return Split(
        kind="mismatch" if same_place and len(parts) > 1 and not vague else "undecided",
        initiators=(),
        majority=None,
        parts=tuple(parts),
        recorded=recorded,
    )


def _parts(slots: list[Slot]) -> list[Part]:
    found: dict[tuple[object, ...], list[Joiner]] = {}
    for slot in slots:
        for joiner in slot.joiners:
            shape = (joiner.entry.sizes, joiner.entry.dtype) if joiner.entry is not None else (None, None)
            label = joiner.entry.kind if joiner.entry is not None else joiner.label
            found.setdefault((slot.id, label, joiner.chain, shape), []).append(joiner)
    parts = [
        Part(label=str(key[1]), chain=joiners[0].chain, shape=_shape(joiners[0]), joiners=tuple(joiners))
        for key, joiners in found.items()
    ]
    return sorted(parts, key=lambda part: (-len(part.ranks), part.ranks))


def _shape(joiner: Joiner) -> tuple[str | None, str | None]:
    return (joiner.entry.sizes, joiner.entry.dtype) if joiner.entry is not None else (None, None)


def _in_order(majority: Part, minority: Part) -> bool:
    """Program order in the deepest common frame, only outside any loop: a rank whose line lies after the
    majority's has gone past their operation without joining it."""
    first, second = majority.joiners[0].wait.chain, minority.joiners[0].wait.chain
    for one, other in zip(reversed(first), reversed(second), strict=False):
        if (one.function, one.file) != (other.function, other.file) or _loops(one) or _loops(other):
            return False
        if one.line != other.line:
            return other.line > one.line
    return False


def _loops(frame: Frame) -> bool:
    return frame.source is None or frame.source.alone or bool(frame.source.loops)

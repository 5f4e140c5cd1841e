"""One sequence number, different operations: type, size, dtype or call site, judged by a strict majority.

The first difference counts, even where the operation completed. A majority is one of all members of a group
of at least three, those not seen included; without one nobody is named. Sizes count only where an operation
needs equal ones: all_to_all, gather and lists of uneven tensors may differ by right.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from hangscope.model.facts import Frame, Ref

from .lanes import Lane, Occurrence, family

Aspect = Literal["operation", "size", "dtype", "place"]

EQUAL_SIZES = frozenset({"allreduce", "broadcast", "reduce"})
"""Families whose members must pass equally many elements of one type."""

ALIKE = ({"allreduce", "allreducebarrier", "barrier"},)
"""Families that a log's line gives one name: a barrier is an all-reduce of one element."""

_SHAPE = re.compile(r"\[([\d, ]{0,200})\]|^\s{0,5}(\d{1,20})(?:\s{0,5}$| -> )")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Members that agree."""

    ranks: tuple[int, ...]
    label: str
    sizes: str | None
    dtype: str | None
    place: tuple[Frame, ...]
    ref: Ref


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Parts by size, the largest first. ``odd``: ranks outside of a strict majority; empty without one."""

    lane: Lane
    sequence: int
    aspect: Aspect
    parts: tuple[Part, ...]
    odd: tuple[int, ...]

    @property
    def elsewhere(self) -> bool:
        """The parts were called from different places."""
        places = {part.place for part in self.parts}
        return len(places) > 1 and () not in places


def difference_at(lane: Lane, sequence: int) -> Difference | None:
    """How the members' views of the operation differ, call sites aside; None where they agree."""
    seen = list(lane.occurrences(sequence)) if lane.comparable else []
    if len(seen) < 2:
        return None
    recorded = {item.recorded for _rank, item in seen}
    names = {_name(item, len(recorded) > 1) for _rank, item in seen} - {None}
    if len(names) > 1:
        return _difference(lane, sequence, "operation", seen)
    refused = sequence in lane.refused
    if not names <= EQUAL_SIZES and not refused:
        return None
    if len(recorded) > 1:  # a recorder's sizes and a line's are written differently
        seen = [(rank, item) for rank, item in seen if item.recorded]
    if len({_size(item, refused) for _rank, item in seen} - {None}) > 1:
        return _difference(lane, sequence, "size", seen)
    if len({item.dtype for _rank, item in seen} - {None}) > 1:
        return _difference(lane, sequence, "dtype", seen)
    return None


def first_difference(lane: Lane) -> Difference | None:
    """The lowest sequence at which the members differ, finished or not."""
    return next((found for s in _shared(lane) if (found := difference_at(lane, s)) is not None), None)


def parted_places(lane: Lane, below: int) -> Difference | None:
    """Where the members' call sites part for good: they agree before, and in most operations behind, the
    last one ``below`` the number among them, they do not. One collective called from two places by right
    (``if rank == 0``) is none. ``odd`` is empty without a strict majority."""
    agreed = False
    first: Difference | None = None
    apart = together = 0
    for sequence in _shared(lane):
        if sequence >= below:
            break
        seen = [(rank, item) for rank, item in lane.occurrences(sequence) if item.place]
        differs = len({item.place for _rank, item in seen}) > 1
        if first is None:
            if differs and agreed:
                first = _difference(lane, sequence, "place", seen)
            agreed = not differs
        if first is not None:
            apart, together = apart + differs, together + (not differs)
            last = differs
    return first if first is not None and last and apart > together else None


def _shared(lane: Lane) -> list[int]:
    counts: dict[int, int] = {}
    for standing in lane.standings.values():
        for sequence in standing.occurrences:
            counts[sequence] = counts.get(sequence, 0) + 1
    return sorted(sequence for sequence, count in counts.items() if count > 1)


def _name(item: Occurrence, mixed: bool) -> str | None:
    name = family(item.label)
    if name == "coalesced":  # the batch, in place of what is in it
        return None
    for group in ALIKE if mixed or not item.recorded else ():
        if name in group:
            return min(group)
    return name


def _size(item: Occurrence, refused: bool) -> object:
    """Elements, which is what the operation needs equal; the shape, where the framework demands that."""
    return item.sizes if refused else _elements(item.sizes)


def _elements(sizes: str | None) -> int | None:
    """Elements of all input tensors in ``[[2, 3], [4]]``, ``10`` or ``10 -> 10``.

    >>> _elements("[[2, 3], [4]]"), _elements("12 -> 12"), _elements("[]"), _elements(None)
    (10, 12, 1, None)
    """
    if not sizes:
        return None
    total = 0
    found = False
    for match in _SHAPE.finditer(sizes):
        found = True
        count = 1
        for number in (match[1] if match[1] is not None else match[2]).replace(" ", "").split(","):
            count *= int(number) if number else 1
        total += count
    return total if found else None


def _key(item: Occurrence, aspect: Aspect, mixed: bool, refused: bool) -> object:
    if aspect == "operation":
        return _name(item, mixed)
    if aspect == "size":
        return _size(item, refused)
    if aspect == "dtype":
        return item.dtype
    return item.place


def _difference(lane: Lane, sequence: int, aspect: Aspect, seen: list[tuple[int, Occurrence]]) -> Difference:
    mixed = len({item.recorded for _rank, item in seen}) > 1
    groups: dict[object, list[tuple[int, Occurrence]]] = {}
    for rank, item in seen:
        key = _key(item, aspect, mixed, sequence in lane.refused)
        if key is not None:
            groups.setdefault(key, []).append((rank, item))
    parts = sorted(
        (_part(group) for group in groups.values()), key=lambda part: (-len(part.ranks), part.ranks)
    )
    members = lane.members
    if members is None:
        members = tuple(set(lane.standings) | lane.listed | lane.expected)
    largest = parts[0]
    count = len(members) + (lane.unseen if lane.members is None else 0)
    majority = count >= 3 and 2 * len(largest.ranks) > count
    odd = sorted({rank for part in parts[1:] for rank in part.ranks}) if majority else []
    return Difference(lane=lane, sequence=sequence, aspect=aspect, parts=tuple(parts), odd=tuple(odd))


def _part(group: list[tuple[int, Occurrence]]) -> Part:
    first = group[0][1]
    places = {item.place for _rank, item in group}
    return Part(
        ranks=tuple(rank for rank, _item in group),
        label=first.label or "operation",
        sizes=first.sizes,
        dtype=first.dtype,
        place=first.place if len(places) == 1 else (),
        ref=first.ref,
    )

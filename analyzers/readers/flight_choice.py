"""Which entries of a group matter: what does not finish, what finished last, and since when the group exists.

Looks at numbers and at what entries of a kind have in common; the entries themselves need not be made for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from .flight_entry import Entry

KEPT = 8
"""Finished operations of a group that are kept, of collectives and of transfers each."""
SWAPPED = 16
"""By how much a number may be smaller than one before it: threads take a number, and then record."""
_SPARE = 2

Sample = TypeVar("Sample", bound="tuple[int, int | None, Entry, Any]")


def that_matter(samples: list[Sample]) -> list[Sample]:
    """Of one group's (place in the ring, number, an entry like it, …) those that matter, in ring order."""
    samples.sort(key=_place)
    samples = samples[restart([None if counts_apart(like) else number for _, number, like, _ in samples]) :]
    regions = {number: like for _, number, like, _ in samples if like.title.kind == "coalesced"}
    unfinished: list[Sample] = []
    collectives: list[Sample] = []
    transfers: list[Sample] = []
    for sample in samples:
        _, number, like, _ = sample
        region = regions.get(number) if like.untold else None
        if not (like if region is None else region).finished:
            unfinished.append(sample)
        elif region is not None or counts_apart(like):
            transfers.append(sample)
        else:
            collectives.append(sample)
    kept = unfinished + transfers[-2 * KEPT :] + _ends(collectives)
    numbers = {number for _, number, _, _ in kept}
    whole = [sample for sample in samples if sample[1] in numbers and sample[1] in regions]
    batches = [sample for sample in samples if sample[2].p2p and sample[2].title.kind == "coalesced"]
    kept += whole + batches[:1]
    return sorted({_place(sample): sample for sample in kept}.values(), key=_place)


def _place(sample: tuple[int, Any, Any, Any]) -> int:
    return sample[0]


def _ends(samples: list[Sample]) -> list[Sample]:
    """The oldest, which say from where on the ring reaches, and the newest."""
    return samples if len(samples) <= 2 * KEPT else samples[:_SPARE] + samples[-KEPT - _SPARE :]


def counts_apart(entry: Entry) -> bool:
    """It has no number of its own in the collectives' counter: a transfer, alone or in a region."""
    return entry.p2p and entry.title.kind != "coalesced"


def restart(numbers: Sequence[int | None]) -> int:
    """The place from which on the numbers are of the group as it is now. One that was destroyed and made
    again in the same process has the same name, counts from 1, and the ring still holds what was before.

    >>> restart([5, 6, None, 7, 1, 2, 3]), restart([5, 7, 6, 8])
    (4, 0)
    """
    known = [number for number in numbers if number is not None]
    if known == sorted(known):
        return 0
    start, top = 0, 0
    for index, number in enumerate(numbers):
        if number is None:
            continue
        if number < top - SWAPPED or number <= 1 < top:
            start, top = index, number
        top = max(top, number)
    return start

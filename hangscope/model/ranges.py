"""Ranks as people write them: ``0-6,8-127``."""

from __future__ import annotations

from collections.abc import Iterable


def rank_ranges(ranks: Iterable[int]) -> str:
    """Returns the ranks sorted and joined into ranges; two neighbours are already one (``0-1``).

    >>> rank_ranges([3, 0, 1])
    '0-1,3'
    >>> rank_ranges([])
    ''
    """
    parts: list[str] = []
    first = last = None
    for rank in sorted(set(ranks)):
        if last is not None and rank == last + 1:
            last = rank
            continue
        if first is not None and last is not None:
            parts.append(_span(first, last))
        first = last = rank
    if first is not None and last is not None:
        parts.append(_span(first, last))
    return ",".join(parts)


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def ranks_phrase(ranks: Iterable[int]) -> str:
    """``rank 2`` or ``ranks 0-1,3``; ``no rank`` for none.

    >>> ranks_phrase([2]), ranks_phrase((0, 1)), ranks_phrase(())
    ('rank 2', 'ranks 0-1', 'no rank')
    """
    members = set(ranks)
    if not members:
        return "no rank"
    return ("rank " if len(members) == 1 else "ranks ") + rank_ranges(members)

"""Which global rank each dumped process is, as far as titles prove it together.

``--local_rank`` is the rank where all ranks are on one node; ``--rank`` is the rank where there are as many
different ones as the world has ranks (a node's number would occur once a process of the node).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..model.loose import Origin

_RANK = re.compile(r"(?<![\w-])--rank[= ]{1,2}(\d{1,6})(?!\d)")
_WORLD = re.compile(r"(?<![\w-])(?:--world[_-]size[= ]{1,2}|WORLD_SIZE=)(\d{1,7})(?!\d)")


def world_size_of(titles: Iterable[str]) -> int | None:
    """The world size that all titles which tell one agree on."""
    sizes = {int(found[1]) for title in titles if (found := _WORLD.search(title[:4000])) is not None}
    return sizes.pop() if len(sizes) == 1 else None


def proven_ranks(processes: Sequence[tuple[Origin, str]], world_size: int | None) -> list[int | None]:
    """The rank of each process (its origin and title), in their order.

    >>> two = [(Origin(pid=41, local_rank=0), "x.py"), (Origin(pid=42, local_rank=1), "x.py")]
    >>> proven_ranks(two, 2), proven_ranks(two, 8)
    ([0, 1], [None, None])
    """
    ranks = [origin.rank for origin, _title in processes]
    if world_size is None:
        return ranks
    local = [origin.local_rank for origin, _title in processes]
    if max((number for number in local if number is not None), default=-1) == world_size - 1:
        # a node with so many ranks has all of them
        ranks = [rank if rank is not None else own for rank, own in zip(ranks, local, strict=True)]
    told = [
        _number(title) if rank is None else None
        for rank, (_origin, title) in zip(ranks, processes, strict=True)
    ]
    distinct = {number for number in told if number is not None}
    if (
        len(distinct) == sum(number is not None for number in told) == world_size
        and max(distinct) < world_size
    ):
        ranks = [rank if rank is not None else own for rank, own in zip(ranks, told, strict=True)]
    return ranks


def _number(title: str) -> int | None:
    found = _RANK.search(title[:4000])
    return int(found[1]) if found is not None else None

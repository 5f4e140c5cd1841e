"""What a Flight Recorder dump says apart from its entries: version, groups and their ranks, status.

``pg_config`` is written by FlightRecorderDetail.hpp (``getPgConfig``): its ranks are a text.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from .flight_entry import integer

_COUNTED = ("enqueued", "started", "completed")
MOST_RANK = 1 << 24


class Header(msgspec.Struct, kw_only=True):
    """What a dump says apart from its entries."""

    version: str = ""
    rank: int | None = None
    configured: Mapping[str, tuple[str, tuple[int, ...]]] = {}
    """Description and global ranks, by group name."""
    status: Mapping[str, tuple[int | None, int | None, int | None]] = {}
    """Last enqueued, started and completed collective, by ``pg_id``."""


def header_of(top: Mapping[str, Any]) -> Header:
    """What the keys around the entries say."""
    version, rank = top.get("version"), top.get("rank")
    return Header(
        version=version if isinstance(version, str) else "",
        rank=rank if type(rank) is int and 0 <= rank < MOST_RANK else None,
        configured=dict(_configured(top.get("pg_config"))),
        status=dict(_status(top.get("pg_status"))),
    )


def _configured(value: object) -> Iterator[tuple[str, tuple[str, tuple[int, ...]]]]:
    for name, item in value.items() if isinstance(value, dict) else ():
        if not isinstance(name, str) or not isinstance(item, dict):
            continue
        desc, text = item.get("desc"), item.get("ranks")
        ranks = ranks_of(text) if isinstance(text, str) else ranks_of(str(text)) if _numbers(text) else None
        if ranks is not None:
            yield name[:200], (desc[:200] if isinstance(desc, str) else "", ranks)


def _numbers(value: object) -> bool:
    return isinstance(value, list) and len(value) < 1 << 20 and all(type(item) is int for item in value)


def _status(value: object) -> Iterator[tuple[str, tuple[int | None, int | None, int | None]]]:
    for name, item in value.items() if isinstance(value, dict) else ():
        if isinstance(name, str) and isinstance(item, dict):
            one, two, three = (_count(item.get(f"last_{what}_collective")) for what in _COUNTED)
            yield name, (one, two, three)


def _count(value: object) -> int | None:
    """JSON has these as strings; -1: none yet."""
    if isinstance(value, str) and len(value) < 20 and value.lstrip("-").isdecimal():
        value = int(value)
    number = integer(value)
    return number if number is not None and number >= 0 else None


@functools.lru_cache(maxsize=1 << 12)
def ranks_of(text: str) -> tuple[int, ...] | None:
    """The ranks in pg_config's text; None when it is none, or names a rank twice.

    >>> ranks_of("[0, 4, 8]"), ranks_of("[]"), ranks_of("[0, x]")
    ((0, 4, 8), (), None)
    """
    if not (text.startswith("[") and text.endswith("]")):
        return None
    inner = text[1:-1].strip()
    try:
        ranks = tuple(int(word) for word in inner.split(",")) if inner else ()
    except ValueError:
        return None
    sound = len(set(ranks)) == len(ranks) and all(0 <= rank < MOST_RANK for rank in ranks)
    return ranks if sound else None

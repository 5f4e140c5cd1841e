"""One entry of a Flight Recorder ring, whatever form the dump has: pickle, JSON, old or new."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from hangscope.model.facts import Frame

from .flight_place import call_site

_PEERS = re.compile(r"^(?P<kind>i?send|i?recv) ?(?P<one>\d{1,9})(?P<way>->|<-)(?P<other>\d{1,9})$")
_SAME = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather",
    "_all_gather_base": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_reduce_barrier": "barrier",
    "isend": "send",
    "irecv": "recv",
}
"""Names of one operation in different back ends and versions: on the wire they are the same."""

RETIRE_ONLY = ("gloo", "c10d")
_MOST_FRAMES = 200
_MOST_SIZES = 8
_STATES = ("scheduled", "started", "completed")


class Title(msgspec.Struct, frozen=True, gc=False):
    """A profiling name taken apart; ``source`` and ``target`` are group ranks."""

    backend: str
    kind: str
    source: int | None = None
    target: int | None = None


@functools.lru_cache(maxsize=1 << 12)
def title(profiling_name: str) -> Title:
    """What the recorder's name of an operation says.

    >>> title("nccl:recv 3<-0")
    Title(backend='nccl', kind='recv', source=0, target=3)
    >>> title("xccl:_all_gather_base").kind, title("c10d:allreduce").kind
    ('all_gather', 'all_reduce')
    """
    backend, found, rest = profiling_name[:200].partition(":")
    if not found:
        backend, rest = "", backend
    peers = _PEERS.match(rest)
    if peers is None:
        return Title(backend, _SAME.get(rest, rest))
    one, other = int(peers["one"]), int(peers["other"])
    source, target = (one, other) if peers["way"] == "->" else (other, one)
    return Title(backend, _SAME.get(peers["kind"], peers["kind"]), source, target)


class Entry(msgspec.Struct, kw_only=True):
    """Times in nanoseconds since the epoch. What a version does not record is None."""

    group: tuple[str, str]
    """Name (GUID) and description."""
    title: Title
    pg_id: int | None = None
    """The process's own count of its groups: another one on another rank."""
    number: int | None = None
    """``collective_seq_id``; ``seq_id`` in torch up to 2.3."""
    shared_counter: bool = False
    """The number is a ``seq_id``: point-to-point operations count in it too."""
    p2p: bool = False
    p2p_number: int | None = None
    state: str = "scheduled"
    retired: bool = False
    created: int | None = None
    started: int | None = None
    completed: int | None = None
    sizes: str | None = None
    dtype: str | None = None
    place: tuple[Frame, ...] = ()

    @property
    def finished(self) -> bool:
        """Completed on the device, or ``retired`` where the back end has no other mark: gloo, and the hook of
        other back ends (``c10d:``), which retires when the call returns. With NCCL, retired without completed
        means that the operation timed out."""
        return self.state == "completed" or (self.retired and self.title.backend in RETIRE_ONLY)

    @property
    def untold(self) -> bool:
        """It has no state of its own: part of a coalesced region, or just scheduled."""
        return self.state == "scheduled" and not self.retired and not self.started


def entry_of(value: Mapping[str, Any], told: Described) -> Entry:
    """The entry with these keys and values; what has another type than it should is left out."""
    group = value.get("process_group")
    pg_id = integer(value.get("pg_id"))
    if isinstance(group, (list, tuple)) and len(group) == 2 and all(isinstance(part, str) for part in group):
        name, desc = group
    else:
        name, desc = _old_name(pg_id), ""
    named = value.get("profiling_name")
    known = title(named if isinstance(named, str) else "")
    number = integer(value.get("collective_seq_id"))
    old = number is None and "seq_id" in value
    p2p = value.get("is_p2p")
    state = value.get("state")
    return Entry(
        group=(name[:200], desc[:200]),
        title=known,
        pg_id=pg_id,
        number=integer(value.get("seq_id")) if old else number,
        shared_counter=old,
        p2p=p2p is True or known.kind in ("send", "recv"),
        p2p_number=integer(value.get("p2p_seq_id")),
        state=state if isinstance(state, str) and state in _STATES else "scheduled",
        retired=value.get("retired") is True,
        created=integer(value.get("time_created_ns")) or None,
        started=integer(value.get("time_discovered_started_ns")) or None,
        completed=integer(value.get("time_discovered_completed_ns")) or None,
        sizes=told.sizes,
        dtype=told.dtype,
        place=told.place,
    )


def _old_name(pg_id: int | None) -> str:
    """Torch up to 2.3 writes no names. 0 is the default group everywhere; other ids are a process's own."""
    return "0" if pg_id == 0 else f"local {pg_id}"


def integer(value: object) -> int | None:
    """The value where it is an integer of 64 bits."""
    return value if type(value) is int and abs(value) < 1 << 63 else None


class Described(msgspec.Struct, frozen=True):
    """The long values of an entry, made short."""

    place: tuple[Frame, ...]
    sizes: str | None
    dtype: str | None


def described(value: Mapping[str, Any]) -> Described:
    """Call site, sizes and types of the inputs (of the outputs, where it has no inputs)."""
    frames = value.get("frames")
    site = call_site(_frames(frames)) if isinstance(frames, list) and frames else ()
    for side in ("input", "output"):
        sizes = _sizes(value.get(f"{side}_sizes"))
        if sizes is not None:
            return Described(site, sizes, _types(value.get(f"{side}_dtypes")))
    return Described(site, None, None)


def _frames(frames: list[Any]) -> Iterator[tuple[str, str, int]]:
    for item in frames[:_MOST_FRAMES]:
        if isinstance(item, dict):
            function, file, line = item.get("name"), item.get("filename"), item.get("line")
            if isinstance(function, str) and isinstance(file, str):
                yield function, file, line if type(line) is int else 0


def _sizes(value: object) -> str | None:
    """``[[8,4],[2]]``, of many inputs the first few; None: there are none."""
    if not isinstance(value, list) or not value:
        return None
    texts = []
    for item in value[:_MOST_SIZES]:
        numbers = item[:_MOST_SIZES] if isinstance(item, (list, tuple)) else []
        texts.append("[" + ",".join(str(size) for size in numbers if type(size) is int) + "]")
    more = f",+{len(value) - _MOST_SIZES}" if len(value) > _MOST_SIZES else ""
    return "[" + ",".join(texts) + more + "]"


def _types(value: object) -> str | None:
    """``Float``, or several in order when they differ."""
    names = (
        [item[:40] for item in value[:_MOST_SIZES] if isinstance(item, str)]
        if isinstance(value, list)
        else []
    )
    return (names[0] if len(set(names)) == 1 else ",".join(names)) if names else None

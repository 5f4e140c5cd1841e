"""NCCL log lines of many processes → communicators, each with its ranks side by side.

Processes meet on the commId, or on (parent, number of the split, colour); never on a pointer, which is equal
by chance at best. Upstream: src/init.cc, src/enqueue.cc, 2.4 → 2.32.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from hangscope.model.loose import LogEvent

from .communicator import Communicator, Join, Member, Process
from .nccl_logs import Logs
from .nccl_order import difference, lag, positions
from .nccl_processes import Life
from .nccl_track import Track
from .nccl_world import placed_in_world

_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})")
_EARLY_START = (2, 23)
_Key = tuple[str, Join]


def communicators(
    events: Sequence[LogEvent], written: Mapping[str, float] | None = None
) -> tuple[Communicator, ...]:
    """Returns the communicators that the events show, in an order that depends on their keys only.

    ``events``: those of any kind and order; only NCCL's count. ``written``: path → mtime in seconds since the
    epoch, where known; it tells whether a log without times ends with the others.
    """
    logs = Logs(events)
    lives = _joined(list(logs.lives()))
    members = {life.stream.process for found in lives.values() for life in found}
    outsiders = tuple(sorted({stream.process for stream in logs.streams.values()} - members - _busy(logs)))
    made = [
        _communicator(key, join, found, logs, written or {}) for (key, join), found in sorted(lives.items())
    ]
    placed = placed_in_world(made, logs)
    return tuple(msgspec.structs.replace(one, outsiders=outsiders) for one in placed)


def _busy(logs: Logs) -> set[Process]:
    """Processes with a communicator of which the logs do not show enough to join it."""
    return {life.stream.process for life in logs.lives()}


def _joined(lives: Sequence[Life]) -> dict[_Key, list[Life]]:
    found: dict[_Key, list[Life]] = {}
    known: dict[int, _Key | None] = {}
    loose = []
    for life in lives:
        key = _key(life, known)
        if key is None:
            loose.append(life)
        else:
            found.setdefault(key, []).append(life)
    rest = _continuations(loose, found)
    found.update(_headless(rest, max((life.size or 0 for life in lives), default=0)))
    return found


def _key(life: Life, known: dict[int, _Key | None]) -> _Key | None:
    if id(life) not in known:
        known[id(life)] = _new_key(life, known)
    return known[id(life)]


def _new_key(life: Life, known: dict[int, _Key | None]) -> _Key | None:
    if life.rank is None or not life.formed:
        return None
    if life.identity is not None:
        return life.identity, "commId"
    if life.color is not None:
        parent = _key(life.parent, known) if life.parent is not None else None
        if parent is None:
            return None
        number = life.split if life.split is not None else f"#{life.order}"
        return f"{parent[0]} split {number} color {life.color}", "split"
    return f"size {life.size} #{life.order}", "order"


def _continuations(loose: Iterable[Life], found: Mapping[_Key, list[Life]]) -> list[Life]:
    """Adds lives without a beginning to the one life of the same process and pointer in another file."""
    begun: dict[tuple[Process, str], list[tuple[_Key, Life]]] = {}
    for key, lives in found.items():
        for life in lives:
            if life.ended is None:
                begun.setdefault((life.stream.process, life.pointer), []).append((key, life))
    rest = []
    for life in loose:
        known = begun.get((life.stream.process, life.pointer), ())
        apart = [pair for pair in known if pair[1].stream.path != life.stream.path]
        if not life.formed and len({key for key, _ in apart}) == 1:
            key, other = apart[0]
            life.rank = other.rank
            found[key].append(life)
        else:
            rest.append(life)
    return rest


def _headless(lives: Iterable[Life], largest: int) -> dict[_Key, list[Life]]:
    """One communicator of the size of the job, from logs that begin after it was formed: each process has one
    of that size, and all prefixes tell their ranks."""
    by_process: dict[Process, list[Life]] = {}
    for life in lives:
        if life.size == largest and not life.formed:
            by_process.setdefault(life.stream.process, []).append(life)
    ranks = {}
    for process, own in by_process.items():
        told = set().union(*(life.stream.ranks for life in own))
        if len(told) != 1 or len({life.pointer for life in own}) != 1:
            return {}
        ranks[process] = next(iter(told))
    if not largest or sorted(ranks.values()) != list(range(largest)):
        return {}
    for process, own in by_process.items():
        for life in own:
            life.rank = ranks[process]
    return {(f"size {largest}", "size"): [life for own in by_process.values() for life in own]}


def _communicator(
    key: str, join: Join, lives: Sequence[Life], logs: Logs, written: Mapping[str, float]
) -> Communicator:
    size = max(life.size or 0 for life in lives)
    claims: dict[int, dict[Process, list[Life]]] = {}
    for life in lives:
        if life.rank is not None and life.rank < size:
            claims.setdefault(life.rank, {}).setdefault(life.stream.process, []).append(life)
    disputed = tuple(sorted(rank for rank, owners in claims.items() if len(owners) > 1))
    tracks = [
        Track(process, rank, own, logs)
        for rank, owners in sorted(claims.items())
        if rank not in disputed
        for process, own in owners.items()
    ]
    counter, places = positions(tracks)
    version = _version(lives, logs)
    return Communicator(
        key=key,
        joined_by=join,
        size=size,
        members=tuple(_member(track, places.get(track.rank), written) for track in tracks),
        absent=tuple(rank for rank in range(min(size, 1 << 20)) if rank not in claims),
        disputed=disputed,
        parent=key.rpartition(" split ")[0] or None,
        version=version,
        start_is_early=_is_early(version),
        counter=counter,
        lag=lag(tracks, counter, places, size, written) if counter is not None else None,
        difference=difference(tracks, counter, places) if counter is not None else None,
    )


def _member(track: Track, position: int | None, written: Mapping[str, float]) -> Member:
    lives, tail = track.lives, track.tail
    formed = next((life for life in lives if life.formed), lives[0])
    return Member(
        rank=track.rank,
        node=track.process[0],
        pid=track.process[1],
        pci=next((life.pci for life in lives if life.pci is not None), None),
        started=any(life.started for life in lives),
        placed=any(life.placed for life in lives),
        complete=any(life.complete for life in lives),
        ended=next((life.ended for life in lives if life.ended is not None), None),
        launched=len(track.counts) if track.whole and track.listens else None,
        position=position,
        low_water=track.counts[0] if track.counts else None,
        first=track.launch(0),
        last=track.launch(len(track.counts) - 1),
        transfers=track.transfers,
        ref=formed.ref,
        tail=msgspec.structs.replace(formed.ref, artifact=tail.path, line=tail.last or None),
        wall=tail.wall if tail.wall is not None else written.get(tail.path),
    )


def _version(lives: Iterable[Life], logs: Logs) -> str | None:
    """The version that its logs name, or else any log: rank 0 alone prints it in old ones."""
    paths = {life.stream.path for life in lives}
    own = set().union(*(logs.versions.get(path, set()) for path in paths))
    found = own or set().union(*logs.versions.values())
    exact = Counter(version for version in found if version != "2.24") or Counter(found)
    return next(iter(exact)) if len(exact) == 1 else None


def _is_early(version: str | None) -> bool | None:
    match = _VERSION.match(version) if version is not None else None
    return None if match is None else (int(match[1]), int(match[2])) >= _EARLY_START

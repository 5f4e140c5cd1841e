"""Where the ranks of one communicator stand: who has launched less, and where launches first differ.

Launches are counted from Init, where all logs show it; of logs that begin later, opCount is compared. A torn
line hides a launch, so a count holds only where opCount agrees at equal counts. A log that may have been cut
earlier than the others' names nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from .communicator import Difference, Lag
from .nccl_processes import Signature
from .nccl_track import Track

APART = 30.0
"""Seconds by which the ends of two files may lie apart and still be of one moment."""
Counter = Literal["launches", "opCount"]


def positions(tracks: Sequence[Track]) -> tuple[Counter | None, dict[int, int]]:
    """What can be counted of these ranks, and rank → so many collectives launched. None and nothing where the
    logs do not allow a comparison; a rank whose process logs no launches is left out."""
    heard = [track for track in tracks if track.listens]
    transfers = any(track.transfers for track in heard)
    if all(track.whole for track in heard) and heard:
        torn = any(track.torn for track in heard)
        if (not transfers and _agree(heard)) or (transfers and not torn):
            return "launches", {track.rank: len(track.counts) for track in heard}
    if transfers or not heard:
        return None, {}
    known = [track for track in heard if track.counts or track.whole]
    return "opCount", {track.rank: track.counts[-1] + 1 if track.counts else 0 for track in known}


def _agree(tracks: Sequence[Track]) -> bool:
    """Whether opCount is equal at equal counts: no line is missing, no group differs."""
    longest = max(tracks, key=lambda track: len(track.counts)).counts
    return all(track.counts == longest[: len(track.counts)] for track in tracks)


def lag(
    tracks: Sequence[Track],
    counter: Counter,
    places: Mapping[int, int],
    size: int,
    written: Mapping[str, float],
) -> Lag | None:
    """Who is behind; None when all stand at one place, or fewer than two can be compared."""
    lowest, highest = min(places.values(), default=0), max(places.values(), default=0)
    if lowest == highest:
        return None
    by_rank = {track.rank: track for track in tracks}
    behind = tuple(sorted(rank for rank, place in places.items() if place == lowest))
    ahead = tuple(sorted(rank for rank, place in places.items() if place > lowest))
    first = by_rank[ahead[0]]
    missing = next(_indexes(first, counter, lowest), None)
    return Lag(
        sequence=lowest + 1,
        behind=behind,
        ahead=ahead,
        missing=None if missing is None else first.launch(missing),
        doubts=tuple(_doubts(by_rank, places, behind, ahead, size, written)),
    )


def _indexes(track: Track, counter: Counter, place: int) -> Iterator[int]:
    if counter == "launches":
        yield place
    else:
        yield from (index for index, count in enumerate(track.counts) if count >= place)


def _doubts(
    by_rank: Mapping[int, Track],
    places: Mapping[int, int],
    behind: Sequence[int],
    ahead: Sequence[int],
    size: int,
    written: Mapping[str, float],
) -> Iterator[str]:
    unknown = [str(rank) for rank in range(size) if rank not in places]
    if unknown:
        yield f"no launches of rank {', '.join(unknown[:8])} are in the logs"
    if len({places[rank] for rank in ahead}) > 1:
        yield "the logs end at several places: they may have been written through buffers"
    last = [by_rank[rank].tail for rank in ahead]
    for rank in behind:
        track = by_rank[rank]
        if track.torn_after:
            yield f"a launch that may be rank {rank}'s is torn behind its last whole one"
        if track.in_blocks:
            yield f"the lines of rank {rank} stand in blocks: the last ones may have stayed in a buffer"
        if all(track.tail.path == stream.path for stream in last):
            continue
        ends = [_end(stream.path, stream.wall, written) for stream in last]
        mine = _end(track.tail.path, track.tail.wall, written)
        if mine is None or any(end is None for end in ends):
            yield f"when the log of rank {rank} ends is not known, so it may have been cut before the others'"
        elif mine + APART < max(end for end in ends if end is not None):
            yield f"the log of rank {rank} ends earlier than the others'"


def _end(path: str, wall: float | None, written: Mapping[str, float]) -> float | None:
    return wall if wall is not None else written.get(path)


def difference(tracks: Sequence[Track], counter: Counter, places: Mapping[int, int]) -> Difference | None:
    """The first place at which two ranks launched different things; None where there is none."""
    compared = [track for track in tracks if track.rank in places and track.counts]
    if len(compared) < 2:
        return None
    if counter == "launches":
        return _by_count(compared)
    return _by_plan(compared)


def _by_count(tracks: Sequence[Track]) -> Difference | None:
    common = min(len(track.signatures) for track in tracks)
    first = tracks[0].signatures
    places = [_unequal(first, track.signatures, common) for track in tracks[1:]]
    place = min(places, default=common)
    if place >= common:
        return None
    return _views(place + 1, dict.fromkeys(tracks, place))


def _unequal(left: Sequence[Signature], right: Sequence[Signature], size: int) -> int:
    """The first index below ``size`` where they differ, else ``size``."""
    if left[:size] == right[:size]:
        return size
    return next(index for index in range(size) if left[index] != right[index])


def _by_plan(tracks: Sequence[Track]) -> Difference | None:
    """The same where lines may be missing: launches meet on opCount."""
    begin = max(track.counts[0] for track in tracks)
    tables = [dict(_numbered(track, begin)) for track in tracks]
    for count in sorted(set.intersection(*(set(table) for table in tables))):
        there = {track: table[count] for track, table in zip(tracks, tables, strict=True)}
        if len({track.signatures[index] for track, index in there.items()}) > 1:
            return _views(count + 1, there)
    return None


def _numbered(track: Track, begin: int) -> Iterator[tuple[int, int]]:
    """opCount → index, of launches that are alone in their opCount: in a group, a torn line would shift the
    others."""
    counts = track.counts
    for index, count in enumerate(counts):
        before = counts[index - 1] if index else None
        after = counts[index + 1] if index + 1 < len(counts) else None
        if count >= begin and count not in (before, after):
            yield count, index


def _views(position: int, places: Mapping[Track, int]) -> Difference:
    parties: dict[str, list[int]] = {}
    refs = []
    for track, index in places.items():
        launch = track.launch(index)
        if launch is None:
            continue
        text = (
            f"{launch.operation} of {launch.sizes} {launch.dtype}, op {launch.reduction}, root {launch.root}"
        )
        if text not in parties:
            refs.append(launch.ref)
        parties.setdefault(text, []).append(track.rank)
    ordered = sorted(parties.items(), key=lambda party: (-len(party[1]), party[0]))
    return Difference(
        position=position,
        views=tuple((text, tuple(sorted(ranks))) for text, ranks in ordered),
        refs=tuple(refs),
    )

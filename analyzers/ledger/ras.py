"""NCCL RAS reports into lanes: operations launched, counted per communicator and kind of operation.

RAS counts launches, not completions, and knows no send, receive or replayed graph. Unequal counts show a rank
that has not launched; equal ones show nothing. It lists the minority, which may as well be *ahead*.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from hangscope.model.loose import RasCommunicator, RasReport

from .identities import WORLD, Identities
from .lanes import Lanes, Occurrence


class RasPicture(msgspec.Struct, frozen=True, kw_only=True):
    """What the reports say beside the counts. ``moved`` is None with fewer than two reports."""

    moved: bool | None = None
    dead: tuple[int, ...] = ()
    """Global ranks that RAS considers dead."""
    silent: tuple[int, ...] = ()
    """Global ranks from which no data came: stopped, dead, or not reachable."""
    reports: int = 0
    seconds: float | None = None
    """Between the first and the last report."""


def add_ras(lanes: Lanes, reports: Sequence[RasReport], who: Identities) -> RasPicture:
    """Enters the newest report of every communicator; several reports tell whether counts moved."""
    ordered = sorted(
        reports, key=lambda report: (report.wall or 0.0, report.ref.artifact, report.ref.line or 0)
    )
    newest: dict[str, tuple[RasReport, RasCommunicator]] = {}
    for report in ordered:
        for communicator in report.communicators:
            newest[communicator.hash] = (report, communicator)
    dead: set[int] = set()
    silent: set[int] = set()
    for name, (report, communicator) in sorted(newest.items()):
        ranks = who.communicators.get(name, {})
        _add_counts(lanes, report, communicator, ranks)
        gone = {ranks[rank] for rank in communicator.dead if rank in ranks}
        dead |= gone
        silent |= {ranks[item.rank] for item in communicator.missing if item.rank in ranks} - gone
    walls = [report.wall for report in ordered if report.wall is not None]
    return RasPicture(
        moved=_moved(ordered),
        dead=tuple(sorted(dead)),
        silent=tuple(sorted(silent - dead)),
        reports=len(ordered),
        seconds=max(walls) - min(walls) if len(walls) > 1 else None,
    )


def _add_counts(
    lanes: Lanes, report: RasReport, communicator: RasCommunicator, ranks: Mapping[int, int]
) -> None:
    members = tuple(ranks[rank] for rank in range(communicator.size)) if _whole(communicator, ranks) else None
    group = WORLD if members is not None and members == tuple(range(len(members))) else communicator.hash
    for kind, counts in _counts(communicator).items():
        if len(set(counts.values())) < 2:
            continue
        lane = lanes.lane(f"ras:{kind}:{communicator.hash}", group, members, counted=True)
        lane.gpu = True
        lowest = min(counts.values())
        for member, count in counts.items():
            rank = ranks.get(member)
            if rank is None:
                lanes.unplaced += 1
                continue
            standing = lane.standing(rank)
            standing.limit(count, firm=True)
            standing.refs.append(report.ref)
            if count > lowest:
                standing.completed = lowest
                standing.add(Occurrence(sequence=lowest + 1, label=kind, ref=report.ref))
                standing.enter(count)
            else:
                standing.complete(count)


def _whole(communicator: RasCommunicator, ranks: Mapping[int, int]) -> bool:
    return communicator.size > 0 and all(rank in ranks for rank in range(communicator.size))


def _counts(communicator: RasCommunicator) -> dict[str, dict[int, int]]:
    """kind → communicator rank → launches. A text report lists the minority only: where one line alone lists
    nobody, the others are in it."""
    found: dict[str, dict[int, int]] = {}
    for item in communicator.ranks:
        for kind, count in item.counts.items():
            found.setdefault(kind, {})[item.rank] = count
    missing = {item.rank for item in communicator.missing}
    by_kind: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
    for kind, count, listed in communicator.groups:
        by_kind.setdefault(kind, []).append((count, listed))
    for kind, rows in by_kind.items():
        unlisted = [count for count, listed in rows if not listed]
        table = {rank: count for count, listed in rows for rank in listed}
        if len(unlisted) == 1:
            rest = set(range(communicator.size)) - set(table) - missing
            table.update(dict.fromkeys(rest, unlisted[0]))
        found.setdefault(kind, {}).update(table)
    return found


def _moved(reports: Sequence[RasReport]) -> bool | None:
    """Whether any count of any communicator changed between two reports."""
    seen: dict[tuple[str, str, int], int] = {}
    compared = False
    for report in reports:
        for key, count in _all_counts(report):
            if key in seen:
                compared = True
                if seen[key] != count:
                    return True
            seen[key] = count
    return False if compared else None


def _all_counts(report: RasReport) -> Iterator[tuple[tuple[str, str, int], int]]:
    for communicator in report.communicators:
        for kind, counts in _counts(communicator).items():
            for rank, count in counts.items():
                yield (communicator.hash, kind, rank), count

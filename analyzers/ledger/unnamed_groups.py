"""Reports that count ranks inside of a group, and do not say which: monitored barriers, desync reports,
fingerprints. Their ranks are global only where something proves it.

A group numbers its members in the order of their global ranks (``new_group`` sorts them), so a member whose
rank in the group is its global rank proves all below it. A group with as many members as the job is
that of the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hangscope.model.loose import LogEvent, LooseFact

UNNAMED_KINDS = frozenset(
    {"barrier-missing", "desync-lagging", "desync-waiting", "fingerprint", "fingerprint-mismatch"}
)
_BEGINS = "Timeout at collective"


class UnnamedGroups:
    """``only_world``: no source shows any group but that of all ranks."""

    def __init__(self, facts: Iterable[LooseFact], world_size: int | None, *, only_world: bool) -> None:
        events = [fact for fact in facts if isinstance(fact, LogEvent)]
        self._world_size = world_size
        self._tops = _tops(events)
        self._witness = max((_own(event) for event in events), default=-1) if only_world else -1
        self._reports: dict[tuple[str, str, int | None], set[int]] = {}
        for event in events:
            if event.kind == "barrier-missing":
                self._reports.setdefault(_report(event), set()).update(event.about)
        self.doubted = False
        """Some rank of such a report could not be told."""

    def is_world(self, event: LogEvent) -> bool:
        """The report speaks of as many ranks as the job has."""
        top = max((*event.about, self._tops.get(_key(event), -1)), default=-1)
        return self._world_size is not None and top + 1 == self._world_size

    def told(self, event: LogEvent) -> tuple[int, ...]:
        """The event's ranks as ranks of the job: all or none, as a part of them would look like the whole. A
        barrier that waits for all says one rank a line."""
        whole = self._reports.get(_report(event), set()) | set(event.about)
        return event.about if all(self.proves(event, rank) for rank in sorted(whole)) else ()

    def proves(self, event: LogEvent, group_rank: int) -> bool:
        """Whether that rank of the event's group is the global rank of the same number."""
        if self.is_world(event) or group_rank <= max(_own(event), self._witness):
            return True
        self.doubted = True
        return False


def is_unnamed(event: LogEvent) -> bool:
    """One of these reports, without its group's name."""
    named = event.group is not None or event.group_desc is not None or event.communicator is not None
    return event.about_group_ranks and event.kind in UNNAMED_KINDS and not named


def _own(event: LogEvent) -> int:
    """The printer's rank where that is its rank in the group too: all below it are proven; else -1."""
    rank = event.group_rank
    same = rank is not None and rank == event.origin.rank and event.communicator is None
    return rank if same and rank is not None else -1


def _report(event: LogEvent) -> tuple[str, str, int | None]:
    return event.kind, event.ref.artifact, event.origin.rank


def _key(event: LogEvent) -> tuple[str, int, str]:
    return event.ref.artifact, event.ref.line or 0, event.text


def _tops(events: Iterable[LogEvent]) -> dict[tuple[str, int, str], int]:
    """For every line of a desync report the highest rank that the whole report speaks of."""
    found: dict[tuple[str, int, str], int] = {}
    for report in _reports(events):
        top = max((rank for event in report for rank in event.about), default=-1)
        for event in report:
            found[_key(event)] = max(top, found.get(_key(event), -1))
    return found


def _reports(events: Iterable[LogEvent]) -> Iterator[list[LogEvent]]:
    """The events of each desync report: from its head to the next one, of one writer in one file."""
    desync = [event for event in events if event.counter == "desync" and is_unnamed(event)]
    desync.sort(key=lambda event: (event.ref.artifact, event.origin.rank or -1, event.ref.line or 0))
    report: list[LogEvent] = []
    for event in desync:
        other = report and (
            _BEGINS in event.text
            or event.ref.artifact != report[0].ref.artifact
            or event.origin.rank != report[0].origin.rank
        )
        if other:
            yield report
            report = []
        report.append(event)
    if report:
        yield report

"""``LedgerBuilder``: flight-recorder dumps and log lines of an N-rank job, stuck in a few lines of a test."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hangscope.model.facts import Frame, Ref
from hangscope.model.loose import (
    FlightRecord,
    GroupRecord,
    LogEvent,
    LooseFact,
    Origin,
    RecordedOperation,
)

START = 1_764_000_000_000_000_000
"""Nanoseconds since the epoch at which every built job begins."""


class LedgerBuilder:
    """Every rank runs the operations that it is told to; ``facts`` are the dumps. Groups: name → members."""

    def __init__(self, ranks: int, *, backend: str = "nccl", window: int = 40) -> None:
        self.ranks = ranks
        self.backend = backend
        self.window = window
        self.groups: dict[str, tuple[int, ...]] = {"0": tuple(range(ranks))}
        self.descriptions = {"0": "default_pg"}
        self._operations: dict[int, dict[str, list[RecordedOperation]]] = {rank: {} for rank in range(ranks)}
        self._numbers: dict[tuple[int, str], int] = {}
        self.written: dict[int, float] = {}
        self.partial: dict[int, str] = {}
        self.without: set[int] = set()
        self.events: list[LogEvent] = []
        self.lines = 0

    def group(self, name: str, members: Sequence[int], desc: str = "") -> LedgerBuilder:
        self.groups[name] = tuple(members)
        self.descriptions[name] = desc
        return self

    def run(
        self,
        kind: str = "all_reduce",
        *,
        on: Iterable[int] | None = None,
        group: str = "0",
        times: int = 1,
        finished: bool = True,
        started: bool = True,
        sizes: str = "[[1024]]",
        dtype: str = "Float",
        at: str = "train.py:10",
    ) -> LedgerBuilder:
        """The ranks enter the operation, as often as told."""
        for rank in self.groups[group] if on is None else on:
            for _ in range(times):
                number = self._numbers[rank, group] = self._numbers.get((rank, group), 0) + 1
                file, _colon, line = at.partition(":")
                self._operations[rank].setdefault(group, []).append(
                    RecordedOperation(
                        sequence=number,
                        kind=kind,
                        state="completed" if finished else "started" if started else "scheduled",
                        finished=finished,
                        sizes=sizes,
                        dtype=dtype,
                        created_ns=START + number * 1_000_000_000,
                        started_ns=START + number * 1_000_000_000 + 5 if started or finished else None,
                        place=(Frame(function="step", file=file, line=int(line)),),
                    )
                )
        return self

    def stuck(self, kind: str = "all_reduce", **where: object) -> LedgerBuilder:
        """The ranks enter the operation and do not finish it."""
        return self.run(kind, finished=False, **where)  # type: ignore[arg-type]

    def transfer(
        self, rank: int, source: int, target: int, *, group: str = "0", finished: bool = False
    ) -> LedgerBuilder:
        """The rank's side of a send from ``source`` to ``target`` (ranks of the group)."""
        number = self._numbers[rank, f"p2p:{group}"] = self._numbers.get((rank, f"p2p:{group}"), 0) + 1
        self._operations[rank].setdefault(group, []).append(
            RecordedOperation(
                sequence=number,
                kind="send" if rank == self.groups[group][source] else "recv",
                state="completed" if finished else "started",
                finished=finished,
                p2p=True,
                source=source,
                target=target,
                created_ns=START,
            )
        )
        return self

    def event(self, kind: str, rank: int | None = None, **fields: object) -> LedgerBuilder:
        """One line of a log that rank writes."""
        self.lines += 1
        origin = fields.pop("origin", None) or Origin(
            rank=rank, source="prefix" if rank is not None else None
        )
        fields.setdefault("text", kind)
        self.events.append(LogEvent(kind=kind, origin=origin, ref=Ref("job.log", self.lines), **fields))  # type: ignore[arg-type]
        return self

    def records(self) -> list[FlightRecord]:
        return [self._record(rank) for rank in range(self.ranks) if rank not in self.without]

    def facts(self) -> list[LooseFact]:
        return [*self.records(), *self.events]

    def _record(self, rank: int) -> FlightRecord:
        groups = tuple(self._group(rank, name) for name, members in self.groups.items() if rank in members)
        newest = max((o.created_ns or 0 for g in groups for o in g.operations), default=None)
        return FlightRecord(
            origin=Origin(rank=rank, source="name"),
            backend=self.backend,
            version="2.10",
            groups=groups,
            entries=sum(len(g.operations) for g in groups),
            newest_ns=newest,
            written=self.written.get(rank),
            world_size=self.ranks,
            partial=self.partial.get(rank),
            ref=Ref(f"dumps/rank_{rank}"),
        )

    def _group(self, rank: int, name: str) -> GroupRecord:
        operations = self._operations[rank].get(name, [])
        kept = [o for o in operations if not o.finished] + [o for o in operations if o.finished][
            -self.window :
        ]
        kept.sort(key=lambda o: (o.p2p, o.sequence))
        numbered = [o for o in operations if not o.p2p]
        finished = [o.sequence for o in numbered if o.finished]
        return GroupRecord(
            name=name,
            desc=self.descriptions[name],
            members=self.groups[name] if self.backend != "gloo" else None,
            enqueued=max((o.sequence for o in numbered), default=-1),
            started=max((o.sequence for o in numbered if o.started_ns), default=-1),
            completed=max(finished, default=-1),
            low_water=min((o.sequence for o in kept if not o.p2p), default=None),
            operations=tuple(kept),
        )

"""Jobs that are executed in a small model: every rank has a program of collectives, and stops where others do
not come. What comes out are the flight-recorder dumps of a hang whose beginning is known."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .builder import LedgerBuilder


class Step(msgspec.Struct, frozen=True):
    """One line of a program."""

    group: str
    kind: str
    place: str


Program = list[Step]
END = Step("", "", "")
"""The rank stands still here, outside of all communication."""


class Simulation:
    """``ahead``: how many operations the host may have launched and not finished (1: it waits for each)."""

    def __init__(
        self, programs: Sequence[Program], groups: dict[str, tuple[int, ...]], ahead: int = 1
    ) -> None:
        self.programs = [list(program) for program in programs]
        self.groups = groups
        self.ahead = ahead
        self.launched = [0] * len(programs)
        self.finished = [0] * len(programs)
        self._number: list[list[int]] = []
        for program in self.programs:
            counts: dict[str, int] = {}
            numbers = []
            for step in program:
                counts[step.group] = counts.get(step.group, 0) + 1
                numbers.append(counts[step.group])
            self._number.append(numbers)

    def run(self) -> Simulation:
        """Until nothing moves any more."""
        moved = True
        while moved:
            moved = False
            for rank in range(len(self.programs)):
                moved |= self._launch(rank)
            heads = [self._head(rank) for rank in range(len(self.programs))]
            for head in heads:
                if head is not None and self._ready(head, heads):
                    for other in self.groups[head[0]]:
                        self.finished[other] += 1
                    moved = True
                    break
        return self

    def _launch(self, rank: int) -> bool:
        moved = False
        program = self.programs[rank]
        while (
            self.launched[rank] < len(program)
            and program[self.launched[rank]] is not END
            and self.launched[rank] - self.finished[rank] < self.ahead
        ):
            self.launched[rank] += 1
            moved = True
        return moved

    def _head(self, rank: int) -> tuple[str, int, str] | None:
        """What the rank's device works on: one stream, in order."""
        index = self.finished[rank]
        if index >= self.launched[rank]:
            return None
        step = self.programs[rank][index]
        return step.group, self._number[rank][index], step.kind

    def _ready(self, head: tuple[str, int, str], heads: Sequence[tuple[str, int, str] | None]) -> bool:
        return all(heads[member] == head for member in self.groups[head[0]])

    @property
    def stuck(self) -> bool:
        return any(self._head(rank) is not None for rank in range(len(self.programs)))

    def dumps(self, backend: str = "nccl") -> LedgerBuilder:
        """What the recorders of all ranks hold."""
        world = self.groups["0"]
        builder = LedgerBuilder(len(world), backend=backend)
        for name, members in self.groups.items():
            if name != "0":
                builder.group(name, members, name)
        for rank, program in enumerate(self.programs):
            for index in range(self.launched[rank]):
                step = program[index]
                builder.run(
                    step.kind, on=[rank], group=step.group, at=step.place,
                    finished=index < self.finished[rank], started=index <= self.finished[rank],
                )  # fmt: skip
        return builder

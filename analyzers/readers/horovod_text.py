"""Horovod's stall check (``horovod/common/stall_inspector.cc``; before 0.16 ``operations.cc``).

Its oldest form lists who is *ready* for a tensor, later ones who is missing: only the latter name a rank that
has not come. The coordinator, rank 0, prints it. Who is missing from one tensor only has come to the others.

>>> from .interface import Line
>>> from hangscope.model.loose import NOBODY
>>> said = '''waiting for remainder of ranks for more than 60 seconds. This may indicate that ranks differ.
... Stalled ranks:
... 3: [Optimizer.grad_7, Optimizer.grad_8]
... 5!: [Optimizer.grad_7]
... step 12'''
>>> lines = [Line(at, text, NOBODY, "x") for at, text in enumerate(said.splitlines(), 1)]
>>> facts, after = read_table(lines, 1)
>>> [(fact.kind, fact.about, fact.key) for fact in facts if fact.key == "Optimizer.grad_8"]
[('stall-missing', (3,), 'Optimizer.grad_8'), ('stall-waiting', (0, 5), 'Optimizer.grad_8')]
>>> facts[0].about, facts[0].seconds, after
((3, 5), 60.0, 4)
>>> facts, after = read_operations([Line(1, "grad.X [missing ranks: 0, 2]", NOBODY, "x")], 0)
>>> [(fact.kind, fact.about, fact.key) for fact in facts]
[('stall-missing', (0, 2), 'grad.X')]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hangscope.model.loose import LogEvent

from .interface import BlockForm, Facts, Line
from .raw import real

MOST_ROWS = 20_000
MOST_TENSORS = 2000
COORDINATOR = 0
_ROW = re.compile(r"^\s{0,8}(?P<rank>\d{1,7})!?: \[(?P<tensors>[^\]]{0,2000})")
_LISTED = re.compile(
    r"(?P<tensor>[^\s,\[\]]{1,300}) \[(?P<what>missing|ready) ranks: ?(?P<ranks>[\d, ]{1,4000})\]"
)
_LASTED = re.compile(r"remainder of ranks for more than (?P<seconds>\d{1,9}) seconds")


class _Stall:
    """Which ranks are missing from which tensor. ``partly``: ranks whose list of tensors was cut short."""

    def __init__(self, lines: Sequence[Line], start: int) -> None:
        before = lines[start].text if start == 0 else f"{lines[start - 1].text} {lines[start].text}"
        lasted = _LASTED.search(before)
        self.seconds = real(lasted["seconds"]) if lasted is not None else None
        self.missing: dict[str, set[int]] = {}
        self.ready: list[tuple[str, set[int], Line]] = []
        self.where: dict[str, Line] = {}
        self.partly: set[int] = set()

    def add(self, tensor: str, ranks: set[int], line: Line) -> None:
        if tensor and len(self.missing) < MOST_TENSORS:
            self.missing.setdefault(tensor, set()).update(ranks)
            self.where.setdefault(tensor, line)

    def events(self) -> Iterator[LogEvent]:
        """Per tensor who has not come, and who has for certain."""
        listed = set().union(*self.missing.values()) if self.missing else set()
        sure = (listed - self.partly) | ({COORDINATOR} - listed if listed else set())
        for tensor, ranks in self.missing.items():
            yield self._event("stall-missing", tensor, ranks, self.where[tensor])
            if sure - ranks:
                yield self._event("stall-waiting", tensor, sure - ranks, self.where[tensor])
        for tensor, ranks, line in self.ready:
            yield self._event("stall-waiting", tensor, ranks, line)

    def _event(self, kind: str, tensor: str, ranks: set[int], line: Line) -> LogEvent:
        return LogEvent(
            kind=kind,
            origin=line.origin,
            about=tuple(sorted(ranks)),
            key=tensor,
            counter="horovod",
            seconds=self.seconds,
            text=line.text.strip()[:400],
            ref=line.ref,
        )


def read_table(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """``Stalled ranks:`` and a row a rank with the tensors that it has not come to, six at most."""
    if not lines[start].text.rstrip().endswith(("Stalled ranks:", "Missing ranks:")):
        return (), start
    stall = _Stall(lines, start)
    at = start + 1
    while at < min(len(lines), start + MOST_ROWS):
        row = _ROW.match(lines[at].text)
        if row is None:
            break
        rank, tensors = int(row["rank"]), row["tensors"]
        if tensors.rstrip().endswith("..."):
            stall.partly.add(rank)
        for tensor in tensors.replace(" ...", "").split(","):
            stall.add(tensor.strip(), {rank}, lines[at])
        at += 1
    return list(stall.events()), at if stall.missing else start


def read_operations(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """``tensor [missing ranks: …]``, a line or several: who has not come. ``[ready ranks: …]``: who waits."""
    stall = _Stall(lines, start)
    at = start
    while at < min(len(lines), start + MOST_ROWS):
        found = list(_LISTED.finditer(lines[at].text))
        if not found:
            break
        for said in found:
            ranks = {int(word) for word in re.findall(r"\d{1,7}", said["ranks"])}
            if said["what"] == "missing":
                stall.add(said["tensor"], ranks, lines[at])
            else:
                stall.ready.append((said["tensor"], ranks, lines[at]))
        at += 1
    return list(stall.events()), at


TABLE = BlockForm(
    name="horovod-stalled-ranks",
    title="Horovod: stalled ranks, 0.16 and later",
    openers=("Stalled ranks:", "Missing ranks:"),
    read=read_table,
)
OPERATIONS = BlockForm(
    name="horovod-stalled-ops",
    title="Horovod: stalled operations, before 0.19",
    openers=("[missing ranks:", "[ready ranks:"),
    read=read_operations,
)

"""A communicator as the NCCL logs of its processes show it, and where each of its ranks stands.

NCCL's lines say what the *host* asked for: a launch is no completion, and of a graph that is replayed no line
is written. Ranks are of the communicator unless they are called global.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from hangscope.model.facts import Ref

Process = tuple[str, int]
"""(node, pid): both as the process itself sees them, in a container its own."""

Join = Literal["commId", "split", "order", "size"]
"""How lines of several processes came together, best first: an identity that all ranks print; the parent's
identity with the split's number and colour; the n-th communicator of equal size (2.4 to 2.14, which print
none); one communicator of the size of the job in a log that begins later."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One collective, as one rank's host asked for it."""

    count: int
    """opCount: launched plans before it. The members of one group share it."""
    operation: str
    sizes: str | None
    dtype: str | None
    reduction: str | None
    root: str | None
    ref: Ref


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of a communicator."""

    rank: int
    global_rank: int | None = None
    node: str
    pid: int
    pci: str | None = None
    started: bool = False
    """It logged Init START."""
    placed: bool = False
    """It has heard from all others: the bootstrap is over."""
    complete: bool = False
    ended: str | None = None
    """destroy, abort or revoke."""
    launched: int | None = None
    """Collectives since Init; None where the log does not begin there, or shows no launches at all."""
    position: int | None = None
    """Where it stands in the communicator's own counting (``Communicator.counter``): so many collectives were
    launched. None: not comparable."""
    low_water: int | None = None
    """opCount of its first launch in the log."""
    first: Launch | None = None
    last: Launch | None = None
    transfers: int = 0
    """Send, Recv and the like; they are in no count."""
    ref: Ref
    """The line that shows the membership, or the first launch."""
    tail: Ref
    """The last NCCL line of the process in that log."""
    wall: float | None = None
    """Its time, or the file's mtime."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first place at which ranks launched different things. ``views``: what, and who, largest party
    first; parties of one size make none the majority."""

    position: int
    views: tuple[tuple[str, tuple[int, ...]], ...]
    refs: tuple[Ref, ...]


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """Some ranks have launched more than others. ``behind``: those that launched least; they have not
    launched ``sequence``, which ``ahead`` have. What makes that uncertain stands in ``doubts``: with any, it
    names nobody. A rank behind in one communicator may well wait for the others in a second one."""

    sequence: int
    """The first collective that ``behind`` have not launched, counting from 1."""
    behind: tuple[int, ...]
    ahead: tuple[int, ...]
    missing: Launch | None = None
    """That collective, as one of ``ahead`` launched it."""
    doubts: tuple[str, ...] = ()


class Communicator(msgspec.Struct, frozen=True, kw_only=True):
    """``key`` is equal for the same communicator in every log: the commId where there is one."""

    key: str
    joined_by: Join
    size: int
    members: tuple[Member, ...] = ()
    """By rank; those of which a line was seen."""
    absent: tuple[int, ...] = ()
    """Ranks of which no log shows that they began to form it."""
    disputed: tuple[int, ...] = ()
    """Ranks that two processes claim; they are no members."""
    parent: str | None = None
    world: bool = False
    """It holds every process in the logs and no other is larger: its ranks are the global ones."""
    version: str | None = None
    start_is_early: bool | None = None
    """Init START is printed before the ranks have met (from 2.23), so that a rank without it has not come;
    else it follows the first exchange of all. None: the version is not known."""
    outsiders: tuple[Process, ...] = ()
    """Processes that logged NCCL lines and are members of no communicator at all."""
    superseded: bool = False
    """Processes of a later attempt have taken its place."""
    counter: Literal["launches", "opCount"] | None = None
    """What ``position`` counts; None: its ranks cannot be compared."""
    lag: Lag | None = None
    difference: Difference | None = None

    @property
    def forming(self) -> tuple[int, ...]:
        """Ranks that began to form it and had not, when their logs end."""
        return tuple(m.rank for m in self.members if m.started and not m.complete and m.ended is None)

    def member(self, rank: int) -> Member | None:
        """The member of that rank."""
        return next((member for member in self.members if member.rank == rank), None)

    def global_rank(self, rank: int) -> int | None:
        """The global rank of a rank, also of one that was not seen."""
        found = self.member(rank)
        if found is not None:
            return found.global_rank
        return rank if self.world and 0 <= rank < self.size else None

"""Writes the NCCL logs of a made-up job, line by line, in the form of a given version."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hangscope.analyzers.readers.documents import read_document
from hangscope.analyzers.readers.interface import Document
from hangscope.model.loose import LogEvent


def events_of(files: dict[str, Iterable[str]]) -> list[LogEvent]:
    """What the readers make of these files."""
    found: list[LogEvent] = []
    for path, lines in files.items():
        data = "".join(line + "\n" for line in lines).encode()
        reading = read_document(Document(path=path, data=data))
        found += [fact for fact in reading.facts if isinstance(fact, LogEvent)]
    return found


class Rank:
    """One process of the job. Its pointers are its own: rank 0 and 1 share some by chance."""

    def __init__(
        self, rank: int, *, node: str = "node-a", pid: int | None = None, version: str = "2.27"
    ) -> None:
        self.rank = rank
        self.node = node
        self.pid = 4000 + 10 * rank if pid is None else pid
        self.version = tuple(int(part) for part in version.split("."))
        self.lines: list[str] = []
        self._counts: dict[int, int] = {}

    def say(self, text: str) -> Rank:
        """A plain INFO line."""
        self.lines.append(f"{self.node}:{self.pid}:{self.pid + 3} [{self.rank % 8}] NCCL INFO {text}")
        return self

    def bootstrap(self) -> Rank:
        colon = ":" if self.version >= (2, 24) else " :"
        return self.say(f"Bootstrap{colon} Using eth0:10.0.0.{self.rank + 1}<0>")

    def _comm(self, api: str, pointer: int, rank: int, size: int, identity: int | None) -> str:
        name = f"{api} " if self.version >= (2, 21) else ""
        nvml = f" nvmlDev {self.rank % 8}" if self.version >= (2, 18) else ""
        known = f" commId 0x{identity:x}" if identity is not None and self.version >= (2, 18) else ""
        device = f"cudaDev {self.rank % 8}{nvml} busId {self.rank % 8 + 1}b000"
        return f"{name}comm 0x{pointer:x} rank {rank} nranks {size} {device}{known}"

    def start(self, pointer: int, size: int, identity: int, *, rank: int | None = None) -> Rank:
        own = self.rank if rank is None else rank
        return self.say(self._comm("ncclCommInitRank", pointer, own, size, identity) + " - Init START")

    def complete(self, pointer: int, size: int, identity: int, *, rank: int | None = None) -> Rank:
        own = self.rank if rank is None else rank
        self._counts[pointer] = 0
        return self.say(self._comm("ncclCommInitRank", pointer, own, size, identity) + " - Init COMPLETE")

    def split(
        self,
        pointer: int,
        size: int,
        *,
        rank: int,
        parent: int,
        number: int,
        color: int,
        to: str = "COMPLETE",
    ) -> Rank:
        word = "childCount" if self.version >= (2, 29) else "splitCount"
        count = f" {word} {number}" if self.version >= (2, 24) else ""
        text = self._comm("ncclCommSplit", pointer, rank, size, None)
        text += f" parent 0x{parent:x}{count} color {color} key {rank}"
        self._counts[pointer] = 0
        self.say(text + "- Init START")
        return self.say(text + " - Init COMPLETE") if to == "COMPLETE" else self

    def coll(
        self,
        pointer: int,
        size: int,
        *,
        name: str = "AllReduce",
        count: int = 1024,
        root: int = 0,
        plan: bool = True,
    ) -> Rank:
        number = self._counts.get(pointer, 0)
        self._counts[pointer] = number + plan
        return self.say(
            f"{name}: opCount {number:x} sendbuff 0x7f00 recvbuff 0x7f00 count {count} datatype 9 "
            f"op 0 root {root} comm 0x{pointer:x} [nranks={size}] stream 0x9100"
        )

    def end(self, pointer: int, size: int, *, how: str = "Destroy") -> Rank:
        device = f"cudaDev {self.rank % 8} busId {self.rank % 8 + 1}b000"
        return self.say(f"comm 0x{pointer:x} rank {self.rank} nranks {size} {device} - {how} COMPLETE")


def world(size: int, *, version: str = "2.27", pointer: int = 0x5500, identity: int = 0xABC1) -> list[Rank]:
    """So many processes on one node, with the communicator of all formed. All pointers are equal."""
    ranks = [Rank(rank, version=version) for rank in range(size)]
    for rank in ranks:
        rank.bootstrap()
        if rank.version >= (2, 18):
            rank.start(pointer, size, identity)
        rank.complete(pointer, size, identity)
    return ranks


def interleaved(ranks: Sequence[Rank], *, prefix: str = "") -> list[str]:
    """One log of all, line by line in turn; ``prefix`` may hold ``{rank}``."""
    found = []
    for index in range(max(len(rank.lines) for rank in ranks)):
        found += [
            prefix.format(rank=rank.rank) + rank.lines[index] for rank in ranks if index < len(rank.lines)
        ]
    return found

"""A shard with its artifacts read: values by process and sample, and notes on what could not be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from hangscope.errors import UnreadableEvidence
from hangscope.model.evidence import Artifact, Shard

from ..readers import reader_for

T = TypeVar("T", bound=msgspec.Struct)


class ParsedShard:
    """What one node delivered, understood. ``notes`` says which artifacts were skipped, and why."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.node = shard.name
        self.notes: list[str] = []
        self._values: dict[type, list[tuple[Artifact, msgspec.Struct]]] = {}
        self._by_key: dict[tuple[type, int | None, int], list[msgspec.Struct]] = {}
        self._artifacts: dict[tuple[int | None, int], list[Artifact]] = {}
        for artifact in shard.artifacts:
            self._read(artifact)

    def _read(self, artifact: Artifact) -> None:
        reader = reader_for(artifact.collector, artifact.name)
        if reader is None:
            return
        try:
            value = reader.read(artifact.data, artifact.path)
        except UnreadableEvidence as error:
            self.notes.append(f"skipped {artifact.path}: {error.why or error.what}")
            return
        self._values.setdefault(type(value), []).append((artifact, value))
        self._by_key.setdefault((type(value), artifact.pid, artifact.sample), []).append(value)
        self._artifacts.setdefault((artifact.pid, artifact.sample), []).append(artifact)

    def every(self, kind: type[T]) -> Iterator[tuple[Artifact, T]]:
        """All values of a kind with the artifacts they came from, in the order of the shard."""
        for artifact, value in self._values.get(kind, ()):
            if isinstance(value, kind):
                yield artifact, value

    def of(self, kind: type[T], pid: int | None, sample: int) -> list[T]:
        """The values of a kind for one process (None: the node) in one sample."""
        return [value for value in self._by_key.get((kind, pid, sample), ()) if isinstance(value, kind)]

    def one(self, kind: type[T], pid: int | None, sample: int) -> T | None:
        """The last of them; None when there is none."""
        found = self.of(kind, pid, sample)
        return found[-1] if found else None

    def artifacts(self, pid: int | None, sample: int) -> list[Artifact]:
        """The readable artifacts of one process (None: the node) in one sample."""
        return self._artifacts.get((pid, sample), [])

    def samples(self, pid: int | None) -> list[int]:
        """The samples in which something of the process was readable, ascending."""
        return sorted(sample for owner, sample in self._artifacts if owner == pid)

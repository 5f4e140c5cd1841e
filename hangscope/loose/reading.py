"""Paths → what the forms understood in them, file by file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ..analyzers.readers.documents import Reading, read_document
from ..analyzers.readers.interface import Document
from ..bundle.reader import read_bundle, read_bundle_bytes
from ..errors import BundleError
from ..model.evidence import Evidence
from ..model.loose import LooseFact
from .flight_records import read_flight_records
from .interface import Found, FoundBundle, FoundRecord, Unread


class Gathered(msgspec.Struct):
    """All that was read. ``readings``: (path, reading) of each document, in their order."""

    readings: list[tuple[str, Reading]] = []
    evidence: list[Evidence] = []
    unread: list[Unread] = []

    @property
    def facts(self) -> list[LooseFact]:
        """Of all documents, in their order."""
        return [fact for _, reading in self.readings for fact in reading.facts]

    @property
    def notes(self) -> list[str]:
        """What could not be read, in lines for people."""
        notes = [note for _, reading in self.readings for note in reading.notes]
        return notes + [item.text for item in self.unread]

    @property
    def doubts(self) -> list[str]:
        """The notes on what is evidence, and was not read or not to its end: what may be missing."""
        notes = [note for _, reading in self.readings if not reading.strange for note in reading.notes]
        return notes + [item.text for item in self.unread]

    @property
    def strange(self) -> list[str]:
        """Paths in which nothing has a known form, each once."""
        known = {path for path, reading in self.readings if not reading.strange}
        return sorted({path for path, _ in self.readings} - known)


def gather(found: Iterable[Found]) -> Gathered:
    """Reads everything, one document in memory at a time, flight records in several processes at the end.
    Nothing that is found raises."""
    gathered = Gathered()
    records: list[str] = []
    for item in found:
        if isinstance(item, Document):
            gathered.readings.append((item.path, read_document(item)))
        elif isinstance(item, FoundBundle):
            gathered.evidence += _evidence(item, gathered.unread)
        elif isinstance(item, FoundRecord):
            records.append(item.path)
        else:
            gathered.unread.append(item)
    for path, record in zip(records, read_flight_records(records), strict=True):
        if isinstance(record, Unread):
            gathered.unread.append(record)
        else:
            gathered.readings.append((path, Reading(facts=(record,))))
    return gathered


def _evidence(found: FoundBundle, unread: list[Unread]) -> Iterator[Evidence]:
    """The evidence in a bundle; none, and the reason in ``unread``, where there is none to be had."""
    try:
        if found.data is None:
            evidence = read_bundle(found.path)
        else:
            evidence = read_bundle_bytes(found.data, found.path)
    except BundleError as error:
        unread.append(Unread(found.path, error.what if error.why is None else f"{error.what}: {error.why}"))
        return
    if any(shard.cells or shard.artifacts for shard in evidence.shards):
        yield evidence
    else:
        unread.append(Unread(found.path, "the bundle holds no evidence"))

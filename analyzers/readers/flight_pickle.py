"""Flight Recorder pickles of torch 2.1 to 2.15, of every back end, whole or cut short.

The file is what ``ProcessGroupNCCL`` writes on a time-out (``nccl_trace_rank_N``, ``comm_lib_trace_rank_N``)
and what ``_dump_nccl_trace`` and ``_dump_fr_trace`` return. Torch 2.1 writes the bare list of entries; later
ones a dict with ``version``, ``entries``, ``pg_config`` and, from 2.5, ``pg_status``. Nothing of the file is
executed, see ``flight_opcodes``; of a file that was cut the entries before the cut are told (``partial``).

>>> import pickle
>>> sample = pickle.dumps({"version": "2.4", "pg_config": {"0": {"name": "0", "desc": "default_pg",
...  "ranks": "[0, 1]"}}, "entries": [{"process_group": ("0", "default_pg"), "collective_seq_id": 7,
...  "profiling_name": "nccl:all_reduce", "time_created_ns": 5, "input_sizes": [[8]], "p2p_seq_id": 0,
...  "input_dtypes": ["Float"], "state": "started", "retired": False, "is_p2p": False,
...  "frames": []}]}, protocol=2)
>>> [record] = read(Document(path="nccl_trace_rank_1", data=sample))
>>> record.backend, record.groups[0].members, record.groups[0].enqueued, record.groups[0].completed
('nccl', (0, 1), 7, None)
"""

from __future__ import annotations

from typing import Any

from hangscope.errors import UnreadableEvidence
from hangscope.model.loose import FlightRecord

from .flight_choice import that_matter
from .flight_entry import Described, Entry, described, entry_of
from .flight_header import header_of
from .flight_opcodes import PlainPickle
from .flight_record import flight_record
from .flight_template import Keep, Seen, Template, number, references
from .interface import Document, FileForm

_NAMES = (b"pg_config", b"profiling_name", b"collective_seq_id", b"nccl_comm_state", b"pg_status")
_MOST_TEMPLATES = 4
_MOST_MISSES = 200


def recognise(head: bytes) -> bool:
    """A pickle of protocol 2 to 5 in which the recorder's keys stand."""
    return head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05" and any(name in head for name in _NAMES)


def read(document: Document) -> tuple[FlightRecord, ...]:
    """The record of one rank. Raises UnreadableEvidence: it is no such pickle, or asks for code to be run."""
    reading = _Reading(document)
    value, partial = reading.pickle.run(reading)
    top = value if isinstance(value, dict) else {}
    if not reading.count and not ("pg_config" in top or "pg_status" in top or "entries" in top):
        raise UnreadableEvidence(document.path, f"no Flight Recorder dump: {partial or 'other keys'}")
    return (flight_record(document, header_of(top), reading.entries(), reading.count, partial),)


class _Bucket:
    """Where the matched entries of one group, name and state stand; ``like``: the first of them."""

    def __init__(self, template: Template, like: Entry) -> None:
        self.template, self.like = template, like
        self.seen: list[Seen] = []

    def samples(self, data: bytes) -> list[Sample]:
        """One an entry, with its number."""
        value, like, made = int.from_bytes, self.like, self
        return [
            (
                index,
                value(data[at + shape.number[0] : at + shape.number[1]], "little") if shape.number else None,
                like,
                (made, at),
            )
            for index, at, shape in self.seen
        ]


Sample = tuple[int, "int | None", Entry, "tuple[_Bucket, int] | None"]
"""Place in the ring, number, an entry like it; bucket and position of one that was only matched."""


class _Reading:
    """The entries of one pickle: executed ones as they come, matched ones in buckets of equal meaning."""

    def __init__(self, document: Document) -> None:
        self.pickle = PlainPickle(document.data, document.path)
        self.count = 0
        self._templates: list[Template] = []
        self._misses = 0
        self._entries: list[tuple[int, Entry]] = []
        self._buckets: list[_Bucket] = []
        self._spans: dict[bytes, dict[str, Any]] = {}
        self._described: dict[tuple[bytes, ...], Described] = {}

    def executed(self, value: dict[str, Any]) -> None:
        """Keeps the entry, and makes a template of its keys: the next ones can be matched."""
        self._entries.append((self.count, entry_of(value, described(value))))
        self.count += 1
        keys = tuple(value)
        if len(self._templates) < _MOST_TEMPLATES and all(keys != known.keys for known in self._templates):
            try:
                self._templates.append(Template(keys, self.pickle.strings))
            except KeyError:
                return

    def ahead(self, position: int) -> int:
        """Matches entry after entry from ``position`` on; returns where the first stands that does not
        match."""
        if self._misses > _MOST_MISSES:
            return position
        for template in self._templates:
            behind = self._run_of(template, position)
            if behind != position:
                self._misses = 0
                return behind
        self._misses += 1
        return position

    def _run_of(self, template: Template, position: int) -> int:
        def kind(position: int) -> Keep:
            bucket = _Bucket(template, self._entry(template, position))
            self._buckets.append(bucket)
            return bucket.seen.append

        position, self.count = template.run(self.pickle.data, position, self.count, kind)
        return position

    def entries(self) -> list[Entry]:
        """Those that matter, in ring order. Only they are made: of the others, a number was looked at."""
        groups: dict[tuple[str, str], list[Sample]] = {}
        for index, entry in self._entries:
            groups.setdefault(entry.group, []).append((index, entry.number, entry, None))
        for bucket in self._buckets:
            groups.setdefault(bucket.like.group, []).extend(bucket.samples(self.pickle.data))
        found = [sample for samples in groups.values() for sample in that_matter(samples)]
        found.sort(key=lambda sample: sample[0])
        for template in self._templates:
            template.forget()
        return [
            like if matched is None else self._entry(matched[0].template, matched[1])
            for _, _, like, matched in found
        ]

    def _entry(self, template: Template, position: int) -> Entry:
        """The entry that was matched at ``position``."""
        memo = self.pickle.memo
        values = template.at(self.pickle.data, position)
        if values is None:
            return entry_of({}, described({}))
        value: dict[str, Any] = {}
        for key, item in template.scalars(values).items():
            code = item[0]
            if code == 0x88 or code == 0x89:
                value[key] = code == 0x88
            elif code == 0x68 or code == 0x6A:
                found = [memo.get(index) for index in references(item)]
                value[key] = found[0] if len(found) == 1 else found
            elif code != 0x47:
                value[key] = number(item)
        told = self._described.get(values.spans)
        if told is None:
            told = self._described[values.spans] = described(self._span_values(values.spans))
        return entry_of(value, told)

    def _span_values(self, spans: tuple[bytes, ...]) -> dict[str, Any]:
        """The keys and values of checked spans: executed with the memo as it is."""
        values: dict[str, Any] = {}
        for span in spans:
            if span not in self._spans:
                whole = span if span.startswith(b"}(") else b"}(" + span
                result, _ = PlainPickle(whole + b"u.", self.pickle.path, self.pickle.memo).run()
                self._spans[span] = result if isinstance(result, dict) else {}
            values.update(self._spans[span])
        return values


FORM = FileForm(
    name="flight-recorder-pickle", title="Flight Recorder pickle of torch", recognise=recognise, read=read
)

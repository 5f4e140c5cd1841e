"""Flight Recorder as JSON: torch's worker server (``/handler/fr_trace_json``), ``_dump_nccl_trace_json``,
``_dump_fr_trace_json``, and pickles that somebody turned into JSON.

The same as the pickle, with lists for tuples, 0 for a time that is not known, strings in ``pg_status``, no
``entries`` when there are none, and mostly no frames (torch 2.6 to 2.15). Keys stand in alphabetical order,
so the entries come before ``pg_config``: a text that was cut still tells its entries.

>>> sample = b'''{"comm_lib_version": "", "entries": [{"collective_seq_id": 4, "is_p2p": false,
...  "process_group": ["0", "default_pg"], "profiling_name": "gloo:barrier", "retired": false,
...  "input_sizes": [], "p2p_seq_id": 0, "state": "scheduled", "time_created_ns": 9}],
...  "pg_config": {}, "version": "2.10"}'''
>>> [record] = read(Document(path="fr_trace.json", data=sample))
>>> [(item.kind, item.sequence, item.finished) for item in record.groups[0].operations]
[('barrier', 4, False)]
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from hangscope.errors import UnreadableEvidence
from hangscope.model.loose import FlightRecord

from .flight_entry import described, entry_of
from .flight_header import header_of
from .flight_record import flight_record
from .interface import Document, FileForm

_NAMES = (b'"pg_config"', b'"profiling_name"', b'"collective_seq_id"', b'"pg_status"')
_FIRST = re.compile(
    rb'\s{0,99}[\[{]\s{0,99}[\[{]?\s{0,99}"(?:comm_lib_version|entries|nccl_comm_state|pg_config|pg_status|version|rank|'
    rb'collective_seq_id|frames|id|record_id)"'
)
"""The first key, as torch writes them and sorted: a log of JSON lines that speaks of these keys is none."""
_TRIES = 64


def recognise(head: bytes) -> bool:
    """A JSON object or list in which the recorder's keys stand."""
    return _FIRST.match(head) is not None and any(name in head for name in _NAMES)


def read(document: Document) -> tuple[FlightRecord, ...]:
    """The record of one rank. Raises UnreadableEvidence when it is no such JSON."""
    value, partial = _decode(document)
    top = value if isinstance(value, dict) else {"entries": value}
    entries = top.get("entries")
    if not isinstance(entries, list) and not ("pg_config" in top or "pg_status" in top):
        raise UnreadableEvidence(document.path, "JSON without Flight Recorder entries")
    told = [item for item in entries if isinstance(item, dict)] if isinstance(entries, list) else []
    made = [entry_of(item, described(item)) for item in told]
    return (flight_record(document, header_of(top), made, len(made), partial),)


def _decode(document: Document) -> tuple[Any, str | None]:
    try:
        return msgspec.json.decode(document.data), None
    except (msgspec.DecodeError, RecursionError) as error:
        entries = _entries_before_the_cut(document.data)
        if not entries:
            raise UnreadableEvidence(document.path, str(error)) from error
        return {"entries": entries}, f"{error} ({len(document.data)} bytes)"


def _entries_before_the_cut(data: bytes) -> list[Any]:
    """The whole entries of a text that ends early: it is closed behind one of its last braces."""
    start = data.find(b'"entries"')
    start = data.find(b"[", start) if start >= 0 else -1
    end = len(data)
    for _ in range(_TRIES):
        end = data.rfind(b"}", start, end) if start >= 0 else -1
        if end < 0:
            return []
        try:
            found = msgspec.json.decode(data[start : end + 1] + b"]", type=list[dict[str, Any]])
        except (msgspec.DecodeError, RecursionError):
            continue
        return list(found)
    return []


FORM = FileForm(
    name="flight-recorder-json", title="Flight Recorder JSON of torch", recognise=recognise, read=read
)

"""``recorder_files/pid-N/files.json``, ``dump-<n>.pickle`` and ``recorder_pipe/pid-N/dump.pickle``.

A file on disk may be of another attempt or another job: the table says when it was written.
"""

from __future__ import annotations

import msgspec

from hangscope.errors import UnreadableEvidence
from hangscope.model.loose import FlightRecord

from . import flight_json, flight_pickle
from .interface import Document
from .raw import decode


class DumpFile(msgspec.Struct, frozen=True, kw_only=True):
    """``mtime``: wall seconds. ``artifact`` None: it was not read, ``error`` says why."""

    path: str
    size: int | None = None
    mtime: float | None = None
    named: bool = False
    """A variable of the rank names the place: else all jobs of its user write there."""
    artifact: str | None = None
    error: str | None = None


class DumpTable(msgspec.Struct, frozen=True):
    files: tuple[DumpFile, ...]


def read_table(data: bytes, path: str) -> DumpTable:
    """What lay in the places where the rank writes its dumps.

    >>> sample = (b'{"files": [{"path": "/job/trace_3", "size": 9, "mtime": 7.5, "cut": false, "error": null,'
    ...   b'"artifact": "dump-0.pickle"}, {"path": "/job/x", "error": "a FIFO: not opened"}]}')
    >>> read_table(sample, "x").files[0].mtime, read_table(sample, "x").files[1].artifact
    (7.5, None)
    """
    return decode(data, DumpTable, path)


def read_dump(data: bytes, path: str) -> FlightRecord:
    """One dump. Raises UnreadableEvidence for a file that is none.

    >>> sample = (b'\\x80\\x02}(X\\x07\\x00\\x00\\x00versionX\\x03\\x00\\x00\\x002.4X\\t\\x00\\x00\\x00'
    ...   b'pg_config}X\\x07\\x00\\x00\\x00entries]}X\\x0e\\x00\\x00\\x00profiling_name'
    ...   b'X\\x0c\\x00\\x00\\x00nccl:barriersau.')
    >>> record = read_dump(sample, "x")
    >>> record.version, record.entries
    ('2.4', 1)
    """
    document, head = Document(path=path, data=data), data[: 1 << 16]
    if flight_pickle.recognise(head):
        return flight_pickle.read(document)[0]
    if flight_json.recognise(head):
        return flight_json.read(document)[0]
    raise UnreadableEvidence(path, "it is no flight-recorder dump")

"""NCCL RAS: a saved JSON report (``SET FORMAT json``; upstream src/ras/client_support.cc, ≥ 2.28.7).

>>> from .interface import Document
>>> sample = b'''{"nccl_version": "2.29.1", "timestamp": "2026-01-05 10:00:00", "communicators_count": 1,
... "communicators": [{"hash": "0xc0ffee", "size": 2, "ranks": [{"rank": 0, "host": "10.0.0.1", "pid": 41,
...  "cuda_dev": 0, "nvml_dev": 0, "status": {"init_state": 0}, "collective_counts": {"AllReduce": 7}}],
...  "missing_ranks": [{"rank": 1, "host": "10.0.0.1", "pid": 42, "cuda_dev": 1, "nvml_dev": 1
...  "status": {"unresponsive": true, "considered_dead": true}}]}], "ras": {"timeouts_count": 1}}'''
>>> communicator = read(Document(path="x.json", data=sample))[0].communicators[0]
>>> communicator.hash, communicator.ranks[0].state, communicator.ranks[0].counts, communicator.dead
('0000000000c0ffee', 'RUNNING', {'AllReduce': 7}, (1,))

2.28.7 to 2.29.1 leave out the comma behind ``nvml_dev`` of a missing rank, as above: put in again, and
nothing else is repaired. Several reports may stand in one file, with the client's talk before them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from hangscope.errors import UnreadableEvidence
from hangscope.model.facts import Ref
from hangscope.model.loose import RasCommunicator, RasRank, RasReport

from .clocks import dated
from .interface import Document, FileForm

MOST_BYTES = 1 << 28
MOST_RANKS = 1 << 20
_NO_COMMA = re.compile(r'("nvml_dev"\s{0,40}:\s{0,40}-?\d{1,9})(\s{1,200}"status"\s{0,40}:)')
_TALK = re.compile(r"(?:SERVER PROTOCOL|OK\b|ERROR:|\d{4}-\d\d-\d\d|[A-Z][a-z]{2} [A-Z][a-z]{2} )")
_DONE, _UNDER_WAY = 0, 7
"""ncclResult_t: ncclSuccess, ncclInProgress."""
_RESULTS = {
    1: "Unhandled CUDA error",
    2: "System error",
    3: "Internal error",
    4: "Invalid argument",
    5: "Invalid usage",
    6: "Remote process error",
    8: "Timeout",
}


class _Status(msgspec.Struct):
    init_state: int = 0
    async_error: int = 0
    finalize_called: bool = False
    destroy_flag: bool = False
    abort_flag: bool = False
    unresponsive: bool = False
    considered_dead: bool = False


class _Rank(msgspec.Struct):
    rank: int
    host: str = ""
    pid: int = -1
    cuda_dev: int = -1
    status: _Status = msgspec.field(default_factory=_Status)
    collective_counts: dict[str, int] = {}


class _Communicator(msgspec.Struct):
    hash: str
    size: int
    ranks: list[_Rank] = []
    missing_ranks: list[_Rank] = []


class _Service(msgspec.Struct):
    timeouts_count: int = 0


class _Report(msgspec.Struct):
    communicators: list[_Communicator]
    nccl_version: str | None = None
    timestamp: str | None = None
    ras: _Service = msgspec.field(default_factory=_Service)


def recognise(head: bytes) -> bool:
    """Whether the file begins like a RAS report in JSON."""
    start = head.find(b"{")
    return 0 <= start < 4096 and b'"nccl_version"' in head and b'"communicators' in head


def read(document: Document) -> list[RasReport]:
    """The reports, in the order of the file. ``wall`` takes the time, which names no zone, as UTC.

    Raises UnreadableEvidence where the first report is no whole report; a later one that is cut is a note.
    """
    text = _NO_COMMA.sub(r"\1,\2", document.data[:MOST_BYTES].decode("utf-8", "replace"))
    found: list[RasReport] = []
    try:
        for line, value in _values(text, document):
            found.append(_report(value, Ref(document.path, document.first_line + line)))
    except UnreadableEvidence as error:
        if not found:
            raise
        note = f"a later report in the file is not whole: {error.what}"
        found[-1] = msgspec.structs.replace(found[-1], notes=(*found[-1].notes, note))
    return found


def _values(text: str, document: Document) -> Iterator[tuple[int, Any]]:
    """The top-level objects, each with the number of lines before it."""
    decoder = json.JSONDecoder()
    place, line = text.find("{"), 0
    line = text.count("\n", 0, max(place, 0))
    while place >= 0:
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            raise UnreadableEvidence(document.path, f"no whole JSON from line {line + 1}: {error}") from error
        yield line, value
        following = text.find("{", end)
        line += text.count("\n", place, following if following >= 0 else end)
        place = following


def _report(value: Any, ref: Ref) -> RasReport:
    try:
        report = msgspec.convert(value, _Report, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        raise UnreadableEvidence(ref.artifact, f"no RAS report: {error}") from error
    stamp = dated(report.timestamp[:40]) if report.timestamp else None
    everyone = [rank for one in report.communicators for rank in (*one.ranks, *one.missing_ranks)]
    missing = [rank for one in report.communicators for rank in one.missing_ranks]
    dead = {(rank.host, rank.pid): None for rank in missing if rank.status.considered_dead}
    silent = {(rank.host, rank.pid): None for rank in missing if rank.status.unresponsive}
    timeouts = report.ras.timeouts_count
    return RasReport(
        nccl_version=report.nccl_version[:40] if report.nccl_version else None,
        wall=stamp.wall if stamp is not None else None,
        communicators=tuple(_communicator(one, ref) for one in report.communicators),
        gpus=len({(rank.host, rank.pid, rank.cuda_dev) for rank in everyone}) or None,
        dead_processes=tuple(dead),
        silent_processes=tuple(process for process in silent if process not in dead),
        notes=(f"{timeouts} time-outs while RAS gathered the data",) if timeouts > 0 else (),
        ref=ref,
    )


def _communicator(one: _Communicator, ref: Ref) -> RasCommunicator:
    try:
        name = f"{int(one.hash[:40], 16):016x}"
    except ValueError as error:
        raise UnreadableEvidence(ref.artifact, f"no hash of a communicator: {one.hash[:40]}") from error
    if not 0 <= one.size <= MOST_RANKS:
        raise UnreadableEvidence(ref.artifact, f"a communicator of {one.size} ranks")
    ranks = tuple(_rank(rank) for rank in one.ranks if 0 <= rank.rank < one.size)
    silent = [rank for rank in one.missing_ranks if 0 <= rank.rank < one.size]
    return RasCommunicator(
        hash=name,
        size=one.size,
        ranks=ranks,
        missing=tuple(_missing(rank) for rank in silent),
        dead=tuple(rank.rank for rank in silent if rank.status.considered_dead),
        status=_status(ranks, silent),
    )


def _rank(rank: _Rank) -> RasRank:
    status = rank.status
    error = next(
        (code for code in (status.init_state, status.async_error) if code not in (_DONE, _UNDER_WAY)), 0
    )
    return RasRank(
        rank=rank.rank,
        node=rank.host[:80] or None,
        pid=rank.pid if rank.pid >= 0 else None,
        gpu=rank.cuda_dev if rank.cuda_dev >= 0 else None,
        counts={kind[:40]: count for kind, count in rank.collective_counts.items()},
        state=_state(status),
        error=_RESULTS.get(error, f"ncclResult {error}") if error else None,
    )


def _state(status: _Status) -> str:
    """The word that the text report has for it."""
    if status.abort_flag:
        return "ABORT"
    if status.finalize_called or status.destroy_flag:
        return "FINALIZE"
    return "RUNNING" if status.init_state == _DONE else "INIT"


def _missing(rank: _Rank) -> RasRank:
    """``NOCOMM``: the process answers, and is no member yet, or no longer."""
    known = rank.host not in ("", "unknown")
    return RasRank(
        rank=rank.rank,
        node=rank.host[:80] if known else None,
        pid=rank.pid if rank.pid >= 0 else None,
        gpu=rank.cuda_dev if rank.cuda_dev >= 0 else None,
        state="" if rank.status.unresponsive or rank.status.considered_dead else "NOCOMM",
    )


def _status(ranks: tuple[RasRank, ...], missing: list[_Rank]) -> tuple[str, ...]:
    order = ("NOCOMM", "INIT", "RUNNING", "FINALIZE", "ABORT")
    states = {rank.state for rank in ranks}
    told = [max(states, key=order.index)] if states else []
    if any(rank.status.unresponsive or rank.status.considered_dead for rank in missing):
        told.append("INCOMPLETE")
    if any(rank.error for rank in ranks):
        told.append("ERROR")
    if len(states) > 1 or len({tuple(sorted(rank.counts.items())) for rank in ranks}) > 1:
        told.append("MISMATCH")
    return tuple(told)


FORM = FileForm(name="ras-json", title="NCCL RAS report (JSON)", recognise=recognise, read=read)

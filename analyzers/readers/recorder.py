"""``recorder/pid-N/fr_trace.json``, ``nccl_trace.json``: Flight Recorder from a worker server (schema 2.10).

The state of gloo operations always reads ``scheduled``; their only completion mark is ``retired``. ``pg_id``
is local to a rank: groups are told apart by the name in ``process_group``. The JSON has no frames, and the
values of ``pg_status`` are strings; both are left aside.

>>> sample = b'''{"version": "2.10", "entries": [
...  {"record_id": 0, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 1,
...   "profiling_name": "gloo:all_reduce", "time_created_ns": 5, "input_sizes": [[8]], "p2p_seq_id": 0,
...   "input_dtypes": ["Float"], "state": "scheduled", "retired": true, "is_p2p": false},
...  {"record_id": 1, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 2,
...   "profiling_name": "gloo:barrier", "state": "scheduled", "retired": false, "is_p2p": false}]}'''
>>> table = read(sample, "x")
>>> table.last_enqueued, table.last_completed, [(op.kind, op.sequence) for op in table.pending]
((('0', 2),), (('0', 1),), [('barrier', 2)])
"""

from __future__ import annotations

import msgspec

from hangscope.model.facts import Operation, Recorder, Ref

from .raw import decode


class _RawEntry(msgspec.Struct):
    process_group: list[str] = []
    pg_id: int | None = None
    collective_seq_id: int | None = None
    p2p_seq_id: int | None = None
    profiling_name: str = ""
    time_created_ns: int | None = None
    input_sizes: msgspec.Raw = msgspec.Raw(b"")
    input_dtypes: msgspec.Raw = msgspec.Raw(b"")
    state: str | None = None
    time_discovered_started_ns: int | None = None
    retired: bool | None = None
    is_p2p: bool | None = None


class _RawTrace(msgspec.Struct):
    entries: list[_RawEntry] | None = None


def read(data: bytes, path: str) -> Recorder:
    """Per group the newest entered, the newest completed and the oldest remembered sequence, and what is
    unfinished. Point-to-point operations count in a group of their own, ``<name>/p2p``. Sample set to 0."""
    raw = decode(data, _RawTrace, path)
    newest: dict[str, int] = {}
    completed: dict[str, int] = {}
    oldest: dict[str, int] = {}
    pending: list[Operation] = []
    for entry in raw.entries or ():
        operation = _operation(entry, path)
        group, sequence = operation.group, operation.sequence
        newest[group] = max(sequence, newest.get(group, sequence))
        oldest[group] = min(sequence, oldest.get(group, sequence))
        if finished(operation, entry.profiling_name):
            completed[group] = max(sequence, completed.get(group, sequence))
        else:
            pending.append(operation)
    pending.sort(key=lambda item: item.created_ns or 0)
    return Recorder(
        sample=0,
        groups=tuple(sorted(newest)),
        last_enqueued=tuple(sorted(newest.items())),
        last_completed=tuple(sorted(completed.items())),
        pending=tuple(pending),
        low_water=tuple(sorted(oldest.items())),
        timed=any(entry.time_discovered_started_ns for entry in raw.entries or ()),
        ref=Ref(path),
    )


def finished(operation: Operation, profiling_name: str) -> bool:
    """Gloo's state never changes, so there ``retired`` decides; elsewhere ``completed`` does."""
    if operation.state == "completed":
        return True
    return operation.retired and profiling_name.startswith("gloo:")


def _operation(raw: _RawEntry, path: str) -> Operation:
    p2p = bool(raw.is_p2p)
    name = raw.process_group[0] if raw.process_group else f"pg_id {raw.pg_id}"
    sequence = raw.p2p_seq_id if p2p else raw.collective_seq_id
    return Operation(
        group=f"{name}/p2p" if p2p else name,
        sequence=sequence if sequence is not None else -1,
        kind=raw.profiling_name.partition(":")[2] or raw.profiling_name,
        state=raw.state or "",
        retired=bool(raw.retired),
        created_ns=raw.time_created_ns or None,
        sizes=_compact(raw.input_sizes),
        dtype=_compact(raw.input_dtypes),
        p2p=p2p,
        ref=Ref(path),
    )


def _compact(value: msgspec.Raw) -> str | None:
    """The JSON text itself, without blanks: sizes are compared, never computed with."""
    text = bytes(value).decode("utf-8", "replace").replace(" ", "")
    return text[:200] if text and text not in ("null", "[]") else None

"""One shard's members, understood: the node, its processes, cells, artifacts and stack tables."""

from __future__ import annotations

from typing import Any, Literal, TypeVar, cast, get_args

import msgspec

from ..errors import BundleError, NewerFormat
from ..model.evidence import Artifact, Cell, NodeRecord, RawFrame, ScanRecord, Shard, Status
from . import layout, tarblocks
from .inflate import Limits, Members

NOTES = 200
"""Dropped members of a shard that are noted one by one."""

T = TypeVar("T")


class _CellRecord(msgspec.Struct, frozen=True):
    status: str
    reason: str | None = None
    seconds: float = 0.0
    wall: float | None = None
    monotonic: float | None = None
    artifacts: tuple[str, ...] = ()


class _Seal(msgspec.Struct, frozen=True):
    sealed: Literal[True]
    abandoned: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


class _Format(msgspec.Struct, frozen=True):
    format: str


def decode(data: bytes, kind: type[T], limits: Limits) -> tuple[T | None, str | None]:
    """JSON to a typed value: (value, None), or (None, why not) for any input."""
    if len(data) > limits.json_bytes:
        return None, f"larger than {limits.json_bytes} bytes"
    try:
        return msgspec.json.decode(data, type=kind), None
    except RecursionError:
        return None, "nested too deep"
    except (msgspec.MsgspecError, ValueError) as error:
        return None, str(error)[:200]


class _Open:
    """A cell whose status has not come yet."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, str, bytes, int]] = []
        """(path, name, data, mtime)"""


class ShardBuilder:
    """Takes members one by one; ``build`` gives the shard. A member that cannot be used is noted, never
    fatal: only NewerFormat is raised."""

    def __init__(self, name: str, limits: Limits) -> None:
        self._name = name
        self._limits = limits
        self._seen: set[str] = set()
        self._node: NodeRecord | None = None
        self._scan: ScanRecord | None = None
        self._seal: _Seal | None = None
        self._open: dict[str, _Open] = {}
        self._closed: set[str] = set()
        self._artifacts: list[Artifact] = []
        self._cells: list[Cell] = []
        self._frames: list[RawFrame] = []
        self._stacks: list[tuple[int, ...]] = []
        self._broken: set[str] = set()
        self._notes: list[str] = []
        self._dropped = 0
        self.strangers: list[str] = []
        """The first paths that have no place in a shard."""

    def take(self, header: tarblocks.Header, data: bytes | None) -> None:
        """One member as ``Members`` delivers it."""
        path = header.name.decode("ascii", "backslashreplace")
        place = layout.place_of(path)
        if header.kind not in tarblocks.REGULAR:
            self._drop(path, tarblocks.TYPE_NAMES.get(header.kind, "no regular file"))
        elif place is None:
            self.strangers += [path][: 5 - len(self.strangers)]
            self._drop(path, "has no place in a shard")
        elif path in self._seen and place.top != layout.PROCESSES:
            self._drop(path, "occurs twice")
        else:
            self._seen.add(path)
            if place.collector is not None:
                self._take_cell(path, place, data, header)
            elif data is None:
                self._drop(path, "cut or too large")
                self._broken.update([place.table] if place.table else [])
            elif place.table is not None:
                self._take_table(path, place, data)
            else:
                self._take_top(path, data)

    def build(self, problem: str | None) -> Shard:
        """The shard as far as it was taken; ``problem`` is why the stream ended early."""
        self._close_open_cells()
        sealed = self._seal is not None
        if not sealed and problem is None:
            problem = "the agent did not finish"
        if sealed and problem is not None and not problem.startswith("limit"):
            self._notes.append(f"behind the seal: {problem}")
            problem = None
        if self._dropped > NOTES:
            self._notes.append(f"{self._dropped - NOTES} more members dropped")
        return Shard(
            name=self._name,
            node=self._node,
            scan=self._scan,
            artifacts=tuple(self._artifacts),
            cells=tuple(self._cells),
            frames=tuple(self._frames),
            stacks=tuple(self._stacks),
            sealed=sealed,
            problem=problem,
            abandoned=self._seal.abandoned if self._seal else (),
            notes=tuple(self._notes) + (self._seal.notes if self._seal else ()),
        )

    def _drop(self, path: str, why: str) -> None:
        self._dropped += 1
        if self._dropped <= NOTES:
            self._notes.append(f"dropped {ascii(path)[1:-1][:120]}: {why}")

    def _take_top(self, path: str, data: bytes) -> None:
        if path == layout.NODE:
            found, _ = decode(data, _Format, self._limits)
            try:
                layout.check_format(found.format if found else None)
            except NewerFormat:
                raise
            except BundleError as error:
                self._drop(path, error.why or error.what)
                return
            self._node = self._decoded(path, data, NodeRecord)
        elif path == layout.PROCESSES:
            self._scan = self._decoded(path, data, ScanRecord) or self._scan
        else:
            self._seal = self._decoded(path, data, _Seal)

    def _decoded(self, path: str, data: bytes, kind: type[T]) -> T | None:
        value, why = decode(data, kind, self._limits)
        if why is not None:
            self._drop(path, why)
        return value

    def _take_table(self, path: str, place: layout.Place, data: bytes) -> None:
        """Continues a table; its first defect ends it, since every later index would mean another entry."""
        table = place.table or ""
        kind: Any = list[RawFrame] if table == "frames" else list[tuple[int, ...]]
        size = len(self._frames if table == "frames" else self._stacks)
        part: list[Any] | None = None
        if table in self._broken or place.first != size:
            self._drop(path, "does not continue its table")
        else:
            part = self._decoded(path, data, kind)
        if part is None or size + len(part) > self._limits.table_entries:
            self._broken.add(table)
        elif table == "frames":
            self._frames += part
        else:
            self._add_stacks(path, part)

    def _add_stacks(self, path: str, part: list[tuple[int, ...]]) -> None:
        known = len(self._frames)
        for stack in part:
            if stack and not (min(stack) >= 0 and max(stack) < known):
                self._drop(path, "names a frame that is not in the table")
                self._broken.add("stacks")
                return
            self._stacks.append(stack)

    def _take_cell(
        self, path: str, place: layout.Place, data: bytes | None, header: tarblocks.Header
    ) -> None:
        folder = path.rpartition("/")[0]
        if folder in self._closed:
            self._drop(path, "came after its cell's status")
            return
        cell = self._open.setdefault(folder, _Open())
        if data is None:
            if header.size > self._limits.member_bytes:
                self._drop(path, "too large")
        elif place.name != layout.STATUS:
            cell.parts.append((path, place.name, data, header.mtime))
        else:
            record = self._decoded(path, data, _CellRecord)
            if record is None:
                record = _CellRecord("error", "its status cannot be read")
            self._close(folder, place, record)

    def _close(self, folder: str, place: layout.Place, record: _CellRecord) -> None:
        """Turns an open cell into a ``Cell`` and its artifacts."""
        status, reason = record.status, record.reason
        parts = self._open.pop(folder).parts
        self._closed.add(folder)
        lost = [name for name in record.artifacts if name not in {part[1] for part in parts}]
        if status not in get_args(Status):
            status, reason = "error", f"unknown status {ascii(status)[:40]}"
        elif lost and status == "ok":
            status, reason = "partial", f"the bundle lacks {ascii(lost[0])[1:-1][:60]}"
        elif status != "ok" and reason is None:
            reason = "no reason given"
        collector, sample, pid = place.collector or "", place.sample, place.pid
        for path, name, data, mtime in parts:
            wall = float(mtime) if record.wall is None else record.wall
            monotonic = self._monotonic(wall) if record.monotonic is None else record.monotonic
            self._artifacts.append(
                Artifact(
                    path=f"{self._name}!{path}",
                    node=self._name,
                    collector=collector,
                    sample=sample,
                    pid=pid,
                    name=name,
                    wall=wall,
                    monotonic=monotonic,
                    data=data,
                )
            )
        self._cells.append(
            Cell(
                node=self._name,
                collector=collector,
                sample=sample,
                pid=pid,
                status=cast(Status, status),
                reason=reason,
                seconds=record.seconds,
            )
        )

    def _close_open_cells(self) -> None:
        reason = layout.STREAM_CUT if self._seal is None else "its status is missing"
        for folder in list(self._open):
            place = layout.place_of(f"{folder}/{layout.STATUS}")
            if place is not None:
                self._close(folder, place, _CellRecord("partial", reason))

    def _monotonic(self, wall: float) -> float:
        """The node's monotonic clock at a wall time, by the pair that its record holds."""
        return wall if self._node is None else self._node.monotonic + (wall - self._node.wall)


def read_shard(name: str, members: Members, limits: Limits) -> tuple[Shard, list[str]]:
    """Reads a shard to its end or its first damage. Returns it and the first paths that had no place in it.

    Raises NewerFormat.
    """
    builder = ShardBuilder(name, limits)
    for header, data in members:
        builder.take(header, data)
    return builder.build(members.problem), builder.strangers

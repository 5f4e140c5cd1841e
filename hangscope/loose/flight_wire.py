"""Flight records on their way from a reading process: what many ranks share is sent once, and is one object
here."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from ..model.facts import Frame
from ..model.loose import FlightRecord, GroupRecord, RecordedOperation
from .interface import Unread

Place = tuple[Frame, ...]
Members = tuple[int, ...]
T = TypeVar("T")


class _Operation(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Texts and the place are numbers in the tables."""

    sequence: int
    kind: int
    state: int
    finished: bool
    p2p: bool
    source: int | None
    target: int | None
    sizes: int
    dtype: int
    created_ns: int | None
    started_ns: int | None
    place: int


class _Group(msgspec.Struct, array_like=True, frozen=True, gc=False):
    name: int
    desc: int
    members: int
    enqueued: int | None
    started: int | None
    completed: int | None
    low_water: int | None
    aligned: bool
    operations: list[_Operation]


class _Answer(msgspec.Struct, array_like=True, frozen=True):
    """A record without its groups, its groups, and what is new in the tables."""

    unread: Unread | None = None
    record: FlightRecord | None = None
    groups: list[_Group] = []
    texts: list[str] = []
    places: list[Place] = []
    members: list[Members] = []


class _Numbers:
    """Numbers values as they come; 0 is None."""

    def __init__(self) -> None:
        self._known: dict[object, int] = {None: 0}
        self.new: list[object] = []

    def of(self, value: object) -> int:
        number = self._known.get(value)
        if number is None:
            number = self._known[value] = len(self._known)
            self.new.append(value)
        return number

    def taken(self) -> list[object]:
        new, self.new = self.new, []
        return new


class Packer:
    """The sender's tables."""

    def __init__(self) -> None:
        self._texts, self._places, self._members = _Numbers(), _Numbers(), _Numbers()
        self._encoder = msgspec.msgpack.Encoder()

    def packed(self, found: FlightRecord | Unread) -> bytes:
        """One answer; its numbers refer to all answers before it."""
        if isinstance(found, Unread):
            return self._encoder.encode(_Answer(unread=found))
        groups = [self._group(group) for group in found.groups]
        bare = msgspec.structs.replace(found, groups=())
        tables = (self._texts.taken(), self._places.taken(), self._members.taken())
        return self._encoder.encode((None, bare, groups, *tables))

    def _group(self, group: GroupRecord) -> _Group:
        text = self._texts.of
        return _Group(
            text(group.name),
            text(group.desc),
            self._members.of(group.members),
            group.enqueued,
            group.started,
            group.completed,
            group.low_water,
            group.aligned,
            [
                _Operation(
                    item.sequence,
                    text(item.kind),
                    text(item.state),
                    item.finished,
                    item.p2p,
                    item.source,
                    item.target,
                    text(item.sizes),
                    text(item.dtype),
                    item.created_ns,
                    item.started_ns,
                    self._places.of(item.place),
                )
                for item in group.operations
            ],
        )


_texts: dict[str, str] = {}
_places: dict[Place, Place] = {}
_members: dict[Members, Members] = {}
"""One object for equal values of all senders."""


class Unpacker:
    """The receiver's tables for one sender."""

    def __init__(self) -> None:
        self._texts: list[str] = [""]
        self._places: list[Place] = [()]
        self._members: list[Members | None] = [None]
        self._decoder = msgspec.msgpack.Decoder(_Answer)

    def unpacked(self, data: bytes) -> FlightRecord | Unread:
        """What was packed. Raises msgspec.DecodeError when it is none of ours."""
        answer = self._decoder.decode(data)
        if answer.record is None:
            return answer.unread or Unread("", "no answer")
        self._texts += [_texts.setdefault(text, text) for text in answer.texts]
        self._places += [_places.setdefault(place, place) for place in answer.places]
        self._members += [_members.setdefault(ranks, ranks) for ranks in answer.members]
        groups = tuple(self._group(group) for group in answer.groups)
        return msgspec.structs.replace(answer.record, groups=groups)

    def _group(self, group: _Group) -> GroupRecord:
        return GroupRecord(
            name=self._texts[group.name],
            desc=self._texts[group.desc],
            members=self._members[group.members],
            enqueued=group.enqueued,
            started=group.started,
            completed=group.completed,
            low_water=group.low_water,
            aligned=group.aligned,
            operations=tuple(self._operation(item) for item in group.operations),
        )

    def _operation(self, item: _Operation) -> RecordedOperation:
        texts = self._texts
        return RecordedOperation(
            sequence=item.sequence,
            kind=texts[item.kind],
            state=texts[item.state],
            finished=item.finished,
            p2p=item.p2p,
            source=item.source,
            target=item.target,
            sizes=texts[item.sizes] if item.sizes else None,
            dtype=texts[item.dtype] if item.dtype else None,
            created_ns=item.created_ns,
            started_ns=item.started_ns,
            place=self._places[item.place],
        )

"""The fast way over the entries of a Flight Recorder pickle: what looks like an entry before it is not
executed.

c10d's pickler writes an entry as ``}(`` key value key value … ``u``; keys, names and frames that were written
before are two or five bytes that refer to the memo. Once one entry has been executed opcode by opcode, its
keys' memo numbers are known, and all entries that bring nothing new match one regular expression of fixed
pieces (``Template``); what brings something new (a call site seen for the first time) does not match, and is
executed.

A program repeats itself, and so do its entries, but for their counts and times: ``Shape`` is an entry with
holes where those stand, one comparison of two large integers, and remembers which shape came next the last
time.

A match is as safe as executing: every byte of the entry is accounted for, and references are looked up later.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

_NUMBER = rb"(K.|M..|J.{4}|\x8a\x08.{8}|N)"
_DOUBLE = rb"(G.{8})"
_REFERENCE = rb"(h.|j.{4})"
_PAIR = rb"((?:h.|j.{4}){2}\x86)"
_BOOL = rb"([\x88\x89])"
_SIZES = rb"\]\((?:\]\((?:K.|M..|J.{4}|\x8a\x08.{8})*e)*e"
_REFERENCES = rb"\]\((?:h.|j.{4})*e"

SCALARS: Mapping[str, bytes] = {
    "record_id": _NUMBER,
    "id": _NUMBER,
    "pg_id": _NUMBER,
    "process_group": _PAIR,
    "thread_name": _REFERENCE,
    "thread_id": _REFERENCE,
    "collective_seq_id": _NUMBER,
    "seq_id": _NUMBER,
    "p2p_seq_id": _NUMBER,
    "op_id": _NUMBER,
    "profiling_name": _REFERENCE,
    "time_created_ns": _NUMBER,
    "duration_ms": _DOUBLE,
    "state": _REFERENCE,
    "time_discovered_started_ns": _NUMBER,
    "time_discovered_completed_ns": _NUMBER,
    "retired": _BOOL,
    "timeout_ms": _NUMBER,
    "is_p2p": _BOOL,
}
"""How the value of a key looks when everything in it was seen before."""

SPANS: Mapping[str, bytes] = {
    "frames": _REFERENCES,
    "input_sizes": _SIZES,
    "input_dtypes": _REFERENCES,
    "output_sizes": _SIZES,
    "output_dtypes": _REFERENCES,
}
"""The long values: found by what stands behind them, and looked at once."""

TELLING = ("process_group", "profiling_name", "state", "retired")
"""Entries that are equal in these are kept together."""
COUNTERS = ("collective_seq_id", "seq_id")
LONGEST_SPAN = 1 << 14
MOST_SHAPES = 1 << 12
_TRIES = 4

Seen = tuple[int, int, "Shape"]
"""One entry: place in the ring, position in the data, shape."""

Keep = Callable[[Seen], None]
Kind = Callable[[int], Keep]
"""Gets the position of the first entry of its kind, and returns what takes all of them."""


class Values(msgspec.Struct, frozen=True):
    """One entry, its values still bytes; ``end`` is behind it."""

    spans: tuple[bytes, ...]
    scalars: tuple[re.Match[bytes], ...]
    end: int


class Shape:
    """An entry with holes: ``length`` bytes that, without the holes, read as a little-endian integer are
    ``value``."""

    __slots__ = ("following", "keep", "length", "mask", "number", "value")

    def __init__(
        self, data: bytes, holes: Mapping[str, tuple[int, int]], number: str | None, keep: Keep
    ) -> None:
        mask = bytearray(b"\xff" * len(data))
        for start, end in holes.values():
            mask[start:end] = bytes(end - start)
        self.length = len(data)
        self.mask = int.from_bytes(mask, "little")
        self.value = int.from_bytes(data, "little") & self.mask
        self.keep = keep
        self.number = holes[number] if number is not None and holes[number][0] < holes[number][1] else None
        """Where the collective's number stands, from the start of the entry: the operand of its opcode."""
        self.following: Shape | None = None


class _Part(msgspec.Struct, frozen=True):
    """A stretch of an entry: a span, what stands behind it, and the scalars that follow."""

    span: re.Pattern[bytes]
    behind: bytes
    """The ``e`` that ends the span's last list, and the next key; without a span the next key alone."""
    whole: int
    """How many bytes of ``behind`` belong to the span."""
    scalars: re.Pattern[bytes]
    keys: tuple[str, ...]
    """Of the scalars, as they are captured."""


class Template:
    """The entries with these keys, in this order."""

    def __init__(self, keys: Sequence[str], numbers: Mapping[str, int]) -> None:
        """``numbers``: memo number of each key. Raises KeyError where a key is not known or not in the
        memo."""
        self.keys = tuple(keys)
        self._parts: list[_Part] = []
        self._checked: set[bytes] = set()
        self._shapes: dict[tuple[int, int, int], Shape] = {}
        self._kinds: dict[tuple[bytes, ...], Keep] = {}
        refers = [reference(numbers[key]) for key in keys]
        place, opening = 0, b"}("
        while place < len(keys):
            spans = _while(keys, place, SPANS)
            scalars = _while(keys, spans, SCALARS)
            if scalars == place:
                raise KeyError(keys[place])
            span = re.escape(opening) + b"".join(
                re.escape(refers[at]) + SPANS[keys[at]] for at in range(place, spans)
            )
            values = b"".join(re.escape(refers[at]) + SCALARS[keys[at]] for at in range(spans, scalars))
            whole = 1 if spans > place else 0
            behind = b"e"[:whole] + (refers[spans] if spans < len(keys) else b"u")
            last = b"u" if scalars == len(keys) else b""
            told = tuple(keys[spans:scalars])
            self._parts.append(_Part(_compiled(span), behind, whole, _compiled(values + last), told))
            place, opening = scalars, b""

    def run(self, data: bytes, position: int, index: int, kind: Kind) -> tuple[int, int]:
        """Gives the entries from ``position`` on to what takes those of their kind; returns the position and
        the place in the ring behind the last."""
        shape: Shape | None = None
        value = int.from_bytes
        while True:
            like = shape.following if shape is not None else None
            if (
                like is not None
                and value(data[position : position + like.length], "little") & like.mask == like.value
            ):
                like.keep((index, position, like))
                position += like.length
                shape = like
            else:
                values = self.at(data, position)
                if values is None:
                    return position, index
                learned = self._shape(data, position, values, kind)
                learned.keep((index, position, learned))
                if shape is not None:
                    shape.following = learned
                position = values.end
                shape = learned
            index += 1

    def forget(self) -> None:
        """Lets go of the shapes, which refer to one another in circles."""
        for shape in self._shapes.values():
            shape.following, shape.keep = None, _forgotten
        self._shapes.clear()
        self._kinds.clear()

    def at(self, data: bytes, position: int) -> Values | None:
        """The entry at ``position``; None when it is not of this template."""
        spans: list[bytes] = []
        scalars: list[re.Match[bytes]] = []
        for part in self._parts:
            end = data.find(part.behind, position, position + LONGEST_SPAN) + part.whole
            if data[position:end] not in self._checked:
                end = self._check(part, data, position)
            found = part.scalars.match(data, end)
            if found is None:
                return None
            spans.append(data[position:end])
            scalars.append(found)
            position = found.end()
        return Values(tuple(spans), tuple(scalars), position)

    def scalars(self, values: Values) -> dict[str, bytes]:
        """The bytes of all scalars, by key."""
        pairs: dict[str, bytes] = {}
        for part, found in zip(self._parts, values.scalars, strict=True):
            pairs.update(zip(part.keys, found.groups(), strict=True))
        return pairs

    def _shape(self, data: bytes, position: int, values: Values, kind: Kind) -> Shape:
        told = tuple(value for key, value in self.scalars(values).items() if key in TELLING)
        keep = self._kinds.get(told)
        if keep is None:
            keep = self._kinds[told] = kind(position)
        holes = self._holes(values, position)
        counter = next((key for key in COUNTERS if key in holes), None)
        shape = Shape(data[position : values.end], holes, counter, keep)
        if len(self._shapes) >= MOST_SHAPES:
            return shape
        return self._shapes.setdefault((shape.length, shape.mask, shape.value), shape)

    def _holes(self, values: Values, position: int) -> dict[str, tuple[int, int]]:
        """Where numbers stand in the entry, without the opcodes that say how long they are."""
        holes = {}
        for part, found in zip(self._parts, values.scalars, strict=True):
            for captured, key in enumerate(part.keys, start=1):
                if SCALARS[key] in (_NUMBER, _DOUBLE):
                    start, end = found.span(captured)
                    start += 2 if found.group(captured).startswith(b"\x8a") else 1
                    holes[key] = (start - position, end - position)
        return holes

    def _check(self, part: _Part, data: bytes, position: int) -> int:
        """Where the span at ``position`` ends, after a look at every byte of it; behind the data when it is
        none. What ends a span can stand inside a reference, too."""
        end = position
        for _ in range(_TRIES):
            end = data.find(part.behind, end, position + LONGEST_SPAN)
            if end < 0:
                break
            end += part.whole
            if part.span.fullmatch(data, position, end) is not None:
                self._checked.add(data[position:end])
                return end
        return len(data)


def _forgotten(_: Seen) -> None:
    """What a shape gives its entries to when nobody takes them any more."""


def _while(keys: Sequence[str], place: int, forms: Mapping[str, bytes]) -> int:
    while place < len(keys) and keys[place] in forms:
        place += 1
    return place


@functools.lru_cache(maxsize=512)
def _compiled(pattern: bytes) -> re.Pattern[bytes]:
    """A job's ranks have the same few patterns; compiling one takes as long as half a dump."""
    return re.compile(pattern, re.DOTALL)


def reference(number: int) -> bytes:
    """How c10d's pickler refers to a memo number."""
    return b"h%c" % number if number < 256 else b"j" + number.to_bytes(4, "little")


def number(raw: bytes) -> int | None:
    """The value of an integer opcode; None for ``N``."""
    code = raw[0]
    if code == 0x4B or code == 0x4D:
        return int.from_bytes(raw[1:], "little")
    if code == 0x4E:
        return None
    return int.from_bytes(raw[1:] if code == 0x4A else raw[2:], "little", signed=True)


def references(raw: bytes) -> list[int]:
    """Memo numbers in a run of references."""
    numbers = []
    place = 0
    while place < len(raw):
        code = raw[place]
        if code == 0x68:
            numbers.append(raw[place + 1])
            place += 2
        elif code == 0x6A:
            numbers.append(int.from_bytes(raw[place + 1 : place + 5], "little"))
            place += 5
        else:
            place += 1
    return numbers

"""Writes values as torch's own pickler does (torch/csrc/jit/serialization/pickler.cpp): opcode for opcode.

``record_flight_dumps.py`` holds it to that: each real dump, read and written again, is the same bytes.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from typing import Any


class FrameDict(dict[str, Any]):
    """A frame of the recorder. One that stands in several places is remembered, by identity; a lone one is
    not."""

    lone = False


class C10dPickler:
    """One pickle. ``data`` is what was written so far."""

    def __init__(self) -> None:
        self.data = bytearray(b"\x80\x02")
        self._strings: dict[str, int] = {}
        self._frames: dict[int, int] = {}
        self._next = 0

    def finished(self) -> bytes:
        """The pickle, ended. The whole dump is shared too: its caller still holds it."""
        self._put()
        return bytes(self.data) + b"."

    def copy(self) -> C10dPickler:
        """Another one that goes on from here."""
        other = C10dPickler()
        other.data = bytearray(self.data)
        other._strings, other._frames, other._next = dict(self._strings), dict(self._frames), self._next
        return other

    def memo(self, words: Iterable[str]) -> tuple[object, ...]:
        """Where the memo stands, and its numbers for these words: two picklers with equal ones go on
        equally."""
        return (self._next, *(self._strings.get(word) for word in words))

    def push(self, value: Any) -> None:
        """A value, with all that is in it."""
        data = self.data
        if value is None:
            data += b"N"
        elif value is True or value is False:
            data += b"\x88" if value else b"\x89"
        elif isinstance(value, str):
            self._string(value)
        elif isinstance(value, int):
            data += _integer(value)
        elif isinstance(value, float):
            data += b"G" + struct.pack(">d", value)
        elif isinstance(value, tuple):
            self._tuple(value)
        elif isinstance(value, list):
            data += b"]("
            for item in value:
                self.push(item)
            data += b"e"
        elif isinstance(value, FrameDict):
            self._frame(value)
        else:
            self.open_dict()
            for key, item in value.items():
                self.push(key)
                self.push(item)
            data += b"u"

    def open_dict(self) -> None:
        """The start of a dict, for those who push keys and values themselves and end it with ``u``."""
        self.data += b"}("

    def _string(self, value: str) -> None:
        number = self._strings.get(value)
        if number is not None:
            self._get(number)
            return
        encoded = value.encode()
        self.data += b"X" + struct.pack("<I", len(encoded)) + encoded
        self._strings[value] = self._put()

    def _frame(self, value: FrameDict) -> None:
        number = self._frames.get(id(value))
        if number is not None:
            self._get(number)
            return
        self.push(dict(value))
        if not value.lone:
            self._frames[id(value)] = self._put()

    def _tuple(self, value: tuple[Any, ...]) -> None:
        if len(value) > 3:
            self.data += b"("
        for item in value:
            self.push(item)
        self.data += {0: b")", 1: b"\x85", 2: b"\x86", 3: b"\x87"}.get(len(value), b"t")

    def _put(self) -> int:
        number, self._next = self._next, self._next + 1
        self.data += b"q" + bytes([number]) if number < 256 else b"r" + struct.pack("<I", number)
        return number

    def _get(self, number: int) -> None:
        self.data += b"h" + bytes([number]) if number < 256 else b"j" + struct.pack("<I", number)


def _integer(value: int) -> bytes:
    if 0 <= value < 1 << 8:
        return b"K" + bytes([value])
    if 0 <= value < 1 << 16:
        return b"M" + struct.pack("<H", value)
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x08" + struct.pack("<q", value)


def pickled(value: Any) -> bytes:
    """One value as a whole pickle."""
    pickler = C10dPickler()
    pickler.push(value)
    return pickler.finished()


def shared_frames(dump: dict[str, Any]) -> dict[str, Any]:
    """The dump with its frames as the recorder has them: one object for each (function, file, line)."""
    known: dict[tuple[Any, ...], FrameDict] = {}
    counts: Counter[tuple[Any, ...]] = Counter()
    for entry in dump.get("entries", []):
        if "frames" in entry:
            keys = [tuple(frame.values()) for frame in entry["frames"]]
            counts.update(keys)
            entry["frames"] = [
                known.setdefault(key, FrameDict(frame))
                for key, frame in zip(keys, entry["frames"], strict=True)
            ]
    for key, frame in known.items():
        frame.lone = counts[key] == 1
    return dump

"""Executes the opcodes of a pickle that make plain data, and no others: no class, no call, no attribute.

torch's own pickler (torch/csrc/jit/serialization/pickler.cpp) writes protocol 2 with some fifteen opcodes; a
dump that Python wrote again (protocols 2 to 5) needs a few more. Lists, tuples, dicts with string keys,
strings, numbers, None and bools: whatever else is asked for ends in UnreadableEvidence, before anything is
looked up.

Costs are bounded: steps (each makes one object at most), memo, depth. Lengths are those of the bytes at hand,
never those announced. The entries of the ring are handed to the handler one by one and forgotten."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Protocol

from hangscope.errors import UnreadableEvidence

MOST_STEPS = 3_000_000
MOST_MEMO = 1_000_000
MOST_DEPTH = 64
FORBIDDEN = {
    ord("c"): "GLOBAL",
    0x93: "STACK_GLOBAL",
    ord("R"): "REDUCE",
    ord("b"): "BUILD",
    ord("i"): "INST",
    ord("o"): "OBJ",
    0x81: "NEWOBJ",
    0x92: "NEWOBJ_EX",
    0x82: "EXT1",
    0x83: "EXT2",
    0x84: "EXT4",
    ord("P"): "PERSID",
    ord("Q"): "BINPERSID",
    0x97: "NEXT_BUFFER",
    0x98: "READONLY_BUFFER",
}


class Cut(Exception):
    """The bytes end, or stop making sense, at this place."""


class Handler(Protocol):
    """What becomes of the ring's entries."""

    def executed(self, value: dict[str, Any]) -> None:
        """An entry, made opcode by opcode."""

    def ahead(self, position: int) -> int:
        """May take over where an entry starts; returns the position behind what it took (the same:
        nothing)."""


class PlainPickle:
    """One pickle. ``strings`` gives the memo number of a string, ``memo`` what stands under a number."""

    def __init__(self, data: bytes, path: str, memo: dict[int, Any] | None = None) -> None:
        self.data, self.path = data, path
        self.position = 0
        self.memo: dict[int, Any] = {} if memo is None else memo
        self.strings: dict[str, int] = {}
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._entries: list[Any] | None = None
        self._handler: Handler | None = None

    def run(self, handler: Handler | None = None) -> tuple[Any, str | None]:
        """The object, and why it ends early if it does: then it is what stands on the stack, pairs as a dict.
        With a handler the list of entries stays empty: they are given to it."""
        self._handler = handler
        try:
            return self._run()
        finally:
            self._handler = None

    def _run(self) -> tuple[Any, str | None]:
        data, stack, memo = self.data, self._stack, self.memo
        try:
            for _ in range(MOST_STEPS):
                position = self.position
                code = data[position]
                if code == 0x68:  # BINGET, half of all
                    stack.append(memo[data[position + 1]])
                    self.position = position + 2
                elif code == 0x4B:  # BININT1
                    stack.append(data[position + 1])
                    self.position = position + 2
                elif code == 0x2E:  # STOP
                    return (stack[-1] if stack else None), None
                else:
                    self.position = position + 1
                    step = _STEPS.get(code)
                    if step is None:
                        self._refuse(code)
                    else:
                        step[0](self, step[1])
        except (Cut, IndexError, struct.error, TypeError, KeyError) as error:
            cut = isinstance(error, Cut) or self.position > len(self.data)
            reason = str(error) if isinstance(error, Cut) else "the bytes end" if cut else "damaged"
            return (
                self._unfinished(),
                f"{reason} at byte {min(self.position, len(self.data))} of {len(self.data)}",
            )
        raise UnreadableEvidence(self.path, f"the pickle has more than {MOST_STEPS} steps")

    def _refuse(self, code: int) -> None:
        if code in FORBIDDEN:
            raise UnreadableEvidence(
                self.path,
                f"the pickle asks for code ({FORBIDDEN[code]} at byte {self.position - 1}): not executed",
            )
        raise Cut(f"no known opcode (0x{code:02x})")

    def _unfinished(self) -> Any:
        """What had been read of the outermost dict: keys and values stand on the stack behind its mark."""
        if not self._marks or not self._stack or not isinstance(self._stack[0], dict):
            return self._stack[0] if self._stack else None
        result = dict(self._stack[0])
        behind = self._stack[self._marks[0] :]
        for key, value in zip(behind[::2], behind[1::2], strict=False):
            if isinstance(key, str):
                result[key] = value
        return result

    # what the opcodes are made of

    def _byte(self) -> int:
        position = self.position
        self.position = position + 1
        return self.data[position]

    def _take(self, size: int) -> bytes:
        start = self.position
        if size < 0 or start + size > len(self.data):
            raise Cut("the bytes end")
        self.position = start + size
        return self.data[start : self.position]

    def _put(self, index: int) -> None:
        if len(self.memo) >= MOST_MEMO:
            raise UnreadableEvidence(self.path, f"the pickle remembers more than {MOST_MEMO} objects")
        value = self.memo[index] = self._stack[-1]
        if type(value) is str:
            self.strings.setdefault(value, index)

    def _behind_mark(self) -> list[Any]:
        start = self._marks.pop()
        values = self._stack[start:]
        del self._stack[start:]
        return values

    # opcodes: each gets the number beside it in the table

    def proto(self, newest: int) -> None:
        if self._byte() > newest:
            raise Cut(f"a pickle protocol newer than {newest}")

    def skip(self, size: int) -> None:
        self._take(size)

    def mark(self, _: int) -> None:
        if len(self._marks) >= MOST_DEPTH:
            raise UnreadableEvidence(self.path, f"the pickle nests deeper than {MOST_DEPTH}")
        self._marks.append(len(self._stack))

    def empty_dict(self, _: int) -> None:
        if self._handler is not None and self._at_entry():
            behind = self._handler.ahead(self.position - 1)
            if behind != self.position - 1:
                self.position = behind
                return
        self._stack.append({})

    def _at_entry(self) -> bool:
        """Nothing stands behind the mark of the list of entries."""
        stack, marks = self._stack, self._marks
        return bool(marks) and marks[-1] == len(stack) > 0 and stack[-1] is self._entries

    def empty_list(self, _: int) -> None:
        made: list[Any] = []
        if self._entries is None and self._handler is not None and len(self._marks) <= 1:
            ring = self._stack[-1] == "entries" if self._stack else True
            self._entries = made if ring else None
        self._stack.append(made)

    def constant(self, number: int) -> None:
        self._stack.append((None, True, False, ())[number])

    def unsigned(self, size: int) -> None:
        self._stack.append(int.from_bytes(self._take(size), "little"))

    def signed(self, size: int) -> None:
        self._stack.append(int.from_bytes(self._take(size), "little", signed=True))

    def long(self, most: int) -> None:
        size = self._byte()
        if size > most:
            raise Cut(f"a number of more than {most} bytes")
        self.signed(size)

    def double(self, size: int) -> None:
        self._stack.append(struct.unpack(">d", self._take(size))[0])

    def text(self, size: int) -> None:
        length = int.from_bytes(self._take(size), "little")
        self._stack.append(self._take(length).decode("utf-8", "replace"))

    def put(self, size: int) -> None:
        self._put(int.from_bytes(self._take(size), "little"))

    def memoize(self, _: int) -> None:
        self._put(len(self.memo))

    def get(self, size: int) -> None:
        self._stack.append(self.memo[int.from_bytes(self._take(size), "little")])

    def tuple_of_mark(self, _: int) -> None:
        self._stack.append(tuple(self._behind_mark()))

    def tuple_of(self, size: int) -> None:
        if len(self._stack) < size:
            raise Cut("a tuple of too few")
        values = tuple(self._stack[-size:])
        del self._stack[-size:]
        self._stack.append(values)

    def append(self, _: int) -> None:
        value = self._stack.pop()
        self._extend([value])

    def appends(self, _: int) -> None:
        self._extend(self._behind_mark())

    def _extend(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise Cut("a value appended to what is no list")
        if target is not self._entries:
            target.extend(values)
            return
        for value in values:
            self._entry(value)

    def set_item(self, _: int) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._update([key, value])

    def set_items(self, _: int) -> None:
        self._update(self._behind_mark())
        stack, marks = self._stack, self._marks
        if len(stack) > 1 and stack[-2] is self._entries and marks and marks[-1] == len(stack) - 1:
            self._entry(stack.pop())

    def _update(self, pairs: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not dict:
            raise Cut("a key set in what is no dict")
        for key, value in zip(pairs[::2], pairs[1::2], strict=False):
            if type(key) is not str:
                raise Cut("a key that is no string")
            target[key] = value

    def _entry(self, value: Any) -> None:
        if type(value) is dict and self._handler is not None:
            self._handler.executed(value)


_STEPS: dict[int, tuple[Callable[[PlainPickle, int], None], int]] = {
    0x80: (PlainPickle.proto, 5),
    0x95: (PlainPickle.skip, 8),
    ord("("): (PlainPickle.mark, 0),
    ord("}"): (PlainPickle.empty_dict, 0),
    ord("]"): (PlainPickle.empty_list, 0),
    ord("N"): (PlainPickle.constant, 0),
    0x88: (PlainPickle.constant, 1),
    0x89: (PlainPickle.constant, 2),
    ord(")"): (PlainPickle.constant, 3),
    ord("M"): (PlainPickle.unsigned, 2),
    ord("J"): (PlainPickle.signed, 4),
    0x8A: (PlainPickle.long, 16),
    ord("G"): (PlainPickle.double, 8),
    0x8C: (PlainPickle.text, 1),
    ord("X"): (PlainPickle.text, 4),
    0x8D: (PlainPickle.text, 8),
    ord("q"): (PlainPickle.put, 1),
    ord("r"): (PlainPickle.put, 4),
    0x94: (PlainPickle.memoize, 0),
    ord("j"): (PlainPickle.get, 4),
    ord("t"): (PlainPickle.tuple_of_mark, 0),
    0x85: (PlainPickle.tuple_of, 1),
    0x86: (PlainPickle.tuple_of, 2),
    0x87: (PlainPickle.tuple_of, 3),
    ord("a"): (PlainPickle.append, 0),
    ord("e"): (PlainPickle.appends, 0),
    ord("s"): (PlainPickle.set_item, 0),
    ord("u"): (PlainPickle.set_items, 0),
}
"""The rest of what is executed: BINGET, BININT1 and STOP are in the loop."""

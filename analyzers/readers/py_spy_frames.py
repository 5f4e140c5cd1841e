r"""One line of py-spy's text → a frame; the blocks of ``--locals``; C++ symbols that a terminal has wrapped.

>>> frame = frame_of("    Feed.next_batch (job/train.py:12)")
>>> frame.function, frame.file, frame.line, frame.library
('Feed.next_batch', 'job/train.py', 12, None)
>>> frame_of("    c10d::Work::wait (libtorch_cpu.so)").library, frame_of("    main ()").file
('libtorch_cpu.so', '')
>>> frame_of("Saved the model (step 12)") is None
True
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangscope.model.facts import Frame

from .interface import Line

LONGEST = 500
"""Characters of a function's name that are kept."""
MOST_ROWS = 40
"""Rows over which one symbol may be wrapped."""

_PLACE = re.compile(r"(?P<file>.{1,1000}):(?P<line>\d{1,9})")
_SOURCE_OF_C = (".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".cu", ".cuh", ".S", ".s", ".rs", ".inl")
_LIBRARY = re.compile(r"\?|(?:[\w.+@~/-]{1,400})")
_PLAIN_NAME = re.compile(r"[\w.<>\[\]]{1,400}")
_END_OF_SYMBOL = re.compile(r" \((?:[\w.+@~/-]{0,300}\.so[\w.]{0,40}|\?|python[\d.]{0,8})\)$")


def frame_of(text: str) -> Frame | None:
    """The frame on the line; None when it is none. A line without indentation must look like nothing else."""
    bare = text.strip()
    cut = bare.rfind(" (")
    if not bare.endswith(")") or cut <= 0:
        return None
    name, place = bare[:cut], bare[cut + 2 : -1]
    if ")" in place:  # a file's name may hold parentheses
        cut = bare.rfind(" (", 0, cut)
        name, place = bare[:cut], bare[cut + 2 : -1]
    indented = text[:1].isspace()
    if cut <= 0 or (not indented and not (_PLAIN_NAME.fullmatch(name) or _END_OF_SYMBOL.search(bare))):
        return None
    return _at(name[:LONGEST], place, indented)


def _at(name: str, place: str, indented: bool) -> Frame | None:
    found = _PLACE.fullmatch(place)
    if found is not None:
        native = found["file"].endswith(_SOURCE_OF_C)
        return Frame(
            function=name, file=found["file"], line=int(found["line"]), library="?" if native else None
        )
    if place.endswith((".py", ".pyx")) or (place.startswith("<") and place.endswith(">")):
        return Frame(function=name, file=place)
    if not place:  # somebody has cut the paths
        return Frame(function=name, file="")
    if _LIBRARY.fullmatch(place) is None or not (indented or ".so" in place or place == "?"):
        return None
    return Frame(function=name, file=place, library=place)


def unwrapped_symbol(lines: Sequence[Line], start: int) -> tuple[Frame, int] | None:
    """A C++ symbol that goes on in the next lines, up to its library, and the index behind it."""
    text = lines[start].text
    if "::" not in text or text.endswith(":"):
        return None
    for index in range(start + 1, min(start + MOST_ROWS, len(lines))):
        row = lines[index].text
        if row.startswith(("Thread ", "Process ")) or len(text) > 20000:
            return None
        text += row if row[:1] != " " else " " + row.strip()
        if _END_OF_SYMBOL.search(text[-400:]):
            cut = text.rfind(" (")
            library = text[cut + 2 : -1]
            return Frame(function=text[:cut].strip()[:LONGEST], file=library, library=library), index + 1
    return None


class Locals:
    """The ``Arguments:`` and ``Locals:`` blocks below one frame (``--locals``), as far as they are kept."""

    _HEAD = re.compile(r"(?P<indent>\s{0,40})(?:Arguments|Locals):")
    _VALUE = re.compile(r"\s{0,40}(?P<name>[^\W\d]\w{0,200}|\.\d{1,4}): ?(?P<value>.{0,100})")

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self._indent: int | None = None

    def takes(self, text: str) -> bool:
        """True for a line of such a block."""
        head = self._HEAD.fullmatch(text)
        if head is not None:
            self._indent = len(head["indent"])
            return True
        if self._indent is None:
            return False
        indent = len(text) - len(text.lstrip())
        deeper = indent > self._indent
        if not deeper and (self._indent > 0 or frame_of(text) is not None):
            return False
        value = self._VALUE.match(text)
        if value is None or (not deeper and text.startswith(("Thread ", "Process "))):
            return deeper
        if len(self.values) < 200:
            self.values.setdefault(value["name"], value["value"])
        return True

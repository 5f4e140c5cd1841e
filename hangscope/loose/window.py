"""How much of a huge log is read: its beginning, its end, and what stands around the lines that some form may
know. One pass, in the memory of what is kept."""

from __future__ import annotations

import functools
import re
from collections import deque
from collections.abc import Iterator

import msgspec

from ..analyzers.readers.clocks import first_date
from ..analyzers.readers.forms import FORMS
from ..analyzers.readers.interface import BlockForm, FileForm
from ..analyzers.readers.needles import any_of
from .interface import Heard, Window
from .streams import CHUNK, Source

BLOCK = 1 << 22
"""Bytes of a huge log that are looked through at a time."""
LEAST_FREE = 1 << 16
_SLACK = 3600.0
"""Seconds by which lines may be out of order, where a whole block is passed over for its times."""


class Excerpt(msgspec.Struct):
    """Whole lines that stand together in a log. ``first``: number of the first one, 1-based."""

    first: int
    data: bytes

    @property
    def behind(self) -> int:
        """Number of the line after the last one."""
        return self.first + self.data.count(b"\n")


def read_up_to(source: Source, most: int) -> bytes:
    """At most ``most`` bytes; fewer only where there are no more."""
    pieces: list[bytes] = []
    while most > 0:
        piece = source.read(min(most, CHUNK))
        if not piece:
            break
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


def excerpts(start: bytes, rest: Source, window: Window, heard: Heard) -> list[Excerpt]:
    """What is kept of a log that begins with ``start`` and goes on in ``rest``, in the log's order."""
    head_end = start.rfind(b"\n", 0, window.edge) + 1 or min(len(start), window.edge)
    kept = _Kept(window)
    tail: deque[Excerpt] = deque()
    first, size, seen = 1 + start.count(b"\n", 0, head_end), 0, head_end
    for block in _blocks(start[head_end:], rest):
        kept.look(block, first)
        tail.append(Excerpt(first, block))
        first += block.count(b"\n")
        size += len(block)
        seen += len(block)
        heard(f"{seen >> 20:,} MB looked through")
        while size - len(tail[0].data) >= window.edge:
            size -= len(tail.popleft().data)
    head = Excerpt(1, start[:head_end])
    behind = tail[0].first if tail else first
    between = [found for found in kept.all() if found.first < behind]
    return _joined([head, *(_before(found, behind) for found in between), *tail])


def _blocks(start: bytes, rest: Source) -> Iterator[bytes]:
    """Blocks of whole lines; one that has no line feed for a block's length is cut anywhere."""
    left = start
    while True:
        more = read_up_to(rest, max(BLOCK - len(left), LEAST_FREE)) if len(left) < BLOCK else b""
        left += more
        if not left:
            return
        end = left.rfind(b"\n", 0, BLOCK) + 1
        if not end or (not more and len(left) < BLOCK):
            end = min(len(left), BLOCK)
        yield left[:end]
        left = left[end:]


class _Kept:
    """Lines around the first matches and around the last ones, each within half of the budget."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._early: list[Excerpt] = []
        self._late: deque[Excerpt] = deque()
        self._sizes = [0, 0]
        self._open = 0

    def look(self, block: bytes, first: int) -> None:
        """Takes what matches in a block whose first line has the number ``first``."""
        if not _timely(block, self._window):
            self._open = 0
            return
        wanted = _wanted()
        end = _lines_on(block, 0, self._open)
        begin, self._open = 0, 0
        match = wanted.search(block, end)
        while match is not None:
            start = _lines_back(block, match.start(), self._window.before)
            if start > end:
                self._keep(block, begin, end, first)
                begin = start
            end = _lines_on(block, match.end(), self._window.after + 1)
            match = wanted.search(block, end) if end < len(block) else None
            if end == len(block):
                self._open = self._window.after
        self._keep(block, begin, end, first)

    def _keep(self, block: bytes, begin: int, end: int, first: int) -> None:
        if end <= begin:
            return
        excerpt = Excerpt(first + block.count(b"\n", 0, begin), block[begin:end])
        half = self._window.matched // 2
        if self._sizes[0] < half:
            self._early.append(excerpt)
            self._sizes[0] += end - begin
            return
        self._late.append(excerpt)
        self._sizes[1] += end - begin
        while self._sizes[1] > half and len(self._late) > 1:
            self._sizes[1] -= len(self._late.popleft().data)

    def all(self) -> list[Excerpt]:
        """All that was kept, in order."""
        return [*self._early, *self._late]


def _timely(block: bytes, window: Window) -> bool:
    """False for a block whose times are known, and all outside the window."""
    if window.since is not None:
        newest = first_date(block[-4096:].decode("utf-8", "replace"))
        if newest is not None and newest < window.since - _SLACK:
            return False
    if window.until is not None:
        oldest = first_date(block[:4096].decode("utf-8", "replace"))
        if oldest is not None and oldest > window.until + _SLACK:
            return False
    return True


def _lines_back(block: bytes, place: int, count: int) -> int:
    """Where the line ``count`` lines before the one at ``place`` begins."""
    place = block.rfind(b"\n", 0, place) + 1
    for _ in range(count):
        if place <= 0:
            return 0
        place = block.rfind(b"\n", 0, place - 1) + 1
    return place


def _lines_on(block: bytes, place: int, count: int) -> int:
    """Where the line ``count`` lines behind the one at ``place`` begins."""
    for _ in range(count):
        found = block.find(b"\n", place)
        if found < 0:
            return len(block)
        place = found + 1
    return place


def _before(found: Excerpt, behind: int) -> Excerpt:
    """The excerpt without lines from number ``behind`` on."""
    return Excerpt(found.first, found.data[: _lines_on(found.data, 0, behind - found.first)])


def _joined(parts: list[Excerpt]) -> list[Excerpt]:
    """Excerpts that follow one another without a gap, as one."""
    runs: list[list[Excerpt]] = []
    behind = -1
    for part in parts:
        if not part.data:
            continue
        if part.first == behind:
            runs[-1].append(part)
        else:
            runs.append([part])
        behind = part.behind
    return [Excerpt(run[0].first, b"".join(part.data for part in run)) for run in runs]


@functools.lru_cache(maxsize=1)
def _wanted() -> re.Pattern[bytes]:
    """Any literal that a form looks for, as bytes."""
    literals: list[str] = []
    for form in FORMS:
        if isinstance(form, BlockForm):
            literals += form.openers
        elif not isinstance(form, FileForm):
            literals += form.needles
    as_bytes = [literal.encode().decode("latin-1") for literal in literals]
    return re.compile(any_of(as_bytes).encode("latin-1"))

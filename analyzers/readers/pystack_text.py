"""``native/pid-N/native.txt``: what ``pystack remote --native-all`` prints (1.7), C++-only threads included.

Frames come outermost first and the source line below a Python frame is left out.

>>> sample = b'''Traceback for thread 52 (gloo_tcp_loop) [] (most recent call last):
...     (C) File "???", line 0, in gloo::transport::tcp::Loop::run() (libtorch_cpu.so)
...     (C) File "../epoll_wait.c", line 30, in epoll_wait (libc.so.6)
...
... Traceback for thread 41 (python3) [Has the GIL] (most recent call last):
...     (Python) File "/job/x.py", line 8, in step
...         lib.sleep(99)
... '''
>>> [(t.tid, t.comm, [f.function for f in t.frames]) for t in read(sample, "x").threads]
[(52, 'gloo_tcp_loop', ['epoll_wait', 'gloo::transport::tcp::Loop::run()']), (41, 'python3', ['step'])]
"""

from __future__ import annotations

import re

import msgspec

from hangscope.errors import UnreadableEvidence
from hangscope.model.facts import Frame, Ref, SourceLine

from .p2p_code import is_p2p, kept

LONGEST = 500
"""Characters of a source line that are kept."""

_HEAD = re.compile(
    r"Traceback for thread (?P<tid>\d{1,9})(?: \((?P<comm>[^()]{0,64}(?:\([^()]{0,64}\))?[^()]{0,64})\))? "
    r"\[(?P<state>[^\]]{0,200})\]"
)
_EMPTY = re.compile(r"The frame stack for thread (?P<tid>\d{1,9}) is empty")
_FRAME = re.compile(
    r'\s*\((?P<kind>Python|C)\) File "(?P<file>[^"]{0,1000})", line (?P<line>\d{1,9}), in (?P<rest>.*)'
)
_LIBRARY = re.compile(r" \((?P<library>[^()]{1,1000})\)$")
_LOCALS = re.compile(r"\s{0,40}(?:Arguments|Locals):")
_VALUE = re.compile(r"\s{0,40}(?P<name>[^\W\d]\w{0,200}): (?P<value>.{0,100})")


class NativeThread(msgspec.Struct, frozen=True, kw_only=True):
    """One thread: frames innermost first, Python frames between the native ones."""

    tid: int
    comm: str
    has_gil: bool = False
    waits_for_gil: bool = False
    frames: tuple[Frame, ...] = ()
    ref: Ref


class NativeDump(msgspec.Struct, frozen=True):
    threads: tuple[NativeThread, ...]


class PystackLines:
    """Takes pystack's text line by line and gives the threads. ``sources``: keep the line of source that
    stands below a Python frame."""

    def __init__(self, path: str, sources: bool = False) -> None:
        self._path = path
        self._sources = sources
        self._threads: list[NativeThread] = []
        self._frames: list[Frame] = []
        self._values: dict[str, str] | None = None

    def takes(self, text: str, number: int) -> bool:
        """Whether the line is a part of the dump; it is if it stands at all where one can be."""
        head = _HEAD.match(text) or _EMPTY.match(text)
        if head is not None:
            self._open(head.groupdict(), number)
            return True
        if not self._threads:
            return False
        found = _FRAME.match(text)
        if found is not None:
            self._close_frame()
            self._frames.append(_frame(found))
            return True
        return self._below_a_frame(text)

    def threads(self) -> tuple[NativeThread, ...]:
        """All threads so far, in the order of the text."""
        self._close_thread()
        return tuple(self._threads)

    def _open(self, head: dict[str, str | None], number: int) -> None:
        self._close_thread()
        state = head.get("state") or ""
        self._threads.append(
            NativeThread(
                tid=int(head["tid"] or 0),
                comm=head.get("comm") or "",
                has_gil="Has the GIL" in state,
                waits_for_gil="Waiting for the GIL" in state,
                ref=Ref(self._path, number),
            )
        )

    def _below_a_frame(self, text: str) -> bool:
        """The source line of a Python frame, and its ``--locals``."""
        below = text.startswith("    ") or (self._values is not None and text.startswith(" "))
        if not self._frames or not below:
            return not text.strip() or _LOCALS.fullmatch(text) is not None
        if _LOCALS.fullmatch(text):
            self._values = self._values or {}
            return True
        frame = self._frames[-1]
        value = _VALUE.match(text) if self._values is not None else None
        if value is not None and self._values is not None:
            if len(self._values) < 200:
                self._values.setdefault(value["name"], value["value"])
        elif self._sources and frame.library is None and frame.source is None:
            source = SourceLine(text=text.strip()[:LONGEST], alone=True)
            self._frames[-1] = msgspec.structs.replace(frame, source=source)
        return True

    def _close_frame(self) -> None:
        if self._frames and self._values and is_p2p(self._frames[-1].function, self._frames[-1].file):
            self._frames[-1] = msgspec.structs.replace(self._frames[-1], ints=kept(self._values))
        self._values = None

    def _close_thread(self) -> None:
        """Gives the frames read so far to the thread they belong to, turned innermost first."""
        self._close_frame()
        if self._threads and self._frames:
            frames = tuple(reversed(self._frames))
            self._threads[-1] = msgspec.structs.replace(self._threads[-1], frames=frames)
        self._frames = []


def _frame(found: re.Match[str]) -> Frame:
    native, rest = found["kind"] == "C", found["rest"]
    library = _LIBRARY.search(rest[-1100:]) if native else None
    if library is not None:
        rest = rest[: len(rest) - len(library[0])]
    return Frame(
        function=rest.removesuffix(" (inlined)")[:1000],
        file=found["file"],
        line=int(found["line"]),
        library=(library["library"] if library else "?") if native else None,
    )


def read(data: bytes, path: str) -> NativeDump:
    """The threads in the order of the text. Raises UnreadableEvidence when it has not one."""
    dump = PystackLines(path)
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        dump.takes(line[:4000], number)
    threads = dump.threads()
    if not threads:
        raise UnreadableEvidence(path, "no thread of a pystack dump in it")
    return NativeDump(threads)

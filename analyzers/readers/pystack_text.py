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
from hangscope.model.facts import Frame, Ref

_HEAD = re.compile(r"^Traceback for thread (?P<tid>\d{1,9}) \((?P<comm>.*?)\) \[(?P<state>[^\]]*)\]")
_FRAME = re.compile(
    r'^\s+\((?P<kind>Python|C)\) File "(?P<file>[^"]*)", line (?P<line>\d{1,9}), in '
    r"(?P<function>.*?)(?: \((?P<library>[^()]*)\))?$"
)


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


def read(data: bytes, path: str) -> NativeDump:
    """The threads in the order of the text. Raises UnreadableEvidence when it has not one."""
    threads: list[NativeThread] = []
    frames: list[Frame] = []
    for index, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        line = line[:4000]
        head = _HEAD.match(line)
        if head:
            _close(threads, frames)
            threads.append(
                NativeThread(
                    tid=int(head["tid"]),
                    comm=head["comm"],
                    has_gil="Has the GIL" in head["state"],
                    waits_for_gil="Waiting for the GIL" in head["state"],
                    ref=Ref(path, index),
                )
            )
            continue
        found = _FRAME.match(line)
        if found:
            native = found["kind"] == "C"
            frames.append(
                Frame(
                    function=found["function"],
                    file=found["file"],
                    line=int(found["line"]),
                    library=(found["library"] or "?") if native else None,
                )
            )
    _close(threads, frames)
    if not threads:
        raise UnreadableEvidence(path, "no thread of a pystack dump in it")
    return NativeDump(tuple(threads))


def _close(threads: list[NativeThread], frames: list[Frame]) -> None:
    """Gives the frames read so far to the thread they belong to, turned innermost first."""
    if threads and frames:
        threads[-1] = msgspec.structs.replace(threads[-1], frames=tuple(reversed(frames)))
    frames.clear()

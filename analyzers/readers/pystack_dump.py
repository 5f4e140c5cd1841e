r"""What ``pystack remote`` and ``pystack core`` print (1.0 to 1.7), saved or pasted: frames outermost first.

The pid is nowhere in it: it is the thread id of the main thread, the one that began in a script. The line of
source below a Python frame is kept: it tells whether an operation was issued or is being waited for.

>>> from .interface import Line
>>> from hangscope.model.loose import NOBODY
>>> sample = '''Traceback for thread 31 (python3) [Has the GIL] (most recent call last):
...     (Python) File "/job/x.py", line 8, in <module>
...         work.wait()
...     (C) File "../x.c", line 9, in poll (inlined) (/lib/libc.so.6)
... The frame stack for thread 32 is empty'''
>>> lines = [Line(n, text, NOBODY, "x.txt") for n, text in enumerate(sample.split(chr(10)), 1)]
>>> (dump,), end = read(lines, 0)
>>> dump.origin.pid, [frame.function for frame in dump.threads[0].frames], dump.threads[0].owns_gil, end
(31, ['poll', '<module>'], True, 5)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from hangscope.model.loose import DumpedThread, StackDump

from .interface import BlockForm, Facts, Line
from .main_thread import main_of, marked
from .pystack_text import NativeThread, PystackLines
from .titles import introduced

_ERROR = re.compile(r"(?:\U0001f480 ?)?(?:Engine error|Invalid process|Error): (?P<text>.{1,400})")
_SKULL = "\U0001f480"


def read(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """One process's dump, and the index behind it. A second thread of the same id begins another dump."""
    if _SKULL in lines[start].text:
        return _failed(lines[start]), start + 1
    found = PystackLines(lines[start].path, sources=True)
    index, seen = start, set[str]()
    while index < len(lines):
        text = lines[index].text
        head = text.split(" (", 1)[0] if text.startswith(("Traceback for thread ", "The frame stack")) else ""
        if head in seen or not found.takes(text, lines[index].number):
            break
        seen |= {head} - {""}
        index += 1
    threads = marked(_dumped(thread) for thread in found.threads())
    if not threads:
        return (), start
    main = main_of(threads)
    known = introduced(lines, start, lines[start].origin)
    if main is not None:
        known = msgspec.structs.replace(known, pid=main.tid)
    native = any(frame.library is not None for thread in threads for frame in thread.frames)
    dump = StackDump(tool="pystack", origin=known, threads=threads, native=native, ref=lines[start].ref)
    return (dump,), index


def _failed(line: Line) -> Facts:
    """pystack's own error. It stands alone: no dump comes with it."""
    found = _ERROR.search(line.text)
    if found is None:
        return ()
    problem = found["text"].strip(f" {_SKULL}")
    return (StackDump(tool="pystack", origin=line.origin, problem=problem, ref=line.ref),)


def _dumped(thread: NativeThread) -> DumpedThread:
    return DumpedThread(
        tid=thread.tid,
        name=thread.comm or None,
        frames=thread.frames,
        owns_gil=thread.has_gil,
        waits_for_gil=thread.waits_for_gil,
        ref=thread.ref,
    )


FORM = BlockForm(
    name="pystack-text",
    title="pystack remote, pystack core",
    openers=("Traceback for thread ", "The frame stack for thread ", f"{_SKULL} "),
    read=read,
)

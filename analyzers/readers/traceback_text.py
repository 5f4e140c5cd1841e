r"""Python tracebacks, and prints of ``sys._current_frames()``: frames outermost first, source lines below.

A traceback shows where an exception was raised, and nothing of where the process is now: it is an event.
That of a ``KeyboardInterrupt`` is where the main thread stood, so it is a stack dump too. Of ranks that write
into one stream line by line, only the last line is kept. A print of all threads has a line with ``thread``
and its number above each stack; a stack without such a line may be any warning's.

>>> from .interface import Line
>>> from hangscope.model.loose import NOBODY
>>> sample = '''Traceback (most recent call last):
...   File "/job/x.py", line 9, in <module>
...     train(model)
...   File "/job/x.py", line 5, in train
...     loss.backward()
...     ^^^^^^^^^^^^^^^
... torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB'''
>>> lines = [Line(n, text, NOBODY, "x.log") for n, text in enumerate(sample.split(chr(10)), 1)]
>>> (event,), end = read(lines, 0)
>>> event.kind, event.key, event.ref.line, end
('cuda-oom', '/job/x.py:5 in train', 7, 7)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from hangscope.model.facts import Frame, SourceLine
from hangscope.model.loose import DumpedThread, LogEvent, StackDump

from .interface import BlockForm, Facts, Line
from .main_thread import marked
from .titles import introduced

MOST_FRAMES = 2_000
MOST_THREADS = 10_000
MOST_WRITERS = 16
"""Tracebacks that may stand between one another's lines."""
MOST_SOURCE = 40
"""Lines below one frame."""
TITLE = "Traceback (most recent call last):"

_FILE = re.compile(
    r"(?P<indent>\s{0,40})File \"(?P<file>[^\"]{0,1000})\", line (?P<line>\d{1,9})"
    r"(?:, in (?P<function>\S.{0,500}))?"
)
_REPEATED = re.compile(r"\s{1,40}\[Previous line repeated \d{1,9} more times?\]")
_CARETS = re.compile(r"[\s~^]{1,4000}")
_EXCEPTION = re.compile(r"(?P<type>[^\W\d][\w.]{0,200})(?:: ?(?P<message>.*))?")
_THREAD = re.compile(r"thread\D{0,20}(?P<ident>0x[0-9a-f]{1,16}|\d{1,20})", re.IGNORECASE)
_NAME = re.compile(r"\(([\w. -]{1,60})\)|\"([^\"]{1,60})\"|\b(MainThread|Thread-\d{1,6})\b")
_OOM = re.compile(r"OutOfMemoryError|(?:CUDA|HIP|XPU|NPU) out of memory")
_DEVICE = re.compile(
    r"(?:CUDA|HIP|NPU) error|CUDA_ERROR_|\bcudaError|CUBLAS_STATUS_|CUDNN_STATUS_|cuDNN error|CUDA driver"
)


def read(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """A traceback's event (and stack, see above), or the stacks of one print of all threads."""
    if lines[start].text.strip().endswith(TITLE):
        return _traceback(lines, start)
    if _FILE.fullmatch(lines[start].text.rstrip()) is None:
        return (), start
    return _all_threads(lines, start)


class _Stack(msgspec.Struct):
    """``frames`` innermost first; ``mixed``: the lines of several writers stand between one another."""

    frames: tuple[Frame, ...]
    end: int
    mixed: bool = False


def _traceback(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    stack = _stack(lines, start + 1)
    if stack.end >= len(lines) or (not stack.frames and not stack.mixed):
        return (), start
    line = lines[stack.end]
    found = _EXCEPTION.fullmatch(line.text.strip())
    if found is None:
        return (), start
    text = line.text.strip()
    place = stack.frames[0] if stack.frames and not stack.mixed else None
    event = LogEvent(
        kind=_kind(text),
        origin=line.origin,
        key=f"{place.file}:{place.line} in {place.function}" if place is not None else None,
        text=text[:400],
        ref=line.ref,
    )
    if found["type"] != "KeyboardInterrupt" or stack.mixed:
        return (event,), stack.end + 1
    thread = DumpedThread(frames=stack.frames, main=True, ref=lines[start].ref)
    dump = StackDump(tool="traceback", origin=line.origin, threads=(thread,), ref=lines[start].ref)
    return (dump, event), stack.end + 1


def _kind(text: str) -> str:
    if _OOM.search(text[:2000]):
        return "cuda-oom"
    return "cuda-error" if _DEVICE.search(text[:2000]) else "exception"


def _stack(lines: Sequence[Line], index: int) -> _Stack:
    """The frames from ``index`` on. Ends at the first line that is no frame and is not indented as source
    is; a second title before that belongs to another writer."""
    frames: list[Frame] = []
    indent, titles, below = 0, 0, 0
    while index < len(lines) and len(frames) < MOST_FRAMES:
        text = lines[index].text.rstrip()
        found = _FILE.fullmatch(text)
        if found is not None:
            indent, below = len(found["indent"]), 0
            frames.append(
                Frame(function=found["function"] or "?", file=found["file"], line=int(found["line"]))
            )
        elif text.endswith(TITLE) and titles < MOST_WRITERS:
            titles += 1
        elif not (frames and _belongs(text, indent)) or below >= MOST_SOURCE:
            break
        elif frames[-1].source is None and not _CARETS.fullmatch(text) and not _REPEATED.fullmatch(text):
            source = SourceLine(text=text.strip()[:500], alone=True)
            frames[-1] = msgspec.structs.replace(frames[-1], source=source)
        below += found is None
        index += 1
    return _Stack(tuple(reversed(frames)), index, mixed=titles > 0)


def _belongs(text: str, indent: int) -> bool:
    return len(text) - len(text.lstrip()) > indent or _REPEATED.fullmatch(text) is not None


def _all_threads(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """Stack after stack, each below a line that names its thread; a thread that comes again ends it."""
    threads: list[DumpedThread] = []
    seen: set[int] = set()
    index = start
    while index < len(lines) and len(threads) < MOST_THREADS:
        above = lines[index - 1] if index > 0 else None
        head = _THREAD.search(above.text[:400]) if above is not None else None
        if above is None or head is None:
            break
        ident = int(head["ident"], 0) if head["ident"][:2] == "0x" else int(head["ident"])
        stack = _stack(lines, index)
        if ident in seen or not stack.frames:
            break
        seen.add(ident)
        name = _NAME.search(above.text[:400])
        threads.append(
            _thread(ident, next(filter(None, name.groups()), None) if name else None, stack, above)
        )
        index = stack.end + 1  # behind the next thread's line
    if not threads:
        return (), start
    first = max(0, start - 1)
    origin = introduced(lines, first, lines[start].origin)
    end = min(index - 1, len(lines))
    return (StackDump(tool="traceback", origin=origin, threads=marked(threads), ref=lines[first].ref),), end


def _thread(ident: int, name: str | None, stack: _Stack, above: Line) -> DumpedThread:
    return DumpedThread(
        ident=ident, name=name, frames=stack.frames, main=name == "MainThread" or None, ref=above.ref
    )


FORM = BlockForm(
    name="python-traceback",
    title="Python tracebacks, prints of sys._current_frames",
    openers=(TITLE, 'File "'),
    read=read,
)

r"""``/proc/PID/stack`` and ``/proc/PID/task/TID/{stack,wchan}``, read with cat, head, grep or a loop.

Innermost function first. Whose stack it is stands in the file's name, if that was printed (``==> … <==``,
``$ cat /proc/41/stack``, ``/proc/41/task/43/wchan:…``); without it, the stack is of an unknown process.
The number in front is the return address: ``[<0>]`` since Linux 4.15, before that the address itself.

>>> from .interface import Line
>>> from hangscope.model.loose import NOBODY
>>> sample = '''==> /proc/41/task/43/stack <==
... [<0>] rpc_wait_bit_killable+0x1e/0xa0 [sunrpc]
... [<0>] __rpc_execute+0x148/0x2e0 [sunrpc]
... /proc/41/task/44/wchan:futex_wait_queue'''
>>> lines = [Line(n, text, NOBODY, "x.txt") for n, text in enumerate(sample.split(chr(10)), 1)]
>>> (dump,), end = read(lines, 0)
>>> dump.origin.pid, end, [(t.tid, t.wchan, t.kernel_stack[:1]) for t in dump.threads]
(41, 4, [(43, None, ('rpc_wait_bit_killable [sunrpc]',)), (44, 'futex_wait_queue', ())])
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from hangscope.model.facts import Ref
from hangscope.model.loose import DumpedThread, StackDump

from .interface import BlockForm, Facts, Line
from .titles import introduced

MOST_THREADS = 50_000
MOST_FRAMES = 200
MOST_HEADS = 3
"""Lines in a row that only name a file."""

_FRAME = re.compile(
    r"(?P<place>/proc/\S{1,60}:)?\s{0,8}\[<[0-9a-fA-F]{1,16}>\]\s{1,4}(?P<name>[A-Za-z_][\w.$]{0,200})"
    r"(?:\+0x[0-9a-f]{1,8}(?:/0x[0-9a-f]{1,8})?)?(?:\s\[(?P<module>[\w-]{1,60})\])?\s{0,8}"
)
_END = re.compile(r"(?:/proc/\S{1,60}:)?\s{0,8}\[<[0-9a-fA-F]{1,16}>\]\s{1,4}0x[0-9a-f]{1,16}")
"""The last line of old kernels: ``[<ffffffffffffffff>] 0xffffffffffffffff``."""
_PLACE = re.compile(
    r"/proc/(?P<pid>\d{1,9})(?:/task/(?P<tid>\d{1,9}))?(?:/(?P<file>stack|wchan|comm|status)\b)?"
)
_WCHAN = re.compile(
    r"/proc/(?P<pid>\d{1,9})(?:/task/(?P<tid>\d{1,9}))?(?:/wchan)?[: =]{1,3}"
    r"(?:wchan[:= ]{1,3})?(?P<wchan>[A-Za-z_][\w.]{2,100}|0)"
)
_STATE = re.compile(r"(?:State:|state)\s{1,8}(?P<state>[RSDTtZXI])\b")


class _Thread(msgspec.Struct):
    """What is known so far of one thread."""

    ref: Ref
    stack: list[str]
    wchan: str | None = None
    state: str | None = None


def read(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """One process's threads, and the index behind them."""
    found = _Process()
    index = start
    place = _named(lines[start].text)
    if place is None and _FRAME.fullmatch(lines[start].text.rstrip()):
        place = _above(lines, start)
    heads = 0
    while index < len(lines) and len(found.threads) < MOST_THREADS and heads <= MOST_HEADS:
        text = lines[index].text.rstrip()
        named = _named(text)
        if named is not None:
            place = named
        taken = found.takes(text, place, lines[index].ref)
        if found.other or not (taken or (named is not None and _head(text))):
            break
        heads = 0 if taken else heads + 1
        index += 1
    if not any(thread.stack or thread.wchan for thread in found.threads.values()):
        return (), start
    known = introduced(lines, start, lines[start].origin)
    known = msgspec.structs.replace(known, pid=found.pid)
    dump = StackDump(tool="kernel", origin=known, threads=found.dumped(), ref=lines[start].ref)
    return (dump,), index


def _named(text: str) -> tuple[int, int] | None:
    """(pid, tid) of the file that the line names."""
    found = _PLACE.search(text[:400])
    if found is None:
        return None
    return int(found["pid"]), int(found["tid"] or found["pid"])


def _above(lines: Sequence[Line], start: int) -> tuple[int, int] | None:
    """The file that the command or header right above names."""
    for index in range(start - 1, max(-1, start - 5), -1):
        named = _named(lines[index].text)
        if named is not None:
            return named
    return None


def _head(text: str) -> bool:
    """A line that only says whose stack follows: a header, a command at a prompt."""
    bare = text.strip()
    return bare.startswith(("==>", "#", "$", "--", "==", "/proc/")) or bare.endswith(
        ("<==", ":", "/stack", "/wchan")
    )


class _Process:
    """The threads of one process; ``other`` once a line names another one."""

    def __init__(self) -> None:
        self.pid: int | None = None
        self.threads: dict[int | None, _Thread] = {}
        self.other = False
        self._ended = False

    def takes(self, text: str, place: tuple[int, int] | None, ref: Ref) -> bool:
        """Whether the line is a kernel frame, a wchan or a state of this process."""
        frame = _FRAME.fullmatch(text)
        wchan = None if frame is not None else _WCHAN.fullmatch(text.strip())
        state = None if frame or wchan else _STATE.match(text.strip())
        if frame is None and wchan is None and state is None:
            ended = _END.fullmatch(text) is not None
            self._ended = self._ended or ended
            return ended
        if place is not None and self.pid not in (None, place[0]):
            self.other = True
            return True
        self.pid = place[0] if place is not None else self.pid
        tid = place[1] if place is not None else None
        thread = self.threads.setdefault(tid, _Thread(ref, []))
        if frame is not None:
            if len(thread.stack) < MOST_FRAMES:
                thread.stack.append(frame["name"] + (f" [{frame['module']}]" if frame["module"] else ""))
        elif wchan is not None:
            thread.wchan = wchan["wchan"] if wchan["wchan"] != "0" else None
        elif state is not None:
            thread.state = state["state"]
        return True

    def dumped(self) -> tuple[DumpedThread, ...]:
        """In the order of the text."""
        return tuple(
            DumpedThread(
                tid=tid,
                main=tid == self.pid if tid is not None else None,
                state=thread.state,
                wchan=thread.wchan,
                kernel_stack=tuple(thread.stack),
                ref=thread.ref,
            )
            for tid, thread in self.threads.items()
        )


FORM = BlockForm(
    name="proc-stack",
    title="/proc/PID/stack, wchan listings",
    openers=("[<", "/proc/"),
    read=read,
)

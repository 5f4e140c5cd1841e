"""``threads/pid-N/threads.json``: every thread of a process as the kernel shows it.

>>> sample = b'''{"pid": 41, "threads": [{"tid": 43, "comm": "python3", "wchan": "mem_cgroup_oom_synchronize",
...   "stat": "43 (python3) D 1 41 41 0 -1 64 9 0 0 0 12 3 0 0 20 0 4 0 900 1 2",
...   "status": "State:\\\\tD (disk sleep)\\\\nTracerPid:\\\\t0\\\\nvoluntary_ctxt_switches:\\\\t5\\\\n",
...   "syscall": "-1 0x7fb45136a6f8 0x7fb45177154a", "schedstat": "9000 12 5", "errors": {},
...   "stack": "[<0>] mem_cgroup_oom_synchronize+0x118/0x170\\\\n[<0>] nv_lock+0x1/0x2 [nvidia]"}]}'''
>>> thread = read(sample, "shard!threads.json").threads[0]
>>> thread.state, thread.kernel_stack, thread.syscall.number, thread.voluntary
('D', ('mem_cgroup_oom_synchronize', 'nv_lock [nvidia]'), -1, 5)
"""

from __future__ import annotations

import functools
import re

import msgspec

from hangscope.model.facts import Ref, Syscall, ThreadSample

from .raw import decode, number, stat_line

_STACK_LINE = re.compile(
    r"^\s*(?:\[<[0-9a-fA-F]*>\]\s+)?(?P<name>[A-Za-z_][\w.$]*)(?:\+0x[^\s\[]*)?(?:\s+\[(?P<module>[^\]\s]+)\])?"
)
_STATUS = re.compile(
    r"^(State|TracerPid|SigPnd|ShdPnd|voluntary_ctxt_switches|nonvoluntary_ctxt_switches):[ \t]*(\S+)",
    re.MULTILINE,
)


class _RawThread(msgspec.Struct):
    tid: int
    comm: str | None = None
    stat: str | None = None
    status: str | None = None
    wchan: str | None = None
    syscall: str | None = None
    stack: str | None = None
    schedstat: str | None = None


class _RawTable(msgspec.Struct):
    pid: int
    threads: list[_RawThread]


class ThreadTable(msgspec.Struct, frozen=True):
    """Threads of one process in one sample, in the artifact's order; stacks are joined to them later."""

    pid: int
    threads: tuple[ThreadSample, ...]


def read(data: bytes, path: str) -> ThreadTable:
    """The thread table. The sample number is set to 0: the caller knows it."""
    raw = decode(data, _RawTable, path)
    ref = Ref(path)
    return ThreadTable(raw.pid, tuple(_thread(item, ref) for item in raw.threads))


def _thread(raw: _RawThread, ref: Ref) -> ThreadSample:
    stat = stat_line(raw.stat)
    status: dict[str, str] = dict(_STATUS.findall(raw.status or ""))
    state = stat.state if stat else status.get("State", "?")[:1]
    pending = (number(status.get("SigPnd"), 16) or 0) | (number(status.get("ShdPnd"), 16) or 0)
    return ThreadSample(
        tid=raw.tid,
        comm=(raw.comm if raw.comm is not None else stat.comm if stat else "").strip("\n"),
        sample=0,
        state=state,
        wchan=kernel_symbol(raw.wchan),
        syscall=parse_syscall(raw.syscall),
        kernel_stack=parse_kernel_stack(raw.stack),
        utime=stat.utime if stat else None,
        stime=stat.stime if stat else None,
        run_ns=number(raw.schedstat),
        voluntary=number(status.get("voluntary_ctxt_switches")),
        involuntary=number(status.get("nonvoluntary_ctxt_switches")),
        pending_signals=pending,
        tracer=number(status.get("TracerPid")) or 0,
        ref=ref,
    )


def kernel_symbol(text: str | None) -> str | None:
    """The wchan; ``0`` means "not blocked, or not shown" and becomes None."""
    name = (text or "").strip()
    return None if name in ("", "0") else name


def parse_syscall(text: str | None) -> Syscall | None:
    """``running``, ``-1 SP PC``, or ``NUMBER`` + six arguments + ``SP PC``; None when unreadable.

    >>> parse_syscall("0 0x5 0x7f 0x40 0x0 0x0 0x0 0x7ffd 0x7fb4").args[0]
    5
    """
    words = (text or "").split()
    if not words:
        return None
    if words[0] == "running":
        return Syscall(number=None)
    if not 3 <= len(words) <= 9 or len(text or "") > 400:
        return None
    try:
        call, numbers = int(words[0]), [int(word, 16) for word in words[1:]]
    except ValueError:
        return None
    return Syscall(number=call, args=tuple(numbers[:-2]), sp=numbers[-2], pc=numbers[-1])


def parse_kernel_stack(text: str | None) -> tuple[str, ...] | None:
    """``/proc/PID/task/TID/stack`` as function names, innermost first; None when it was not readable."""
    if text is None:
        return None
    return _functions(text)


@functools.lru_cache(maxsize=1 << 12)
def _functions(text: str) -> tuple[str, ...]:
    """Most threads of a job sleep at a few places: equal texts are read once."""
    found = (_STACK_LINE.match(line[:400]) for line in text.splitlines())
    return tuple(
        match["name"] + (f" [{match['module']}]" if match["module"] else "") for match in found if match
    )

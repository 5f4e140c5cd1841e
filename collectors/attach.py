"""May a tool that stops threads attach to this process? And did it leave every thread as it was?

PTRACE_INTERRUPT followed by a wait without a time limit (py-spy, gdb, pystack) never returns for a thread
in uninterruptible sleep, and the threads stopped before it stand still meanwhile. State S is no proof: a
FUSE reader shows S and turns uninterruptible at the first interrupt. So only waits known to be
interruptible are allowed, by the name of the kernel function the thread sleeps in. Python >= 3.8.
"""

import os
import re
import signal
import time
from typing import Dict, List, NamedTuple, Optional, Tuple

from . import procfs

INTERRUPTIBLE = re.compile(
    r"""(
    futex_(do_wait|wait|wait_queue|wait_queue_me|wait_multiple|wait_requeue_pi|lock_pi|wait_restart)
    | poll_schedule_timeout | do_poll | do_sys_poll | do_select | ep_poll | do_epoll_wait
    | hrtimer_nanosleep | do_nanosleep | common_nsleep
    | do_wait | do_wait4 | kernel_wait4 | do_sigtimedwait | sigsuspend | pause | __do_sys_pause | sys_pause
    | (anon_)?pipe_(read|write|wait|wait_readable|wait_writable) | wait_for_partner | eventfd_read
    | inet_csk_accept | inet_csk_wait_for_connect | inet_wait_for_connect | __inet_stream_connect
    | sk_wait_data | sk_stream_wait_memory | sk_stream_wait_connect | wait_for_data | wait_woken
    | (__)?skb_wait_for_more_packets | unix_stream_read_generic | unix_stream_data_wait | unix_wait_for_peer
    )(\.(constprop|isra|part)\.\d+)*""",
    re.VERBOSE,
)
"""Kernel functions (5.4 to 6.18) in which a thread sleeps interruptibly: futex, poll, nanosleep, wait for a
child or a signal, pipe, socket."""

LOOKS = 3
"""Readings of a thread in state S without a wait channel: it was being scheduled, or is unreadable."""


class Task(NamedTuple):
    """One thread at one moment. ``clock`` moves whenever it ran: CPU time, time slices, voluntary and
    involuntary switches, each as the kernel printed it."""

    state: str
    clock: Tuple[bytes, ...]
    tracer: int
    inner_tid: int
    """Its id in its own pid namespace, which is the one that Python knows."""
    stop_pending: bool
    """A SIGSTOP is queued for it."""


def read_tasks(pid: int, proc: str = "/proc", known: Optional[Dict[int, Task]] = None) -> Dict[int, Task]:
    """Every thread of a process by tid, {} when it is gone. Waits for nothing.

    ``known``: an earlier look. A thread that has not run since is as it was, and only its clock is read: to
    stop, to end or to sleep elsewhere it has to run. Not for a look that must see who traces it.
    """
    tasks = {}
    for tid in procfs.tasks(pid, proc):
        task = read_task(f"{proc}/{pid}/task/{tid}", tid, known.get(tid) if known else None)
        if task is not None:
            tasks[tid] = task
    return tasks


def read_task(place: str, tid: int, known: Optional[Task] = None) -> Optional[Task]:
    """The thread whose directory is ``place``; None when it has ended."""
    ran = _read(place + "/schedstat").split()
    if known is not None and known.state != "R" and len(ran) == 3 and known.clock[:2] == (ran[0], ran[2]):
        return known
    status = b"\n" + _read(place + "/status")
    state = _field(status, b"\nState:\t")
    if not state:
        return None
    # schedstat begins with utime + stime in nanoseconds; without it (CONFIG_SCHED_INFO) they come in ticks
    time_used = (ran[0], ran[2]) if len(ran) == 3 else _ticks(place)
    switches = (
        _field(status, b"\nvoluntary_ctxt_switches:\t"),
        _field(status, b"\nnonvoluntary_ctxt_switches:\t"),
    )
    pending = int(_field(status, b"\nSigPnd:\t") or b"0", 16) | int(
        _field(status, b"\nShdPnd:\t") or b"0", 16
    )
    inner = (_field(status, b"\nNSpid:\t") or b"%d" % tid).split()
    return Task(
        state[:1].decode("ascii", "replace"),
        (*time_used, *switches),
        int(_field(status, b"\nTracerPid:\t") or b"0"),
        int(inner[-1]),
        bool(pending >> (signal.SIGSTOP - 1) & 1),
    )


def _field(status: bytes, label: bytes) -> bytes:
    """What stands behind ``label`` up to the end of its line, b"" without it.

    Searched for, as a pattern takes longer than reading the file does. The name of a thread cannot hold a
    line end: the kernel escapes it.
    """
    start = status.find(label)
    if start < 0:
        return b""
    start += len(label)
    return status[start : status.find(b"\n", start)]


def _ticks(place: str) -> Tuple[bytes, ...]:
    stat = _read(place + "/stat")
    return tuple(stat[stat.rfind(b")") + 1 :].split()[11:13])


def _read(path: str) -> bytes:
    """A small file of /proc, which comes whole in one read; b"" when it is gone. This runs for every thread
    around every dump: it is kept short."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 1 << 14)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def read_states(pid: int, proc: str = "/proc") -> Dict[int, str]:
    """Only the state letter of every thread, by tid."""
    found = {}
    for tid in procfs.tasks(pid, proc):
        stat = _read(f"{proc}/{pid}/task/{tid}/stat")
        state = stat[stat.rfind(b")") + 2 :][:1].decode("ascii", "replace")
        if state:
            found[tid] = state
    return found


def still(before: Optional[Task], after: Optional[Task]) -> bool:
    """True when the thread cannot have run between the two readings.

    A running thread's counters are brought up to date by the timer only, so state R counts as running.
    """
    if before is None or after is None:
        return False
    return before.clock == after.clock and "R" not in (before.state, after.state)


def refusal(pid: int, proc: str = "/proc") -> Optional[str]:
    """Why nothing that stops threads may attach to ``pid`` now; None when it may."""
    tids = procfs.tasks(pid, proc)
    if not tids:
        return "the process has ended"
    for tid in tids:
        why = _task_refusal(f"{proc}/{pid}/task/{tid}", tid)
        if why is not None:
            return f"thread {tid} {why}"
    return None


def _task_refusal(place: str, tid: int) -> Optional[str]:
    why: Optional[str] = None
    for look in range(LOOKS):
        if look:
            time.sleep(0.001)
        task = read_task(place, tid)
        if task is None:
            return "has just ended"
        if task.tracer:
            return f"is traced by process {task.tracer}"
        if task.state == "R":
            return None
        if task.state != "S":
            return f"is in state {task.state}"
        wchan, error = procfs.read_text(place + "/wchan", 256)
        if wchan and wchan != "0":
            return (
                None
                if INTERRUPTIBLE.fullmatch(wchan)
                else f"sleeps in {wchan}, not known to be interruptible"
            )
        why = f"has an unreadable wait channel ({error or 'hidden'})"
    return why


def states(tasks: Dict[int, Task]) -> Dict[int, str]:
    """The state letter of every thread, ordered by tid."""
    return {tid: task.state for tid, task in sorted(tasks.items())}


def newly_stopped(before: Dict[int, str], after: Dict[int, Task]) -> List[int]:
    """Threads in T or t now whose state letter was another one, or that were not there."""
    return [tid for tid, state in states(after).items() if state in "Tt" and before.get(tid, "S") not in "Tt"]


def settled(pid: int, before: Dict[int, Task], proc: str = "/proc", patience: float = 0.2) -> Dict[int, Task]:
    """The threads after a dump, read again for ``patience`` seconds while one still looks stopped: the
    kernel lets go of a killed tracer's threads a moment later."""
    until = time.monotonic() + patience
    while True:
        after = read_tasks(pid, proc)
        if not newly_stopped(states(before), after) or time.monotonic() > until:
            return after
        time.sleep(0.01)


def set_going(pid: int, before: Dict[int, Task], after: Dict[int, Task]) -> Optional[str]:
    """Sends SIGCONT to a process that a PTRACE_ATTACH of ours (pystack, gdb; never py-spy) left stopped.

    Only when nobody traces it and nothing of it was stopped, or about to stop, before. Returns what was done.
    """
    if any(task.state in "Tt" or task.stop_pending or task.tracer for task in before.values()):
        return None
    if any(task.tracer for task in after.values()):
        return None
    stopped = newly_stopped(states(before), after)
    if not stopped and not any(task.stop_pending for task in after.values()):
        return None
    try:
        os.kill(pid, signal.SIGCONT)
    except OSError as error:
        return f"left stopped by the dump, and SIGCONT failed: {procfs.errno_name(error)}"
    return "was left stopped by the dump and set going again with SIGCONT"

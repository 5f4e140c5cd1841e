"""How processes and threads are written for people. In saved dumps their numbers may be unknown: those that
stand for them are negative, and never shown."""

from __future__ import annotations

from ..model.facts import Process


def known(number: int | None) -> int | None:
    """The pid or thread id; None for one that only stands for an unknown one."""
    return number if number is not None and number > 0 else None


def pid_text(pid: int | None) -> str:
    """A pid in a sentence.

    >>> pid_text(4711), pid_text(-1000)
    ('pid 4711', 'pid unknown')
    """
    return f"pid {pid}" if known(pid) is not None else "pid unknown"


def pid_argument(pid: int | None) -> str:
    """A pid in a command that a person is to run.

    >>> pid_argument(4711), pid_argument(-1000)
    ('4711', 'PID')
    """
    return str(pid) if known(pid) is not None else "PID"


def process_text(process: Process) -> str:
    """``pid 4711``, or where its dump stands: ``the process of dumps.txt:17``."""
    if known(process.pid) is not None or process.ref is None:
        return pid_text(process.pid)
    line = f":{process.ref.line}" if process.ref.line is not None else ""
    return f"the process of {process.ref.artifact}{line}"

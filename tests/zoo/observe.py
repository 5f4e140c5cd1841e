"""The job's processes as /proc shows them: what the readiness checks need.

Only files that never sleep are read (stat, status, wchan, comm, the cwd link): the mmap_lock of a stuck
process must not stop the runner.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from typing import NamedTuple


class Thread(NamedTuple):
    tid: int
    comm: str
    state: str
    wchan: str
    switches: int
    """Voluntary and involuntary context switches together."""


def read(path: str) -> str:
    """The file's text, or an empty string when the process is gone."""
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
    return ""


def threads(pid: int) -> list[Thread]:
    """Every thread of the process; empty when it is gone."""
    found: list[Thread] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for tid in os.listdir(f"/proc/{pid}/task"):
            folder = f"/proc/{pid}/task/{tid}"
            status = read(f"{folder}/status")
            fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
            if "State" not in fields:
                continue
            switches = sum(
                int(fields.get(f"{kind}_ctxt_switches", "0")) for kind in ("voluntary", "nonvoluntary")
            )
            state = fields["State"].split()[0]
            found.append(Thread(int(tid), fields["Name"].strip(), state, read(f"{folder}/wchan"), switches))
    return found


def state_of(pid: int) -> str | None:
    """The state letter of the leader, None when the process is gone."""
    text = read(f"/proc/{pid}/stat")
    return text.rpartition(")")[2].split()[0] if text else None


def parent_of(pid: int) -> int | None:
    text = read(f"/proc/{pid}/stat")
    return int(text.rpartition(")")[2].split()[1]) if text else None


def processes_in(directory: pathlib.Path) -> list[int]:
    """The processes whose working directory is the job's own: everything that the job has started."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{entry}/cwd") == str(directory):
                    found.append(int(entry))
    return sorted(found)


def rank_of(pid: int) -> int | None:
    """RANK in the process's start environment."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/environ", "rb") as file:
        for item in file.read().split(b"\0"):
            if item.startswith(b"RANK="):
                return int(item[5:])
    return None

"""The agent's first act, before it starts any child: what the job's memory limit may not let it read later.

The agent is charged to the memory cgroup of the job that it captures. At that cgroup's limit the kernel kills
or blocks whoever asks for a page: the agent makes itself the first to be killed, and what it can read
without a child goes out before it starts one. Python >= 3.8, standard library only.
"""

import os
import sys
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ... import __version__
from .. import memory, procfs, threads
from ..interface import Collector, Target

COLLECTORS: Tuple[Collector, ...] = (threads.COLLECTOR, memory.COLLECTOR)
"""Taken first, as cells of sample 0; they start no child (but for a /dev/shm of the job's own)."""


def offer_itself() -> Optional[str]:
    """Raises this process's out-of-memory score to the top. Returns why that failed, or None."""
    try:
        with open("/proc/self/oom_score_adj", "w") as adjustment:
            adjustment.write("1000")
    except OSError as error:
        return f"oom_score_adj stayed as it was: {error.strerror}"
    return None


def node_record(pids: Sequence[int], notes: Sequence[str], proc: str = "/proc") -> Dict[str, Any]:
    """``node.json``: the machine, both clocks read together, and whether the targets may be traced."""
    system = os.uname()
    boot_id, _ = procfs.read_text(f"{proc}/sys/kernel/random/boot_id", 64)
    return {
        "format": "hangscope-bundle/1",
        "host": system.nodename,
        "boot_id": (boot_id or "").strip(),
        "pid_namespace": procfs.namespace(os.getpid(), "pid", proc) or "",
        "kernel": system.release,
        "machine": system.machine,
        "wall": time.time(),
        "monotonic": time.monotonic(),
        "clock_ticks": os.sysconf("SC_CLK_TCK"),
        "page_size": os.sysconf("SC_PAGE_SIZE"),
        "agent_version": __version__,
        "agent_pid": os.getpid(),
        "agent_uid": os.getuid(),
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "ptrace": ptrace_refusal(pids, proc),
        "boot_time": procfs.boot_time(proc),
        "notes": list(notes),
    }


def ptrace_refusal(pids: Sequence[int], proc: str = "/proc") -> Optional[str]:
    """Why the targets cannot be attached to, or None when one of them can.

    The kernel makes ``/proc/PID/syscall`` pass the check of PTRACE_ATTACH (LSMs such as Yama included, see
    ptrace(2)), and reading it needs no child and no lock of the target's memory.
    """
    refusal = None
    for pid in pids:
        _, error = procfs.read_text(f"{proc}/{pid}/syscall", 256)
        if error is None:
            return None
        if error in procfs.REFUSED and refusal is None:
            refusal = _explain(pid, error, proc)
    return refusal


def _explain(pid: int, error: str, proc: str) -> str:
    scope = (procfs.read_text(f"{proc}/sys/kernel/yama/ptrace_scope", 16)[0] or "").strip()
    owner = procfs.owner(pid, proc)
    if owner is not None and owner != os.getuid():
        return f"pid {pid} belongs to another user ({error}): run as that user, or as root"
    if scope not in ("", "0"):
        return f"kernel.yama.ptrace_scope is {scope} ({error}): as root, sysctl kernel.yama.ptrace_scope=0"
    if os.getuid() == 0:
        where = "add CAP_SYS_PTRACE to this container, or capture from its host"
        return f"pid {pid} may not be traced ({error}) though this is uid 0: {where}"
    return f"pid {pid} may not be traced ({error}): run as root, or add CAP_SYS_PTRACE to the container"


def targets_of(pids: Sequence[int], proc: str = "/proc") -> List[Target]:
    """Targets before anything is known of them but that they live; their role is ``helper``."""
    found = []
    for pid in pids:
        line = procfs.stat_fields(pid, proc)
        if line is not None:
            found.append(Target(pid, line.start_ticks, "helper", comm=line.comm))
    return found

"""This machine: may stacks be read, do GPUs answer, is what a dying job leaves behind kept?

Each check reads little and can block nothing: what may (NVML, a file system) runs in a child with a deadline.
"""

from __future__ import annotations

import importlib.util
import os
import resource
from collections.abc import Callable

from ..collectors import cgroups, gpus, guarded, procfs, py_spy
from ..collectors.agent import first_look
from ..collectors.interface import ABSENT, OK, PARTIAL, Context
from .values import Check

CAP_SYS_PTRACE = 19
"""Bit number, linux/capability.h."""
SHM_SMALL = 1 << 30
"""Docker gives 64 MiB where --shm-size is not said; NCCL and dataloaders need more."""
PATIENCE = 5.0
"""Seconds for one child."""


def checks(pid: int | None, proc: str = "/proc") -> tuple[Check, ...]:
    """All checks, in the order in which they are shown. Raises nothing."""
    looks: tuple[Callable[[], Check], ...] = (
        lambda: ptrace(pid, proc),
        py_spy_there,
        lambda: nvml(proc),
        lambda: shared_memory(proc, pid),
        lambda: cores(proc, pid),
        lambda: hung_tasks(proc),
        lambda: kernel_log(proc),
        lambda: memory_limit(proc, pid),
    )
    return tuple(look() for look in looks)


def ptrace(pid: int | None, proc: str) -> Check:
    """Whether stacks of other processes may be read."""
    name = "ptrace"
    if pid is not None:
        refusal = first_look.ptrace_refusal([pid], proc)
        if refusal is not None:
            return Check(name=name, level="warning", text=refusal)
        return Check(name=name, level="ok", text=f"the stacks of pid {pid} may be read")
    scope = _number(f"{proc}/sys/kernel/yama/ptrace_scope")
    held = int(procfs.status_fields(os.getpid(), proc).get("CapEff") or "0", 16)
    if held >> CAP_SYS_PTRACE & 1 and scope != 3:
        return Check(
            name=name, level="ok", text="CAP_SYS_PTRACE is held: all processes seen here may be read"
        )
    if scope in (None, 0):
        return Check(name=name, level="ok", text="the stacks of your own processes may be read")
    if scope == 3:
        return Check(
            name=name, level="warning", text="kernel.yama.ptrace_scope is 3: nobody may, until a reboot"
        )
    return Check(
        name=name,
        level="warning",
        text=f"kernel.yama.ptrace_scope is {scope}: py-spy needs root for processes that it has not started",
        command="sudo sysctl kernel.yama.ptrace_scope=0",
    )


def py_spy_there() -> Check:
    """Whether the program that reads Python stacks is installed."""
    found = py_spy.find()
    if found is None:
        return Check(
            name="py-spy", level="warning", text="not found: no Python stacks", command="pip install py-spy"
        )
    return Check(name="py-spy", level="ok", text=found)


def nvml(proc: str) -> Check:
    """Whether the NVIDIA driver answers, within a deadline: on a lost GPU it may not."""
    module = importlib.util.find_spec("pynvml")
    options = {"pynvml_path": module.origin} if module is not None and module.origin is not None else {}
    result = gpus.COLLECTOR.collect(Context([], proc=proc, options=options), None)
    if result.status in (OK, PARTIAL):
        return Check(name="NVML", level="ok", text=result.reason or "it answers")
    if result.status == ABSENT:
        return Check(name="NVML", level="note", text=result.reason or "no GPU")
    return Check(
        name="NVML", level="warning", text=result.reason or result.status, command="sudo dmesg | grep Xid"
    )


def shared_memory(proc: str, pid: int | None) -> Check:
    """The size of /dev/shm, as the process sees it."""
    path = f"{proc}/{pid}/root/dev/shm" if pid is not None else "/dev/shm"
    outcome = guarded.call(_space, path, timeout=PATIENCE)
    if outcome.status != "ok":
        return Check(name="/dev/shm", level="unknown", text=outcome.reason or outcome.status)
    total, free = outcome.value
    text = f"{total >> 20} MiB, {free >> 20} MiB free"
    if total < SHM_SMALL or free < total // 20:
        why = ": NCCL and dataloaders fail or wait when it is full"
        return Check(name="/dev/shm", level="warning", text=text + why, command="docker run --shm-size=16g …")
    return Check(name="/dev/shm", level="ok", text=text)


def _space(path: str) -> list[int]:
    found = os.statvfs(path)
    return [found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize]


def cores(proc: str, pid: int | None) -> Check:
    """Whether an aborted rank leaves a core file, from which stacks can be read afterwards."""
    soft = resource.getrlimit(resource.RLIMIT_CORE)[0]
    if pid is not None:
        line = next(
            (
                row
                for row in (_text(f"{proc}/{pid}/limits") or "").splitlines()
                if row.startswith("Max core file")
            ),
            "",
        )
        words = line[len("Max core file size") :].split()
        soft = int(words[0]) if words and words[0].isdecimal() else resource.RLIM_INFINITY if words else soft
    pattern = (_text(f"{proc}/sys/kernel/core_pattern") or "").strip()
    if soft == 0 and not pattern.startswith("|"):
        text = "limit 0: a rank that the watchdog aborts leaves no core file to read stacks from"
        return Check(name="core files", level="note", text=text, command="ulimit -c unlimited")
    size = "no limit" if soft == resource.RLIM_INFINITY else f"limit {soft} bytes"
    return Check(name="core files", level="ok", text=f"{size}, to {pattern or 'an unknown place'}")


def hung_tasks(proc: str) -> Check:
    """Whether the kernel reports tasks in uninterruptible sleep."""
    seconds = _number(f"{proc}/sys/kernel/hung_task_timeout_secs")
    left = _number(f"{proc}/sys/kernel/hung_task_warnings")
    if seconds is None:
        return Check(name="hung tasks", level="note", text="this kernel does not report tasks that stay in D")
    if seconds == 0 or left == 0:
        what = "it is off" if seconds == 0 else "its warnings since boot are used up"
        command = (
            "sudo sysctl kernel.hung_task_timeout_secs=120"
            if seconds == 0
            else "sudo sysctl kernel.hung_task_warnings=10"
        )
        text = f"{what}: a rank stuck in the kernel leaves no line in its log"
        return Check(name="hung tasks", level="warning", text=text, command=command)
    return Check(name="hung tasks", level="ok", text=f"reported after {seconds} s in D")


def kernel_log(proc: str) -> Check:
    """Whether this user may read the kernel's log (Xid, OOM killer, hung tasks)."""
    if _number(f"{proc}/sys/kernel/dmesg_restrict") == 1 and os.geteuid() != 0:
        text = "only root may read it: Xid, OOM killer and hung-task lines will be missing"
        return Check(
            name="kernel log", level="warning", text=text, command="sudo sysctl kernel.dmesg_restrict=0"
        )
    return Check(name="kernel log", level="ok", text="may be read")


def memory_limit(proc: str, pid: int | None) -> Check:
    """Cgroup v1 groups whose OOM killer is off make a rank wait for ever at the limit."""
    name, target = "memory cgroup", pid if pid is not None else os.getpid()
    text = _text(f"{proc}/{target}/cgroup")
    group = cgroups.locate(target, text, cgroups.hierarchies(proc), "memory", 1) if text else None
    while group is not None:
        control = _text(f"{group.directory}/memory.oom_control") or ""
        if "oom_kill_disable 1" in control:
            why = f"the OOM killer of {group.path} is off: at its limit a rank waits for ever"
            return Check(name=name, level="warning", text=why)
        above = list(group.ancestry())
        group = above[1] if len(above) > 1 else None
    return Check(name=name, level="ok", text="no group above whose OOM killer is off")


def _text(path: str) -> str | None:
    return procfs.read_text(path, 1 << 16)[0]


def _number(path: str) -> int | None:
    text = (_text(path) or "").strip()
    return int(text) if text.lstrip("-").isdecimal() and len(text) < 20 else None

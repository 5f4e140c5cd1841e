"""The memory of the node, and of each control group that may be what a target waits for.

The limit that blocks a process is often not its own cgroup's but an ancestor's (a Slurm job above its step, a
pod above its container), so every level up to the top of the mount is read, v1 and v2. In a hybrid hierarchy
the v2 groups carry no memory controller, yet their ``memory.pressure`` works: both are read.
"""

import contextlib
import json
import os
from typing import Any, Dict, List, Optional, Tuple

from . import cgroups, guarded, procfs
from .interface import NODE, OK, PARTIAL, Context, Result, Target

FILES_V1 = (
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "memory.max_usage_in_bytes",
    "memory.failcnt",
    "memory.oom_control",
    "memory.soft_limit_in_bytes",
    "memory.memsw.limit_in_bytes",
    "memory.memsw.usage_in_bytes",
    "memory.memsw.failcnt",
    "memory.kmem.limit_in_bytes",
    "memory.kmem.usage_in_bytes",
    "memory.kmem.failcnt",
    "memory.swappiness",
    "memory.use_hierarchy",
    "memory.stat",
)
FILES_V2 = (
    "memory.current",
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.max",
    "memory.peak",
    "memory.oom.group",
    "memory.events",
    "memory.events.local",
    "memory.pressure",
    "memory.swap.current",
    "memory.swap.max",
    "memory.swap.high",
    "memory.swap.events",
    "memory.stat",
    "cgroup.controllers",
    "cgroup.events",
)
VMSTAT = (
    "allocstall",
    "compact_stall",
    "nr_dirty ",
    "nr_free_pages ",
    "nr_writeback ",
    "oom_kill",
    "pgmajfault",
    "pgscan_",
    "pgsteal_",
    "pswpin",
    "pswpout",
    "thp_fault_fallback ",
    "workingset_refault",
)
"""Beginnings of the /proc/vmstat lines that tell of reclaim, swapping and killing."""
SHM = "/dev/shm"
WAIT = 1.0
"""Seconds for the statvfs of a /dev/shm that is not this process's own tmpfs."""


class Memory:
    """Takes ``memory.json``; see FORMAT.md."""

    name = "memory"
    scope = NODE
    once = False
    budget = 3.0
    describes = "host memory, pressure, and the memory cgroup of each process with all its ancestors"

    def collect(self, ctx: Context, target: Optional[Target]) -> Result:
        """Starts no child unless the targets have a /dev/shm of their own, and allocates little."""
        errors: Dict[str, str] = {}
        groups = target_groups(ctx.targets, ctx.proc, errors)
        value: Dict[str, Any] = {"cgroups": [_group_row(*entry) for entry in groups]}
        value["meminfo"] = _text(f"{ctx.proc}/meminfo", "meminfo", errors)
        vmstat = _text(f"{ctx.proc}/vmstat", "vmstat", errors)
        lines = [] if vmstat is None else [line for line in vmstat.splitlines() if line.startswith(VMSTAT)]
        value["vmstat"] = None if vmstat is None else "\n".join(lines)
        value["pressure"] = {
            kind: _text(f"{ctx.proc}/pressure/{kind}", f"pressure/{kind}", errors)
            for kind in ("memory", "cpu", "io")
        }
        value["shm"] = shared_memory(ctx, errors)
        value["errors"] = errors
        data = json.dumps(value, separators=(",", ":")).encode("ascii")
        parts = [f"{name}: {error}" for name, error in errors.items() if error not in procfs.GONE]
        return Result(PARTIAL if parts else OK, "; ".join(parts) or None, (("memory.json", data),))


def _text(path: str, name: str, errors: Dict[str, str]) -> Optional[str]:
    text, error = procfs.read_text(path, 1 << 17)
    if error is not None:
        errors[name] = error
    return text


Entry = Tuple[cgroups.Group, int, List[int]]
"""A group, its level (0: some target is in the group itself, 1: its parent, …), the targets below it."""


def target_groups(targets: List[Target], proc: str, errors: Dict[str, str]) -> List[Entry]:
    """The memory groups of the targets and all their ancestors, each once, own groups first.

    A target of which neither hierarchy is visible goes into ``errors`` as ``cgroup of pid N``.
    """
    mounts = cgroups.hierarchies(proc)
    levels: Dict[cgroups.Group, int] = {}
    members: Dict[cgroups.Group, List[int]] = {}
    for target in targets:
        text, error = procfs.read_text(f"{proc}/{procfs.live_id(target.pid, proc)}/cgroup", 1 << 16)
        found = [
            group
            for version in (1, 2)
            for group in (cgroups.locate(target.pid, text or "", mounts, "memory", version),)
            if group is not None
        ]
        if not found:
            errors[f"cgroup of pid {target.pid}"] = error or "not below a cgroup mount that is visible here"
        for own in found:
            for level, group in enumerate(own.ancestry()):
                levels[group] = min(level, levels.get(group, level))
                members.setdefault(group, []).append(target.pid)
    order = sorted(levels, key=lambda group: (group.version, levels[group], group.path))
    return [(group, levels[group], members[group]) for group in order]


def _group_row(group: cgroups.Group, level: int, pids: List[int]) -> Dict[str, Any]:
    files: Dict[str, str] = {}
    errors: Dict[str, str] = {}
    for name in FILES_V1 if group.version == 1 else FILES_V2:
        text, error = procfs.read_text(f"{group.directory}/{name}", 1 << 16)
        if text is not None:
            files[name] = text
        elif error is not None and error not in procfs.GONE:
            errors[name] = error
    return {
        "path": group.path,
        "version": group.version,
        "level": level,
        "pids": pids,
        "files": files,
        "errors": errors,
    }


def shared_memory(ctx: Context, errors: Dict[str, str]) -> Optional[Dict[str, Any]]:
    """``{"path", "total", "used", "pid"}`` in bytes of the /dev/shm that the targets use.

    ``pid`` names the target through whose root it was read, None for this process's own. A tmpfs answers
    at once; whatever else stands there is asked in a child with a deadline.
    """
    own = procfs.namespace(os.getpid(), "mnt", ctx.proc)
    ids = (procfs.live_id(target.pid, ctx.proc) for target in ctx.targets)
    kinds = ((pid, procfs.namespace(pid, "mnt", ctx.proc)) for pid in ids)
    other = next((pid for pid, kind in kinds if kind is not None and kind != own), None)
    view = "self" if other is None else str(other)
    mounted = [line for line in procfs.mountinfo(view, ctx.proc) if line.point == SHM]
    if other is None and mounted and mounted[-1].fstype == "tmpfs":
        with contextlib.suppress(OSError):
            return {"path": SHM, "pid": None, **space(SHM)}
    path = SHM if other is None else f"{ctx.proc}/{other}/root{SHM}"
    answer = guarded.call(space, path, timeout=ctx.remaining(WAIT))
    if answer.status != "ok":
        errors["shm"] = answer.reason or answer.status
        return None
    return {"path": SHM, "pid": other, **answer.value}


def space(path: str) -> Dict[str, int]:
    """``{"total", "used"}`` bytes of the file system at ``path``. May block: see ``shared_memory``."""
    found = os.statvfs(path)
    return {
        "total": found.f_blocks * found.f_frsize,
        "used": (found.f_blocks - found.f_bfree) * found.f_frsize,
    }


COLLECTOR = Memory()

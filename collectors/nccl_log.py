"""The end of NCCL's own log, where ``NCCL_DEBUG_FILE`` sends it to a file.

In the name ``%h`` is the host's name up to its first dot, ``%p`` the pid in the process's own namespace,
``%%`` a percent sign (NCCL 2.4 on; from 2.28 on ``%`` and ``/`` in the host's name become ``-``). Real
variables beat the files ``NCCL_CONF_FILE`` or ``~/.nccl.conf``, and those ``/etc/nccl.conf``. Python >= 3.8,
standard library only.
"""

import os
import re
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from . import ahead, guarded, procfs, rank_settings, tails, target_files
from .interface import ABSENT, ERROR, PROCESS, Context, Result, Target
from .target_files import Refused, TargetRoot

UNSET = "nccl_log.unset"
"""Key in ``ctx.shared``: the (pid, start ticks) for which neither variables nor files name a log. NCCL reads
them when it starts, once: what was not named then is not looked for again."""
CONF_CAP = 64 << 10
NO_NAME = "NCCL_DEBUG_FILE is not set"


class NcclLog:
    """Takes ``nccl_log.json``; see FORMAT.md."""

    name = "nccl_log"
    scope = PROCESS
    once = False
    budget = 2.0
    describes = "the files that NCCL_DEBUG_FILE names: size, time, the last 64 kB, masked"

    def collect(self, ctx: Context, target: Optional[Target]) -> Result:
        """One entry a file that the pattern fits; *absent* where NCCL writes none."""
        if target is None:
            return Result(ERROR, "no process given")
        if not _may_write(target):
            return Result(ABSENT, "only ranks write one")
        problem = procfs.identity_problem(target.pid, target.start_ticks, ctx.proc)
        if problem is not None:
            return Result(*problem)
        if target[:2] in _unset(ctx):
            return Result(ABSENT, NO_NAME)
        pid = procfs.live_id(target.pid, ctx.proc)
        settings, failure = rank_settings.of(ctx, target, self.budget)
        if settings is None:
            return failure or Result(ERROR, "its environment is not known")
        outcome: Optional[guarded.Outcome] = ahead.take(ctx, self.name, target.pid)
        if outcome is None:
            sizes, timeout = tails.known_sizes(ctx, target), ctx.remaining(self.budget)
            outcome = guarded.call(_files, pid, ctx.proc, settings, sizes, timeout=timeout, cap=4 << 20)
        if outcome.status == "ok" and outcome.value == ["unset"]:
            _unset(ctx).add(target[:2])
            return Result(ABSENT, NO_NAME)
        return tails.result(ctx, target, "nccl_log.json", outcome)


def _may_write(target: Target) -> bool:
    return target.role in ("rank", "orphan")


def _unset(ctx: Context) -> Set[Tuple[int, int]]:
    found: Set[Tuple[int, int]] = ctx.shared.setdefault(UNSET, set())
    return found


def read_ahead(ctx: Context, targets: Sequence[Target]) -> None:
    """Has one child read the files of each rank whose environment is known; one that blocks it costs the
    budget of its cell."""
    jobs: Dict[int, Tuple[Any, ...]] = {}
    for target in targets:
        settings = rank_settings.known(ctx, target)
        if settings is not None and _may_write(target) and target[:2] not in _unset(ctx):
            pid = procfs.live_id(target.pid, ctx.proc)
            jobs[target.pid] = (pid, ctx.proc, settings, tails.known_sizes(ctx, target))
    tails.read_ahead(ctx, NcclLog.name, jobs, _files, NcclLog.budget)


def _files(pid: int, proc: str, settings: Dict[str, str], sizes: Dict[str, int]) -> Iterator[Any]:
    """Runs in the guarded child: entries, or the word ``unset``."""
    ids = target_files.ids_of(pid, proc)
    if ids is None:
        return
    inner = (procfs.nspid(pid, proc) or (pid,))[-1]
    view = TargetRoot(f"{proc}/{pid}")
    try:
        target_files.become(ids)
        pattern = settings.get("NCCL_DEBUG_FILE") or _from_files(view, settings)
        if not pattern:
            yield "unset"
            return
        for path in paths(view, pattern, inner)[:8]:
            try:
                yield target_files.entry(view.find(path), path, ids.uid, sizes.get(path))
            except OSError as error:
                yield {"fd": None, "path": path, "error": procfs.errno_name(error)}
            except Refused as refusal:
                yield {"fd": None, "path": path, "error": str(refusal)}
    finally:
        view.close()


def _from_files(view: TargetRoot, settings: Dict[str, str]) -> Optional[str]:
    """``NCCL_DEBUG_FILE=…`` of the configuration files of NCCL 2.23 on."""
    own = settings.get("NCCL_CONF_FILE") or settings.get("HOME", "/nonexistent") + "/.nccl.conf"
    for path in (own, "/etc/nccl.conf"):
        try:
            found = view.find(path)
            about = os.fstat(found)
            if target_files.refusal(about, about.st_uid) is not None:
                continue
            text = target_files.read_tail(found, about.st_size, CONF_CAP).decode("utf-8", "replace")
        except (OSError, Refused):
            continue
        match = re.search(r"^\s*NCCL_DEBUG_FILE\s*=\s*(\S+)", text, re.MULTILINE)
        if match is not None:
            return match[1]
    return None


def paths(view: TargetRoot, pattern: str, pid: int) -> List[str]:
    """The paths that the pattern stands for. Where the file of this host's name is not there (the target may
    have a host name of its own), any host's with the same pid, if the name has both.

    A pattern without ``%p`` is one file for all ranks of the node.
    """
    host = os.uname().nodename.split(".")[0]
    exact = expand(pattern, host.replace("%", "-").replace("/", "-"), str(pid))
    directory, _, name = pattern.rpartition("/")
    if "%h" not in name or "%p" not in name or "%" in directory:
        return [exact]
    try:
        view.find(exact)
    except (OSError, Refused):
        escaped = expand(re.escape(name).replace(r"\%", "%"), "[^/]+", str(pid))
        within = f"{directory}/" if "/" in pattern else ""
        found = view.matching(within or ".", re.compile(escaped))
        return [within + name for name in found] or [exact]
    return [exact]


def expand(pattern: str, host: str, pid: str) -> str:
    """The name with its marks replaced; an unknown mark stays as it is.

    >>> expand("/tmp/nccl.%h.%p%%.log", "node-a", "42")
    '/tmp/nccl.node-a.42%.log'
    """
    marks = {"h": host, "p": pid, "%": "%"}
    return re.sub("%([hp%])", lambda match: marks[match[1]], pattern)


COLLECTOR = NcclLog()

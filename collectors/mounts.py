"""The mounts that the targets work on, and whether they still answer.

A file system whose server is gone blocks whoever touches it, for ever: so each is asked by ``statvfs`` in a
child with a deadline, and that it did not answer is the finding.
"""

import json
import os
import re
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from . import guarded, procfs
from .interface import NODE, OK, PARTIAL, Context, Result, Target

OUTPUT = (1, 2)
CHECKPOINT = re.compile(
    r"ckpt|checkpoint|global_?step|/step[-_]?\d|"
    r"\.(?:pt|pth|bin|safetensors|distcp|orbax|npz|index)(?:$|\.|-| )",
    re.IGNORECASE,
)
"""Names that trainers give to what they save (torch, DCP, DeepSpeed, Megatron, transformers, orbax)."""
WRITING = os.O_WRONLY | os.O_RDWR
MOST_FILES = 4096
MOST_MOUNTS = 64
WAIT = 2.0
"""Seconds that one file system gets to answer: more than a busy node needs, for silence is evidence."""


class Use(NamedTuple):
    """A mount in use. ``view`` is the path by which this process reaches it."""

    path: str
    fstype: str
    source: str
    view: str
    pids: List[int]
    why: str


class Mounts:
    """Takes ``mounts.json``; see FORMAT.md."""

    name = "mounts"
    scope = NODE
    once = True
    budget = 8.0
    describes = "mounts of working, output and checkpoint directories, and whether they answer"

    def collect(self, ctx: Context, target: Optional[Target]) -> Result:
        """A mount that did not answer has ``responsive`` false; the cell is still ok: that is evidence."""
        gaps: List[str] = []
        uses = mounts_in_use(ctx.targets, ctx.proc, gaps)
        views = list(dict.fromkeys(use.view for use in uses))[:MOST_MOUNTS]
        answers = dict(zip(views, ask(views, time.monotonic() + ctx.remaining(self.budget))))
        rows = []
        for use in uses:
            statvfs, error = answers.get(use.view, (None, "not asked"))
            responsive = None if error == "not asked" else error not in ("timeout", "abandoned")
            row: Dict[str, Any] = {"path": use.path, "fstype": use.fstype, "source": use.source}
            row.update(pids=use.pids, why=use.why, statvfs=statvfs, error=error, responsive=responsive)
            rows.append(row)
        asked_not = sum(row["responsive"] is None for row in rows)
        if asked_not:
            gaps.append(f"{asked_not} mounts were not asked: no time left")
        data = json.dumps({"mounts": rows}, separators=(",", ":")).encode("ascii")
        return Result(PARTIAL if gaps else OK, "; ".join(gaps) or None, (("mounts.json", data),))


def mounts_in_use(targets: List[Target], proc: str, gaps: List[str]) -> List[Use]:
    """The mounts below which a target has its working directory, output, or checkpoint-like open files.

    One row for each mount and reason, with all its pids. Paths are those of the target's own mount namespace;
    one that is not this process's is reached through ``/proc/PID/root``.
    """
    own = procfs.namespace(os.getpid(), "mnt", proc)
    tables: Dict[str, List[procfs.MountLine]] = {}
    found: Dict[Tuple[str, str, str], Use] = {}
    for target in targets:
        live = procfs.live_id(target.pid, proc)
        space = procfs.namespace(live, "mnt", proc)
        paths = dict.fromkeys(used_paths(live, proc, gaps))
        if space is None or not paths:
            continue
        root, _ = procfs.read_link(f"{proc}/{live}/root")
        key = f"{space} {root}"
        if key not in tables:
            tables[key] = procfs.mountinfo(str(live), proc)
        through = "" if space == own and root == "/" else f"{proc}/{live}/root"
        for path, why in paths:
            line = covering(path, tables[key])
            if line is not None:
                new = Use(line.point, line.fstype, line.source, through + line.point, [], why)
                use = found.setdefault((key, line.point, why), new)
                use.pids.extend([] if target.pid in use.pids else [target.pid])
    return list(found.values())


def used_paths(pid: int, proc: str, gaps: List[str]) -> Iterator[Tuple[str, str]]:
    """(path, ``cwd`` | ``output`` | ``checkpoint``) of a process. Links are read, never followed."""
    place = f"{proc}/{pid}"
    cwd, error = procfs.read_link(f"{place}/cwd")
    if cwd is not None and cwd.startswith("/"):
        yield cwd, "cwd"
    elif error is not None and error not in procfs.GONE:
        gaps.append(f"working directory and files of pid {pid}: {error}")
        return
    names, _ = procfs.list_names(f"{place}/fd")
    for number in sorted(int(name) for name in names if name.isdigit())[:MOST_FILES]:
        path = procfs.read_link(f"{place}/fd/{number}")[0] or ""
        if not path.startswith("/") or path.startswith(("/dev/", "/proc/", "/memfd:", "/sys/")):
            continue
        if number in OUTPUT:
            yield path, "output"
        elif CHECKPOINT.search(path) or _is_directory(f"{place}/fdinfo/{number}"):
            yield path, "checkpoint"


def _is_directory(fdinfo: str) -> bool:
    """By the open flags alone (O_DIRECTORY): a stat could block on the very mount in question."""
    words = procfs.parse_status(procfs.read_text(fdinfo, 4096)[0] or "").get("flags", "")
    return re.fullmatch("[0-7]+", words) is not None and bool(int(words, 8) & os.O_DIRECTORY)


def covering(path: str, lines: List[procfs.MountLine]) -> Optional[procfs.MountLine]:
    """The mount that ``path`` lies on: the longest mount point above it, the last mounted of equals."""
    best: Optional[procfs.MountLine] = None
    for line in lines:
        inside = line.point == "/" or path == line.point or path.startswith(line.point + "/")
        if inside and (best is None or len(line.point) >= len(best.point)):
            best = line
    return best


Answer = Tuple[Optional[Dict[str, int]], Optional[str]]
"""(space in bytes, None), or (None, ``timeout`` | ``abandoned`` | ``not asked`` | errno name)."""


def ask(paths: List[str], until: float) -> List[Answer]:
    """Asks each file system; one child for all until one does not answer, then a new child for the rest."""
    answers: List[Answer] = []
    while len(answers) < len(paths):
        left = until - time.monotonic()
        if left <= 0:
            return answers + [(None, "not asked")] * (len(paths) - len(answers))
        reply = guarded.call(statvfs_each, paths[len(answers) :], timeout=min(WAIT, left))
        items = reply.value or []
        fresh = [(value, error) for kind, value, error in items if kind == "answer"]
        answers += fresh
        if len(answers) == len(paths):
            break
        if reply.status == "error":
            answers.append((None, reply.reason))
        elif len(items) == 1 and left >= WAIT:
            answers.append((None, reply.status))  # asked first of all, and it had the whole time
        elif not items:
            answers.append((None, "not asked"))  # the child itself did not get to run
    return answers


def statvfs_each(paths: List[str]) -> Iterator[Tuple[str, Optional[Dict[str, int]], Optional[str]]]:
    """Runs in the child: ``asking``, then ``answer`` with the space of each file system, in bytes and inodes.

    May block at any of them.
    """
    for path in paths:
        yield "asking", None, None
        try:
            found = os.statvfs(path)
        except OSError as error:
            yield "answer", None, procfs.errno_name(error)
            continue
        unit = found.f_frsize
        value = {"total": found.f_blocks * unit, "free": found.f_bfree * unit}
        value.update(available=found.f_bavail * unit, files=found.f_files, files_free=found.f_ffree)
        yield "answer", value, None


COLLECTOR = Mounts()

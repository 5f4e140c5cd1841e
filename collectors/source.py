"""The source lines that the stacks stand on, with the blocks around them, from the target's own file system.

Wants ``ctx.shared["frames"]`` (``stacks`` leaves it there) and keeps ``ctx.shared["sources"]``, the
(file, line) pairs that the shard already has: the agent hands that set on from sample to sample.
Python >= 3.8.
"""

import json
import os
import stat
import time
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from . import blocks, guarded, logical_lines, procfs, redact
from .interface import ABSENT, DENIED, OK, PARTIAL, PROCESS, TIMEOUT, Context, Result, Target

CAP = 4 << 20
"""Bytes of the largest source file that is read."""
MOST_FILES = 2000
MOST_LINES = 20_000
BUDGET = 4.0
ONE_LOOK = 2.0
"""Seconds after which the file that is being read is given up."""

Wanted = List[Tuple[str, List[int]]]


class Source:
    """Takes ``source.json`` of one process; see FORMAT.md."""

    name = "source"
    scope = PROCESS
    once = False
    budget = BUDGET
    describes = "the source line, function, enclosing with and loops of every frame (target's file system)"

    def collect(self, ctx: Context, target: Optional[Target]) -> Result:
        assert target is not None
        wanted = wanted_lines(ctx, target.pid)
        if not wanted:
            return Result(OK, None, (_artifact([]),))
        problem = procfs.identity_problem(target.pid, target.start_ticks, ctx.proc)
        if problem is not None:
            return Result(*problem)
        rows, unread = read(ctx, target, wanted)
        seen: Set[Tuple[str, int]] = ctx.shared.setdefault("sources", set())
        seen.update((row["file"], row["line"]) for row in rows)
        for row in rows:
            _mask(row, ctx.salt)
        reason = "; ".join(f"{name}: {why}" for name, why in unread[:5])
        if not rows and unread:
            first = unread[0][1]
            status = DENIED if "PermissionError" in first else TIMEOUT if "no " in first else ABSENT
            return Result(status, reason)
        return Result(PARTIAL if reason else OK, reason or None, (_artifact(rows),))


def _artifact(rows: Sequence[Dict[str, Any]]) -> Tuple[str, bytes]:
    return "source.json", json.dumps({"frames": rows}, separators=(",", ":")).encode("ascii")


def wanted_lines(ctx: Context, pid: int) -> Wanted:
    """Files with the lines of them that ``pid`` stands on and the shard does not have yet."""
    seen = ctx.shared.get("sources", ())
    files: Dict[str, List[int]] = {}
    for owner, file, line in sorted(ctx.shared.get("frames", ())):
        if owner == pid and line > 0 and (file, line) not in seen and not file.startswith("<"):
            files.setdefault(file, []).append(line)
    # paths in the file system of the interpreter come first: the working directory may be a dead mount
    ordered = sorted(files.items(), key=lambda item: not item[0].startswith("/"))
    return ordered[:MOST_FILES]


def read(
    ctx: Context, target: Target, wanted: Wanted
) -> "tuple[List[Dict[str, Any]], List[Tuple[str, str]]]":
    """Rows for ``source.json``, and (file, reason) for files that could not be read in time.

    A file that is missing, or not a plain one, is skipped quietly. One that blocks is given up, and the
    rest read by another child.
    """
    rows: List[Dict[str, Any]] = []
    unread: List[Tuple[str, str]] = []
    until = time.monotonic() + ctx.remaining(BUDGET)
    started = _start_wall(target, ctx.proc)
    while wanted:
        left = min(ONE_LOOK, until - time.monotonic())
        if left <= 0:
            unread += [(name, "no time left") for name, _ in wanted]
            break
        outcome = guarded.call(_look, ctx.proc, target.pid, target.uid, started, wanted, timeout=left)
        files = outcome.value if isinstance(outcome.value, list) else []
        for found in files:
            rows += found
        wanted = wanted[len(files) :]
        if outcome.status == "ok":
            break
        if wanted:
            unread.append((wanted[0][0], outcome.reason or outcome.status))
            wanted = wanted[1:]
        if outcome.status == "error":
            unread += [(name, outcome.reason or "error") for name, _ in wanted]
            break
    return rows[:MOST_LINES], unread


def _start_wall(target: Target, proc: str) -> Optional[float]:
    boot = procfs.boot_time(proc)
    if boot is None or not target.start_ticks:
        return None
    return boot + target.start_ticks / os.sysconf("SC_CLK_TCK")


def _look(
    proc: str, pid: int, uid: Optional[int], started: Optional[float], wanted: Wanted
) -> Iterator[List[Dict[str, Any]]]:
    """Runs in the killable child: one list of rows a file, in the order of ``wanted``."""
    cwd = become(proc, pid, uid)
    for name, lines in wanted:
        try:
            text, changed = read_file(name, cwd, started)
        except OSError:
            yield []
            continue
        yield rows_of(name, text, lines, changed)


def become(proc: str, pid: int, uid: Optional[int]) -> Optional[int]:
    """Makes this (forked) process see the target's file system with no more rights than the target has.

    Returns a descriptor of its working directory. Raises OSError when its root cannot be entered.
    """
    try:
        cwd: Optional[int] = os.open(f"{proc}/{pid}/cwd", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        cwd = None
    root = os.open(f"{proc}/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    fields = procfs.status_fields(pid, proc)
    os.fchdir(root)
    if os.geteuid() == 0:
        os.chroot(".")
        uids, gids = fields.get("Uid", "").split(), fields.get("Gid", "").split()
        user = int(uids[1]) if len(uids) > 1 else uid
        if user is None or len(gids) < 2:
            raise OSError("the target's ids are not known")
        if user != 0:
            os.setgroups([int(group) for group in fields.get("Groups", "").split()])
            os.setresgid(int(gids[1]), int(gids[1]), int(gids[1]))
            os.setresuid(user, user, user)
    return cwd


def read_file(name: str, cwd: Optional[int], started: Optional[float]) -> "tuple[str, bool]":
    """(text with newlines as line ends, changed since the process started). ``name`` is relative to the root
    that ``become`` entered, or to ``cwd``. Raises OSError for anything but a plain file of decent size."""
    relative = not name.startswith("/")
    if "\0" in name or (relative and cwd is None):
        raise OSError("no such place")
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
    # the current directory is the target's root: relative to it, also where chroot was not allowed
    descriptor = os.open(name, flags, dir_fd=cwd) if relative else os.open("." + name, flags)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > CAP:
            raise OSError("not a plain file, or too large")
        data = b""
        while len(data) <= CAP:
            chunk = os.read(descriptor, 1 << 20)
            if not chunk:
                break
            data += chunk
    finally:
        os.close(descriptor)
    try:
        # no codec that Python would have to import: its library is out of sight here
        text = data.decode("utf-8").lstrip("\ufeff")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    changed = started is not None and facts.st_mtime > started + 1.0
    return text.replace("\r\n", "\n").replace("\r", "\n"), changed


def rows_of(name: str, text: str, lines: Sequence[int], changed: bool) -> List[Dict[str, Any]]:
    """The rows of one file. Of a file written after the process started only the text is told: the code that
    runs is another, and an enclosing ``with`` would be false evidence."""
    physical = text.split("\n")
    logical = [] if changed else logical_lines.split(text, max(lines))
    rows = []
    for line in lines:
        if line > len(physical):
            continue
        row: Dict[str, Any] = {"file": name, "line": line, "text": blocks.shorten(physical[line - 1])}
        row.update(blocks.around(logical, line) or {"function": None, "withs": [], "loops": []})
        if changed:
            row["changed"] = True
        rows.append(row)
    return rows


def _mask(row: Dict[str, Any], salt: bytes) -> None:
    row["text"] = redact.scrub(row["text"], salt)
    if row["function"] is not None:
        row["function"] = redact.scrub(row["function"], salt)
    for block in row["withs"] + row["loops"]:
        block[1] = redact.scrub(block[1], salt)


COLLECTOR = Source()

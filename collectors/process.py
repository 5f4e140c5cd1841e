"""One process as a whole: what it is, what it has open, what it may use, and where its children are.

Everything is read without waiting for the target, except its command line and its mappings, which need its
mmap_lock: those are read last, in a child with a deadline.
"""

import json
import time
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from . import ahead, cgroups, guarded, in_turn, procfs, redact
from .interface import OK, PARTIAL, PROCESS, Context, Result, Target

LEADER_FILES = ("stat", "status", "io", "oom_score", "oom_score_adj")
"""Those that speak of the whole process, also when its leader has exited."""
LIVE_FILES = ("statm", "limits", "cgroup")
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
MOST_FILES = 4096
MOST_TASKS = 4096
ARGUMENTS_CAP = 64 << 10
MAPS_CAP = 16 << 20
WAIT = 1.0
"""Seconds for the command line of a process whose mmap_lock may be held."""
GPU_DEVICES = ("/dev/nvidia", "/dev/dri/", "/dev/kfd")
NOT_ASKED = (*GPU_DEVICES, "/dmabuf")
"""Open files whose ``fdinfo`` is answered by a GPU driver, which may be what hangs: it is not read."""


class Process:
    """Takes ``process.json``; see FORMAT.md."""

    name = "process"
    scope = PROCESS
    once = False
    budget = 4.0
    describes = "open files with positions, io, limits, namespaces, cgroups, children, command line (masked)"

    def collect(self, ctx: Context, target: Optional[Target]) -> Result:
        """What cannot be read is null in the artifact, with the errno under ``errors`` by field name."""
        assert target is not None
        pid, proc = target.pid, ctx.proc
        problem = procfs.identity_problem(pid, target.start_ticks, proc)
        if problem is not None:
            return Result(*problem)
        until = time.monotonic() + ctx.remaining(self.budget)
        errors: Dict[str, str] = {}
        row = read_plain(pid, proc, errors)
        place = f"{proc}/{row['via'] or pid}"
        row["fds"], gap = open_files(place, until, errors)
        row["cmdline"], row["mapped_gpu"] = None, []
        if not _is_dead(row):
            with_gpu = any(entry["target"].startswith(GPU_DEVICES) for entry in row["fds"])
            answer: Optional[guarded.Outcome] = ahead.take(ctx, self.name, pid)
            if answer is None or (with_gpu and len(answer.value or []) == 1):
                wait = max(0.05, min(WAIT, until - time.monotonic()))
                answer = guarded.call(_behind_lock, place, with_gpu, timeout=wait, cap=1 << 20)
            _fill_in(row, answer, with_gpu, errors, ctx.salt)
        row["errors"] = errors
        problem = procfs.identity_problem(pid, target.start_ticks, proc)
        parts = [part for part in (problem and problem[1], gap, *_refusals(errors)) if part]
        data = json.dumps(row, separators=(",", ":")).encode("ascii")
        return Result(PARTIAL if parts else OK, "; ".join(parts) or None, (("process.json", data),))


def read_plain(pid: int, proc: str, errors: Dict[str, str]) -> Dict[str, Any]:
    """Everything that can be read without waiting; what fails goes into ``errors``, by field name.

    A leader that has exited while a thread lives on shows no files, limits or links: then they are read from
    the thread's directory, and ``via`` is its tid (else None).
    """
    row: Dict[str, Any] = {"pid": pid}
    for name in LEADER_FILES:
        row[name] = _kept(procfs.read_text(f"{proc}/{pid}/{name}", 1 << 16), name, errors)
    live = procfs.live_id(pid, proc)
    row["via"] = live if live != pid else None
    place = f"{proc}/{live}"
    for name in LIVE_FILES:
        row[name] = _kept(procfs.read_text(f"{place}/{name}", 1 << 16), name, errors)
    for name in ("exe", "cwd"):
        row[name] = _kept(procfs.read_link(f"{place}/{name}"), name, errors)
    row["ns"] = {kind: _kept(procfs.read_link(f"{place}/ns/{kind}"), "ns", errors) for kind in NAMESPACES}
    row["children"] = children(pid, proc)
    row["freezer"] = None
    if row["cgroup"]:
        row["freezer"] = cgroups.freezer_state(pid, row["cgroup"], cgroups.hierarchies(proc))
    return row


def _is_dead(row: Dict[str, Any]) -> bool:
    """Whether all threads have exited: then there is neither memory nor command line."""
    line = procfs.parse_stat(row["stat"] or "")
    return row["via"] is None and line is not None and line.state in "ZX"


def _kept(answer: procfs.Text, name: str, errors: Dict[str, str]) -> Optional[str]:
    text, error = answer
    if error is not None:
        errors[name] = error
    return text


def children(pid: int, proc: str) -> List[int]:
    """Child processes of all threads, ascending. From ``task/*/children`` (Linux 3.5), or from the parents
    that all processes name, where the kernel was built without it."""
    found: List[int] = []
    known = False
    for tid in procfs.tasks(pid, proc)[:MOST_TASKS]:
        text, error = procfs.read_text(f"{proc}/{pid}/task/{tid}/children", 1 << 20)
        known = known or error is None
        found += [int(word) for word in (text or "").split() if word.isdigit()]
    if not known:
        lines = (procfs.stat_fields(other, proc) for other in procfs.list_pids(proc))
        found = [line.pid for line in lines if line is not None and line.ppid == pid]
    return sorted(set(found))


def open_files(
    place: str, until: float, errors: Dict[str, str]
) -> Tuple[List[Dict[str, Any]], Optional[str]]:
    """The open files below ``place`` (``/proc/PID``) by number, and what was left out, or None.

    Each is ``{"fd", "target"}`` with ``pos`` and ``flags`` (numbers) and ``lock`` (the lines about locks on
    it) where the kernel tells them.
    """
    names, error = procfs.list_names(f"{place}/fd")
    if error is not None:
        errors["fds"] = error
    numbers = sorted(int(name) for name in names if name.isdigit())
    files: List[Dict[str, Any]] = []
    for index, number in enumerate(numbers):
        if index >= MOST_FILES or time.monotonic() > until:
            return files, f"{len(numbers) - index} of {len(numbers)} open files were not read"
        target, error = procfs.read_link(f"{place}/fd/{number}")
        if target is None:
            continue
        entry: Dict[str, Any] = {"fd": number, "target": target}
        if not target.startswith(NOT_ASKED):
            entry.update(position(procfs.read_text(f"{place}/fdinfo/{number}", 1 << 16)[0] or ""))
        files.append(entry)
    return files, None


def position(fdinfo: str) -> Dict[str, Any]:
    """``pos`` (bytes), ``flags`` (open flags, written in octal) and ``lock`` of a ``/proc/PID/fdinfo`` file.

    >>> position("pos:\\t42\\nflags:\\t0100001\\nlock:\\t1: FLOCK  ADVISORY  WRITE 7 fe:00:12 0 EOF\\n")
    {'pos': 42, 'flags': 32769, 'lock': '1: FLOCK  ADVISORY  WRITE 7 fe:00:12 0 EOF'}
    """
    found: Dict[str, Any] = {}
    locks: List[str] = []
    for line in fdinfo.splitlines():
        name, _, value = line.partition(":\t")
        if name == "lock":
            locks.append(value)
        elif name in ("pos", "flags"):
            try:
                found[name] = int(value, 8 if name == "flags" else 10)
            except ValueError:
                continue
    if locks:
        found["lock"] = "\n".join(locks)
    return found


def read_ahead(ctx: Context, targets: Sequence[Target]) -> None:
    """Has one child read what needs the mmap_lock of each process; one that blocks it costs ``WAIT``."""

    def look(pid: int) -> Iterator[Tuple[str, Optional[List[str]], Optional[str]]]:
        place = f"{ctx.proc}/{procfs.live_id(pid, ctx.proc)}"
        return _behind_lock(place, _holds_gpu(place))

    pids = [target.pid for target in targets]
    outcomes = in_turn.streams(look, pids, time.monotonic() + ctx.remaining(WAIT * len(pids)), WAIT)
    for pid, outcome in zip(pids, outcomes):
        ahead.leave(ctx, Process.name, pid, outcome)


def _holds_gpu(place: str) -> bool:
    numbers = procfs.list_names(f"{place}/fd")[0][:MOST_FILES]
    links = (procfs.read_link(f"{place}/fd/{number}")[0] for number in numbers)
    return any(link is not None and link.startswith(GPU_DEVICES) for link in links)


def _fill_in(
    row: Dict[str, Any], answer: guarded.Outcome, with_gpu: bool, errors: Dict[str, str], salt: bytes
) -> None:
    """Fills ``cmdline`` and ``mapped_gpu``; a process that does not answer in time is an error by name."""
    got = {name: (value, error) for name, value, error in answer.value or []}
    for name in ("cmdline", "mapped_gpu") if with_gpu else ("cmdline",):
        value, error = got.get(name, (None, answer.reason if answer.status == "error" else answer.status))
        if error is not None:
            errors[name] = error
        else:
            row[name] = redact.cmdline(value, salt) if name == "cmdline" else value


def _behind_lock(place: str, with_gpu: bool) -> Iterator[Tuple[str, Optional[List[str]], Optional[str]]]:
    """Runs in the child: (field, value, errno name) for what needs the target's mmap_lock."""
    text, error = procfs.read_text(f"{place}/cmdline", ARGUMENTS_CAP)
    yield "cmdline", None if text is None else text.rstrip("\0").split("\0"), error
    if with_gpu:
        text, error = procfs.read_text(f"{place}/maps", MAPS_CAP)
        fields = (line.split(None, 5) for line in (text or "").splitlines())
        paths = {words[5] for words in fields if len(words) == 6 and words[5].startswith(GPU_DEVICES)}
        yield "mapped_gpu", sorted(paths) if error is None else None, error


def _refusals(errors: Dict[str, str]) -> List[str]:
    """``EACCES: exe, cwd, fds`` for each kind of refusal; a file that merely is not there is none."""
    by_error: Dict[str, List[str]] = {}
    for name, error in errors.items():
        if error not in procfs.GONE:
            by_error.setdefault(error, []).append(name)
    return [f"{error}: {', '.join(names)}" for error, names in sorted(by_error.items())]


COLLECTOR = Process()

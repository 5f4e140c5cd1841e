"""Asks ranks that were armed for it to write a flight-recorder dump, and takes what they write.

With ``TORCH_NCCL_DEBUG_INFO_PIPE_FILE`` each rank makes the FIFO ``<value><rank>.pipe`` and its heartbeat
monitor looks into it once a second: any byte makes it write its dump file (torch 2.6 on, NCCL back end). It
is the one thing here that makes a target do anything, so: only into a FIFO that the rank itself holds open,
once a rank, at the end of the capture, never of a process that is stopped, frozen or traced or in which one
thread holds the GIL all the time (the dump would wait for it, in the monitor's place), and not at all where
its worker server has told the same already. Python >= 3.8, standard library only.
"""

import os
import stat
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from . import cgroups, dump_files, guarded, procfs, rank_settings, recorder, stacks, target_files
from .interface import ABSENT, DENIED, ERROR, OK, PARTIAL, PROCESS, TIMEOUT, Context, Result, Target
from .target_files import Refused, TargetRoot

VARIABLE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
ASKING = 1.0
"""Seconds for looking at the FIFO and writing into it."""
WAIT = 8.0
"""Seconds that all ranks together get to write: the monitor looks once a second."""
STEP = 0.1
ASKED = "recorder_pipe.asked"
"""Key in ``ctx.shared``: the (pid, start ticks) that were asked in this capture."""
STOP = b"."
"""The last byte of a whole pickle."""
MOST_FILES = 65536


class Question(NamedTuple):
    """What was asked of one rank: ``marks`` are those of its dump files before, by path."""

    pid: int
    paths: List[str]
    marks: Dict[str, Any]


class RecorderPipe:
    """Takes ``dump.pickle``; see FORMAT.md."""

    name = "recorder_pipe"
    scope = PROCESS
    once = True
    budget = WAIT + 2.0
    describes = "a dump that a rank armed by TORCH_NCCL_DEBUG_INFO_PIPE_FILE writes when asked (at the end)"

    def collect(self, ctx: Context, target: Optional[Target]) -> Result:
        """One rank alone; ``ask_all`` does the same for many, who then write side by side."""
        if target is None:
            return Result(ERROR, "no process given")
        return ask_all(ctx, [target])[target.pid]


def ask_all(ctx: Context, targets: Sequence[Target]) -> Dict[int, Result]:
    """Asks every rank that can be asked, then waits for all of them together."""
    results: Dict[int, Result] = {}
    asked: List[Tuple[Target, Question]] = []
    until = time.monotonic() + ctx.remaining(WAIT)
    for target in targets:
        question = _ask(ctx, target)
        if isinstance(question, Result):
            results[target.pid] = question
        else:
            asked.append((target, question))
    for target, question in asked:
        left = max(0.3, until - time.monotonic())
        outcome = guarded.call(
            _written, question, ctx.proc, left, timeout=left + 0.5, cap=dump_files.JSON_CAP
        )
        results[target.pid] = _result(outcome)
    return results


def _ask(ctx: Context, target: Target) -> "Question | Result":
    """Asks one rank, or says why it is not asked."""
    if target.role != "rank" or target.rank is None:
        return Result(ABSENT, "only ranks can be asked")
    problem = procfs.identity_problem(target.pid, target.start_ticks, ctx.proc)
    if problem is not None:
        return Result(*problem)
    if target[:2] in ctx.shared.get(recorder.ANSWERED, ()):
        return Result(ABSENT, "not needed: its worker server told its flight recorder")
    settings, failure = rank_settings.of(ctx, target, 2.0)
    if settings is None:
        return failure or Result(ERROR, "its environment is not known")
    if not settings.get(VARIABLE):
        return Result(ABSENT, f"not armed: {VARIABLE} is not set")
    still = standing_still(target.pid, ctx.proc) or _holds_gil(ctx, target)
    if still is not None:
        return Result(ABSENT, f"not asked: {still}")
    asked: Set[Tuple[int, int]] = ctx.shared.setdefault(ASKED, set())
    if target[:2] in asked:
        return Result(ABSENT, "asked already in this capture")
    asked.add(target[:2])
    pid, paths = procfs.live_id(target.pid, ctx.proc), dump_files.paths(settings, target.rank)
    pipe = f"{settings[VARIABLE]}{target.rank}.pipe"
    outcome = guarded.call(_trigger, pid, ctx.proc, pipe, paths, timeout=ctx.remaining(ASKING))
    if outcome.status != "ok":
        return _not_asked(pipe, outcome)
    return Question(pid, paths, outcome.value)


def _not_asked(pipe: str, outcome: guarded.Outcome) -> Result:
    reason = outcome.reason or outcome.status
    if outcome.status in ("timeout", "abandoned"):
        return Result(TIMEOUT, f"{pipe}: {reason}")
    kind, _, text = reason.partition(": ")
    if kind in ("PermissionError", Refused.__name__):
        return Result(DENIED, f"{pipe}: {text}")
    if kind == "FileNotFoundError":
        return Result(ABSENT, f"{pipe}: there is no such FIFO")
    return Result(ABSENT, f"{pipe}: {reason}")


def standing_still(pid: int, proc: str = "/proc") -> Optional[str]:
    """Why a process would not answer, or must not be made to: stopped, traced, frozen, ended; else None."""
    for tid in procfs.tasks(pid, proc):
        line = procfs.stat_fields(pid, proc, tid)
        if line is not None and line.state in "Tt":
            return f"its thread {tid} is in state {line.state}"
    leader = procfs.stat_fields(pid, proc)
    if leader is None or leader.state in "ZX":
        return "its main thread has ended"
    if procfs.status_fields(pid, proc).get("TracerPid", "0") != "0":
        return "it is being traced"
    text, _ = procfs.read_text(f"{proc}/{pid}/cgroup")
    state = cgroups.freezer_state(pid, text or "", cgroups.hierarchies(proc))
    return f"its cgroup is {state}" if state not in (None, "THAWED") else None


def _holds_gil(ctx: Context, target: Target) -> Optional[str]:
    """The thread that held the GIL in every sample, in words; None where none did."""
    owners: List[Optional[int]] = ctx.shared.get(stacks.GIL_OWNERS, {}).get(target[:2], [])
    if owners and owners[0] is not None and owners.count(owners[0]) == len(owners):
        return f"its thread {owners[0]} holds the GIL"
    return None


def _trigger(pid: int, proc: str, pipe: str, paths: List[str]) -> Dict[str, Any]:
    """Runs in the guarded child: writes one byte, and returns the dump files' marks before that."""
    ids = target_files.ids_of(pid, proc)
    if ids is None:
        raise Refused("the process has ended")
    view = TargetRoot(f"{proc}/{pid}")
    held = _held_fifos(f"{proc}/{pid}")
    target_files.become(ids)
    found = view.find(pipe)
    about = os.fstat(found)
    if not stat.S_ISFIFO(about.st_mode):
        raise Refused("it is no FIFO")
    if about.st_uid != ids.uid:
        raise Refused(f"it belongs to uid {about.st_uid}, not to the process's user")
    if (about.st_dev, about.st_ino) not in held:
        raise Refused("the rank does not hold it open")
    marks = {}
    for path in paths:
        row = dump_files.look(view, path, ids.uid)
        marks[path] = row.get("mark") if row is not None else None
    # ENXIO where nobody reads; through /proc/self/fd: the very file that was looked at
    descriptor = os.open(f"/proc/self/fd/{found}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    os.write(descriptor, b"1")
    os.close(descriptor)
    return marks


def _held_fifos(place: str) -> Set[Tuple[int, int]]:
    """(device, inode) of the named FIFOs that a process has open; other files are not touched."""
    held: Set[Tuple[int, int]] = set()
    for number in procfs.list_names(f"{place}/fd")[0][:MOST_FILES]:
        path = procfs.read_link(f"{place}/fd/{number}")[0] or ""
        if path.startswith("/") and ".pipe" in path:
            about = os.stat(f"{place}/fd/{number}")
            held |= {(about.st_dev, about.st_ino)} if stat.S_ISFIFO(about.st_mode) else set()
    return held


def _written(question: Question, proc: str, seconds: float) -> Iterator[List[Any]]:
    """Runs in the guarded child: the file that has changed since, once it is whole (or the time is up)."""
    pid, paths, marks = question
    ids = target_files.ids_of(pid, proc)
    if ids is None:
        return
    root = f"{proc}/{pid}"
    view = TargetRoot(root)
    target_files.become(ids)
    until = time.monotonic() + seconds
    before: Any = None
    while True:
        row = _changed(view, paths, marks, ids.uid)
        late = time.monotonic() + STEP >= until
        if row is not None and (late or row.get("mark") == before):
            item = dump_files.contents(row)
            data = dump_files.received(item).data
            if late or data is None or data.endswith(STOP):
                yield item
                return
        elif row is not None:
            before = row.get("mark")
        if late:
            return
        view.release()
        time.sleep(STEP)


def _changed(
    view: TargetRoot, paths: List[str], marks: Dict[str, Any], owner: int
) -> Optional[Dict[str, Any]]:
    """The first dump file that is new or other than before."""
    for path in paths:
        row = dump_files.look(view, path, owner)
        if row is not None and row.get("mark") is not None and row["mark"] != marks.get(path):
            return row
    return None


def _result(outcome: guarded.Outcome) -> Result:
    if not outcome.value:
        slow = outcome.status in ("ok", "timeout", "abandoned")
        why = f"asked, but it wrote no dump within {WAIT:.0f} s" if slow else outcome.reason
        return Result(TIMEOUT if slow else ERROR, why)
    row, data = dump_files.received(outcome.value[0])
    if data is None:
        return Result(DENIED, f"{row['path']}: {row['error']}")
    artifacts = (("dump.pickle", data),)
    if row["cut"]:
        return Result(PARTIAL, f"{row['path']}: longer than what is taken", artifacts)
    if not data.endswith(STOP):
        return Result(PARTIAL, f"{row['path']}: not whole after {WAIT:.0f} s", artifacts)
    return Result(OK, None, artifacts)


COLLECTOR = RecorderPipe()

"""Flight-recorder dumps that lie on disk already, written by a watchdog or on somebody's request.

A file of that name may be of an earlier attempt, or of another job: its time is told, and what it means is
not decided here. Python >= 3.8, standard library only.
"""

import json
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from . import ahead, dump_files, guarded, procfs, rank_settings, tails, target_files
from .interface import ABSENT, DENIED, ERROR, OK, PARTIAL, PROCESS, TIMEOUT, Context, Result, Target
from .target_files import Refused, TargetRoot


class RecorderFiles:
    """Takes ``files.json`` and each ``dump-<n>.pickle``; see FORMAT.md."""

    name = "recorder_files"
    scope = PROCESS
    once = True
    budget = 2.0
    describes = "flight-recorder dumps of a rank on disk: size, time, the bytes (up to 8 MB each)"

    def collect(self, ctx: Context, target: Optional[Target]) -> Result:
        """*Absent* where the rank has written none."""
        if target is None or not _may_have(target):
            return Result(ABSENT, "only ranks write one")
        problem = procfs.identity_problem(target.pid, target.start_ticks, ctx.proc)
        if problem is not None:
            return Result(*problem)
        settings, failure = rank_settings.of(ctx, target, self.budget)
        if settings is None:
            return failure or Result(ERROR, "its environment is not known")
        outcome: Optional[guarded.Outcome] = ahead.take(ctx, self.name, target.pid)
        if outcome is None:
            cap = 4 * dump_files.JSON_CAP
            timeout = ctx.remaining(self.budget)
            outcome = guarded.call(_dumps, *_question(ctx, target, settings), timeout=timeout, cap=cap)
        return _result(outcome, dump_files.is_named(settings))


def _may_have(target: Target) -> bool:
    return target.role == "rank" and target.rank is not None


def _question(ctx: Context, target: Target, settings: Dict[str, str]) -> Tuple[int, str, List[str]]:
    pid = procfs.live_id(target.pid, ctx.proc)
    return pid, ctx.proc, dump_files.paths(settings, -1 if target.rank is None else target.rank)


def read_ahead(ctx: Context, targets: Sequence[Target]) -> None:
    """Has one child look for the files of each rank whose environment is known."""
    jobs: Dict[int, Tuple[Any, ...]] = {}
    for target in targets:
        settings = rank_settings.known(ctx, target)
        if settings is not None and _may_have(target):
            jobs[target.pid] = _question(ctx, target, settings)
    tails.read_ahead(ctx, RecorderFiles.name, jobs, _dumps, RecorderFiles.budget)


def _dumps(pid: int, proc: str, paths: List[str]) -> Iterator[List[Any]]:
    """Runs in the guarded child."""
    ids = target_files.ids_of(pid, proc)
    if ids is None:
        return
    view = TargetRoot(f"{proc}/{pid}")
    try:
        target_files.become(ids)
        for path in paths:
            row = dump_files.look(view, path, ids.uid)
            if row is not None:
                yield dump_files.contents(row)
    finally:
        view.close()


def _result(outcome: guarded.Outcome, named: bool) -> Result:
    dumps = [dump_files.received(item) for item in outcome.value or []]
    rows: List[Dict[str, Any]] = []
    artifacts: List[Tuple[str, bytes]] = []
    problems: List[str] = []
    for number, (row, data) in enumerate(dumps):
        name = f"dump-{number}.pickle" if data is not None else None
        rows.append({**row, "named": named, "artifact": name})
        if name is not None and data is not None:
            artifacts.append((name, data))
        if row["error"] or row.get("cut"):
            problems.append(f"{row['path']}: {row['error'] or 'longer than what is taken'}")
    if rows:
        artifacts.insert(0, ("files.json", json.dumps({"files": rows}).encode("ascii")))
    if outcome.status == "ok" and not rows:
        return Result(ABSENT, "no dump of this rank on disk")
    if outcome.status == "ok" and not problems:
        return Result(OK, None, tuple(artifacts))
    if outcome.status != "ok":
        problems.append(outcome.reason or outcome.status)
    return Result(_status(outcome, rows), "; ".join(problems), tuple(artifacts))


def _status(outcome: guarded.Outcome, rows: List[Dict[str, Any]]) -> str:
    if any(row["artifact"] for row in rows):
        return PARTIAL
    if outcome.status in ("timeout", "abandoned"):
        return TIMEOUT
    if rows or (outcome.reason or "").startswith(("PermissionError", Refused.__name__)):
        return DENIED
    return ERROR


COLLECTOR = RecorderFiles()

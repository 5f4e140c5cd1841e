"""The end of what a rank has printed, where its output goes to a file. Size and time of it tell progress.

Python >= 3.8, standard library only.
"""

from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from . import ahead, guarded, procfs, tails, target_files
from .interface import ABSENT, DENIED, ERROR, PROCESS, Context, Result, Target
from .process import position


class Output:
    """Takes ``output.json``; see FORMAT.md."""

    name = "output"
    scope = PROCESS
    once = False
    budget = 1.5
    describes = "standard output and error where they are files: size, time, the last 64 kB, masked"

    def collect(self, ctx: Context, target: Optional[Target]) -> Result:
        """One entry a file; a file that both go to stands once, under 1."""
        if target is None:
            return Result(ERROR, "no process given")
        problem = procfs.identity_problem(target.pid, target.start_ticks, ctx.proc)
        if problem is not None:
            return Result(*problem)
        pid = procfs.live_id(target.pid, ctx.proc)
        numbers, error = to_files(pid, ctx.proc)
        if error is not None:
            return Result(DENIED, f"/proc/PID/fd: {error}")
        if not numbers:
            return Result(ABSENT, "standard output and error go to no file")
        outcome: Optional[guarded.Outcome] = ahead.take(ctx, self.name, target.pid)
        if outcome is None:
            sizes, timeout = tails.known_sizes(ctx, target), ctx.remaining(self.budget)
            outcome = guarded.call(_files, pid, ctx.proc, numbers, sizes, timeout=timeout, cap=1 << 20)
        return tails.result(ctx, target, "output.json", outcome)


def read_ahead(ctx: Context, targets: Sequence[Target]) -> None:
    """Has one child read the files of each process; one that blocks it costs the budget of its cell."""
    jobs: Dict[int, Tuple[Any, ...]] = {}
    for target in targets:
        pid = procfs.live_id(target.pid, ctx.proc)
        numbers, _ = to_files(pid, ctx.proc)
        if numbers:
            jobs[target.pid] = (pid, ctx.proc, numbers, tails.known_sizes(ctx, target))
    tails.read_ahead(ctx, Output.name, jobs, _files, Output.budget)


def to_files(pid: int, proc: str) -> Tuple[List[int], Optional[str]]:
    """Which of standard output (1) and error (2) go to a file; the errno name where that may not be seen."""
    numbers = []
    for number in (1, 2):
        where, error = procfs.read_link(f"{proc}/{pid}/fd/{number}")
        if error in procfs.REFUSED:
            return [], error
        if where is not None and where.startswith("/") and not where.startswith("/dev/"):
            numbers.append(number)
    return numbers, None


def _files(pid: int, proc: str, numbers: List[int], sizes: Dict[str, int]) -> Iterator[Dict[str, Any]]:
    """Runs in the guarded child."""
    positions = {
        number: position(procfs.read_text(f"{proc}/{pid}/fdinfo/{number}", 1 << 16)[0] or "").get("pos")
        for number in numbers
    }
    seen: List[Any] = []
    for row in target_files.entries(pid, proc, numbers, sizes):
        if row.get("file") is None or row["file"] not in seen:
            seen.append(row.get("file"))
            yield {**row, "position": positions[row["fd"]]}


COLLECTOR = Output()

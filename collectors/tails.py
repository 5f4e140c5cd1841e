"""What the log collectors share: which tails were taken already, masking, and the cell's status.

Python >= 3.8, standard library only.
"""

import json
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from . import ahead, in_turn, redact, target_files
from .guarded import Outcome
from .interface import ABSENT, DENIED, ERROR, OK, PARTIAL, TIMEOUT, Context, Result, Target

SIZES = "tails.sizes"
"""Key in ``ctx.shared``: {(pid, start ticks, path): bytes} of the files whose tail was taken."""
TAKEN = "tails.taken"
"""Key in ``ctx.shared``: {(sample, device, inode): pid} of the tails in this sample, so that ranks with one
common log do not each carry it."""


def known_sizes(ctx: Context, target: Target) -> Dict[str, int]:
    """{path: size at the last look} of this process's files; empty in sample 0."""
    if ctx.sample == 0:
        return {}
    sizes: Dict[Tuple[int, int, str], int] = ctx.shared.get(SIZES, {})
    return {path: size for (pid, ticks, path), size in sizes.items() if (pid, ticks) == target[:2]}


def read_ahead(
    ctx: Context,
    collector: str,
    jobs: Dict[int, Tuple[Any, ...]],
    read: Callable[..., Iterable[Any]],
    budget: float,
) -> None:
    """Has one child do ``read(*jobs[pid])`` for each process whose files this user's ids may open.

    A child that takes the ids of somebody else cannot go back: such a process is left to its cell.
    ``budget``: seconds that one process gets.
    """
    pids = [pid for pid in jobs if target_files.is_own(pid, ctx.proc)]
    until = time.monotonic() + ctx.remaining(budget * len(pids))
    outcomes = in_turn.streams(lambda pid: read(*jobs[pid]), pids, until, budget)
    for pid, outcome in zip(pids, outcomes):
        ahead.leave(ctx, collector, pid, outcome)


def result(ctx: Context, target: Target, name: str, outcome: Outcome) -> Result:
    """The cell for the entries that a guarded child has sent."""
    rows: List[Dict[str, Any]] = [row for row in outcome.value or [] if isinstance(row, dict)]
    for row in rows:
        _settle(ctx, target, row)
    refused = [row for row in rows if row.get("error")]
    problems = [f"{row['path'] or 'fd {}'.format(row['fd'])}: {row['error']}" for row in refused]
    if outcome.status != "ok":
        problems.append(outcome.reason or outcome.status)
    reason = "; ".join(problems) or None
    data = json.dumps({"files": rows}).encode("ascii")
    artifacts = ((name, data),) if rows else ()
    if outcome.status in ("timeout", "abandoned"):
        return Result(PARTIAL if rows else TIMEOUT, reason, artifacts)
    if outcome.status != "ok":
        refused_all = (outcome.reason or "").startswith(("PermissionError", "Refused"))
        return Result(PARTIAL if rows else DENIED if refused_all else ERROR, reason, artifacts)
    if not rows:
        return Result(ABSENT, "no such file")
    if reason is None:
        return Result(OK, None, artifacts)
    return Result(DENIED if len(refused) == len(rows) else PARTIAL, reason, artifacts)


def _settle(ctx: Context, target: Target, row: Dict[str, Any]) -> None:
    """Masks the tail, and drops one that another process of this sample has already."""
    file: Optional[List[int]] = row.pop("file", None)
    if row.get("size") is not None:
        ctx.shared.setdefault(SIZES, {})[(target.pid, target.start_ticks, row["path"])] = row["size"]
    if row.get("tail") is None:
        return
    first = ctx.shared.setdefault(TAKEN, {}).setdefault((ctx.sample, *(file or ())), target.pid)
    if first != target.pid:
        row["tail"], row["same_as"] = None, first
        return
    row["tail"] = redact.scrub(row["tail"], ctx.salt)

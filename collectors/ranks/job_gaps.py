"""Ranks that a job should have here and that did not tell their number: dead, unreadable, not set yet.

A number is given only where nothing else is possible. Python >= 3.8, standard library only.
"""

from typing import Dict, List, Optional, Sequence, Set, Tuple

from .. import procfs
from . import roles
from .found_job import Row, row
from .kinship import Family
from .rank_claims import Claim
from .roles import ProcessInfo

NEAR_START = 60 * 100
"""Clock ticks within which the ranks of one launch start (the kernel shows 100 a second to programs)."""


def missing_ranks(members: Dict[int, Row], expected: Optional[Tuple[int, ...]]) -> List[int]:
    here = {one["rank"] for one in members.values()}
    return [rank for rank in expected or () if rank not in here]


def unclear(
    ranks: Sequence[Claim], launcher_pid: Optional[int], family: Family, everybody: Set[int]
) -> Set[int]:
    """Processes that could be ranks of this job and could not be told.

    Their environment could not be read, or only that of exec, or they are multiprocessing children of the
    launcher that have set no RANK (yet). With a launcher, only its children or nobody's are meant.
    """
    users = {claim.process.uid for claim in ranks}
    parents = {claim.process.ppid for claim in ranks}
    found = set()
    for pid, process in family.table.items():
        if pid in everybody or pid in family.own or process.uid not in users or not _could_be_rank(process):
            continue
        launched = launcher_pid is not None and family.launcher(pid, everybody) == launcher_pid
        near = launched or process.ppid in parents
        unnumbered = process.ppid == launcher_pid and (roles.is_spawned(process) or process.forked)
        if process.env is not None and not unnumbered and not (process.env_source == "static" and near):
            continue
        if not near and launcher_pid is not None and not family.reparented(pid):
            continue
        if not any(ancestor in everybody for ancestor in family.ancestors(pid)):
            found.add(pid)
    return found


def _could_be_rank(process: ProcessInfo) -> bool:
    if roles.told_role(process) is not None or process.reason in procfs.GONE:
        return False
    if process.state in ("Z", "X") and process.via is None:
        return False
    return roles.identity(process) is None and (process.exe is None or roles.is_python(process))


def by_elimination(
    ranks: Sequence[Claim], missing: List[int], unclear: Set[int], everybody: Set[int], family: Family
) -> Dict[int, Row]:
    """Rows of the processes that are ranks by their threads and do not tell their number, by pid.

    Only when one rank is missing here, one such process stands beside the others, and no other job has the
    same parent, it gets the number.
    """
    own = {claim.process.pid for claim in ranks}
    parents = {claim.process.ppid for claim in ranks if claim.process.ppid > 1}
    strangers = any(family.table[pid].ppid in parents for pid in everybody - own)
    fitting = {claim.process.pid: claim.why for claim in ranks if claim.rank is None}
    suspects = {}
    for pid in sorted(unclear):
        process = family.table[pid]
        thread = roles.proof(process)
        if process.ppid not in parents or strangers:
            continue
        if thread is not None:
            fitting[pid] = f"thread {thread}"
        elif process.env is None and process.reason not in procfs.REFUSED and missing:
            suspects[pid] = f"started beside the ranks, and its environment: {process.reason}"
    size = next((claim.world_size for claim in ranks if claim.world_size is not None), None)
    found = {}
    for pid, why in fitting.items():
        number = missing[0] if len(missing) == 1 and len(fitting) == 1 else None
        settled = f"{why}; the only rank missing here, and the only process that can be it"
        bare = row(family.table[pid], "rank", None, why if number is None else settled)
        found[pid] = {**bare, "rank": number, "world_size": size}
    # without a thread that proves it, no number: but it is captured, since it may well be the culprit
    found.update({pid: row(family.table[pid], "rank", None, why) for pid, why in suspects.items()})
    return found


def dead_ranks(
    ranks: Sequence[Claim],
    missing: List[int],
    leftovers: Sequence[Claim],
    launcher_pid: Optional[int],
    family: Family,
) -> Tuple[Dict[int, Row], List[str]]:
    """Zombies that were ranks, and a note on those that cannot be told; they have no environment any more.

    One whose session an orphan of the rank is still in, or the one dead sibling of the ranks when just one
    rank is missing.
    """
    found: Dict[int, Row] = {}
    dead = [
        process
        for process in family.table.values()
        if process.state in ("Z", "X") and process.via is None and _is_sibling(process, ranks)
    ]
    for claim in leftovers:
        for process in dead:
            leads = process.pid in (claim.process.session, claim.process.pgrp)
            if leads and claim.rank in missing and process.pid not in found:
                found[process.pid] = {
                    **row(process, "rank", None, "dead; a child in its session has its RANK"),
                    "rank": claim.rank,
                }
    rest = [process for process in dead if process.pid not in found]
    left = [rank for rank in missing if rank not in {one["rank"] for one in found.values()}]
    if len(rest) == 1 and len(left) == 1:
        why = "dead; the only rank missing here, and the only dead process beside the others"
        found[rest[0].pid] = {**row(rest[0], "rank", None, why), "rank": left[0]}
    elif rest and left:
        pids = ", ".join(str(process.pid) for process in rest)
        return found, [f"dead processes beside the ranks, not known which ranks they were: {pids}"]
    return found, []


def _is_sibling(process: ProcessInfo, ranks: Sequence[Claim]) -> bool:
    for claim in ranks:
        near = abs(process.start_ticks - claim.process.start_ticks) <= NEAR_START
        alike = process.comm == claim.process.comm or process.comm.startswith("python")
        if process.ppid == claim.process.ppid > 1 and process.uid == claim.process.uid and near and alike:
            return True
    return False

"""Everything that belongs to the job of some ranks: launchers, helpers, orphans, the dead.

Python >= 3.8, standard library only.
"""

import re
from typing import Dict, List, Optional, Sequence, Set, Tuple

from . import job_extent, job_gaps, known_programs, roles
from .found_job import FoundJob, Row, name_of, row
from .kinship import Family
from .rank_claims import Claim
from .roles import ProcessInfo


def build(
    ranks: Sequence[Claim], leftovers: Sequence[Claim], family: Family, everybody: Set[int]
) -> FoundJob:
    """The job of these ranks. ``everybody``: the pids of all jobs' ranks, whose children belong to them."""
    launcher_pid, launcher = _launcher(ranks, family, everybody)
    world_size = next((claim.world_size for claim in ranks if claim.world_size is not None), None)
    single_node, expected = job_extent.extent(ranks, family)
    members = {claim.process.pid: row(claim.process, "rank", claim, claim.why) for claim in ranks}
    unclear = job_gaps.unclear(ranks, launcher_pid, family, everybody)
    missing = job_gaps.missing_ranks(members, expected)
    settled = job_gaps.by_elimination(ranks, missing, unclear, everybody, family)
    members.update(settled)
    missing = job_gaps.missing_ranks(members, expected)
    dead, notes = job_gaps.dead_ranks(ranks, missing, leftovers, launcher_pid, family)
    members.update(dead)
    living = {number["rank"] for number in members.values() if number["pid"] not in dead}
    unsettled = {pid for pid, one in settled.items() if one["rank"] is None}
    denied = tuple(sorted(unclear - (set(members) - unsettled))) if missing or expected is None else ()
    rows = list(members.values())
    rows += [leftover_row(claim, living) for claim in leftovers if claim.process.pid not in members]
    rows += _relatives(
        members, launcher_pid, launcher, family, everybody | set(members), {r["pid"] for r in rows}
    )
    first = min(ranks, key=lambda claim: (claim.rank is None, claim.rank or 0, claim.process.pid))
    name = name_of(first, None if launcher_pid is None else family.table.get(launcher_pid))
    rows.sort(key=lambda one: (one["role"] != "rank", one["rank"] is None, one["rank"] or 0, one["pid"]))
    return FoundJob(
        name=name,
        world_size=world_size,
        rows=tuple({**one, "job": name} for one in rows),
        launcher=launcher,
        launcher_pid=launcher_pid,
        uid=first.process.uid,
        start_ticks=min(claim.process.start_ticks for claim in ranks),
        complete=not denied,
        denied=denied,
        single_node=single_node,
        expected_local=expected,
        notes=tuple(notes),
    )


def leftover_row(claim: Claim, living: Set[Optional[int]]) -> Row:
    """An orphan if its rank is gone, else a helper that cut itself loose from it."""
    if claim.rank not in living:
        return row(claim.process, "orphan", None, f"has RANK {claim.rank}, whose process is gone", claim.rank)
    told = roles.told_role(claim.process) or ("helper", "has a rank's variables")
    return row(claim.process, told[0], None, told[1], claim.rank)


def _launcher(ranks: Sequence[Claim], family: Family, everybody: Set[int]) -> Tuple[Optional[int], str]:
    """(pid or None, what is said of it)."""
    pids = {claim.launcher for claim in ranks if claim.launcher is not None}
    if pids:
        pid = min(pids)
        kind = roles.launcher_kind(family.table[pid]) or "multiprocessing"
        return (None if pid in family.own else pid), kind
    parents = {claim.process.ppid for claim in ranks}
    parent = family.table.get(next(iter(parents))) if len(parents) == 1 and len(ranks) > 1 else None
    if parent is not None and parent.pid not in everybody | family.own and roles.is_python(parent):
        return parent.pid, roles.script_name(parent.cmdline) or "python"
    return None, "by hand" if all(claim.process.ppid > 1 for claim in ranks) else "launcher gone"


def _relatives(
    members: Dict[int, Row],
    launcher_pid: Optional[int],
    launcher: str,
    family: Family,
    everybody: Set[int],
    listed: Set[int],
) -> List[Row]:
    """Launchers above the ranks, everything below a rank, and what else the launcher has started."""
    rows: Dict[int, Row] = {}
    for pid, member in members.items():
        for below in family.descendants(pid):
            owner = _nearest(below, everybody, family)
            if below not in listed and below not in everybody and owner == pid:
                process = family.table[below]
                role, why = roles.told_role(process) or ("helper", f"started by rank {member['rank']}")
                rows[below] = row(process, role, None, why, member["rank"])
        for above in family.ancestors(pid):
            kind = roles.launcher_kind(family.table[above])
            if kind is not None and kind not in known_programs.SHARED_LAUNCHERS and above not in family.own:
                rows.setdefault(above, row(family.table[above], "launcher", None, kind))
    if launcher_pid is not None and launcher not in known_programs.SHARED_LAUNCHERS:
        rows[launcher_pid] = row(family.table[launcher_pid], "launcher", None, launcher)
        for below in family.descendants(launcher_pid):
            process = family.table[below]
            wanted = (
                below not in everybody and below not in listed and _nearest(below, everybody, family) is None
            )
            if wanted and not roles.is_wrapper(process):
                role, why = roles.told_role(process) or ("helper", "started by the launcher")
                rows.setdefault(below, row(process, role, None, why))
    return list(rows.values())


def _nearest(pid: int, ranks: Set[int], family: Family) -> Optional[int]:
    return next((ancestor for ancestor in family.ancestors(pid) if ancestor in ranks), None)


def lone_job(process: ProcessInfo, processes: Sequence[ProcessInfo]) -> FoundJob:
    """The job of one that a process of no distributed job makes, with everything below it."""
    family = Family(processes)
    claim = Claim(process, roles.identity(process), None)
    told = roles.told_role(process)
    name = re.sub(
        "[^A-Za-z0-9._]+", "-", f"{roles.script_name(process.cmdline) or process.comm}-p{process.pid}"
    )
    if told is not None and claim.identity is not None and told[0] != "launcher":
        own = row(process, "orphan", None, f"{told[1]}; its rank is gone", claim.rank)
        number, size = claim.rank, claim.world_size
    elif told is not None:
        own, number, size = row(process, told[0], None, told[1]), None, None
    else:
        alone = process.env is not None and claim.identity is None
        number, size = (0, 1) if alone else (claim.rank, claim.world_size)
        own = {**row(process, "rank", None, "asked for by pid"), "rank": number, "world_size": size}
    below = [family.table[pid] for pid in family.descendants(process.pid) if pid not in family.own]
    rows = [own] + [
        row(child, (roles.told_role(child) or ("helper", ""))[0], None, "started by it", number)
        for child in below
    ]
    return FoundJob(
        name=name,
        world_size=size,
        rows=tuple({**one, "job": name} for one in rows),
        launcher="by hand",
        launcher_pid=None,
        uid=process.uid,
        start_ticks=process.start_ticks,
        single_node=True if size == 1 else None,
        expected_local=(0,) if size == 1 else None,
        notes=(f"pid {process.pid} belongs to no distributed job that could be recognised",),
    )

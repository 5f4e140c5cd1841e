"""From ranks to jobs: which ranks belong together, and what else belongs to them.

Two jobs of one user are never joined: a launcher starts one job, an elastic agent's launch has its own error
directory, and a restart counts as another epoch. Python >= 3.8, standard library only.
"""

from typing import Dict, Iterable, List, Optional, Sequence, Set, Tuple

from . import job_rows, rank_claims, roles
from .found_job import FoundJob, name_apart
from .kinship import Family
from .rank_claims import Claim
from .roles import ProcessInfo

Key = Tuple[Optional[str], ...]
Group = List[Claim]


def recognise(processes: Sequence[ProcessInfo], self_pid: Optional[int] = None) -> List[FoundJob]:
    """The distributed jobs among the processes of one scan, the longest running first.

    ``self_pid``: the process that looks (default: this one); it and its ancestors are no ranks.
    """
    family = Family(processes, self_pid)
    claims = rank_claims.find(family)
    groups = _groups(claims, family)
    jobs = []
    for group in groups:
        strangers = rank_claims.adopted_strangers(group, family)
        ranks = [claim for claim in group if claim not in strangers]
        jobs.append((ranks, strangers))
    leftovers = _leftovers(family, [claim.process.pid for ranks, _ in jobs for claim in ranks])
    taken = _share_out(leftovers, [ranks for ranks, _ in jobs])
    everybody = {claim.process.pid for ranks, _ in jobs for claim in ranks}
    found = [
        job_rows.build(ranks, taken[number], family, everybody) for number, (ranks, _) in enumerate(jobs)
    ]
    return name_apart(sorted(found, key=lambda job: (job.start_ticks, job.rows[0]["pid"])))


def _groups(claims: Dict[int, Claim], family: Family) -> List[Group]:
    """Ranks by launch, then by meeting point, then by attempt; several agents of one job joined again."""
    launches: Dict[Key, Group] = {}
    for claim in claims.values():
        launches.setdefault(launch(claim, family), []).append(claim)
    groups = [part for together in launches.values() for part in _by_meeting_point(together)]
    groups = [attempt for group in groups for attempt in _by_attempt(group)]
    return _join_agents(groups)


def launch(claim: Claim, family: Family) -> Key:
    """What one start of a job has, and no other start. Ranks by hand share the empty launch of their user."""
    anchor = None if claim.launcher is None else str(claim.launcher)
    if anchor is None and claim.variable("MASTER_PORT") is None:
        # nothing says where they meet: only a common parent joins them
        parent = claim.process.ppid
        anchor = f"below {parent}" if parent > 1 else f"alone {claim.process.pid}"
    return (
        str(claim.process.uid),
        anchor,
        error_directory(claim),
        claim.variable("TORCHELASTIC_RESTART_COUNT"),
        claim.variable("PMIX_NAMESPACE"),
    )


def error_directory(claim: Claim) -> Optional[str]:
    """The directory that torch's elastic agent makes anew for each launch, out of
    ``TMP/torchelastic_X/RUN_Y/attempt_0/RANK/error.json`` (torch 2.x)."""
    path = claim.variable("TORCHELASTIC_ERROR_FILE")
    head = (path or "").split("/attempt_")[0]
    return head or None


def meeting_point(claim: Claim) -> Key:
    """Where the ranks of a job meet: address, port, elastic run id (``none`` is torchrun's default), size."""
    run = claim.variable("TORCHELASTIC_RUN_ID")
    size = None if claim.world_size is None else str(claim.world_size)
    return (
        claim.variable("MASTER_ADDR"),
        claim.variable("MASTER_PORT"),
        None if run == "none" else run,
        claim.variable("SLURM_JOB_ID"),
        size,
    )


def _by_meeting_point(together: Group) -> List[Group]:
    """Splits one launch. A rank that has not set its meeting point yet fits the only one that there is."""
    points: Dict[Key, Group] = {}
    for claim in together:
        points.setdefault(meeting_point(claim), []).append(claim)
    full = [point for point in points if point[1] is not None and point[-1] is not None]
    for point in [point for point in points if point not in full]:
        fitting = [other for other in full if _fits(point, other)]
        if len(fitting) == 1:
            points[fitting[0]] += points.pop(point)
    return list(points.values())


def _fits(point: Key, other: Key) -> bool:
    return all(mine is None or mine == theirs for mine, theirs in zip(point, other))


def _by_attempt(group: Group) -> List[Group]:
    """Splits ranks by hand when one number occurs twice: an older attempt still lives.

    The processes of the number that occurs most seed the attempts; the others go to the seed with their
    parent, else to the one that started nearest to them.
    """
    by_rank: Dict[Optional[int], Group] = {}
    for claim in group:
        by_rank.setdefault(claim.rank, []).append(claim)
    by_rank.pop(None, None)
    seeds = max(by_rank.values(), key=len, default=[])
    if len(seeds) < 2:
        return [group]
    attempts: List[Group] = [[seed] for seed in seeds]
    for claim in group:
        if claim not in seeds:
            min(attempts, key=lambda attempt: _distance(claim, attempt[0])).append(claim)
    # a number that is still twice in one attempt cannot be told: each further holder stands alone
    return [part for attempt in attempts for part in _unique_ranks(attempt)]


def _distance(claim: Claim, seed: Claim) -> Tuple[bool, int]:
    mine, other = claim.process, seed.process
    return mine.ppid != other.ppid or mine.ppid <= 1, abs(mine.start_ticks - other.start_ticks)


def _unique_ranks(attempt: Group) -> List[Group]:
    kept: Group = []
    alone: List[Group] = []
    for claim in attempt:
        double = claim.rank is not None and any(claim.rank == other.rank for other in kept)
        if double:
            alone.append([claim])
        else:
            kept.append(claim)
    return [kept, *alone]


def _join_agents(groups: List[Group]) -> List[Group]:
    """Joins what several agents of one job have started on this host: same meeting point, other ranks."""
    joined: List[Group] = []
    for group in sorted(groups, key=_start):
        fitting = [other for other in joined if _one_job(group, other)]
        if fitting:
            max(fitting, key=_start).extend(group)
        else:
            joined.append(list(group))
    return joined


def _start(group: Group) -> int:
    return min(claim.process.start_ticks for claim in group)


def _one_job(one: Group, other: Group) -> bool:
    first, second = one[0], other[0]
    if first.variable("MASTER_PORT") is None or meeting_point(first) != meeting_point(second):
        return False
    if any(_whole_world(claim) or claim.launcher is None for claim in (first, second)):
        return False
    restarts = {claim.variable("TORCHELASTIC_RESTART_COUNT") for claim in (first, second)}
    ranks = {claim.rank for claim in one}
    return (
        first.process.uid == second.process.uid
        and len(restarts) == 1
        and not ranks & {claim.rank for claim in other}
    )


def _whole_world(claim: Claim) -> bool:
    """Whether its launcher starts all ranks, or does not say."""
    local = None if claim.identity is None else claim.identity.local_world_size
    return local is None or local == claim.world_size


def _leftovers(family: Family, ranks: Iterable[int]) -> List[Claim]:
    """Processes with a rank's variables that are no ranks and have none above them: what dead ranks left, and
    helpers that cut themselves loose."""
    living = set(ranks)
    found = []
    for process in family.table.values():
        if process.pid in living or process.pid in family.own or roles.launcher_kind(process) is not None:
            continue
        identity = roles.identity(process)
        if identity is None or any(ancestor in living for ancestor in family.ancestors(process.pid)):
            continue
        told = roles.told_role(process) is not None
        left = told or (process.forked and roles.is_python(process)) or family.reparented(process.pid)
        if left and not roles.is_wrapper(process):
            found.append(Claim(process, identity, None))
    return found


def _share_out(leftovers: List[Claim], groups: List[Group]) -> List[Group]:
    """For each group the leftovers that meet where it meets; of several the youngest that is older."""
    shares: List[Group] = [[] for _ in groups]
    for claim in leftovers:
        fitting = [number for number, group in enumerate(groups) if group and _came_from(claim, group)]
        if fitting:
            shares[max(fitting, key=lambda number: _start(groups[number]))].append(claim)
    return shares


def _came_from(claim: Claim, group: Group) -> bool:
    def marks(one: Claim) -> Set[Tuple[str, Optional[str]]]:
        names = ("TORCHELASTIC_RESTART_COUNT", "PMIX_NAMESPACE")
        return {("uid", str(one.process.uid)), ("launch", error_directory(one))} | {
            (name, one.variable(name)) for name in names
        }

    member = group[0]
    meets = meeting_point(claim) == meeting_point(member)
    return meets and marks(claim) == marks(member) and _start(group) <= claim.process.start_ticks

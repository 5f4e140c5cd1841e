"""Which processes are ranks: of all that carry a rank's variables, those that did not merely inherit them.

Python >= 3.8, standard library only.
"""

from typing import Dict, List, NamedTuple, Optional, Set

from . import roles
from .kinship import Family
from .roles import Identity, ProcessInfo


class Claim(NamedTuple):
    """A process that may be a rank: what it says it is, and its thread of a process group, if any."""

    process: ProcessInfo
    identity: Optional[Identity]
    thread: Optional[str]
    launcher: Optional[int] = None

    @property
    def rank(self) -> Optional[int]:
        return None if self.identity is None else self.identity.rank

    @property
    def world_size(self) -> Optional[int]:
        return None if self.identity is None else self.identity.world_size

    def variable(self, name: str) -> Optional[str]:
        return (self.process.env or {}).get(name) or None

    @property
    def why(self) -> str:
        proofs = ([self.identity.source] if self.identity else []) + (
            [f"thread {self.thread}"] if self.thread else []
        )
        return ", ".join(proofs)


def find(family: Family) -> Dict[int, Claim]:
    """The ranks by pid, each with its launcher."""
    claims: Dict[int, Claim] = {}
    for process in family.table.values():
        claim = _claim(process, family)
        if claim is not None:
            claims[process.pid] = claim
    dropped = _passed_on(claims, family) | _inherited(claims, family)
    kept = {pid: claim for pid, claim in claims.items() if pid not in dropped}
    return {pid: claim._replace(launcher=family.launcher(pid, kept)) for pid, claim in kept.items()}


def _claim(process: ProcessInfo, family: Family) -> Optional[Claim]:
    """A shell with RANK set, a ``tail`` that a rank started and the capture itself are no ranks. A process
    whose environment cannot be read claims nothing: job_gaps looks at it."""
    thread = roles.proof(process)
    if roles.told_role(process) is not None or (process.pid in family.own and thread is None):
        return None
    if process.env is None:
        return None
    identity = roles.identity(process)
    if (identity is None and thread is None) or not roles.is_python(process):
        return None
    return Claim(process, identity, thread)


def _inherited(claims: Dict[int, Claim], family: Family) -> Set[int]:
    """Of a line of processes with one rank the eldest is it, or the eldest of those with proof.

    Without a living ancestor of that rank: what was forked off a process that already had RANK at its exec is
    a child of a rank that is gone.
    """
    found: Set[int] = set()
    for pid, claim in claims.items():
        for ancestor in family.ancestors(pid):
            other = claims.get(ancestor)
            if other is None or not _same_rank(claim, other):
                continue
            found.add(ancestor if claim.thread and not other.thread else pid)
        if claim.thread is None and claim.process.forked and _rank_at_exec(claim):
            found.add(pid)
    return found


def _rank_at_exec(claim: Claim) -> bool:
    process, identity = claim.process, claim.identity
    at_exec = roles.identity(process._replace(env=process.exec_env))
    if identity is None or at_exec is None:
        return False
    return (at_exec.rank, at_exec.world_size) == (identity.rank, identity.world_size)


def _same_rank(one: Claim, other: Claim) -> bool:
    if one.identity is None or other.identity is None:
        return False
    ports = {port for port in (one.variable("MASTER_PORT"), other.variable("MASTER_PORT")) if port}
    return one.rank == other.rank and one.world_size == other.world_size and len(ports) < 2


def _passed_on(claims: Dict[int, Claim], family: Family) -> Set[int]:
    """Programs that got a node's RANK from their pod, and start ranks with numbers of their own."""
    found: Set[int] = set()
    for pid, claim in claims.items():
        if claim.thread is not None:
            continue
        for member in family.descendants(pid):
            other = claims.get(member)
            renumbered = (
                other is not None and other.identity is not None and other.world_size != claim.world_size
            )
            if renumbered or roles.launcher_kind(family.table[member]) is not None:
                found.add(pid)
    return found


def adopted_strangers(group: List[Claim], family: Family) -> List[Claim]:
    """Members of a group that are children of a dead rank rather than ranks: adopted by init, no thread of a
    process group, and unlike the other ranks in what they run or in how they were started."""
    found = []
    for claim in group:
        others = [other for other in group if other is not claim]
        if not others or claim.thread is not None or claim.launcher is not None:
            continue
        if family.reparented(claim.process.pid) and not _alike(claim, others):
            found.append(claim)
    return found


def _alike(claim: Claim, others: List[Claim]) -> bool:
    mine = (claim.process.forked, roles.program(claim.process.cmdline))
    return any(mine == (other.process.forked, roles.program(other.process.cmdline)) for other in others)

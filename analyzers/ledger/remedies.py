"""What to do with the ledger's verdict: the action, missing facts with their commands, experiments."""

from __future__ import annotations

from hangscope.model.loose import FlightRecord, LogEvent, StackDump
from hangscope.model.ranges import ranks_phrase
from hangscope.model.verdict import Action, MissingFact, NextStep

from .arrivals import unmet
from .decide import Decision, they
from .finding import Finding
from .machine import owners_asked
from .picture import Picture

RECORDER = "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1  # in every rank's environment"
"""Torch 2.1 and later; TORCH_FR_BUFFER_SIZE is the newer name of the first."""


ENDS = frozenset({"exit-first", "job-ended"})
"""Kinds in which the launcher or the scheduler says that the job is over."""


def ended(picture: Picture) -> bool:
    """Whether the evidence says that nothing of the job runs any more."""
    return any(isinstance(fact, LogEvent) and fact.kind in ENDS for fact in picture.facts)


GROUP = MissingFact(
    what="the process group of the report, or the number of ranks",
    why="it counts ranks inside of a group that it does not name: they may be other ranks of the job",
    command="LOGLEVEL=INFO  # torchrun then prints the number of ranks",
)


def action_of(picture: Picture, finding: Finding) -> Action:
    """The next act of a person, and whether killing loses anything."""
    over = ended(picture)
    if finding.kind == "undecided":
        text = "keep the job as it is, if it still runs, until the missing fact is there"
        if over:
            text = "the job has ended: have the missing facts ready for the next time"
        return Action(kind="collect-more", safe_to_kill=over, text=text)
    if finding.kind in ("slow", "not-stuck"):
        return Action(kind="wait", safe_to_kill=False, text="nothing has to be done")
    if finding.kind == "all-joined":
        text = "nobody is to blame: test the network and the devices of these ranks"
        return Action(kind="restart", safe_to_kill=True, text=text)
    if finding.kind in ("cycle", "mismatch", "rank-diverged"):
        text = "a restart meets the same order again: compare what the ranks call there"
        return Action(kind="fix-code", safe_to_kill=True, text=text)
    who = ranks_phrase(finding.ranks)
    if finding.kind == "rank-absent":
        what = "did not come" if finding.cause == "store-wait-missing-rank" else "ended"
        return Action(kind="restart", safe_to_kill=True, text=f"see why {who} {what}, then restart")
    if finding.type == "gpu":
        text = f"look for Xid lines on the node of {who}; take the node out if there are any"
        return Action(kind="drain-node", safe_to_kill=True, text=text)
    text = f"get the stack of {who} before the job is killed"
    if over:
        text = f"the job has ended: when it hangs again, get the stack of {who} first"
    return Action(kind="collect-more", safe_to_kill=over, text=text)


def missing_of(picture: Picture, decision: Decision) -> tuple[MissingFact, ...]:
    """The facts that would decide, the most decisive first."""
    finding = decision.finding
    facts: list[MissingFact] = []
    if finding.kind in ("slow", "not-stuck"):
        return ()
    if finding.kind == "undecided":
        facts.extend(owners_asked(picture.machine))
        if picture.who.unnamed.doubted:
            facts.append(GROUP)
        facts.extend(_who_came(picture))
        facts.extend(_whose_dumps(picture))
    unknown = tuple(rank for rank in decision.unknown)
    if unknown:
        facts.append(
            MissingFact(
                what=f"the flight recorder or the log of {ranks_phrase(unknown)}",
                why=f"nothing read tells where {they(unknown)}",
                command=RECORDER,
            )
        )
    stacks = {picture.who.rank_of(fact.origin) for fact in picture.facts if isinstance(fact, StackDump)}
    named = [rank for rank in finding.ranks if rank not in stacks and not _placed(finding, rank)]
    if finding.kind in ("rank-blocked", "rank-diverged") and named:
        pid = picture.who.pids.get(named[0]) if not ended(picture) else None
        facts.append(
            MissingFact(
                what=f"the stack of {ranks_phrase(named)}",
                why="what it does instead of joining is on its stack only",
                command=f"hangscope capture -p {pid if pid is not None else 'PID'}",
            )
        )
    if picture.world_size is None and finding.kind in ("undecided", "all-joined", "rank-blocked"):
        facts.append(
            MissingFact(
                what="the number of ranks",
                why="without it nobody knows whether a rank is missing",
                command="torchrun prints it with LOGLEVEL=INFO; or add the logs of all ranks",
            )
        )
    recorded = any(isinstance(fact, FlightRecord) for fact in picture.facts)
    if not recorded and finding.kind in ("undecided", "rank-blocked", "mismatch"):
        facts.append(
            MissingFact(
                what="the flight recorders of all ranks",
                why="only they show for every group who has joined which operation",
                command=RECORDER,
            )
        )
    if finding.kind == "undecided" and not named and not unknown:
        facts.append(
            MissingFact(
                what="the stacks of all ranks",
                why="they show what each rank does now",
                command="hangscope capture -p PID",
            )
        )
    return tuple({fact.what: fact for fact in reversed(facts)}.values())[::-1]


def _whose_dumps(picture: Picture) -> list[MissingFact]:
    """Dumps of which nothing tells the rank: gloo's say it nowhere, and their names were changed."""
    dumps = [
        f for f in picture.facts if isinstance(f, FlightRecord) and picture.who.rank_of(f.origin) is None
    ]
    if not dumps:
        return []
    names = ", ".join(sorted(dump.ref.artifact.rpartition("/")[2] for dump in dumps)[:3])
    return [
        MissingFact(
            what=f"which ranks {names}{' …' if len(dumps) > 3 else ''} are of",
            why="neither the dumps nor their names tell it",
            command="mv dump.pkl nccl_trace_rank_3  # as torch names them",
        )
    ]


def _who_came(picture: Picture) -> list[MissingFact]:
    """The store counted who came; whose lines they are tells who did not."""
    store = unmet(picture.facts)
    if store is None:
        return []
    return [
        MissingFact(
            what=f"which of the {store.world_size} ranks the lines are of",
            why=f"{store.code} came to the store; the one that prints nothing has not",
            command="pgrep -af train.py  # on every node; or give each rank's log its rank (rank_3.log)",
        )
    ]


def _placed(finding: Finding, rank: int) -> bool:
    """Where it went instead is recorded."""
    difference = finding.difference
    return difference is not None and any(rank in part.ranks and part.place for part in difference.parts)


def next_of(picture: Picture, decision: Decision) -> tuple[NextStep, ...]:
    """Experiments that tell network, device and program apart where all joined; else the missing fact."""
    finding = decision.finding
    if finding.kind == "all-joined":
        return (
            NextStep(
                text="the network: does it pass with sockets in place of InfiniBand?",
                command="NCCL_NET=Socket",
            ),
            NextStep(
                text="direct access between GPUs (ACS, IOMMU): does it pass without?",
                command="NCCL_P2P_DISABLE=1",
            ),
            NextStep(
                text="the fabric alone, on the same nodes", command="all_reduce_perf -b 8 -e 1G -f 2 -g 1"
            ),
        )
    if finding.kind == "cycle" and finding.operations:
        text = (
            "compare the order in which the ranks call these groups; TORCH_NCCL_BLOCKING_WAIT shows the first"
        )
        return (NextStep(text=text, command="TORCH_DISTRIBUTED_DEBUG=DETAIL"),)
    if finding.kind in ("mismatch", "rank-diverged") and not _detail(picture):
        text = "let torch compare every collective before it runs (slow)"
        return (NextStep(text=text, command="TORCH_DISTRIBUTED_DEBUG=DETAIL"),)
    missing = missing_of(picture, decision)
    first = next((fact for fact in missing if fact.command), None)
    if first is not None and finding.kind in ("undecided", "rank-blocked"):
        return (NextStep(text=f"get {first.what}", command=first.command),)
    return ()


def _detail(picture: Picture) -> bool:
    return any(isinstance(fact, LogEvent) and fact.kind.startswith("fingerprint") for fact in picture.facts)

"""Facts that were not captured and would have counted, each with the command that gets it."""

from __future__ import annotations

from ..model.graph import Node
from ..model.ranges import ranks_phrase
from ..model.verdict import MissingFact
from ..model.waits import WaitKind
from .causes.interface import Context
from .devices import unplaced
from .graph.slots import P2P, STORE, UNNAMED
from .job import COMMUNICATION
from .nameless import which_rank
from .naming import known, pid_argument, pid_text

IMPORTANT = ("threads", "stacks", "process", "memory", "recorder")
RECORDER = "torch._C._distributed_c10d._WorkerServer('127.0.0.1', 0)  # in every rank; then capture again"
"""Opens torch's worker server (torch >= 2.4), from which the flight recorder is read without the GIL."""


def missing_facts(context: Context) -> tuple[MissingFact, ...]:
    """The most decisive first."""
    facts = [
        *_doubled(context),
        *which_rank(context.job),
        *_ptrace(context),
        *_unseen(context),
        *_recorder(context),
        *_opaque(context),
        *_memory(context),
        *_gpus(context),
    ]
    facts += [*_more(context), *_cells(context)]
    return tuple({fact.what: fact for fact in reversed(facts)}.values())[::-1]


def _capture(context: Context) -> str:
    job = context.job.capture.job
    pid = next((context.job.ranks[rank].pid for rank in sorted(context.job.ranks)), None)
    return (
        f"hangscope capture -p {pid}"
        if known(pid) is not None
        else f"hangscope capture --job local:{job or 'NAME'}"
    )


def _unseen(context: Context) -> list[MissingFact]:
    unseen = [p for p in context.presences.values() if p.being == "unknown"]
    facts = []
    captured = [presence for presence in unseen if presence.process is not None]
    absent = [presence for presence in unseen if presence.process is None]
    for presence in captured[:3]:
        assert presence.process is not None
        facts.append(
            MissingFact(
                what=f"threads and stacks of rank {presence.rank}",
                why=presence.why,
                command=f"sudo hangscope capture -p {pid_argument(presence.process.pid)}",
            )
        )
    if absent:
        ranks = ranks_phrase([presence.rank for presence in absent])
        nodes = ", ".join(node for node, _why in context.job.capture.missing_nodes)
        where = f" on {nodes}" if nodes else " on the nodes that host them"
        if absent[0].node is not None:
            where = " once its memory can be read again"
        facts.append(
            MissingFact(
                what=f"the processes of {ranks}",
                why=absent[0].why,
                command=f"hangscope capture --job local:{context.job.capture.job or 'NAME'}  # run{where}",
            )
        )
    return facts


def _doubled(context: Context) -> list[MissingFact]:
    """Rank numbers that several processes claim."""
    facts = []
    for rank in context.job.doubled[:3]:
        pids = [p.pid for p in context.job.processes if p.role == "rank" and p.rank == rank]
        files = " ".join(f"/proc/{pid}/environ" for pid in pids)
        facts.append(
            MissingFact(
                what=f"which of pid {', '.join(map(str, pids))} is rank {rank}",
                why="they meet at one address, and neither their starts nor their connections differ",
                command=f"grep -zE 'MASTER|WORLD_SIZE|RESTART' {files}; ps -o pid,ppid,lstart -p "
                + ",".join(map(str, pids)),
            )
        )
    return facts


def _recorder(context: Context) -> list[MissingFact]:
    if context.decision.kind != "undecided" and not (
        context.finding is not None and context.finding.root.certainty == "possible"
    ):
        return []
    unnamed = any(slot.group in (UNNAMED, STORE) for slot in context.built.slots.values())
    split = context.finding is not None and context.finding.split is not None
    recorded = {r for r, p in context.job.ranks.items() if p.recorders}
    lacking = sorted(set(context.job.ranks) - recorded)
    if not lacking or not (unnamed or split or context.membership.formed_anywhere):
        return []
    if not context.built.slots:
        return []
    return [
        MissingFact(
            what=f"the flight recorder of {ranks_phrase(lacking)}",
            why="stacks do not tell the process group, nor the sequence number, of an operation"
            + _unused_dumps(context),
            command=RECORDER,
        )
    ]


def _unused_dumps(context: Context) -> str:
    """Dumps that were found and do not count (stale, cut, of another moment): why, in a few words."""
    told = [
        note for note in context.job.capture.notes if "/recorder_files/" in note or "/recorder_pipe/" in note
    ]
    if not told:
        return ""
    reasons = dict.fromkeys(note.partition(": ")[2].removesuffix("; not used") for note in told)
    count = "a dump was found, but" if len(told) == 1 else f"{len(told)} dumps were found, but"
    return f"; {count} {'; '.join(list(reasons)[:2])}"


def _opaque(context: Context) -> list[MissingFact]:
    facts = []
    refused = {node for node, _why in context.job.capture.missing_ptrace}
    for node in sorted(context.solution.nodes.values(), key=_entering):
        wait = node.wait
        if node.type != "thread" or node.id in context.solution.released or wait is None:
            continue
        if node.host in refused:  # what would get it is said once, by _ptrace
            continue
        if wait.kind not in (WaitKind.UNKNOWN, WaitKind.ENTERING) or node.pid is None:
            continue
        seen = context.thread(node)
        safe = seen is not None and seen.state not in ("D", "T", "t")
        command = (
            f"py-spy dump --native --pid {pid_argument(node.pid)}"
            if safe
            else f"cat /proc/{node.pid}/task/{node.tid}/stack"
        )
        thread = f"thread {node.tid}" if known(node.tid) is not None else node.label
        what = f"the native stack of {thread} of " + (
            f"rank {node.rank}" if node.rank is not None else pid_text(node.pid)
        )
        facts.append(MissingFact(what=what, why="its frames do not tell what it waits for", command=command))
    return (facts + _peers(context))[:4]


def _entering(node: Node) -> bool:
    """Those that are on the way into an operation come last: they wait for the others."""
    return node.wait is not None and node.wait.kind is WaitKind.ENTERING


def _peers(context: Context) -> list[MissingFact]:
    """Transfers of which the other end is not known."""
    facts = []
    for node in context.solution.nodes.values():
        wait = node.wait
        if node.type != "thread" or wait is None or wait.kind not in P2P or wait.peer is not None:
            continue
        facts.append(
            MissingFact(
                what=f"the other rank of rank {node.rank}'s {wait.kind.value}",
                why="its integers (src, dst) were not captured",
                command=f"py-spy dump --locals --nonblocking --pid {pid_argument(node.pid)}",
            )
        )
    return facts


def _memory(context: Context) -> list[MissingFact]:
    """A wait for memory without the cgroup's files."""
    for node in context.blocked():
        if node.wait is not None and node.wait.kind is WaitKind.HOST_MEMORY and context.cgroup(node) is None:
            return [
                MissingFact(
                    what="usage and limit of the rank's memory cgroup",
                    why="no memory cgroup of it was captured at its limit",
                    command=f"cat /proc/{node.pid}/cgroup",
                )
            ]
    return []


def _gpus(context: Context) -> list[MissingFact]:
    """GPUs that are out of order, of which nothing tells which rank works on them."""
    if context.decision.kind in ("slow", "not-stuck"):
        return []
    return [
        MissingFact(
            what=f"which rank works on the GPU of {node} that is out of order",
            why=text,
            command="nvidia-smi --query-compute-apps=gpu_bus_id,gpu_uuid,pid --format=csv",
        )
        for node, text, _ref in unplaced(context.job)[:2]
    ]


def _more(context: Context) -> list[MissingFact]:
    if not context.decision.more:
        return []
    return [
        MissingFact(
            what="further samples",
            why=context.decision.doubts or f"the samples span {context.job.observed:.0f} s",
            command=f"{_capture(context)} --patience 60",
        )
    ]


def _ptrace(context: Context) -> list[MissingFact]:
    return [
        MissingFact(
            what=f"Python stacks on {node}",
            why=why,
            command=("sudo " if "as root" in why else "") + _capture(context),
        )
        for node, why in context.job.capture.missing_ptrace[:2]
    ]


def _cells(context: Context) -> list[MissingFact]:
    """Cells that failed for a rank, of collectors that matter here."""
    pids = {(p.node, p.pid): rank for rank, p in context.job.ranks.items()}
    refused = {node for node, _why in context.job.capture.missing_ptrace}
    facts = []
    for cell in context.job.capture.cells:
        if cell.status in ("ok", "absent") or cell.collector not in IMPORTANT:
            continue
        if cell.node in refused and ("EPERM" in (cell.reason or "") or cell.status == "denied"):
            continue  # said once, by _ptrace
        rank = pids.get((cell.node, cell.pid)) if cell.pid is not None else None
        if cell.pid is not None and rank is None:
            continue
        of = f"rank {rank}" if rank is not None else cell.node
        facts.append(
            MissingFact(
                what=f"{cell.collector} of {of} in sample {cell.sample}",
                why=f"{cell.status}: {cell.reason or 'no reason given'}",
                command=None,
            )
        )
    return facts[:5]


def communicating_ranks(context: Context) -> tuple[int, ...]:
    """Ranks with a thread that waits in communication and has no way out."""
    return tuple(
        sorted(
            {
                node.rank
                for id, node in context.solution.nodes.items()
                if node.type == "thread"
                and node.rank is not None
                and node.wait is not None
                and node.wait.kind in COMMUNICATION
                and id not in context.solution.released
            }
        )
    )

"""Where the waiting ends: every node without an out-edge gets a class, and what is known of its progress."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...model.facts import Process, ThreadSample
from ...model.graph import Node, SinkClass
from ...model.waits import ReleasedBy, WaitKind
from ..job import BLOCKED, COMMUNICATION, GONE, IDLE, INSIDE, LIVE
from ..membership import Membership
from ..progress import Motion, Progress, never_ran
from .draft import Draft
from .slots import INIT, STORE, UNNAMED, Slot

STUCK = BLOCKED | GONE | INSIDE | {WaitKind.CHILD}


def classify_sinks(
    draft: Draft, slots: Mapping[str, Slot], membership: Membership, progress: Progress
) -> None:
    """Sets ``sink`` and ``progress`` on every sink, and ``progress`` on operations that move."""
    for id, node in list(draft.nodes.items()):
        if node.type == "operation" and id in slots:
            _operation(draft, id, slots[id], progress)
        elif node.type == "thread" and node.wait is not None:
            if not draft.out.get(id):
                sink = _sink(draft, node)
                draft.classify(id, sink, _moved(draft, node, sink, progress).moved)
            else:
                draft.nodes[id] = _with_progress(draft, node, progress)
        elif node.sink is None and not draft.out.get(id):
            draft.classify(id, "stuck" if node.type in ("lock", "queue", "operation") else "unknown")


def _sink(draft: Draft, node: Node) -> SinkClass:
    """A rank that waits for its device has an edge to some operation, unless all of them are complete: then
    its device is stuck."""
    process = draft.job.by_pid.get((node.host or "", node.pid or -1))
    device = node.wait is not None and node.wait.kind is WaitKind.DEVICE
    if device and process is not None and process.role == "rank":
        return "stuck"
    return sink_class(node)


def sink_class(node: Node) -> SinkClass:
    """``stuck``: blocked with nobody left to end it; ``live``: it can go on by itself; ``service``: an
    idle loop; ``unknown``: nobody knows what it waits for."""
    wait = node.wait
    assert wait is not None
    if wait.kind in LIVE:
        return "live"
    if wait.kind in IDLE:
        return "service"
    if wait.kind in STUCK:
        return "stuck"
    return "live" if wait.released_by is ReleasedBy.ITSELF else "unknown"


def _moved(draft: Draft, node: Node, sink: SinkClass, progress: Progress) -> Motion:
    process = draft.job.by_pid.get((node.host or "", node.pid or -1))
    if process is None or node.tid is None or node.wait is None:
        return Motion()
    if node.wait.kind in GONE:
        return Motion(moved=False, text=node.wait.kind.value)
    own = progress.thread(process, node.tid)
    if own.moved or (hard_blocked(draft, node) and sink == "stuck"):
        return own if own.moved else Motion(moved=False, text="no context switch between the samples")
    whole = progress.process(process)
    if whole.moved and node.tid == process.pid:
        samples = [t for s in process.samples for t in s.threads if t.tid == node.tid]
        if not whole.weak or not never_ran(samples):
            return whole  # else it was another thread that wrote
    if own.moved is None and whole.moved is False and not whole.weak and sink == "stuck":
        return whole
    return own


def hard_blocked(draft: Draft, node: Node) -> bool:
    """Blocked in the kernel without one context switch since the first sample (see ``still``)."""
    process = draft.job.by_pid.get((node.host or "", node.pid or -1))
    if process is None or node.tid is None or node.wait is None or node.wait.kind not in HARD:
        return False
    return still([t for s in process.samples for t in s.threads if t.tid == node.tid])


HARD = frozenset(
    {
        WaitKind.HOST_MEMORY,
        WaitKind.KERNEL,
        WaitKind.FILESYSTEM,
        WaitKind.DRIVER,
    }
)
"""Kernel waits that do not end by themselves within seconds. Disks, pipes, remote ends and file locks do."""


def still(samples: list[ThreadSample]) -> bool:
    """True when the thread did not run once between the first and the last of at least two samples."""
    if len(samples) < 2:
        return False
    first, last = samples[0], samples[-1]
    if first.state == "R" or last.state == "R" or first.wchan != last.wchan:
        return False
    switches = [(t.voluntary, t.involuntary) for t in (first, last)]
    return None not in switches[0] and switches[0] == switches[1]


def _with_progress(draft: Draft, node: Node, progress: Progress) -> Node:
    process = draft.job.by_pid.get((node.host or "", node.pid or -1))
    if process is None or node.tid is None or node.wait is None:
        return node
    if node.wait.kind in COMMUNICATION:
        motion = wait_moved(progress, process, node.tid, node.rank)
    else:
        motion = progress.thread(process, node.tid)
    return msgspec.structs.replace(node, progress=motion.moved)


def wait_moved(progress: Progress, process: Process, tid: int, rank: int | None) -> Motion:
    """Whether a wait in communication is another one than before. Output and files say nothing of it."""
    own = progress.thread(process, tid)
    if own.moved:
        return own
    whole = progress.rank(rank) if rank is not None else Motion()
    if whole.moved and not whole.weak:
        return whole
    return own if own.moved is False else (whole if whole.moved is False else Motion())


def _operation(draft: Draft, id: str, slot: Slot, progress: Progress) -> None:
    """An operation of a known group moves when one of its waiters does; one of an unnamed group may be
    several operations, of which only some move."""
    moved: bool | None = None
    if slot.group not in (UNNAMED, STORE):
        states = []
        for joiner in slot.joiners:
            process = draft.job.ranks[joiner.rank]
            tid = int(joiner.node.rpartition(":")[2])
            states.append(wait_moved(progress, process, tid, joiner.rank).moved)
        moved = True if True in states else (False if False in states else None)
    out = draft.out.get(id)
    sink: SinkClass | None = None if out else ("unknown" if slot.group in (UNNAMED, STORE, INIT) else "stuck")
    draft.nodes[id] = msgspec.structs.replace(draft.nodes[id], sink=sink, progress=moved)

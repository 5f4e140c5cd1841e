"""What the verdict rests on, what speaks against it, and what was excluded: each line with its artifact."""

from __future__ import annotations

from ..model.facts import Ref
from ..model.ranges import ranks_phrase
from ..model.verdict import EvidenceLine
from ..model.waits import WaitKind
from .causes.interface import Context, gib, line
from .classes import rank_classes
from .graph.operations import slot_label
from .graph.resources import is_full
from .graph.slots import Slot
from .naming import known, pid_text
from .places import place, shown

CLASSES = 6
"""Classes of ranks that an undecided verdict lists."""

ENOUGH_MEMORY = 0.1
"""Share of the host's memory that must be available for it to count as healthy."""


def evidence(context: Context, explained: tuple[EvidenceLine, ...]) -> tuple[EvidenceLine, ...]:
    """The cause's own lines first, then the roots' waits, then what the victims wait in."""
    lines = list(explained)
    for node in context.blocked()[:4]:
        wait = node.wait
        if wait is None:
            continue
        rank = f"rank {node.rank}" if node.rank is not None else pid_text(node.pid)
        where = place(shown(wait))
        thread = context.thread(node)
        state = f", state {thread.state}" if thread is not None and thread.state != "?" else ""
        number = f" (tid {node.tid})" if known(node.tid) is not None else ""
        text = f"{rank}, {node.label}{number}{state}: {wait.why or wait.kind.value}"
        if where and where not in text:
            text += f" at {where}"
        ref = (
            (thread.stack_ref or thread.ref) if thread is not None else (node.refs[0] if node.refs else None)
        )
        lines.append(line(text, ref))
    if context.decision.kind in ("undecided", "all-joined"):
        lines.extend(_everybody(context))
    else:
        lines.extend(_victims(context))
    lines.extend(_standstill(context))
    return tuple(dict.fromkeys(lines))


def _everybody(context: Context) -> list[EvidenceLine]:
    """What each class of ranks does, where nobody is named."""
    classes = rank_classes(context.job, context.built, context.presences)
    return [
        line(f"{ranks_phrase(item.ranks)}: {item.what}" + (f" at {item.at}" if item.at else ""), item.ref)
        for item in classes[:CLASSES]
    ]


def _victims(context: Context) -> list[EvidenceLine]:
    finding = context.finding
    if finding is None:
        return []
    waiting = set(finding.victims)
    lines = []
    for id in sorted(context.built.slots):
        slot = context.built.slots[id]
        ranks = sorted(slot.ranks & waiting)
        if ranks and finding.split is None:
            where = place(shown(slot.joiners[0].wait))
            text = f"{ranks_phrase(ranks)} in {slot_label(slot)}" + (f" at {where}" if where else "")
            lines.append(line(text, _slot_ref(slot)))
    return lines[:3]


def _slot_ref(slot: Slot) -> Ref | None:
    first = slot.joiners[0]
    return first.entry.ref if first.entry is not None else first.wait.ref


def _standstill(context: Context) -> list[EvidenceLine]:
    decision, job = context.decision, context.job
    if context.finding is None or not decision.watched:
        return []
    if decision.since is not None and decision.since.age > job.observed:
        return [line(f"nothing moved for {decision.since.age:.0f} s ({decision.since.source})")]
    return [line(f"nothing moved over {job.capture.samples} samples in {job.observed:.0f} s")]


def against(context: Context) -> tuple[EvidenceLine, ...]:
    """What a reader should weigh: other ranks that have not joined, ranks not seen, doubled ranks."""
    lines = []
    for finding in context.decision.also_late:
        node = context.solution.nodes[finding.root.nodes[0]]
        text = f"{ranks_phrase(finding.ranks)} runs and has not joined either"
        lines.append(line(text, node.refs[0] if node.refs else None))
    for rank in context.decision.also_unknown:
        presence = context.presences.get(rank)
        seen = presence is None or presence.being == "alive"
        why = "what it waits for is not known" if seen or presence is None else presence.why
        lines.append(line(f"rank {rank} could be the root as well: {why}"))
    for rank in context.job.doubled:
        lines.append(line(f"several processes claim rank {rank}: the youngest was taken"))
    return tuple(lines)


def ruled_out(context: Context) -> tuple[EvidenceLine, ...]:
    """Others that are usually suspected, and the fact that excludes each."""
    if context.finding is None:
        return ()
    lines = _joined(context) if context.decision.kind != "undecided" else []
    lines += _memory(context)
    lines += _sockets(context)
    gone = [r for r, p in context.presences.items() if p.being not in ("alive", "unknown")]
    if not gone:
        lines.append(line(f"a dead or stopped rank: all {len(context.presences)} are alive"))
    return tuple(lines)


def _joined(context: Context) -> list[EvidenceLine]:
    finding = context.finding
    assert finding is not None
    innocent = set(finding.victims) - set(finding.ranks)
    joined = {r for slot in context.built.slots.values() for r in slot.ranks} & innocent
    if not joined or finding.split is not None:
        return []
    return [line(f"{ranks_phrase(joined)}: in communication, waiting for the others")]


def _memory(context: Context) -> list[EvidenceLine]:
    waits = {node.wait.kind for node in context.blocked() if node.wait is not None}
    capture = context.job.capture
    if WaitKind.HOST_MEMORY in waits or any(is_full(capture, row) for row in capture.cgroups):
        return []
    lines = []
    newest = max((row.sample for row in capture.memory), default=0)
    for row in capture.memory:
        if row.sample != newest or not row.total or row.available is None:
            continue
        if row.available >= ENOUGH_MEMORY * row.total:
            text = f"host memory: {gib(row.available)} of {gib(row.total)} available on {row.node}"
            if capture.cgroups:
                text += ", no cgroup at its limit"
            lines.append(line(text, row.ref))
    return lines[:2]


def _sockets(context: Context) -> list[EvidenceLine]:
    """Connections between ranks: none of them retransmits."""
    checked = 0
    pids = {(p.node, p.pid) for p in context.job.ranks.values()}
    for process in context.job.ranks.values():
        newest = context.job.newest(process)
        for socket in newest.sockets if newest is not None else ():
            if (socket.peer_node or process.node, socket.peer_pid or -1) not in pids:
                continue
            checked += 1
            if socket.retransmits or socket.state != "ESTABLISHED":
                return []
    return (
        [line(f"the network: {checked} connection ends between ranks, none retransmits")] if checked else []
    )

"""What happened to the machines under the ranks: Xids, lost GPUs, memory kills, hung tasks, tied to a rank by
PCI address, pid and node. Which of them came first, and what cannot be told.

First event wins only within one node, or beyond the measured clock offset and a second. A follower (Xid 45,
*caused by previous Xid*) and a symptom (a context switch time-out in a hang) are never the first event. What
belongs to no rank of the job is context: shown, and nobody is named for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from hangscope.model.facts import Gpu, KernelEvent, Ref
from hangscope.model.loose import LogEvent
from hangscope.model.verdict import MissingFact

from ..xid import NVLINK, Significance, code_of, significance
from .placement import Identity, Tie
from .precedence import SURE_OFFSET, first_of, place

GPU_MAP = "nvidia-smi; or the ranks' logs with NCCL_DEBUG=INFO (busId)"
GPU_WIDE = frozenset(
    {46, 48, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140, 143, *range(144, 151), 155, 158, 167}
)
"""Xids of the whole GPU, whichever process the line names; the others are of the process in the line."""


class MachineEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event. ``rank``: whose, None where nobody's or not known; ``candidates``: whose it may be."""

    kind: str
    """xid-79, gpu-lost, oom-kill, hung-task, …"""
    rank: int | None = None
    candidates: tuple[int, ...] = ()
    cause: str | None = None
    """Id of the catalogue, when the event can start a hang."""
    weight: int = 9
    """0: the hardware or a kill, 1: the program's own fault on the GPU, 2: a thread that the kernel does not
    let go on, 9: follows from something else, or stops nothing."""
    tie: str = ""
    """What ties it to the rank: pid, pci, pid+pci."""
    node: str | None = None
    pid: int | None = None
    pci: str | None = None
    wall: float | None = None
    seconds: float | None = None
    action: str = ""
    text: str
    ref: Ref


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """``by_rank``: each rank's events in the order of their log; ``first``: of all, those that nothing is
    known to precede; ``doubt``: why ``first`` has not exactly one rank, "" where it has or there is none;
    ``context``: of no rank of the job, or of one that is not known."""

    by_rank: dict[int, tuple[MachineEvent, ...]]
    first: tuple[MachineEvent, ...] = ()
    context: tuple[MachineEvent, ...] = ()
    doubt: str = ""
    unowned: tuple[MachineEvent, ...] = ()
    """Of the context, what could start a hang, and may be some rank's."""


def machine_events(
    events: Iterable[object],
    identities: Sequence[Identity],
    *,
    offsets: Mapping[tuple[str, str], float] | None = None,
    world_size: int | None = None,
    since: float | None = None,
) -> Machine:
    """Returns the machine events among ``events`` (KernelEvent, Gpu and LogEvent; others are passed over).

    ``offsets``: largest clock difference of two nodes in seconds, where it was measured; ``since``: start of
    the job, seconds since the epoch: what is dated before it is context.
    """
    tie = Tie(identities, world_size)
    tied: dict[int, list[MachineEvent]] = {}
    context: list[MachineEvent] = []
    unowned: list[MachineEvent] = []
    for event in events:
        found = _understood(event, tie)
        if found is None:
            continue
        if since is not None and found.wall is not None and found.wall < since - SURE_OFFSET:
            found = msgspec.structs.replace(found, rank=None, weight=9, text=f"before the job: {found.text}")
        if found.rank is None:
            context.append(found)
            if found.weight < 9 and not tie.knows_all(found.pid, found.pci):
                unowned.append(found)
        else:
            tied.setdefault(found.rank, []).append(found)
    by_rank = {rank: tuple(sorted(tied[rank], key=place)) for rank in sorted(tied)}
    starters = [event for own in by_rank.values() for event in own if event.weight < 9]
    first, doubt = first_of(starters, offsets or {})
    return Machine(
        by_rank=by_rank,
        first=first,
        context=tuple(sorted(context, key=place)),
        doubt=doubt,
        unowned=tuple(sorted(unowned, key=place)),
    )


def _understood(event: object, tie: Tie) -> MachineEvent | None:
    if isinstance(event, KernelEvent):
        return _kernel(event, tie)
    if isinstance(event, Gpu):
        return _gpu(event, tie)
    if isinstance(event, LogEvent) and event.kind == "gpu-lost":
        rank, candidates, how = tie.of(event.origin.node, None, event.pci, event.ref)
        return MachineEvent(
            kind="gpu-lost", rank=rank, candidates=candidates, tie=how, cause="gpu-lost-xid79", weight=0,
            node=event.origin.node, pci=event.pci, wall=event.origin.wall, text=event.text, ref=event.ref,
        )  # fmt: skip
    return None


def _kernel(event: KernelEvent, tie: Tie) -> MachineEvent:
    code = code_of(event.kind)
    known = significance(code, event.text) if code is not None else None
    cause, weight = _meaning(event, known)
    gpu_wide = code is None or code in GPU_WIDE
    own_pid = None if event.kind.startswith("xid") and gpu_wide else event.pid
    rank, candidates, how = tie.of(event.node, own_pid, event.pci, event.ref)
    if rank is None and own_pid is None and event.pid is not None:
        by_pid = tie.of(event.node, event.pid, event.pci, event.ref)
        rank, candidates, how = by_pid if by_pid[0] is not None else (None, candidates, how)
    return MachineEvent(
        kind=event.kind,
        rank=rank,
        candidates=candidates,
        cause=cause,
        weight=weight,
        tie=how,
        node=event.node or None,
        pid=event.pid,
        pci=event.pci,
        wall=event.wall,
        seconds=event.seconds,
        action=known.action if known is not None else "",
        text=event.text,
        ref=event.ref,
    )


def _meaning(event: KernelEvent, xid: Significance | None) -> tuple[str | None, int]:
    """(cause, weight) of a line of the kernel."""
    if xid is not None:
        if xid.code == 79:
            return "gpu-lost-xid79", 0
        if xid.part == "cause":
            return ("nvlink-error-xid" if xid.code in NVLINK else "gpu-or-driver-stuck"), 0
        return ("gpu-or-driver-stuck", 1) if xid.app else (None, 9)
    return {
        "gpu-lost": ("gpu-lost-xid79", 0),
        "oom-kill": ("oom-killed-rank", 0),
        "segfault": ("rank-died-peers-wait", 0),
        "hung-task": ("thread-blocked-in-kernel", 2),
        "soft-lockup": ("thread-blocked-in-kernel", 2),
    }.get(event.kind, (None, 9))


def _gpu(event: Gpu, tie: Tie) -> MachineEvent | None:
    """A GPU that nvidia-smi calls lost."""
    if not event.lost:
        return None
    pid = event.pids[0] if len(event.pids) == 1 else None
    rank, candidates, how = tie.of(event.node, None, event.pci, event.ref)
    if rank is None:
        rank, candidates, how = tie.of(event.node, pid, None, event.ref)
    name = event.pci or event.uuid or f"index {event.index}"
    return MachineEvent(
        kind="gpu-lost", rank=rank, candidates=candidates, tie=how, cause="gpu-lost-xid79", weight=0,
        node=event.node or None, pid=pid, pci=event.pci,
        text=f"nvidia-smi: GPU {name} is lost", ref=event.ref,
    )  # fmt: skip


def owners_asked(machine: Machine) -> tuple[MissingFact, ...]:
    """The facts that would tell whose the events are that nobody is known to own; at most three."""
    found: dict[str, MissingFact] = {}
    for event in machine.unowned:
        where = f" on {event.node}" if event.node else ""
        if event.pci is not None:
            what, command = f"which rank works on GPU {event.pci}{where}", GPU_MAP
        elif event.pid is not None:
            what, command = f"which rank is pid {event.pid}{where}", f"ps -o pid,ppid,args -p {event.pid}"
        else:
            what, command = f"which GPU is lost{where}", GPU_MAP
        found.setdefault(
            what,
            MissingFact(
                what=what, why=f"nothing read tells whose it is: {event.text[:160]}", command=command
            ),
        )
    return tuple(found.values())[:3]

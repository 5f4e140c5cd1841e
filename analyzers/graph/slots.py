"""Which ranks wait in which operation: the waits that communicate, gathered into operation slots."""

from __future__ import annotations

import hashlib

import msgspec

from ...model.facts import Frame, Operation, Process, ThreadSample
from ...model.waits import Wait, WaitKind
from ..job import IDLE, Job
from ..membership import Membership
from ..presence import Presence
from ..recorder import Records
from .draft import thread_id

WORLD = "world"
INIT = "init"
UNNAMED = "?"
STORE = "store"

P2P = frozenset({WaitKind.SEND, WaitKind.RECV})

ChainKey = tuple[tuple[str, str, int], ...]


class Joiner(msgspec.Struct, frozen=True, kw_only=True):
    """One thread that waits in an operation which it has joined."""

    rank: int
    node: str
    wait: Wait
    label: str
    chain: ChainKey
    group: str
    entry: Operation | None = None
    """The flight recorder's entry for it."""


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that wait in one and the same operation, as far as the evidence can tell."""

    id: str
    group: str
    sequence: int | None
    label: str
    joiners: tuple[Joiner, ...]

    @property
    def ranks(self) -> frozenset[int]:
        return frozenset(joiner.rank for joiner in self.joiners)


def chain_key(wait: Wait) -> ChainKey:
    """The call chain above the deciding frame, as comparable places."""
    frames: tuple[Frame, ...] = wait.chain or ((wait.caller,) if wait.caller is not None else ())
    return tuple((frame.function, frame.file, frame.line) for frame in frames)


def joiners_of(
    job: Job, presences: dict[int, Presence], membership: Membership, records: Records
) -> list[Joiner]:
    """Every thread of a living rank that waits in an operation it has joined, point-to-point excluded."""
    found = []
    for rank, presence in sorted(presences.items()):
        if presence.being != "alive" or presence.process is None:
            continue
        process = presence.process
        for tid in job.communicating(process):
            wait = job.wait(process, tid)
            if wait.kind in P2P:
                continue
            entry = _entry(records, rank, wait)
            if wait.kind is WaitKind.ENTERING and entry is None and not _may_have_joined(job, wait):
                continue
            if wait.kind is WaitKind.DEVICE and records.all_complete(rank):
                continue
            if wait.kind is WaitKind.AUTOGRAD and autograd_threads(job, process):
                continue
            group = _group(membership, rank, wait, entry)
            if wait.kind is WaitKind.ENTERING and entry is None:
                group = UNNAMED
            found.append(
                Joiner(
                    rank=rank,
                    node=thread_id(process, tid),
                    wait=wait,
                    label=wait.operation or wait.kind.value,
                    chain=chain_key(wait),
                    group=group,
                    entry=entry,
                )
            )
    return found


def _may_have_joined(job: Job, wait: Wait) -> bool:
    """A saved dump has no source: the line that waits for an operation looks like the one that issues it. Its
    rank communicates, and that is all: in which operation is not known either."""
    return job.capture.loose and (wait.frame is None or wait.frame.source is None)


def autograd_threads(job: Job, process: Process) -> list[int]:
    """Autograd's own threads (one a device) that are at work: backward waits for them. Without any it waits
    for the reducer's operations, which it has joined."""
    threads = job.threads(process)
    found = [tid for tid in sorted(threads) if _is_autograd(job, process, threads[tid])]
    idle = IDLE if job.capture.loose else IDLE | {WaitKind.UNKNOWN}
    return [tid for tid in found if job.wait(process, tid).kind not in idle]


def _is_autograd(job: Job, process: Process, thread: ThreadSample) -> bool:
    """By the name that torch gives it; of a saved dump, one that runs Python and was not started by it."""
    if thread.comm or not job.capture.loose:
        return thread.comm.startswith("pt_autograd")
    nameless = thread.python_name is None or thread.python_name.startswith("Dummy-")
    started = any(frame.function.endswith("_bootstrap") for frame in (thread.stack or ())[-1:])
    return thread.tid != process.pid and nameless and bool(thread.stack) and not started


def _entry(records: Records, rank: int, wait: Wait) -> Operation | None:
    if wait.kind in (WaitKind.INIT, WaitKind.RENDEZVOUS, WaitKind.STORE):
        return None
    return records.pending(rank, wait.operation)


def _group(membership: Membership, rank: int, wait: Wait, entry: Operation | None) -> str:
    """The group's name; ``world`` for the only one; ``?`` where no source names it: a wait for the device
    is one for *some* operation, whose call may lie far back."""
    initial = not membership.formed(rank)
    if wait.kind in (WaitKind.INIT, WaitKind.RENDEZVOUS):
        return WORLD if membership.single and not initial else INIT
    if wait.kind is WaitKind.STORE:
        return INIT if initial else STORE
    if wait.kind is WaitKind.DEVICE and entry is None:
        return UNNAMED
    if membership.single:
        return WORLD
    return entry.group if entry is not None else UNNAMED


def slots_of(joiners: list[Joiner]) -> dict[str, list[Slot]]:
    """group → its slots. A recorder's sequence and kind tell operations apart; without one, the operation's
    name and the call chain. A rank without a recorder joins the slot of those whose stacks equal its own."""
    groups: dict[str, list[Joiner]] = {}
    for joiner in joiners:
        groups.setdefault(joiner.group, []).append(joiner)
    return {group: _partition(group, members) for group, members in sorted(groups.items())}


def _partition(group: str, joiners: list[Joiner]) -> list[Slot]:
    if group in (UNNAMED, STORE, INIT):
        labels = sorted({joiner.label for joiner in joiners})
        return [_slot(group, (group,), None, " or ".join(labels), joiners)]
    by_stack: dict[tuple[object, ...], tuple[object, ...]] = {}
    for joiner in joiners:
        if joiner.entry is not None:
            by_stack.setdefault((joiner.label, joiner.chain), _recorded(joiner.entry))
    parts: dict[tuple[object, ...], list[Joiner]] = {}
    for joiner in joiners:
        stack = (joiner.label, joiner.chain)
        key = _recorded(joiner.entry) if joiner.entry is not None else by_stack.get(stack, ("stack", *stack))
        parts.setdefault(key, []).append(joiner)
    slots = []
    for key, members in parts.items():
        entry = next((joiner.entry for joiner in members if joiner.entry is not None), None)
        label = entry.kind if entry is not None else members[0].label
        slots.append(_slot(group, key, entry.sequence if entry is not None else None, label, members))
    return sorted(slots, key=lambda slot: (slot.sequence is None, slot.sequence or 0, slot.id))


def _recorded(entry: Operation) -> tuple[object, ...]:
    return ("seq", entry.sequence, entry.kind, entry.sizes, entry.dtype)


def _slot(
    group: str, key: tuple[object, ...], sequence: int | None, label: str, joiners: list[Joiner]
) -> Slot:
    digest = hashlib.blake2s(repr(key).encode(), digest_size=6).hexdigest()
    ordered = tuple(sorted(joiners, key=lambda joiner: (joiner.rank, joiner.node)))
    return Slot(
        id=f"op:{group}:{'-' if sequence is None else sequence}:{digest}",
        group=group,
        sequence=sequence,
        label=label,
        joiners=ordered,
    )

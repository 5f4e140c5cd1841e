"""Saved stack dumps → the facts that the analysis of a capture works on.

One process a rank and pid; several dumps of it are samples. What a dump does not tell stays unknown: thread
states are ``?``, and processes whose number or pid nothing tells get a negative pid. A rank is what the
evidence says it is; one that is left over is never a rank by elimination.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from ..model.evidence import Role
from ..model.facts import Capture, Frame, Gpu, KernelEvent, Process, ProcessSample, Ref, ThreadSample
from ..model.loose import LooseFact, ProcessState, StackDump
from .facts.stacks import cut_at_fork
from .loose_merge import Look, SeenThread
from .loose_processes import Group, processes_of
from .loose_ranks import proven_ranks, world_size_of

_Frames = tuple[Frame, ...]

DIED = "Fatal Python error"
"""How the problem of a dump begins that a crash has left: its process is not there any more."""

ROLES: tuple[tuple[str, str, Role], ...] = (
    ("torch/utils/data/_utils/worker.py", "_worker_loop", "dataloader"),
    ("torch/distributed/elastic/agent/", "", "launcher"),
    ("torch/distributed/launcher/", "", "launcher"),
    ("deepspeed/launcher/", "", "launcher"),
    ("torch/multiprocessing/spawn.py", "join", "launcher"),
    ("accelerate/commands/launch.py", "", "launcher"),
    ("torch/_inductor/compile_worker/__main__.py", "", "compile-worker"),
    ("multiprocessing/resource_tracker.py", "main", "resource-tracker"),
    ("multiprocessing/forkserver.py", "main", "forkserver"),
)
"""(part of a file's path, function or any, role): what the frames of a process say that it is."""


def capture_of(
    facts: Sequence[LooseFact], world_size: int | None = None, *, age: float | None = None
) -> Capture | None:
    """Returns a capture made of the stack dumps among ``facts``; None where there is none.

    ``age``: seconds for which other evidence says that the job had been stuck when the dumps were made.
    """
    dumps = _placed([fact for fact in facts if isinstance(fact, StackDump) and _counts(fact)])
    if not any(thread.frames or thread.kernel_stack for dump in dumps for thread in dump.threads):
        return None
    groups = processes_of(dumps, [fact for fact in facts if isinstance(fact, ProcessState)])
    world_size = world_size or world_size_of(group.title for group in groups)
    ranks = proven_ranks([(group.origin, group.title) for group in groups], world_size)
    for group, rank in zip(groups, ranks, strict=True):
        group.origin = msgspec.structs.replace(group.origin, rank=rank)
    samples = max(len(group.looks) for group in groups)
    gpus = tuple(fact for fact in facts if isinstance(fact, Gpu))
    processes = tuple(_built(groups, samples, world_size, gpus))
    return Capture(
        job=None,
        world_size=world_size,
        processes=processes,
        samples=samples,
        sample_times=_times(groups, samples),
        gpus=gpus,
        kernel=tuple(fact for fact in facts if isinstance(fact, KernelEvent)),
        nodes=tuple(dict.fromkeys(process.node for process in processes)),
        loose=True,
        stuck_for=age if age is not None and _old_enough(groups, age) else None,
    )


def _placed(dumps: list[StackDump]) -> list[StackDump]:
    """The dumps without stacks of a kernel log that may be of a process known by its rank from elsewhere: its
    pid alone does not prove that, and it is no other rank for it."""
    ranked = {
        (dump.origin.pid, dump.ref.artifact)
        for dump in dumps
        if dump.tool != "kernel" and dump.origin.rank is not None and dump.origin.pid is not None
    }
    pids = {pid for pid, _artifact in ranked}
    return [
        dump
        for dump in dumps
        if dump.tool != "kernel"
        or dump.origin.rank is not None
        or dump.origin.node is not None
        or dump.origin.pid not in pids
        or (dump.origin.pid, dump.ref.artifact) in ranked
    ]


def _old_enough(groups: Sequence[Group], age: float) -> bool:
    """False where ps shows a rank that has not lived for so long: the dumps are of another attempt, or of an
    earlier moment than that of which the age is told."""
    lives = [state.elapsed for group in groups for state in group.states if state.elapsed is not None]
    return not lives or max(lives) >= age


def _counts(dump: StackDump) -> bool:
    """Dumps with threads, of processes that lived on: one that aborted stood where it was told to end."""
    died = (dump.problem or "").startswith(DIED) and "Aborted" not in (dump.problem or "")
    return bool(dump.threads) and not died


def _built(
    groups: Sequence[Group], samples: int, world_size: int | None, gpus: Sequence[Gpu]
) -> Iterator[Process]:
    """The processes, with the relations among them."""
    numbers = _pids(groups)
    roles = [_shown_role(group) for group in groups]
    by_pid = {(g.origin.node or "", g.origin.pid): number for number, g in enumerate(groups)}
    alone = Counter((g.origin.node or "", g.origin.pid) for g in groups)
    for group, pid, shown in zip(groups, numbers, roles, strict=True):
        place = (group.origin.node or "", _ppid(group))
        above = by_pid.get(place) if place[1] and alone[place] == 1 else None
        forked = any(_forked(thread.stack) for look in group.looks for thread in look.threads)
        role = shown or _role(group, forked, above is not None and roles[above] is None)
        is_rank = role == "rank"
        owner = groups[above].origin.rank if above is not None else group.origin.rank
        yield Process(
            node=place[0],
            pid=pid,
            ppid=place[1],
            start_ticks=0,
            start_wall=None,
            comm="",
            title=group.title,
            role=role,
            rank=group.origin.rank if is_rank else None,
            parent_rank=None if role in ("rank", "launcher") else owner,
            world_size=world_size if is_rank else None,
            gpus=tuple(g.uuid or f"index {g.index}" for g in gpus if pid in g.pids and g.node == place[0]),
            samples=tuple(_samples(group, pid, samples)),
            forked=forked,
            ref=_first_ref(group),
        )


def _first_ref(group: Group) -> Ref:
    return group.dumps[0].ref if group.dumps else group.states[0].ref


def _pids(groups: Sequence[Group]) -> list[int]:
    """The pid of each; a negative one where it is unknown, or another process of the same node has it."""
    taken: set[tuple[str, int]] = set()
    numbers: list[int] = []
    for position, group in enumerate(groups):
        pid, node = group.origin.pid, group.origin.node or ""
        if pid is None or (node, pid) in taken:
            pid = 1000 * (position - len(groups))  # negative, and in the order of the dumps
        taken.add((node, pid))
        numbers.append(pid)
    return numbers


def _shown_role(group: Group) -> Role | None:
    """What the frames of its main thread show that it is; None where they show nothing of the kind."""
    threads = [thread for look in group.looks for thread in look.threads]
    main = [thread for thread in threads if thread.main] or threads
    frames = [frame for thread in main for frame in thread.stack or ()]
    for part, function, role in ROLES:
        if any(part in frame.file and frame.function.endswith(function) for frame in frames):
            return role
    return None


def _role(group: Group, forked: bool, below_a_rank: bool) -> Role:
    """A child of a launcher is a rank; that of a rank is none, nor is a forked process without a number."""
    told = group.origin.rank is not None
    by_itself = told and group.origin.source == "content"
    return "helper" if (below_a_rank and not by_itself) or (forked and not told) else "rank"


def _ppid(group: Group) -> int:
    told = [state.ppid for state in group.states] + [dump.ppid for dump in group.dumps]
    return next((pid for pid in told if pid is not None), 0)


def _forked(stack: _Frames | None) -> bool:
    return bool(stack) and cut_at_fork(stack or ())[1]


def _samples(group: Group, pid: int, samples: int) -> Iterator[ProcessSample]:
    """The looks at one process, numbered so that everybody's last one is the capture's last."""
    names: dict[object, int] = {}
    for number, look in enumerate(group.looks, samples - len(group.looks)):
        only = len(look.threads) == 1
        threads = tuple(_thread(thread, pid, number, names, only) for thread in look.threads)
        main = next((thread for thread in threads if thread.tid == pid), None)
        yield ProcessSample(
            sample=number,
            wall=look.wall or 0.0,
            monotonic=look.wall or float(number),
            state=main.state if main is not None else "?",
            threads=threads,
            ref=threads[0].ref if threads else _first_ref(group),
        )


def _thread(seen: SeenThread, pid: int, number: int, names: dict[object, int], only: bool) -> ThreadSample:
    stack = cut_at_fork(seen.stack)[0] if seen.stack else seen.stack
    return ThreadSample(
        tid=_tid(seen, pid, names, only),
        comm=seen.comm or "",
        sample=number,
        state=seen.state,
        wchan=seen.wchan,
        kernel_stack=seen.kernel_stack,
        python_name=seen.name,
        stack=stack,
        owns_gil=seen.owns_gil,
        active=seen.active,
        native=seen.native,
        ref=seen.ref,
        stack_ref=seen.ref,
    )


def _tid(seen: SeenThread, pid: int, names: dict[object, int], only: bool) -> int:
    """The kernel's number; that of the process for its main (or only) thread; else a negative one that is the
    same in every sample."""
    if seen.main or (only and seen.tid is None):
        return pid
    if seen.tid is not None:
        return seen.tid
    key = seen.ident if seen.ident is not None else (seen.name, seen.ref)
    return names.setdefault(key, (pid if pid < 0 else 0) - len(names) - 1)


def _times(groups: Sequence[Group], samples: int) -> tuple[tuple[str, int, float], ...]:
    """When the samples were made, where every process was looked at several times and it is known when. Each
    process counts for itself: nobody knows that two clocks agree."""
    ranks = [group for group in groups if group.dumps]
    clocks = [_clock(group.looks) for group in ranks]
    if samples < 2 or not all(len(clock) > 1 for clock in clocks):
        return ()
    return tuple(
        (f"{group.artifact}#{position}", number, when)
        for position, (group, clock) in enumerate(zip(ranks, clocks, strict=True))
        for number, when in enumerate(clock, samples - len(clock))
    )


def _clock(looks: Sequence[Look]) -> list[float]:
    """The time of each look, by its date, else by the timer that made it; [] where neither is known."""
    walls = [look.wall for look in looks if look.wall is not None]
    if len(walls) == len(looks):
        return walls
    steps = [look.apart for look in looks[1:] if look.apart is not None]
    return list(itertools.accumulate([0.0, *steps])) if len(steps) == len(looks) - 1 else []

"""What the readers of loose evidence understood: files that people have, not a capture of ours.

Nothing here is known to be of one job, one attempt or one moment; the ledger sorts that out. A rank, node or
pid is None rather than guessed. Stacks of all tools are one type, and so are log lines of all frameworks.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .facts import Frame, Gpu, KernelEvent, Ref

OriginSource = Literal["content", "prefix", "name"]


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Who wrote a line or a dump. ``rank`` is global; ``source``: what told the rank, best first."""

    rank: int | None = None
    local_rank: int | None = None
    node: str | None = None
    pid: int | None = None
    attempt: int | None = None
    """Restart count of the elastic agent."""
    wall: float | None = None
    """Seconds since the epoch by the writer's own clock."""
    source: OriginSource | None = None
    label: str | None = None
    """What the launcher calls the writer (``srun 3``, ``EngineCore_DP1``): tells writers of one text apart,
    and proves no rank."""


NOBODY = Origin()


class LogEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One meaningful line (or block) of a log. ``kind`` is one of ``EVENT_KINDS``."""

    kind: str
    origin: Origin = NOBODY
    """Who printed it: mostly a victim. ``about`` says of whom it speaks."""
    about: tuple[int, ...] = ()
    """Global ranks; of ``group`` where ``about_group_ranks``."""
    about_group_ranks: bool = False
    group: str | None = None
    """GUID (equal on all ranks) or name of the process group; None when the line names none."""
    group_desc: str | None = None
    group_rank: int | None = None
    """The writer's rank in ``group``."""
    communicator: str | None = None
    """NCCL: the communicator, equal on all its ranks (commId / commHash), never a pointer."""
    sequence: int | None = None
    """Of the operation that the line is about, in the writer's own counter (see ``counter``)."""
    counter: str = "torch"
    """Which counter ``sequence`` belongs to (torch, nccl, desync, …): compared only with itself."""
    operation: str | None = None
    sizes: str | None = None
    dtype: str | None = None
    enqueued: int | None = None
    started: int | None = None
    completed: int | None = None
    peer: int | None = None
    pci: str | None = None
    """``0000:44:00`` form, lower case, without function."""
    code: int | None = None
    """Exit code (negative: signal), Xid, status: what ``kind`` says."""
    seconds: float | None = None
    """How long it had lasted."""
    limit: float | None = None
    """The time limit that was reached, seconds."""
    key: str | None = None
    """Store key, host:port, file, tensor or actor that the line names."""
    world_size: int | None = None
    text: str
    """The line, without prefixes and control characters, at most 400 characters."""
    ref: Ref


EVENT_KINDS: dict[str, str] = {
    # torch: the one that fires is a victim
    "watchdog-timeout": "an operation ran into its time limit on the rank that prints it",
    "watchdog-status": "last enqueued, started and completed operation of the rank that prints it",
    "watchdog-ended": "the watchdog thread ended with an exception",
    "heartbeat-stuck": "the heartbeat monitor found the watchdog itself stuck (GIL, CUDA call)",
    "dump-sent": "this rank was the first to ask for dumps",
    "dump-received": "this rank was asked for a dump by another one: it had not timed out itself",
    "desync-lagging": "desync report: `about` finished `sequence`, and did not join the next",
    "desync-waiting": "desync report: `about` joined `sequence` and did not finish it",
    "fingerprint": "a rank's own collective fingerprint (DETAIL mode)",
    "fingerprint-mismatch": "two ranks ran different collectives at one sequence number",
    "barrier-missing": "monitored barrier: `about` did not come in time",
    "wait-timeout": "a blocking wait ran into its time limit",
    "store-timeout": "a store key did not come in time",
    "store-waiting": "a rank waits at the store for others to come",
    "rendezvous-timeout": "the rendezvous did not complete",
    "connect-timeout": "a peer or the store could not be reached",
    "gloo-timeout": "gloo waited too long for a buffer",
    "gloo-closed": "gloo's connection to a peer was closed",
    "exit": "a process ended: `about` or `origin` says which, `code` how",
    "exit-first": "the launcher calls this end the first one",
    "terminated-by-launcher": "the launcher ended a process that still ran",
    "restart": "the launcher started an attempt",
    "exception": "last line of a Python traceback",
    "cuda-error": "a CUDA call failed",
    "cuda-oom": "the device's memory ran out",
    # NCCL
    "nccl-init-start": "a rank began to form a communicator",
    "nccl-init-complete": "a rank has formed a communicator",
    "nccl-init-placed": "a rank has heard from all others of a communicator: its bootstrap is over",
    "nccl-comm-end": "a communicator was destroyed or aborted",
    "nccl-collective": "a rank launched a collective (COLL subsystem); `counter` nccl",
    "nccl-kernel": "a collective's kernel began or ended on the device (RCCL's trace); `counter` rccl",
    "nccl-device": "which GPU (pci) a rank uses",
    "nccl-version": "which NCCL a process runs (`key`)",
    "nccl-mismatch": "sizes or collectives of two ranks differ",
    "nccl-network": "a completion with error, a port that failed, a refused connection; `key`: the peer",
    "nccl-closed": "a peer closed its connection, or a request was flushed: what another fault leads to",
    "nccl-error": "an error code (`code`, ncclResult_t) on its way up through NCCL; `key`: the thread",
    "nccl-shared-memory": "/dev/shm too small",
    "nccl-interface": "the network interface chosen",
    "nccl-channel": "the transport (`key`) between two ranks of some communicator",
    "nccl-duplicate-rank": "two processes claim one rank",
    "nccl-warning": "any other NCCL WARN",
    # other frameworks
    "stall-missing": "a framework names ranks (`about`) that have not joined `key`",
    "stall-waiting": "a framework says that it waits, and not for whom",
    "actor-dead": "an actor or worker of the framework is dead",
    "engine-stuck": "an inference engine's own watchdog fired",
    "gpu-kernel": "a kernel resident on a GPU (cuda-gdb)",
    # host and scheduler
    "job-oom": "the scheduler saw the memory limit hit",
    "job-ended": "the scheduler ended the job: time limit, cancel, node failure",
    "task-killed": "the scheduler saw tasks (`about`) killed",
    "gpu-lost": "a tool could not reach a GPU",
}
"""What each kind of event means. A kind that says nothing of a hang is not here."""


class RecordedOperation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One flight-recorder entry. Times in nanoseconds since the epoch."""

    sequence: int
    kind: str
    """all_reduce, send, coalesced, …: the profiling name without back end and peers."""
    state: str
    """scheduled, started, completed."""
    finished: bool
    """Completed on the device, or retired where the back end has no other mark (gloo)."""
    p2p: bool = False
    source: int | None = None
    target: int | None = None
    """Group ranks of a point-to-point operation."""
    sizes: str | None = None
    dtype: str | None = None
    created_ns: int | None = None
    started_ns: int | None = None
    place: tuple[Frame, ...] = ()
    """Call site, innermost first, cut to what tells places apart."""


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One process group in one rank's recorder. Sequences of collectives; point-to-point entries stand in
    ``operations`` only."""

    name: str
    """GUID: equal on all ranks (``process_group[0]``)."""
    desc: str = ""
    members: tuple[int, ...] | None = None
    """Global ranks, from ``pg_config`` where that is sound."""
    enqueued: int | None = None
    started: int | None = None
    completed: int | None = None
    low_water: int | None = None
    """Oldest sequence still in the ring buffer."""
    aligned: bool = True
    """False where point-to-point operations take numbers of the same counter: the sequences of two ranks are
    then not comparable, and the four fields above are None."""
    operations: tuple[RecordedOperation, ...] = ()
    """Everything unfinished and the last few finished ones, by sequence."""


class FlightRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's flight-recorder dump."""

    origin: Origin
    backend: str = ""
    version: str = ""
    groups: tuple[GroupRecord, ...] = ()
    entries: int = 0
    newest_ns: int | None = None
    """Newest time in it: an age, and an epoch."""
    written: float | None = None
    """mtime of the file, seconds since the epoch; None from an archive without."""
    world_size: int | None = None
    at_least: int | None = None
    """The job has at least so many ranks: one more than the highest that the dump lists anywhere."""
    partial: str | None = None
    """Why it was not read to its end."""
    ref: Ref


class RasRank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of a communicator, as NCCL's RAS saw it."""

    rank: int
    """In the communicator."""
    node: str | None = None
    pid: int | None = None
    gpu: int | None = None
    counts: dict[str, int] = {}
    """Operations launched, by kind."""
    state: str = ""
    error: str | None = None


class RasCommunicator(msgspec.Struct, frozen=True, kw_only=True):
    hash: str
    size: int
    ranks: tuple[RasRank, ...] = ()
    missing: tuple[RasRank, ...] = ()
    """Ranks from which no data came."""
    dead: tuple[int, ...] = ()
    """Of the missing, those that RAS considers dead, as communicator ranks."""
    status: tuple[str, ...] = ()
    """MISMATCH, INCOMPLETE, ERROR, RUNNING, …"""
    groups: tuple[tuple[str, int, tuple[int, ...]], ...] = ()
    """Text reports: (operation kind, operations launched, communicator ranks that were listed)."""


class RasReport(msgspec.Struct, frozen=True, kw_only=True):
    nccl_version: str | None = None
    wall: float | None = None
    communicators: tuple[RasCommunicator, ...] = ()
    dead_nodes: tuple[str, ...] = ()
    gpus: int | None = None
    """GPUs of all processes that RAS knows: a communicator of that size holds them all."""
    dead_processes: tuple[tuple[str, int], ...] = ()
    """(node address, pid) of those that RAS considers dead."""
    silent_processes: tuple[tuple[str, int], ...] = ()
    """(node address, pid) of those that sent no data, and are not considered dead."""
    notes: tuple[str, ...] = ()
    ref: Ref


class DumpedThread(msgspec.Struct, frozen=True, kw_only=True):
    """One thread of a pasted or saved stack dump; frames innermost first, native and Python mixed."""

    tid: int | None = None
    """Kernel thread id; None where the tool prints another number."""
    ident: int | None = None
    """``threading.get_ident()``, which is ``pthread_self()``: what tools print that know no thread id."""
    name: str | None = None
    frames: tuple[Frame, ...] = ()
    main: bool | None = None
    active: bool | None = None
    owns_gil: bool = False
    waits_for_gil: bool = False
    state: str | None = None
    """The kernel's state letter, where told."""
    wchan: str | None = None
    kernel_stack: tuple[str, ...] = ()
    ref: Ref


class StackDump(msgspec.Struct, frozen=True, kw_only=True):
    """Stacks of one process at one moment."""

    tool: str
    """py-spy, pystack, gdb, faulthandler, traceback, kernel."""
    origin: Origin
    title: str = ""
    ppid: int | None = None
    """The process that it was dumped as a child of, where the tool says so."""
    threads: tuple[DumpedThread, ...] = ()
    native: bool = False
    """C and C++ frames are in it."""
    apart: float | None = None
    """Seconds by which it is at least later than the dump of the same process before it, where the tool's own
    timer tells."""
    problem: str | None = None
    """Damage, or the tool's own failure."""
    ref: Ref


class ProcessState(msgspec.Struct, frozen=True, kw_only=True):
    """A row of ps, top or a /proc listing."""

    origin: Origin
    pid: int
    ppid: int | None = None
    state: str = "?"
    wchan: str | None = None
    command: str = ""
    elapsed: float | None = None
    """Seconds since its start."""
    ref: Ref


LooseFact = LogEvent | FlightRecord | RasReport | StackDump | ProcessState | Gpu | KernelEvent

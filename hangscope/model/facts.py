"""What the readers understood. Every fact keeps a pointer back to the artifact it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from .evidence import Cell, Role

if TYPE_CHECKING:
    from .loose import RasReport  # which itself is made of what stands here


class Ref(msgspec.Struct, frozen=True):
    """Where a fact stands: artifact path (as in ``Artifact.path``) and 1-based line, when known."""

    artifact: str
    line: int | None = None


class SourceLine(msgspec.Struct, frozen=True, kw_only=True):
    """The source at one (file, line), read from the target's own file system at capture time."""

    text: str
    function: str | None = None
    """The enclosing ``def`` line, stripped."""
    withs: tuple[tuple[int, str], ...] = ()
    """Enclosing ``with`` statements whose body contains the line, outermost first: (line, items
    text). A ``with`` on the line itself is not in it: its lock is being waited for, not held."""
    loops: tuple[tuple[int, str], ...] = ()
    """Enclosing ``for`` / ``while`` headers, outermost first: (line, text)."""
    alone: bool = False
    """Only the line is known, as a stack dump printed it: what encloses it is not."""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One frame of a stack. Python frames have ``library`` None."""

    function: str
    file: str
    line: int = 0
    library: str | None = None
    ints: tuple[tuple[str, int], ...] = ()
    """Integers kept from the locals of point-to-point code: src, dst, group_src, group_dst, tag."""
    lock_address: int | None = None
    source: SourceLine | None = None


class Syscall(msgspec.Struct, frozen=True, kw_only=True):
    """``/proc/PID/task/TID/syscall``. ``number`` is None while running, -1 when blocked outside a
    system call (a page fault)."""

    number: int | None
    name: str | None = None
    """The call's name, where the table of the machine's architecture has the number."""
    args: tuple[int, ...] = ()
    sp: int | None = None
    pc: int | None = None


class ThreadSample(msgspec.Struct, frozen=True, kw_only=True):
    """One thread in one sample. Times: nanoseconds for ``run_ns``, clock ticks for ``utime``/``stime``."""

    tid: int
    comm: str
    sample: int
    state: str
    """R, S, D, T, t, Z, X, I, or ? when it could not be read."""
    wchan: str | None = None
    syscall: Syscall | None = None
    kernel_stack: tuple[str, ...] | None = None
    """Function names innermost first, ``name [module]`` outside the kernel's own code; None when not
    readable."""
    utime: int | None = None
    stime: int | None = None
    run_ns: int | None = None
    voluntary: int | None = None
    involuntary: int | None = None
    pending_signals: int = 0
    tracer: int = 0
    python_name: str | None = None
    stack: tuple[Frame, ...] | None = None
    """Innermost first. None: not captured. (): no Python frames."""
    torn: bool = False
    """The thread ran while its stack was read: the frames may not belong together."""
    owns_gil: bool = False
    active: bool | None = None
    native: tuple[Frame, ...] | None = None
    """C and C++ frames with the Python ones between, innermost first, when a native dump was made."""
    ref: Ref
    stack_ref: Ref | None = None


class OpenFile(msgspec.Struct, frozen=True, kw_only=True):
    fd: int
    target: str
    position: int | None = None
    flags: int | None = None
    peers: tuple[int, ...] = ()
    """``pipe:[N]``: the other captured processes that hold the opposite end (same node)."""


class Socket(msgspec.Struct, frozen=True, kw_only=True):
    """A TCP or Unix socket end of a captured process. Addresses ``ip:port`` normalised to IPv4."""

    inode: int
    pid: int
    fd: int
    family: str
    state: str
    local: str
    remote: str | None = None
    peer_pid: int | None = None
    """The captured process at the other end, when it is on a captured node."""
    peer_node: str | None = None
    listening_owner: bool = False
    """True when the local port is one this process listens on (it accepted the connection)."""
    tx_queue: int = 0
    rx_queue: int = 0
    timer: str | None = None
    retransmits: int = 0
    bytes_acked: int | None = None
    bytes_received: int | None = None
    last_data_sent_ms: int | None = None
    last_data_received_ms: int | None = None
    unacked: int | None = None
    notsent: int | None = None


class ProcessSample(msgspec.Struct, frozen=True, kw_only=True):
    """One process in one sample. Bytes for memory and io, seconds for clocks."""

    sample: int
    wall: float
    monotonic: float
    state: str
    threads: tuple[ThreadSample, ...] = ()
    files: tuple[OpenFile, ...] = ()
    sockets: tuple[Socket, ...] = ()
    rss: int | None = None
    io_read: int | None = None
    io_write: int | None = None
    exit_code: int | None = None
    """Wait status of a zombie, stat field 52 (9 = killed by SIGKILL, 256*n = exit n)."""
    frozen: bool = False
    output_size: int | None = None
    output_mtime: float | None = None
    """Newest mtime (wall seconds) of the regular files that stdout and stderr go to."""
    ref: Ref | None = None


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """A flight-recorder entry that is the newest of its group, or is not finished."""

    group: str
    """Name of the process group, equal on all its ranks."""
    sequence: int
    kind: str
    """all_reduce, all_gather, broadcast, …: the recorder's profiling name without its back end."""
    state: str
    retired: bool
    created_ns: int | None = None
    sizes: str | None = None
    dtype: str | None = None
    p2p: bool = False
    ref: Ref


class Recorder(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank's flight recorder said in one sample."""

    sample: int
    groups: tuple[str, ...]
    last_enqueued: tuple[tuple[str, int], ...]
    """(group, sequence) from the entries, per group."""
    last_completed: tuple[tuple[str, int], ...]
    pending: tuple[Operation, ...]
    """Unfinished operations, oldest first."""
    low_water: tuple[tuple[str, int], ...] = ()
    """Oldest sequence still in the ring buffer, per group."""
    timed: bool = False
    """Some entry has the time at which its device started it: where none has, no state says *started*."""
    live: bool = True
    """Answered in this sample. False: from a dump file, which does not show whether anything moves."""
    ref: Ref


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A captured process over all samples."""

    node: str
    pid: int
    ppid: int
    start_ticks: int
    start_wall: float | None
    comm: str
    title: str
    role: Role
    rank: int | None
    parent_rank: int | None
    world_size: int | None
    uid: int | None = None
    nspid: tuple[int, ...] = ()
    environment: dict[str, str] = {}
    cgroups: tuple[str, ...] = ()
    """Memory cgroup paths, own first, then every ancestor."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs whose device files it has open or on which NVML lists it; ``index N`` for a lost GPU
    whose UUID NVML no longer tells."""
    cwd: str | None = None
    samples: tuple[ProcessSample, ...] = ()
    recorders: tuple[Recorder, ...] = ()
    forked: bool = False
    """Forked, never exec'ed: its stack ends in its parent's frames; it has its parent's command line."""
    output_tail: str | None = None
    nccl_tail: str | None = None
    """Tail of its ``NCCL_DEBUG_FILE``, masked."""
    ref: Ref | None = None


class MemoryCgroup(msgspec.Struct, frozen=True, kw_only=True):
    """One memory cgroup in one sample. Bytes; None = no such file or no limit."""

    path: str
    version: int
    sample: int
    level: int
    """0 = the process's own, 1 = its parent, …"""
    pids: tuple[int, ...]
    """Captured processes below it."""
    limit: int | None = None
    high: int | None = None
    usage: int | None = None
    failcnt: int | None = None
    oom_kill_disable: bool | None = None
    under_oom: bool | None = None
    oom_kills: int | None = None
    high_events: int | None = None
    max_events: int | None = None
    pressure_some_avg10: float | None = None
    ref: Ref


class HostMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes; pressures are percentages over 10 s."""

    node: str
    sample: int
    total: int | None = None
    available: int | None = None
    shm_total: int | None = None
    shm_used: int | None = None
    pressure_memory: float | None = None
    pressure_io: float | None = None
    ref: Ref


class FileLock(msgspec.Struct, frozen=True, kw_only=True):
    """A line of /proc/locks that concerns a captured process."""

    node: str
    kind: str
    holder_pid: int
    waiter_pids: tuple[int, ...]
    device_inode: str
    path: str | None = None
    ref: Ref


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU in one sample. None = not available (N/A is never 0)."""

    node: str
    sample: int
    index: int
    uuid: str | None
    pci: str | None = None
    name: str | None = None
    utilization: int | None = None
    power_watts: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    pids: tuple[int, ...] = ()
    lost: bool = False
    error: str | None = None
    temperature: int | None = None
    ref: Ref


class KernelEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the kernel log with meaning for a hang: oom-kill, hung task, Xid, …"""

    node: str
    kind: str
    seconds: float | None
    """Seconds since boot."""
    wall: float | None = None
    """Seconds since the epoch, where the log shows a date."""
    pid: int | None = None
    pci: str | None = None
    """GPU or adapter, ``0000:44:00`` form, lower case, without function."""
    task: str | None = None
    """Name of the process."""
    text: str
    ref: Ref


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    path: str
    fstype: str
    source: str
    responsive: bool | None = None


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """All facts of one job's capture: what the analysis works on."""

    job: str | None
    world_size: int | None
    processes: tuple[Process, ...]
    samples: int
    sample_times: tuple[tuple[str, int, float], ...] = ()
    """(node, sample, monotonic seconds)."""
    cgroups: tuple[MemoryCgroup, ...] = ()
    memory: tuple[HostMemory, ...] = ()
    locks: tuple[FileLock, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    kernel: tuple[KernelEvent, ...] = ()
    mounts: tuple[Mount, ...] = ()
    ras: tuple[RasReport, ...] = ()
    """NCCL's own view of its communicators, in the order of the samples; ``wall`` is when it was taken."""
    cells: tuple[Cell, ...] = ()
    nodes: tuple[str, ...] = ()
    complete_nodes: tuple[str, ...] = ()
    """Nodes whose scan saw every process that could be a rank."""
    expected_ranks: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """(node, ranks it should host), where that is known."""
    single_node: bool | None = None
    missing_nodes: tuple[tuple[str, str], ...] = ()
    missing_ptrace: tuple[tuple[str, str], ...] = ()
    """(node, why other processes could not be read)."""
    notes: tuple[str, ...] = ()
    loose: bool = False
    """Made of pasted or saved stack dumps: what they do not show (threads without Python frames, kernel
    states, source lines) is unknown, not absent."""
    stuck_for: float | None = None
    """Seconds for which something else (a watchdog's time-out) says that the job had been stuck."""

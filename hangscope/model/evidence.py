"""What was captured, before anybody has interpreted it: artifacts, cells, shards.

The bundle reader makes these from a bundle; ``analyzers.readers`` turns them into facts.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Status = Literal["ok", "partial", "timeout", "denied", "absent", "error"]
"""How one (node or process, collector, sample) cell ended. Anything but ``ok`` carries a reason."""

Role = Literal[
    "rank",
    "launcher",
    "dataloader",
    "compile-worker",
    "resource-tracker",
    "forkserver",
    "helper",
    "orphan",
    "outside",
]
"""What a captured process is to its job. ``helper``: any other child of a rank; ``orphan``: a child
whose rank is gone; ``outside``: not of the job, but something of the job waits for it."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one collector for one process (or the node) in one sample."""

    node: str
    collector: str
    sample: int
    pid: int | None = None
    status: Status
    reason: str | None = None
    seconds: float = 0.0


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """Raw bytes and where they came from. ``path`` is what evidence cites: ``<shard>!<member>``."""

    path: str
    node: str
    collector: str
    sample: int
    pid: int | None = None
    name: str
    wall: float
    monotonic: float
    data: bytes


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``node.json``: the machine a shard comes from. Times in seconds; both clocks read together."""

    host: str
    boot_id: str
    pid_namespace: str
    kernel: str
    machine: str
    wall: float
    monotonic: float
    clock_ticks: int
    page_size: int
    agent_version: str
    agent_pid: int
    agent_uid: int
    python: str
    ptrace: str | None = None
    """None when other processes could be read at capture time, else why not."""
    boot_time: float | None = None
    """Wall time of boot, seconds (``btime`` of /proc/stat)."""
    notes: tuple[str, ...] = ()


class ProcessRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the shard's process table (``processes.json``)."""

    pid: int
    ppid: int
    start_ticks: int
    comm: str
    role: Role
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    job: str | None = None
    parent_rank: int | None = None
    """The rank that a helper, dataloader worker or orphan belongs to."""
    uid: int | None = None
    state: str | None = None
    nspid: tuple[int, ...] = ()
    title: str | None = None
    """Command line as shown to people, masked and shortened."""
    why: str | None = None
    """What proved the role: 'live RANK', 'thread gloo_tcp_loop', …"""


class ScanRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``processes.json``: the job's processes on this node, and how complete the look was."""

    job: str | None
    processes: tuple[ProcessRow, ...]
    complete: bool
    """True when every process of the node that could be a rank was readable."""
    denied: tuple[int, ...] = ()
    """pids that could not be told (other user, stuck mmap_lock)."""
    world_size: int | None = None
    single_node: bool | None = None
    """True when the job cannot have ranks elsewhere (LOCAL_WORLD_SIZE = WORLD_SIZE, or a loopback
    MASTER_ADDR); False when it must; None when unknown."""
    expected_local: tuple[int, ...] | None = None
    """Global ranks that this node should host, when that is known."""
    launcher: str | None = None
    notes: tuple[str, ...] = ()


class RawFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A frame exactly as py-spy 0.4 prints it in JSON (see ``py-spy dump --json``)."""

    name: str
    filename: str
    module: str | None = None
    short_filename: str | None = None
    line: int = 0
    locals: tuple[dict[str, object], ...] | None = None
    is_entry: bool = False
    is_shim_entry: bool = False


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one node delivered."""

    name: str
    node: NodeRecord | None
    scan: ScanRecord | None
    artifacts: tuple[Artifact, ...]
    cells: tuple[Cell, ...]
    frames: tuple[RawFrame, ...] = ()
    stacks: tuple[tuple[int, ...], ...] = ()
    """Interned stacks: indices into ``frames``, innermost frame first."""
    sealed: bool = True
    """False when the stream was cut before the agent finished."""
    problem: str | None = None
    """Why the shard was not read to its end."""
    abandoned: tuple[int, ...] = ()
    """pids of the agent's children that SIGKILL did not end (uninterruptible sleep)."""
    notes: tuple[str, ...] = ()
    """What the agent noted when it finished, and what the reader dropped."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A whole capture: one shard a node."""

    job: str | None
    shards: tuple[Shard, ...]
    missing_nodes: tuple[tuple[str, str], ...] = ()
    """(node, reason) of nodes that were asked and delivered nothing."""
    source: str = ""
    """File name or directory that the evidence was read from."""
    tool_version: str | None = None
    notes: tuple[str, ...] = ()

"""``read_capture``: from the evidence of all nodes to the facts that the analysis works on."""

from __future__ import annotations

import msgspec

from hangscope.model.evidence import Evidence, ScanRecord, Shard
from hangscope.model.facts import Capture, Process

from . import flight, host
from .parsed import ParsedShard
from .peers import Connections, Place
from .processes import NodeProcesses


def read_capture(evidence: Evidence) -> Capture:
    """All facts of the capture. Never raises for what an artifact holds: one that cannot be read is left
    out, and a note names it."""
    shards = [ParsedShard(shard) for shard in evidence.shards]
    numbers = sorted({artifact.sample for shard in evidence.shards for artifact in shard.artifacts})
    order = _order(evidence.shards)
    connections = {number: Connections(shards, number, order) for number in numbers}
    scans = [shard.scan for shard in evidence.shards if shard.scan is not None]
    parts = [_Node(parsed, connections) for parsed in shards]
    processes, of_dumps = flight.join_dumps([item for part in parts for item in part.processes], shards)
    return Capture(
        job=evidence.job or next((scan.job for scan in scans if scan.job), None),
        world_size=_world_size(scans),
        processes=processes,
        samples=numbers[-1] + 1 if numbers else 0,
        sample_times=tuple(item for shard in evidence.shards for item in _sample_times(shard)),
        cgroups=tuple(item for part in parts for item in part.cgroups),
        memory=tuple(item for part in parts for item in part.memory),
        locks=tuple(item for part in parts for item in part.locks),
        gpus=tuple(item for part in parts for item in part.gpus),
        kernel=tuple(item for parsed in shards for item in host.kernel_events(parsed)),
        mounts=tuple(item for parsed in shards for item in host.mounts(parsed)),
        ras=tuple(item for parsed in shards for item in host.ras_reports(parsed)),
        cells=tuple(cell for shard in evidence.shards for cell in shard.cells),
        nodes=tuple(shard.name for shard in evidence.shards),
        complete_nodes=tuple(shard.name for shard in evidence.shards if _is_complete(shard.scan)),
        expected_ranks=tuple(
            (shard.name, shard.scan.expected_local)
            for shard in evidence.shards
            if shard.scan is not None and shard.scan.expected_local is not None
        ),
        single_node=_single_node(scans),
        missing_nodes=evidence.missing_nodes,
        missing_ptrace=tuple(
            (shard.name, shard.node.ptrace)
            for shard in evidence.shards
            if shard.node is not None and shard.node.ptrace
        ),
        notes=(*evidence.notes, *(note for parsed in shards for note in _notes(parsed)), *of_dumps),
    )


class _Node:
    """What one node adds: its processes with their GPUs, and the facts that need to know its processes."""

    def __init__(self, parsed: ParsedShard, connections: dict[int, Connections]) -> None:
        bare = NodeProcesses(parsed, connections).all()
        self.gpus, owned = host.gpus(parsed, bare)
        self.processes: list[Process] = [
            msgspec.structs.replace(item, gpus=owned[item.pid]) if item.pid in owned else item
            for item in bare
        ]
        self.memory, self.cgroups = host.host_memory(parsed)
        self.locks = host.file_locks(parsed, {item.pid for item in bare})


def _is_complete(scan: ScanRecord | None) -> bool:
    return scan is not None and scan.complete and not scan.denied


def _notes(parsed: ParsedShard) -> list[str]:
    shard = parsed.shard
    notes = list(parsed.notes)
    if shard.problem:
        notes.append(f"{shard.name}: {shard.problem}")
    if shard.scan is None:
        notes.append(f"{shard.name}: no process table in the shard, nothing of it can be placed")
    return notes + list(shard.scan.notes if shard.scan else ())


def _order(shards: tuple[Shard, ...]) -> dict[Place, tuple[int, int]]:
    """Ranks first, then the older process: who uses a socket that forked children inherited."""
    return {
        (shard.name, row.pid): (0 if row.role == "rank" else 1, row.start_ticks)
        for shard in shards
        for row in (shard.scan.processes if shard.scan else ())
    }


def _sample_times(shard: Shard) -> list[tuple[str, int, float]]:
    """When each sample of the node began: the earliest thread table, else the earliest artifact."""
    first: dict[int, float] = {}
    threads: dict[int, float] = {}
    for artifact in shard.artifacts:
        table = threads if artifact.collector == "threads" else first
        table[artifact.sample] = min(artifact.monotonic, table.get(artifact.sample, artifact.monotonic))
    return [(shard.name, number, time) for number, time in sorted({**first, **threads}.items())]


def _world_size(scans: list[ScanRecord]) -> int | None:
    """What the scans agree on; None when they do not, or nobody says."""
    sizes = {scan.world_size for scan in scans if scan.world_size is not None}
    return sizes.pop() if len(sizes) == 1 else None


def _single_node(scans: list[ScanRecord]) -> bool | None:
    """False as soon as one node says so; True only when all do."""
    known = [scan.single_node for scan in scans]
    if False in known:
        return False
    return True if known and all(known) else None

"""Facts of the node: memory, cgroups, file locks, mounts, GPUs and the kernel log."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from hangscope.model.facts import FileLock, Gpu, HostMemory, KernelEvent, MemoryCgroup, Mount, Process
from hangscope.model.loose import RasReport

from ..readers.gpus import GpuRow, GpuTable
from ..readers.kernel_log import KernelTable
from ..readers.locks import LINE, LockTable
from ..readers.memory import MemoryTable
from ..readers.mounts import MountTable
from ..readers.process import ProcessFacts
from .parsed import ParsedShard


def ras_reports(parsed: ParsedShard) -> list[RasReport]:
    """NCCL's RAS reports in the order of the samples, ``wall`` being when this node got them."""
    return [msgspec.structs.replace(item, wall=found.wall) for found, item in parsed.every(RasReport)]


def host_memory(parsed: ParsedShard) -> tuple[list[HostMemory], list[MemoryCgroup]]:
    """Host memory and memory cgroups, one entry a sample."""
    hosts: list[HostMemory] = []
    groups: list[MemoryCgroup] = []
    for artifact, table in parsed.every(MemoryTable):
        hosts.append(
            HostMemory(
                node=parsed.node,
                sample=artifact.sample,
                total=table.total,
                available=table.available,
                shm_total=table.shm_total,
                shm_used=table.shm_used,
                pressure_memory=table.pressure_memory,
                pressure_io=table.pressure_io,
                ref=table.ref,
            )
        )
        groups.extend(msgspec.structs.replace(item, sample=artifact.sample) for item in table.cgroups)
    return hosts, groups


def file_locks(parsed: ParsedShard, pids: set[int]) -> list[FileLock]:
    """The newest sample's locks that a captured process holds or waits for; paths from fdinfo."""
    tables = list(parsed.every(LockTable))
    if not tables:
        return []
    newest = max(tables, key=lambda item: item[0].sample)[1]
    paths: dict[str, str] = {}
    holders: dict[str, int] = {}
    for _, facts in parsed.every(ProcessFacts):
        for text, path in facts.locked:
            line = LINE.match(text[:400])
            if line:
                paths[line["inode"]] = path
                holders[line["inode"]] = facts.pid
    found = []
    for lock in newest.locks:
        holder = lock.holder_pid if lock.holder_pid > 0 else holders.get(lock.device_inode, -1)
        if holder in pids or pids.intersection(lock.waiter_pids):
            found.append(
                msgspec.structs.replace(
                    lock, node=parsed.node, holder_pid=holder, path=paths.get(lock.device_inode)
                )
            )
    return found


def mounts(parsed: ParsedShard) -> list[Mount]:
    """The mounts that the job works on."""
    return [
        msgspec.structs.replace(item, node=parsed.node)
        for _, table in parsed.every(MountTable)
        for item in table.mounts
    ]


def kernel_events(parsed: ParsedShard) -> list[KernelEvent]:
    """The kernel log's meaningful lines."""
    return [
        msgspec.structs.replace(item, node=parsed.node)
        for _, table in parsed.every(KernelTable)
        for item in table.events
    ]


def gpus(parsed: ParsedShard, processes: list[Process]) -> tuple[list[Gpu], dict[int, tuple[str, ...]]]:
    """The GPUs in every sample, and the UUIDs of each process's GPUs.

    A process's GPUs are those whose device file it has open or mapped; where that is several, or could not be
    seen, those of them on which NVML lists its pid as the outermost namespace knows it. Of a lost GPU that
    NVML tells nothing of, the process is the one whose only device file is no other GPU's. LOCAL_RANK is
    never asked: it says nothing under CUDA_VISIBLE_DEVICES or a container's device list.
    """
    rows: list[GpuRow] = []
    found: list[Gpu] = []
    for artifact, table in parsed.every(GpuTable):
        rows.extend(table.gpus)
        found.extend(
            msgspec.structs.replace(row.gpu, node=parsed.node, sample=artifact.sample) for row in table.gpus
        )
    devices = {facts.pid: facts.gpu_devices for _, facts in parsed.every(ProcessFacts) if facts.gpu_devices}
    owned: dict[int, tuple[str, ...]] = {}
    for process in processes:
        outer = process.nspid[0] if process.nspid else process.pid
        uuids = _uuids(rows, devices.get(process.pid), outer)
        if uuids:
            owned[process.pid] = tuple(sorted(uuids))
    return found, owned


def _uuids(rows: list[GpuRow], names: Collection[str] | None, outer: int) -> set[str]:
    listed = {row.gpu.uuid for row in rows if row.gpu.uuid and outer in row.gpu.pids}
    if not names:
        return listed
    opened = {row.gpu.uuid for row in rows if row.gpu.uuid and f"/dev/nvidia{row.minor}" in names}
    if len(opened) > 1:
        return opened & listed or opened
    return opened or _by_elimination(rows, names)


def _by_elimination(rows: list[GpuRow], names: Collection[str]) -> set[str]:
    """``index N`` of the only GPU without UUID and minor number, for a process with one device file that is
    of none of the others."""
    nameless = {row.gpu.index for row in rows if row.gpu.lost and row.gpu.uuid is None and row.minor is None}
    known = {f"/dev/nvidia{row.minor}" for row in rows if row.minor is not None}
    cards = {name for name in names if name[len("/dev/nvidia") :].isdecimal()}
    if len(nameless) == 1 and len(cards) == 1 and not cards & known:
        return {f"index {nameless.pop()}"}
    return set()

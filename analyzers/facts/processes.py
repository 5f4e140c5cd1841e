"""The processes of a node: identity from the scan, samples from the artifacts."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from hangscope.model.evidence import ProcessRow
from hangscope.model.facts import OpenFile, Process, ProcessSample, Recorder, ThreadSample

from ..readers.environment import EnvironmentTable
from ..readers.log_files import LogFile, NcclLogTable, OutputTable
from ..readers.memory import MemoryTable
from ..readers.process import ProcessFacts
from ..readers.threads import ThreadTable
from ..syscalls import syscall_name
from . import recorders
from .parsed import ParsedShard
from .peers import Connections, Pipes
from .stacks import FrameTable, Stacks

S = TypeVar("S", bound=msgspec.Struct)


class NodeProcesses:
    """Builds the processes of one node; ``connections`` by sample number."""

    def __init__(self, parsed: ParsedShard, connections: dict[int, Connections]) -> None:
        self._parsed = parsed
        self._frames = FrameTable(parsed)
        self._connections = connections
        self._pipes: dict[int, Pipes] = {}
        scan = parsed.shard.scan
        self._rows = {row.pid: row for row in scan.processes} if scan else {}
        record = parsed.shard.node
        self._machine = record.machine if record else ""
        self._page = record.page_size if record else 4096
        self._boot = record.boot_time if record else None
        self._ticks = record.clock_ticks if record else 100

    def all(self) -> list[Process]:
        """One Process a row of the scan, in its order."""
        return [self._process(row) for row in self._rows.values()]

    def _process(self, row: ProcessRow) -> Process:
        parsed, pid = self._parsed, row.pid
        samples: list[ProcessSample] = []
        forked_stack = False
        for number in parsed.samples(pid):
            stacks = Stacks(parsed, self._frames, pid, number)
            sample = self._sample(row, number, stacks)
            if sample is not None:
                samples.append(sample)
            forked_stack = forked_stack or stacks.forked
        latest = self._latest_facts(pid)
        started = self._boot + row.start_ticks / self._ticks if self._boot and self._ticks > 0 else None
        return Process(
            node=parsed.node,
            pid=pid,
            ppid=row.ppid,
            start_ticks=row.start_ticks,
            start_wall=started,
            comm=row.comm,
            title=row.title or " ".join((latest.arguments if latest else None) or ()) or row.comm,
            role=row.role,
            rank=row.rank,
            parent_rank=row.parent_rank,
            world_size=row.world_size,
            uid=row.uid,
            nspid=row.nspid,
            environment=self._environment(pid),
            cgroups=self._cgroups(pid),
            cwd=latest.cwd if latest else None,
            samples=tuple(samples),
            recorders=self._recorders(pid),
            forked=forked_stack or self._looks_forked(row),
            output_tail=_last_tail([table.files for _, table in self._mine(OutputTable, pid)]),
            nccl_tail=_last_tail([table.files for _, table in self._mine(NcclLogTable, pid)]),
            ref=latest.ref if latest else None,
        )

    def _mine(self, kind: type[S], pid: int) -> list[tuple[int, S]]:
        return [(item.sample, value) for item, value in self._parsed.every(kind) if item.pid == pid]

    def _latest_facts(self, pid: int) -> ProcessFacts | None:
        found = self._mine(ProcessFacts, pid)
        return max(found, key=lambda item: item[0])[1] if found else None

    def _environment(self, pid: int) -> dict[str, str]:
        merged: dict[str, str] = {}
        for _, table in self._mine(EnvironmentTable, pid):
            merged.update(table.variables)
        return merged

    def _cgroups(self, pid: int) -> tuple[str, ...]:
        """The memory cgroups above the process, nearest first: the deeper path is the nearer one."""
        paths = {
            group.path
            for _, table in self._parsed.every(MemoryTable)
            for group in table.cgroups
            if pid in group.pids
        }
        return tuple(sorted(paths, key=lambda path: (-path.rstrip("/").count("/"), path)))

    def _recorders(self, pid: int) -> tuple[Recorder, ...]:
        return recorders.merged(self._mine(Recorder, pid))

    def _looks_forked(self, row: ProcessRow) -> bool:
        """Without a stack that says so: a worker or helper with its parent's own command line, which an
        exec would have changed. A rank may have it too (launchers that start the same script again)."""
        parent = self._rows.get(row.ppid)
        if row.role in ("rank", "launcher", "outside") or parent is None or not row.title:
            return False
        return row.title == parent.title and row.start_ticks >= parent.start_ticks

    def _sample(self, row: ProcessRow, number: int, stacks: Stacks) -> ProcessSample | None:
        parsed, pid = self._parsed, row.pid
        table = parsed.one(ThreadTable, pid, number)
        facts = parsed.one(ProcessFacts, pid, number)
        threads = [stacks.join(self._thread(item, number)) for item in (table.threads if table else ())]
        for tid in stacks.unseen({item.tid for item in threads}):
            entry = stacks.python[tid]
            bare = ThreadSample(tid=tid, comm="", sample=number, state="?", ref=entry[1])
            threads.append(stacks.join(bare))
        if not threads and facts is None:
            return None
        artifacts = parsed.artifacts(pid, number)
        output = parsed.one(OutputTable, pid, number)
        leader = next((item.state for item in threads if item.tid == pid), "?")
        times = [(item.wall, item.monotonic) for item in artifacts if item.collector == "threads"]
        wall, monotonic = times[0] if times else (artifacts[0].wall, artifacts[0].monotonic)
        return ProcessSample(
            sample=number,
            wall=wall,
            monotonic=monotonic,
            state=facts.state if facts and leader == "?" else leader,
            threads=tuple(threads),
            files=self._files(pid, number, facts),
            sockets=self._connections[number].of(parsed.node, pid) if number in self._connections else (),
            rss=_times(facts.resident_pages, self._page) if facts else None,
            io_read=facts.io_read if facts else None,
            io_write=facts.io_write if facts else None,
            exit_code=facts.exit_code if facts else None,
            frozen=facts.frozen if facts else False,
            output_size=_total([item.size for item in output.files]) if output else None,
            output_mtime=_newest([item.mtime for item in output.files]) if output else None,
            ref=facts.ref if facts else threads[0].ref,
        )

    def _thread(self, thread: ThreadSample, number: int) -> ThreadSample:
        call = thread.syscall
        if call is not None and call.number is not None and call.number >= 0:
            call = msgspec.structs.replace(call, name=syscall_name(self._machine, call.number))
        return msgspec.structs.replace(thread, sample=number, syscall=call)

    def _files(self, pid: int, number: int, facts: ProcessFacts | None) -> tuple[OpenFile, ...]:
        if facts is None:
            return ()
        if number not in self._pipes:
            self._pipes[number] = Pipes(self._parsed, number)
        return tuple(self._pipes[number].join(pid, item) for item in facts.files)


def _times(pages: int | None, size: int) -> int | None:
    return None if pages is None else pages * size


def _total(sizes: list[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def _newest(times: list[float | None]) -> float | None:
    return max((time for time in times if time is not None), default=None)


def _last_tail(tables: list[tuple[LogFile, ...]]) -> str | None:
    """The newest tail that was taken, files of the same sample one after the other."""
    for files in reversed(tables):
        tails = [item.tail for item in files if item.tail]
        if tails:
            return "\n".join(dict.fromkeys(tails))
    return None

"""A capture on one node after the first look: who belongs to the job, the samples, what is asked for.

Python >= 3.8, standard library only.
"""

import os
import time
from typing import TYPE_CHECKING, Any, Dict, List, Tuple

from .. import procfs, registry
from ..interface import ABSENT, OK, Collector, Context, Result, Target
from ..ranks import discovery
from .commands import Commands
from .events import emit
from .sampling import limited

if TYPE_CHECKING:
    from .run import Agent

SCAN_GRACE = 5.0
"""Seconds beyond its own budget after which the search for processes is given up."""

FINISH_RESERVE = 5.0
"""Seconds that must be left behind a wait at the end, for the question itself."""


class NodeCapture:
    """Goes on with the state of the agent: its targets, its shard, its deadline."""

    def __init__(self, agent: "Agent") -> None:
        self.agent = agent
        chosen = registry.selected(agent.only, agent.skip)
        apart = (*registry.ON_REQUEST, *registry.AT_THE_END)
        self.collectors = [collector for collector in chosen if collector.name not in apart]
        self.last = [collector for collector in chosen if collector.name in registry.AT_THE_END]
        self.early: List[Collector] = []
        agent.sampler.all_at_once = registry.ALL_AT_ONCE
        agent.sampler.read_ahead = registry.READ_AHEAD
        self.commands = Commands(0)
        self.rows: List[Dict[str, Any]] = []

    def run(self) -> None:
        """Discovery, the samples that the options ask for, then what standard input asks for."""
        options = self.agent.options
        self.find()
        for number in range(options.samples):
            if number and not self.commands.wait(options.interval, self.agent.deadline, patient=True):
                self.agent.notes.append(f"{number} of {options.samples} samples: no time left for more")
                break
            self.sample()
        self.obey()

    def find(self) -> None:
        """Who belongs to the job, by reading what may block, in children; adds to what was known.

        A process that has ended since keeps its row and its place: its cells then say that it is gone.
        """
        options = self.agent.options
        anchor = next((pid for pid in self.members() if os.path.exists(f"{options.proc}/{pid}")), options.pid)
        found: List[Tuple[Dict[str, Any], List[Target]]] = []

        def scan() -> Result:
            only, until = options.only_this_process, self.scan_until()
            found.append(discovery.scan_record(anchor, only=only, proc=options.proc, deadline=until))
            return Result(OK)

        outcome = limited(discovery.SCAN_BUDGET + SCAN_GRACE, scan)
        if outcome.status != OK:
            self.agent.notes.append(f"the search for the job's processes failed: {outcome.reason}")
        record, targets = found[0] if found else self.without_scan()
        rows = record["processes"] = list(record["processes"])
        here = {row["pid"] for row in rows}
        rows += [row for row in self.rows if row["pid"] not in here]
        listed = {row["pid"] for row in rows}
        self.agent.targets = targets + [
            t for t in self.agent.targets if t.pid in listed and t.pid not in here
        ]
        self.rows = rows
        self.put_processes(record)

    def members(self) -> List[int]:
        """Processes known to be of the job. Before the first scan that is what this agent was told: what else
        the first look took may only stand beside it, and must not be captured in its place."""
        options = self.agent.options
        told = [int(word) for word in options.members.split(",") if word.isdigit()]
        return [options.pid, *told, *(target.pid for target in self.agent.targets if self.rows)]

    def without_scan(self) -> Tuple[Dict[str, Any], List[Target]]:
        """The processes of the first look, of which no role is known: what is left when the scan failed."""
        rows = []
        for target in self.agent.targets:
            line = procfs.stat_fields(target.pid, self.agent.options.proc)
            if line is not None:
                row = {"pid": target.pid, "ppid": line.ppid, "start_ticks": target.start_ticks}
                rows.append({**row, "comm": target.comm, "role": target.role, "state": line.state})
        record = {
            "job": None,
            "processes": rows,
            "complete": False,
            "denied": [],
            "notes": self.agent.notes[-1:],
        }
        return record, self.agent.targets

    def scan_until(self) -> float:
        """Monotonic seconds until which a scan may go on: a third of what is left, at most."""
        now = time.monotonic()
        return now + max(0.5, min(discovery.SCAN_BUDGET, (self.agent.deadline - now) / 3))

    def put_processes(self, record: Dict[str, Any]) -> None:
        """Writes ``processes.json``, and says what was found."""
        self.agent.put("processes.json", record)
        rows = record["processes"]
        emit(
            "found",
            job=record["job"],
            processes=len(rows),
            ranks=[row["rank"] for row in rows if row["role"] == "rank" and row.get("rank") is not None],
            complete=record["complete"],
            denied=list(record["denied"]),
        )

    def sample(self) -> None:
        """Takes the next sample, of the processes that there are now."""
        number, start = self.agent.samples, time.monotonic()
        if number:
            self.rescan()
        self.leave_out_early()
        emit("sample-start", sample=number)
        self.agent.samples += 1
        ctx = self.agent.context(number)
        self.early = [collector for collector in self.collectors if _due_in(collector, ctx) > 0]
        self.agent.sampler.take(ctx, [item for item in self.collectors if item not in self.early])
        emit("sample-end", sample=number, seconds=round(time.monotonic() - start, 3))

    def leave_out_early(self) -> None:
        """Gives the sample before its cells of what it came too early for."""
        for collector in self.early:
            why = "this sample came too soon after the last question"
            self.agent.sampler.write(self.agent.samples - 1, collector.name, None, Result(ABSENT, why), 0.0)
        self.early = []

    def finish(self) -> None:
        """What is taken once, when no further sample comes: it belongs to the newest one."""
        if not self.agent.samples:
            return
        ctx = self.agent.context(self.agent.samples - 1)
        for collector in self.last:
            self.agent.sampler.run(ctx, collector)
        self.last = []
        wait = max([_due_in(collector, ctx) for collector in self.early], default=0.0)
        if wait + FINISH_RESERVE < self.agent.deadline - time.monotonic():
            if wait > 0:
                emit("finishing", seconds=round(wait, 1))
                time.sleep(wait)
            for collector in self.early:
                self.agent.sampler.run(ctx, collector)
            self.early = []
        self.leave_out_early()

    def rescan(self) -> None:
        """Looks for processes that the job has started since; scans again only when there are any."""
        if self.agent.options.only_this_process:
            return
        alive = [t.pid for t in self.agent.targets if os.path.exists(f"{self.agent.options.proc}/{t.pid}")]
        tree = set(discovery.cheap_tree(alive[0], self.agent.options.proc)) if alive else set()
        if tree - self.agent.looked_at:
            self.agent.looked_at |= tree
            self.find()

    def obey(self) -> None:
        """Does what is asked on standard input until ``end``, its end, or the deadline."""
        emit("ready", left=round(self.agent.deadline - time.monotonic(), 1))
        while True:
            word, argument = self.commands.next(self.agent.deadline)
            if word == "sample":
                if not self.commands.wait(float(argument or 0), self.agent.deadline, patient=False):
                    self.finish()
                    return
                self.sample()
            elif word == "native":
                self.native([int(pid) for pid in argument.split(",") if pid.isdigit()])
            elif word == "finish":
                self.finish()
            else:
                self.finish()
                return
            emit("ready", left=round(self.agent.deadline - time.monotonic(), 1))

    def native(self, pids: List[int]) -> None:
        """Native stacks of the processes that matter, as part of the newest sample."""
        ctx = self.agent.context(max(0, self.agent.samples - 1))
        ctx.options["native_pids"] = pids
        ctx.targets = [target for target in self.agent.targets if target.pid in pids]
        for collector in registry.COLLECTORS:
            if collector.name in registry.ON_REQUEST:
                self.agent.sampler.run(ctx, collector)


def _due_in(collector: Collector, ctx: Context) -> float:
    """Seconds for which the collector's source is to be left alone."""
    due = registry.DUE_IN.get(collector.name)
    return 0.0 if due is None else due(ctx)

"""Starts a scenario's job for real, waits until it is really stuck, and ends what it started.

The job runs in a directory of its own with nothing but its anonymous script: the truth is not there.
Everything that has this directory as its working directory was started by us, and only that is ended.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from typing import NoReturn

from . import observe, readiness
from .memory_cgroup import MemoryCgroup
from .readiness import CHILD
from .scenario import Ready, Scenario, ranks_of
from .script import Script, render

STRIPPED = re.compile(
    r"(.*_)?(RANK|WORLD_SIZE|LOCAL_.*)|MASTER_.*|TORCHELASTIC_.*|PYTEST_.*|COV_.*|COVERAGE_.*"
)
STILL = 1.0
"""Seconds without being scheduled that count as still."""


class JobFailed(Exception):
    """The job ended, or never came into the state that it was written for. The text says what was seen."""


class Job:
    """A running job. ``ranks`` maps a rank to the pid of its process, as long as it was seen alive."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.launch = scenario.truth.launch
        self.script: Script = render(scenario.template, scenario.name, seed, scenario.candidates)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="run-")).resolve()
        self.ranks: dict[int, int] = {}
        self.started: list[subprocess.Popen[bytes]] = []
        self.cgroup: MemoryCgroup | None = None
        self.held: list[int] = []

    def chosen_ranks(self, expression: str) -> list[int]:
        return ranks_of(expression, self.launch.world_size, self.script.chosen, self.script.partner)

    @property
    def present(self) -> list[int]:
        """The ranks that the runner starts."""
        absent = self.chosen_ranks(self.launch.absent)
        return [rank for rank in range(self.launch.world_size) if rank not in absent]

    def start(self) -> None:
        """Starts every rank, and returns once each has a process."""
        (self.directory / "train.py").write_text(self.script.text, encoding="utf-8")
        for name in self.launch.fifos:
            os.mkfifo(self.directory / name)
            self.held.append(os.open(self.directory / name, os.O_RDWR))
        if self.launch.memory_limit is not None:
            self.cgroup = MemoryCgroup(f"{self.directory.name}-{uuid.uuid4().hex[:8]}")
            self.cgroup.limit(self.launch.memory_limit)
        if self.launch.start == "torchrun":
            self._start_torchrun()
        else:
            self._start_by_hand()
        self.wait(self._all_started, "every rank has a process")
        if self.cgroup is not None:
            self.cgroup.add(self.ranks[self.script.chosen])

    def _start_torchrun(self) -> None:
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", "--rdzv-backend=c10d"]
        command += ["--rdzv-endpoint=127.0.0.1:0", "--rdzv-id=" + self.directory.name, "--max-restarts=0"]
        command += [
            f"--nproc-per-node={self.launch.world_size}",
            "--redirects=3",
            "--log-dir=logs",
            "train.py",
        ]
        self._spawn(command, {}, "torchrun")

    def _start_by_hand(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        for rank in self.present:
            variables = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(self.launch.world_size),
                "LOCAL_WORLD_SIZE": str(self.launch.world_size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
            self._spawn([sys.executable, "train.py"], variables, f"rank-{rank}")

    def _spawn(self, command: list[str], variables: dict[str, str], name: str) -> None:
        environment = {key: value for key, value in os.environ.items() if not STRIPPED.fullmatch(key)}
        environment.update({"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"})
        environment["PATH"] = os.path.dirname(sys.executable) + os.pathsep + environment.get("PATH", "")
        environment.update(variables)
        with open(self.directory / f"{name}.out", "wb") as output:
            self.started.append(
                subprocess.Popen(
                    command,
                    cwd=self.directory,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _all_started(self) -> bool:
        if self.launch.start == "hand":
            self.ranks = dict(zip(self.present, (process.pid for process in self.started), strict=True))
            return True
        agent = self.started[0].pid
        for pid in observe.processes_in(self.directory):
            rank = observe.rank_of(pid) if observe.parent_of(pid) == agent else None
            if rank is not None:
                self.ranks[rank] = pid
        return len(self.ranks) == len(self.present)

    def settle(self) -> None:
        """Passes the gate, if the scenario has one, and returns once the job is stuck as written."""
        if self.launch.gate is not None:
            self.wait(lambda: self._holds(self.scenario.truth.gate_ready), "the gate is reached")
            self._pass_gate()
        self.wait(lambda: self._holds(self.scenario.truth.ready), "the job is stuck")

    def _pass_gate(self) -> None:
        pid = self.ranks[self.script.chosen]
        if self.launch.gate == "stop":
            os.kill(pid, signal.SIGSTOP)
        elif self.launch.gate == "kill":
            os.kill(pid, signal.SIGKILL)
        elif self.cgroup is not None:
            self._lower_the_limit(self.cgroup)
            (self.directory / "gate").touch()

    def _lower_the_limit(self, cgroup: MemoryCgroup) -> None:
        """To what the chosen rank uses, plus what its main thread needs to go on for a moment."""
        cgroup.limit(cgroup.usage + (1 << 20))

    def wait(self, condition: object, what: str) -> None:
        """Polls until the condition holds. Raises JobFailed when the job ends or takes too long."""
        assert callable(condition)
        deadline = time.monotonic() + self.launch.seconds
        while not condition():
            self._check_alive(what)
            if time.monotonic() > deadline:
                self._fail(f"not within {self.launch.seconds:.0f} s: {what}")
            time.sleep(0.2)

    def _check_alive(self, what: str) -> None:
        """A zombie is left alone, it belongs to the scene: only ``waitid`` with WNOWAIT looks at it."""
        for process in self.started:
            expected = self.launch.gate == "kill" and process.pid == self.ranks.get(self.script.chosen)
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            if not expected and os.waitid(os.P_PID, process.pid, options) is not None:
                self._fail(f"process {process.pid} ended before this held: {what}")

    def _holds(self, conditions: list[Ready]) -> bool:
        """True when all conditions hold now and a second later (and *still* threads had no turn between)."""
        if any(c.printed is not None and c.printed not in self.output() for c in conditions):
            return False
        who = {
            condition.who: self.chosen_ranks(condition.who.removeprefix(CHILD)) for condition in conditions
        }
        before = readiness.look(self.directory, self.ranks)
        if not all(readiness.holds(condition, who[condition.who], before, None) for condition in conditions):
            return False
        time.sleep(STILL)
        after = readiness.look(self.directory, self.ranks)
        return all(readiness.holds(condition, who[condition.who], after, before) for condition in conditions)

    def output(self) -> str:
        """Everything that the ranks and the launcher have printed."""
        files = sorted([*self.directory.glob("*.out"), *self.directory.glob("logs/**/*.log")])
        return "\n".join(file.read_text(errors="replace") for file in files)

    def _fail(self, why: str) -> NoReturn:
        seen = []
        for rank, pid in sorted(self.ranks.items()):
            states = ", ".join(f"{t.comm}:{t.state}:{t.wchan}" for t in observe.threads(pid))
            seen.append(f"  rank {rank} pid {pid}: {states or 'gone'}")
        raise JobFailed(f"{why}\n" + "\n".join(seen) + "\n" + self.output()[-3000:])

    def close(self) -> None:
        """Ends every process of the job, removes its cgroup and its directory. Can be called twice."""
        for _ in range(200):
            left = [pid for pid in observe.processes_in(self.directory) if observe.state_of(pid) != "Z"]
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for process in self.started:
                process.poll()
            if not left:
                break
            time.sleep(0.05)
        for process in self.started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
        for descriptor in self.held:
            os.close(descriptor)
        self.held = []
        if self.cgroup is not None:
            self.cgroup.close()
            self.cgroup = None
        shutil.rmtree(self.directory, ignore_errors=True)


@contextlib.contextmanager
def running(scenario: Scenario, seed: int) -> Iterator[Job]:
    """The scenario's job, really stuck; ended on the way out. Raises JobFailed."""
    job = Job(scenario, seed)
    try:
        job.start()
        job.settle()
        yield job
    finally:
        job.close()

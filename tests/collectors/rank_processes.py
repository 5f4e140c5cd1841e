"""Small jobs of plain Python processes for the tests of discovery. Each ends with its block."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hangscope.collectors import guarded
from hangscope.collectors.ranks import discovery
from hangscope.collectors.ranks.found_job import FoundJob, Row

SLEEP = "import time\nprint('ready', flush=True)\ntime.sleep(120)\n"
NAME = "def name(text):\n    open('/proc/self/comm', 'w').write(text)\n"
PARENT_DIES = "import ctypes, signal\nctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)\n"


class Processes:
    """Starts processes, and ends exactly those (with what they report as ``child PID``)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []
        self.others: list[int] = []

    def script(self, name: str, code: str) -> str:
        path = self.folder / name
        path.write_text(textwrap.dedent(code))
        return str(path)

    def start(
        self, *command: str, wait: bool = True, python: str = sys.executable, **env: str
    ) -> subprocess.Popen[str]:
        """Runs a command (a ``.py`` first: by Python) with only these variables; waits for its ``ready``."""
        words = (
            [python, *command] if command[0].endswith(".py") or command[0].startswith("-") else list(command)
        )
        clean = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
        process = subprocess.Popen(words, env={**clean, **env}, stdout=subprocess.PIPE, text=True)
        self.started.append(process)
        if wait:
            self.line(process, "ready")
        return process

    def ranks(
        self, script: str, numbers: str, size: int, port: int, **env: str
    ) -> list[subprocess.Popen[str]]:
        """One process a rank, started by hand; ``numbers`` such as ``"013"``."""
        started = [
            self.start(script, wait=False, **rank_variables(int(number), size, port), **env)
            for number in numbers
        ]
        for process in started:
            self.line(process, "ready")
        return started

    def line(self, process: subprocess.Popen[str], word: str) -> str:
        """The next line of output that begins with ``word``, without it."""
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("child "):
                self.others.append(int(line.split()[1]))
            if line.startswith(word):
                return line[len(word) :].strip()
        raise AssertionError(f"ended before it said {word!r}")

    def end(self) -> None:
        for pid in self.others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.started:
            process.kill()
        for process in self.started:
            process.wait(10)
            if process.stdout is not None:
                process.stdout.close()


def rank_variables(rank: int, size: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def jobs_of(script: str) -> list[FoundJob]:
    """The jobs seen now whose processes run this script, in the order of discovery."""
    found = discovery.recognise(discovery.scan())
    return [job for job in found if any(script in (row["title"] or "") for row in job.rows)]


def the_job(script: str) -> FoundJob:
    jobs = jobs_of(script)
    assert len(jobs) == 1, jobs
    return jobs[0]


def by_pid(job: FoundJob) -> dict[int, Row]:
    return {row["pid"]: row for row in job.rows}


def roles_of(job: FoundJob) -> dict[int, tuple[str, int | None, int | None]]:
    """pid → (role, rank, parent rank)."""
    return {row["pid"]: (row["role"], row["rank"], row["parent_rank"]) for row in job.rows}


@contextlib.contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    started = Processes(folder)
    try:
        yield started
    finally:
        started.end()


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the expected state was not reached"
        time.sleep(0.02)


def call_here(function: Callable[..., Any], *args: Any, **limits: Any) -> guarded.Outcome:
    """What ``guarded.call`` gives, without the child: for calls that the test knows to return."""
    try:
        found = function(*args)
        value = list(found) if hasattr(found, "__next__") else found
    except Exception as error:
        return guarded.Outcome("error", [], f"{type(error).__name__}: {error}")
    return guarded.Outcome("ok", json.loads(json.dumps(value)))

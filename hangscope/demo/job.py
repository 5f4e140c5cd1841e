"""The demo's job as a whole: starts the four ranks, waits until they hang, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from types import TracebackType

from ..collectors import procfs
from ..errors import CaptureFailed

SCRIPT = pathlib.Path(__file__).with_name("rank.py")
SIZE = 4
BLOCKED_RANK = 2
PATIENCE = 45.0
"""Seconds that the job gets to hang: torch is slow to import on a busy machine."""
SETTLED = 0.4
"""Seconds in which no main thread may run for the job to count as stuck."""


class DemoJob:
    """Four ranks in a directory of their own. Use it as a context manager: leaving it ends them all."""

    def __init__(self, torch: bool) -> None:
        self.torch = torch
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="hangscope-demo-"))
        self.fifo = self.directory / "store.fifo"
        self.ranks: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> DemoJob:
        try:
            self._start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def pids(self) -> list[int]:
        """The ranks' pids, in the order of the ranks."""
        return [process.pid for process in self.ranks]

    def _start(self) -> None:
        os.mkfifo(self.fifo, 0o600)
        with contextlib.ExitStack() as stack:
            listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(SIZE)]
            ports = [str(listener.getsockname()[1]) for listener in listeners]
            if self.torch:
                listeners[0].close()  # rank 0 opens torch's store there
            for rank in range(SIZE):
                inherited = () if self.torch else (listeners[rank].fileno(),)
                self._start_rank(rank, ports, inherited)

    def _start_rank(self, rank: int, ports: list[str], inherited: tuple[int, ...]) -> None:
        environment = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(SIZE),
            "LOCAL_WORLD_SIZE": str(SIZE),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": ports[0],
            "RING_PORTS": ",".join(ports),
            "RING_LISTENER": "".join(map(str, inherited)),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
        }
        store = str(self.fifo) if rank == BLOCKED_RANK else os.devnull
        with open(self.directory / f"rank-{rank}.log", "wb") as log:
            self.ranks.append(
                subprocess.Popen(
                    [sys.executable, str(SCRIPT), store, *(["torch"] if self.torch else [])],
                    cwd=self.directory,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=inherited,
                    start_new_session=True,
                )
            )

    def wait_until_stuck(self) -> None:
        """Returns once one thread is in D and no main thread runs. Raises CaptureFailed when a rank ends
        instead, or when it does not come to that in time."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for rank, process in enumerate(self.ranks):
                if process.poll() is not None:
                    raise CaptureFailed(f"rank {rank} of the demo ended", self._last_words(rank))
            if self._blocked() and self._settled():
                return
            time.sleep(0.05)
        raise CaptureFailed("the demo's job did not get stuck", f"not within {PATIENCE:.0f} s")

    def _blocked(self) -> bool:
        pid = self.pids[BLOCKED_RANK]
        states = (procfs.stat_fields(pid, tid=tid) for tid in procfs.tasks(pid))
        return any(stat is not None and stat.state == "D" for stat in states)

    def _settled(self) -> bool:
        before = [self._switches(pid) for pid in self.pids]
        time.sleep(SETTLED)
        return before == [self._switches(pid) for pid in self.pids] and self._blocked()

    @staticmethod
    def _switches(pid: int) -> tuple[str | None, ...]:
        fields = procfs.status_fields(pid)
        return fields.get("voluntary_ctxt_switches"), fields.get("nonvoluntary_ctxt_switches")

    def _last_words(self, rank: int) -> str:
        text, _ = procfs.read_text(str(self.directory / f"rank-{rank}.log"))
        lines = (text or "").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def end(self) -> None:
        """Lets the blocked thread go, ends the ranks, removes the directory. A second call does nothing."""
        with contextlib.suppress(OSError):
            os.close(os.open(self.fifo, os.O_WRONLY | os.O_NONBLOCK))
        for process in self.ranks:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
        for process in self.ranks:
            process.wait()
        # a child that had not yet come to its open() when the FIFO was opened above
        with contextlib.suppress(OSError):
            os.close(os.open(self.fifo, os.O_WRONLY | os.O_NONBLOCK))
        shutil.rmtree(self.directory, ignore_errors=True)

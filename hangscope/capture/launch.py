"""The agent as a process: how it is started, listened to, and ended whatever state it is in."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..collectors import procfs, py_spy

PIPE_BYTES = 1 << 20
"""Asked of the kernel for the shard's pipe, so that the agent goes on while its last sample is analysed."""
GRACE = 3.0
"""Seconds that an agent gets to seal its shard after SIGTERM, before SIGKILL."""


def agent_command(arguments: Sequence[str]) -> list[str]:
    """The command line of an agent: a bare interpreter that imports nothing of its surroundings."""
    entry = os.path.abspath(Path(__file__).parents[1] / "collectors" / "agent_entry.py")
    command = [sys.executable, "-I", "-S", "-B", entry, *arguments]
    program = py_spy.find()
    if program is not None and "--py-spy" not in arguments:
        command += ["--py-spy", os.path.abspath(program)]
    nvml = importlib.util.find_spec("pynvml")
    if nvml is not None and nvml.origin is not None:
        command += ["--pynvml", os.path.abspath(nvml.origin)]
    return command


class AgentProcess:
    """A running agent. ``data`` is called with each piece of the shard, ``event`` with each event line."""

    def __init__(
        self,
        arguments: Sequence[str],
        data: Callable[[bytes], None],
        event: Callable[[dict[str, Any]], None],
    ) -> None:
        self._data = data
        self._event = event
        self._lines = b""
        self.started = time.monotonic()
        self.killed = False
        """True when it had to be killed from here."""
        self.stuck: str | None = None
        """What the kernel said it was doing when it had to be killed."""
        self.other_output: list[str] = []
        self.process = subprocess.Popen(
            agent_command(arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            cwd="/",  # py-spy looks for files there: on a dead mount it would never come back
        )
        self._selector = selectors.DefaultSelector()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ)
        with contextlib.suppress(OSError):  # more than a user may have: it stays as it is
            fcntl.fcntl(self.process.stdout or -1, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    @property
    def running(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def send(self, line: str) -> None:
        """Writes a command line to it; one that is gone gets nothing."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.write(line.encode("ascii") + b"\n")
            self.process.stdin.flush()

    def pump(self, seconds: float) -> bool:
        """Hands over what arrives within ``seconds``. False when it has ended and everything was handed over.

        Its end is told by the process, not by the pipes: a child that cannot be killed may hold those.
        """
        ended = not self.running
        ready = self._selector.select(0 if ended else max(0.0, min(seconds, 0.2)))
        for key, _ in ready:
            chunk = os.read(key.fd, 1 << 16)
            if not chunk:
                self._selector.unregister(key.fileobj)
            elif key.fileobj is self.process.stdout:
                self._data(chunk)
            else:
                self._take_events(chunk)
        return bool(ready) or not ended

    def _take_events(self, chunk: bytes) -> None:
        *lines, self._lines = (self._lines + chunk).split(b"\n")
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                self.other_output.append(line.decode("utf-8", "replace"))
                continue
            if isinstance(event, dict):
                self._event(event)

    def end(self, gently: bool = True) -> None:
        """Ends it (TERM, then KILL for it and its children) and takes what it still has to say."""
        if gently:
            self._signal(signal.SIGTERM)
            self._pump_until(time.monotonic() + GRACE)
        if self.running:
            self.stuck = state_of(self.process.pid)
            self.killed = True
            for pid in [*children_of(self.process.pid), self.process.pid]:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            self._pump_until(time.monotonic() + 1.0)
        self._pump_until(time.monotonic() + 1.0)
        self._close()

    def finish(self, deadline: float) -> None:
        """Lets it seal its shard and exit; ends it at ``deadline`` (monotonic seconds)."""
        self.send("end")
        self._pump_until(deadline)
        self.end()

    def _pump_until(self, deadline: float) -> None:
        while self.pump(deadline - time.monotonic()):
            if time.monotonic() >= deadline:
                return

    def _signal(self, number: int) -> None:
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def _close(self) -> None:
        self._selector.close()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()


def children_of(pid: int, proc: str = "/proc") -> list[int]:
    """All descendants of a process, the youngest generation first."""
    found: list[int] = []
    for tid in procfs.tasks(pid, proc):
        text, _ = procfs.read_text(f"{proc}/{pid}/task/{tid}/children")
        for child in (text or "").split():
            found = [*children_of(int(child), proc), *found, int(child)]
    return found


def state_of(pid: int, proc: str = "/proc") -> str | None:
    """State and wait channel of a process in a few words; None when it is gone."""
    line = procfs.stat_fields(pid, proc)
    if line is None:
        return None
    wchan, _ = procfs.read_text(f"{proc}/{pid}/wchan", 256)
    return f"state {line.state}" + (f" in {wchan}" if wchan and wchan != "0" else "")

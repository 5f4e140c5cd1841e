"""An agent of real processes, for tests: started as a capture starts it, its shard read back."""

import json
import os
import signal
import subprocess
import threading
import time
from typing import Any

from hangscope.bundle.reader import read_bundle_bytes
from hangscope.capture.launch import agent_command
from hangscope.model.evidence import Shard


class RunningAgent:
    """Talks to one agent; ``events`` grow as they come."""

    def __init__(self, pid: int, *arguments: str, prefix: tuple[str, ...] = ()) -> None:
        command = [*prefix, *agent_command(["--pid", str(pid), *arguments])]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.data = bytearray()
        self.events: list[dict[str, Any]] = []
        self.lines: list[str] = []
        self._threads = [threading.Thread(target=read) for read in (self._read_data, self._read_events)]
        for thread in self._threads:
            thread.start()

    def _read_data(self) -> None:
        assert self.process.stdout is not None
        while chunk := os.read(self.process.stdout.fileno(), 1 << 16):
            self.data += chunk

    def _read_events(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            try:
                self.events.append(json.loads(line))
            except ValueError:
                self.lines.append(line.decode())

    def wait_for(self, event: str, count: int = 1, seconds: float = 30.0) -> dict[str, Any]:
        """The ``count``-th event of a kind."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = [item for item in self.events if item["event"] == event]
            if len(found) >= count:
                return found[count - 1]
            assert self.process.poll() is None or time.monotonic() < end - seconds + 5, self.lines
            time.sleep(0.01)
        raise AssertionError(f"no {event} within {seconds} s: {self.events} {self.lines}")

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def memory_peak(self) -> int:
        """Its largest resident size so far, bytes."""
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))

    def finish(self, seconds: float = 30.0) -> Shard:
        """Closes its input, waits for its end, and returns what a reader makes of its output."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=seconds)
        self.close()
        return read_bundle_bytes(bytes(self.data)).shards[0]

    def close(self) -> None:
        """After its end: nothing of it stays open."""
        for thread in self._threads:
            thread.join()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)


def status_of(shard: Shard, collector: str, pid: int | None, sample: int = 0) -> str:
    """The status of one cell."""
    return next(
        cell.status
        for cell in shard.cells
        if (cell.collector, cell.pid, cell.sample) == (collector, pid, sample)
    )

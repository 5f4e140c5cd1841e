"""A memory cgroup (v1) of our own, below the one that this process is in, with the OOM killer off."""

from __future__ import annotations

import contextlib
import os
import pathlib
import time

from .scenario import MEMORY_CONTROLLER


class MemoryCgroup:
    """Made on construction; ``close`` removes it once its processes are gone."""

    def __init__(self, name: str) -> None:
        own = "/"
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
            if line.split(":")[1] == "memory":
                own = line.split(":", 2)[2]
        self.path = MEMORY_CONTROLLER / own.lstrip("/") / name
        self.path.mkdir()
        self._write("memory.oom_control", "1")

    def add(self, pid: int) -> None:
        self._write("cgroup.procs", str(pid))

    def limit(self, size: int) -> None:
        """Sets the limit in bytes; page cache is given up for it."""
        self._write("memory.limit_in_bytes", str(size))

    @property
    def usage(self) -> int:
        return int((self.path / "memory.usage_in_bytes").read_text())

    @property
    def anonymous(self) -> int:
        """Bytes that cannot be given back without swap."""
        lines = (self.path / "memory.stat").read_text().splitlines()
        counters = dict(line.split() for line in lines)
        return int(counters["rss"]) + int(counters.get("shmem", "0"))

    def close(self) -> None:
        for _ in range(100):
            with contextlib.suppress(OSError):
                os.rmdir(self.path)
                return
            time.sleep(0.05)
        os.rmdir(self.path)

    def _write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)

"""What a capture is asked for, and what comes of it."""

from __future__ import annotations

import msgspec

from ..model.evidence import Evidence
from ..model.verdict import Verdict


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What to capture and how. Times in seconds. ``pids``: the job's processes, as far as known."""

    pid: int
    job: str | None = None
    pids: tuple[int, ...] = ()
    only_this_process: bool = False
    samples: int = 2
    interval: float = 2.0
    deadline: float = 90.0
    patience: float = 27.0
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    output: str | None = None

    def agent_arguments(self) -> list[str]:
        """The agent's command line. It gets the time that samples asked for later may take."""
        arguments = ["--pid", str(self.pid), "--samples", str(self.samples)]
        arguments += ["--interval", str(self.interval), "--deadline", str(self.deadline)]
        if self.pids:
            arguments += ["--members", ",".join(str(pid) for pid in self.pids)]
        if self.only_this_process:
            arguments.append("--only-this-process")
        for option, names in (("--only", self.only), ("--skip", self.skip)):
            if names:
                arguments += [option, ",".join(names)]
        return arguments


class Captured(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. ``bundle`` holds the bytes under ``-o -``; ``saved`` is the path otherwise."""

    evidence: Evidence | None
    verdict: Verdict | None
    saved: str | None
    notes: tuple[str, ...]
    bundle: bytes | None = None
    interrupted: bool = False
    advice: str | None = None

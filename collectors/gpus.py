"""The GPUs of the node: NVML in a child that may be killed, nvidia-smi where NVML cannot be used.

A call on a lost GPU can sleep in the driver for ever. Then the child is ended, the call is named, and the
GPUs behind it are asked by another child; one that cannot be killed ends the asking, since each further one
would hang in the same place. Python >= 3.8, standard library only (and nvidia-ml-py's module in the child).
"""

import json
import os
import re
from typing import Any, Dict, List, Optional, Tuple

from . import guarded, nvml, runner
from .interface import ABSENT, ERROR, NODE, OK, PARTIAL, TIMEOUT, Context, Result, Target

PATIENCE = 4.0
"""Seconds for one child; healthy nodes of eight GPUs answer within one."""

WITHOUT_GPU = ("NoModule", "LibraryNotFound", "DriverNotLoaded")
"""NVML's complaints on a machine that need not have a GPU at all."""

_PROCESS_NAME = re.compile(rb"<process_name>[^<]*</process_name>")


class Gpus:
    """Takes ``nvml.json``, or ``nvidia-smi.xml``; see FORMAT.md.

    Options: ``pynvml_path`` (the module's file or folder), ``nvidia_smi`` (the program).
    """

    name = "gpus"
    scope = NODE
    once = False
    budget = 12.0
    describes = (
        "state, processes, links and errors of every NVIDIA GPU (the driver; nvidia-ml-py or nvidia-smi)"
    )

    def collect(self, ctx: Context, target: Optional[Target]) -> Result:
        """A GPU that is lost is evidence, and the cell ok; a call without an answer makes it ``timeout``."""
        if not has_driver(ctx.proc):
            return Result(ABSENT, "no NVIDIA driver here (no /proc/driver/nvidia, no /dev/nvidiactl)")
        reading = Reading()
        until = ctx.remaining(self.budget)
        ends: List[str] = []
        first = 0
        while True:
            outcome = guarded.call(
                nvml.read, ctx.options.get("pynvml_path"), first, timeout=min(PATIENCE, until)
            )
            until -= outcome.seconds
            reading.add(outcome.value or [])
            if outcome.status == "ok":
                break
            ends.append(reading.interrupted(outcome))
            first = reading.next_gpu()
            if outcome.status == "abandoned" or first < 0 or min(until, ctx.remaining(until)) < 0.5:
                break
        if reading.init is not None:
            return self._by_command(ctx, "NVML: {}".format(" ".join(reading.init)))
        return _result(reading, ends)

    def _by_command(self, ctx: Context, why: str) -> Result:
        """``nvidia-smi -q -x``, which brings its own way to the driver."""
        program = ctx.options.get("nvidia_smi", "nvidia-smi")
        done = runner.run([program, "-q", "-x"], timeout=ctx.remaining(self.budget))
        absent = why.split()[1] in WITHOUT_GPU
        if done.status == "missing":
            return Result(ABSENT if absent else ERROR, f"{why}; no nvidia-smi")
        if done.status in ("timeout", "abandoned"):
            return Result(TIMEOUT, f"{why}; nvidia-smi: {done.complaint()}")
        if b"<nvidia_smi_log" in done.stdout:
            data = _PROCESS_NAME.sub(b"<process_name></process_name>", done.stdout)
            status = OK if done.status == "ok" and not done.truncated else PARTIAL
            return Result(status, f"{why}; taken by nvidia-smi -q -x", (("nvidia-smi.xml", data),))
        lines = (done.stdout + b"\n" + done.stderr).decode("utf-8", "replace").split("\n")
        said = next((line.strip() for line in lines if line.strip()), "nothing")
        return Result(ABSENT if absent else ERROR, f"{why}; nvidia-smi: exit {done.returncode}, {said[:200]}")


def has_driver(proc: str) -> bool:
    """Whether this machine, or this container, has an NVIDIA driver at all (``/dev/dxg``: under WSL)."""
    return any(os.path.exists(path) for path in (f"{proc}/driver/nvidia", "/dev/nvidiactl", "/dev/dxg"))


class Reading:
    """What the children sent, put together."""

    def __init__(self) -> None:
        self.init: Optional[Tuple[str, str]] = None
        self.system: Dict[str, Any] = {}
        self.count: Any = None
        self.gpus: Dict[int, Dict[str, Any]] = {}
        self._current: Optional[int] = None
        self._asked: Optional[str] = None

    def add(self, messages: List[nvml.Message]) -> None:
        """Takes one child's messages. ``_current`` and ``_asked`` stay where it ended."""
        self._current = self._asked = None
        for kind, *rest in messages:
            if kind == "init":
                self.init = (rest[0], rest[1])
            elif kind == "system":
                self.system[rest[0]] = rest[1]
            elif kind == "count":
                self.count = rest[0]
            elif kind == "gpu":
                self._current = rest[0]
                self.gpus.setdefault(rest[0], {"index": rest[0], "lost": False})
            elif kind == "ask":
                self._asked = rest[0]
            else:
                self.gpus[rest[0]][rest[1]] = rest[2]

    def interrupted(self, outcome: guarded.Outcome) -> str:
        """Notes the call that a child did not come back from, and says so."""
        where = self.system if self._current is None else self.gpus[self._current]
        call = self._asked or "loading NVML"
        if outcome.status in ("timeout", "abandoned"):
            where["no_answer"] = call
        on = "" if self._current is None else f" on GPU {self._current}"
        return f"{call}{on}: {outcome.reason}"

    def next_gpu(self) -> int:
        """The index behind the GPU where a child ended; -1 when there is none."""
        if self._current is None or not isinstance(self.count, int) or self._current + 1 >= self.count:
            return -1
        return self._current + 1


def _result(reading: Reading, ends: List[str]) -> Result:
    """The cell, from what was read and from how the children ended."""
    record = {
        **reading.system,
        "count": reading.count,
        "gpus": [gpu for _, gpu in sorted(reading.gpus.items())],
    }
    artifacts = (("nvml.json", json.dumps(record, separators=(",", ":")).encode("ascii")),)
    hung = "no_answer" in reading.system or any("no_answer" in gpu for gpu in reading.gpus.values())
    unread = reading.count - len(reading.gpus) if isinstance(reading.count, int) else 0
    if unread > 0:
        ends = [*ends, f"{unread} of {reading.count} GPUs not asked"]
    if ends:
        status = TIMEOUT if hung else PARTIAL if reading.gpus else ERROR
        return Result(status, "; ".join(ends), artifacts if reading.system or reading.gpus else ())
    if not isinstance(reading.count, int):
        return Result(ERROR, f"nvmlDeviceGetCount: {reading.count}", artifacts)
    if reading.count == 0:
        return Result(ABSENT, "the driver is here, but it shows no GPU", artifacts)
    return Result(OK, None, artifacts)


COLLECTOR = Gpus()

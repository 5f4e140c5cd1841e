"""What a scenario is: ``fixtures/zoo/<name>/job.py`` and the truth about it in ``truth.toml``."""

from __future__ import annotations

import importlib.util
import os
import pathlib
from typing import Literal

import msgspec

ZOO = pathlib.Path(__file__).parents[2] / "fixtures" / "zoo"
MEMORY_CONTROLLER = pathlib.Path("/sys/fs/cgroup/memory")

RankExpression = str
"""``none``, ``all``, ``chosen``, ``partner``, ``others`` (all but chosen), or several joined by ``+``."""


class Root(msgspec.Struct, forbid_unknown_fields=True):
    """What one of the verdict's roots must show. ``thread`` may be ``@1`` (see ``script``)."""

    type: list[str] = []
    thread: str | None = None
    role: list[str] = []
    state: list[str] = []
    wait: list[str] = []


class Never(msgspec.Struct, forbid_unknown_fields=True):
    """Answers that would be wrong in a way that people get it wrong."""

    initiators: RankExpression = "none"
    cause: list[str] = []
    kind: list[str] = []


class Ready(msgspec.Struct, forbid_unknown_fields=True):
    """A condition on the job's processes, read from /proc, that holds once it is really stuck.

    ``who``: ranks, or ``child of`` ranks. ``thread``: ``main``, ``any``, or a thread's name. ``wchan`` is a
    prefix, or several with ``|`` between. ``still``: the thread was not scheduled for a second. ``has``: a
    thread of this name exists. ``printed``: the output of one of the ranks contains it.
    """

    who: str = "all"
    thread: str = "main"
    state: str | None = None
    wchan: str | None = None
    still: bool = False
    has: str | None = None
    printed: str | None = None


class Launch(msgspec.Struct, forbid_unknown_fields=True):
    """How the job is started. ``memory_limit`` in bytes: the chosen rank's memory cgroup, killer off.

    ``absent``: ranks that are never started. ``gate``: what the runner does when ``gate_ready`` holds:
    ``stop`` or ``kill`` the chosen rank, or ``limit`` (lower its memory limit to its usage) and open
    the gate file that the job waits for. ``fifos``: names of FIFOs made beforehand, held open by the runner.
    """

    world_size: int = 4
    start: Literal["torchrun", "hand"] = "torchrun"
    candidates: list[int] | None = None
    absent: RankExpression = "none"
    memory_limit: int | None = None
    gate: Literal["stop", "kill", "limit"] | None = None
    fifos: list[str] = []
    seconds: float = 60.0


class Truth(msgspec.Struct, forbid_unknown_fields=True):
    """``cause`` and ``kind`` list what is accepted; ``"none"`` stands for a cause that is null."""

    title: str
    kind: list[str]
    initiators: RankExpression
    cause: list[str]
    needs: list[Literal["root", "memory-cgroup-v1", "deepspeed"]] = []
    slow: bool = False
    root: Root | None = None
    stragglers: RankExpression | None = None
    evidence: list[str] = []
    asks_for: list[str] = []
    never: Never = msgspec.field(default_factory=Never)
    launch: Launch = msgspec.field(default_factory=Launch)
    gate_ready: list[Ready] = []
    ready: list[Ready] = []


class Scenario(msgspec.Struct):
    name: str
    truth: Truth
    template: str

    @property
    def candidates(self) -> list[int]:
        listed = self.truth.launch.candidates
        return list(range(self.truth.launch.world_size)) if listed is None else listed


def load(name: str) -> Scenario:
    folder = ZOO / name
    truth = msgspec.toml.decode((folder / "truth.toml").read_bytes(), type=Truth)
    return Scenario(name, truth, (folder / "job.py").read_text(encoding="utf-8"))


def names() -> list[str]:
    """All scenarios in order of their numbers."""
    return sorted(path.parent.name for path in ZOO.glob("*/truth.toml"))


def ranks_of(expression: RankExpression, world_size: int, chosen: int, partner: int) -> list[int]:
    """The ranks that an expression means, sorted."""
    everyone = set(range(world_size))
    meaning = {
        "none": set(),
        "all": everyone,
        "chosen": {chosen},
        "partner": {partner},
        "others": everyone - {chosen},
        "rest": everyone - {chosen, partner},
    }
    return sorted(set().union(*(meaning[part.strip()] for part in expression.split("+"))))


def unmet(scenario: Scenario) -> str | None:
    """Why the scenario cannot run on this machine, or None."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed (pip install 'hangscope[torch-zoo]')"
    for need in scenario.truth.needs:
        if need == "root" and os.geteuid() != 0:
            return "needs root"
        if need == "memory-cgroup-v1" and not os.access(MEMORY_CONTROLLER, os.W_OK):
            return "needs a writable cgroup v1 memory controller"
        if need == "deepspeed" and importlib.util.find_spec("deepspeed") is None:
            return "DeepSpeed is not installed (pip install 'hangscope[deepspeed-zoo]')"
    return None

"""What a collector is.

A collector gets evidence from one source and never interprets it. It returns a ``Result``; the agent
writes its artifacts and its status into the shard. A collector never raises for a target that is
dead, foreign, stuck or strange: that is a status with a reason. Python >= 3.8, standard library only.
"""

import time
from typing import Any, Dict, List, NamedTuple, Optional, Protocol, Tuple

OK = "ok"
PARTIAL = "partial"
TIMEOUT = "timeout"
DENIED = "denied"
ABSENT = "absent"
ERROR = "error"
STATUSES = (OK, PARTIAL, TIMEOUT, DENIED, ABSENT, ERROR)

PROCESS = "process"
NODE = "node"


class Result(NamedTuple):
    """One cell. ``artifacts`` are (member name, bytes) pairs; ``reason`` is required unless ok."""

    status: str
    reason: Optional[str] = None
    artifacts: Tuple[Tuple[str, bytes], ...] = ()


class Target(NamedTuple):
    """A process to capture, as discovery found it (fields as in ``ProcessRow``)."""

    pid: int
    start_ticks: int
    role: str
    rank: Optional[int] = None
    comm: str = ""
    uid: Optional[int] = None


class Context:
    """What a collector may know about the capture it belongs to.

    ``shared`` carries what one collector leaves for another in the same sample (the thread states
    that ``stacks`` needs before it may attach, the frames whose source is wanted). Keys are named in
    the collector that fills them.
    """

    def __init__(
        self,
        targets: List[Target],
        sample: int = 0,
        deadline: Optional[float] = None,
        proc: str = "/proc",
        py_spy: Optional[str] = None,
        salt: bytes = b"",
        intern: Any = None,
        options: Optional[Dict[str, Any]] = None,
    ) -> None:
        self.targets = targets
        self.sample = sample
        self.deadline = deadline if deadline is not None else time.monotonic() + 60.0
        self.proc = proc
        self.py_spy = py_spy
        self.salt = salt
        self.intern = intern
        """The shard writer's stack table: ``intern.stack(frames) -> index``; frames as py-spy prints them."""
        self.options = options or {}
        self.shared: Dict[str, Any] = {}

    def remaining(self, at_most: float) -> float:
        """Seconds left before the deadline, no more than ``at_most`` and never below 0."""
        return max(0.0, min(at_most, self.deadline - time.monotonic()))


class Collector(Protocol):
    """One module a source; the module's ``COLLECTOR`` is the instance that the registry lists."""

    name: str
    scope: str
    once: bool
    budget: float
    """Seconds that one cell may take; the collector keeps to it by ``ctx.remaining(self.budget)``."""
    describes: str
    """One line for ``--list-collectors``: what it takes and what it needs."""

    def collect(self, ctx: Context, target: Optional[Target]) -> Result:
        """Takes the evidence of ``target`` (None for node scope) in sample ``ctx.sample``."""
        ...

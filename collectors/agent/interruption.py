"""What stops the agent in the middle of its work: a signal from its parent, or a cell that overruns.

Both arrive as exceptions in the main thread. Neither may arrive while the shard is being written: a member
cut in two would hide all that follows it. Python >= 3.8, standard library only.
"""

import contextlib
import os
import signal
from types import FrameType
from typing import Any, Dict, Iterator, List, Optional

from .. import guarded

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """The agent is to stop now and to seal what there is. No collector may swallow it."""


class Overrun(BaseException):
    """A collector did not keep to its budget. Raised by the clock of ``time_limit``."""


def install() -> None:
    """Turns INT, TERM and HUP into ``Interrupted``; what runs for the agent is killed at once."""

    def stop(number: int, frame: Optional[FrameType]) -> None:
        for pid in list(guarded.running):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        raise Interrupted(signal.Signals(number).name)

    for number in STOPPING:
        signal.signal(number, stop)
    signal.signal(signal.SIGALRM, lambda number, frame: None)


def ignore() -> None:
    """From here on nothing interrupts: the shard is being sealed."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Holds all those signals back while the body runs."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, (*STOPPING, signal.SIGALRM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises ``Overrun`` in the body after ``seconds``, and again every second until it has left."""

    def overrun(number: int, frame: Optional[FrameType]) -> None:
        raise Overrun()

    before = signal.signal(signal.SIGALRM, overrun)
    signal.setitimer(signal.ITIMER_REAL, max(0.001, seconds), 1.0)
    try:
        yield
    finally:
        stop_clock()
        signal.signal(signal.SIGALRM, before)


def stop_clock() -> None:
    """No further ``Overrun`` comes."""
    signal.setitimer(signal.ITIMER_REAL, 0.0)


class StackTable:
    """The shard writer's ``stack``, undisturbed: half an entry would shift all later ones.

    A stack that was seen before is answered from memory: most threads of most ranks stand where others do.
    """

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._known: Dict[Any, int] = {}

    def stack(self, frames: List[Dict[str, Any]]) -> int:
        """Interns a stack (py-spy's frames, innermost first) and returns its index in the shard."""
        key: Any = None
        found: Optional[int] = None
        try:
            key = tuple([tuple(frame.items()) for frame in frames])
            found = self._known.get(key)
        except TypeError:  # frames with locals cannot be compared so cheaply
            key = None
        if found is None:
            with undisturbed():
                found = int(self._writer.stack(frames))
                if key is not None:
                    self._known[key] = found
        return found

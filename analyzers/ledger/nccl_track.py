"""The launches of one rank of a communicator: from one log, or from two files of which one goes on where the
other ends."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from hangscope.model.facts import Ref

from .communicator import Launch, Process
from .nccl_logs import Logs
from .nccl_processes import Life, Signature, Stream


class Track:
    """One rank's launches in their order. ``whole``: they begin where the communicator was formed."""

    def __init__(self, process: Process, rank: int, lives: Sequence[Life], logs: Logs) -> None:
        self.process = process
        self.rank = rank
        self.lives = lives
        self.parts = _continued(lives)
        self.whole = self.parts[0].formed and _gapless(self.parts)
        self.transfers = max(life.transfers for life in lives)
        self.counts = array("Q")
        self.signatures: list[Signature] = []
        for life in self.parts:
            self.counts.extend(life.counts)
            self.signatures += life.signatures
        self.listens = any(stream.launches for stream in logs.of(process))
        """Its process logs launches at all."""
        line = self.parts[-1].lines[-1] if self.parts[-1].lines else 0
        torn = max(self.tail.torn, logs.torn.get(self.tail.path, 0))
        self.torn_after = torn > line
        """A launch that was torn, and may be this rank's, stands behind its last one."""
        self.in_blocks = logs.in_blocks(self.tail.path)
        """Its last lines may have stayed in a buffer."""
        self.torn = any(life.stream.torn or logs.torn.get(life.stream.path) for life in lives)

    @property
    def tail(self) -> Stream:
        """The log in which its last launch stands."""
        return self.parts[-1].stream

    def launch(self, index: int) -> Launch | None:
        """The launch of that index; None when there is none."""
        if not 0 <= index < len(self.counts):
            return None
        operation, sizes, dtype, reduction, root = self.signatures[index]
        return Launch(
            count=self.counts[index],
            operation=operation,
            sizes=sizes,
            dtype=dtype,
            reduction=reduction,
            root=root,
            ref=self._ref(index),
        )

    def _ref(self, index: int) -> Ref:
        for life in self.parts:
            if index < len(life.counts):
                return life.ref_of(index)
            index -= len(life.counts)
        return self.parts[-1].ref


def _continued(lives: Sequence[Life]) -> list[Life]:
    """Of several logs of one process: the fullest that shows the beginning, and what goes on behind it.
    Copies of a log are one log."""
    formed = [life for life in lives if life.formed]
    parts = [max(formed, key=lambda life: len(life.counts))] if formed else []
    later = [life for life in lives if not life.formed and life.counts]
    for life in sorted(later, key=lambda life: (life.counts[0], life.counts[-1])):
        known = next((part.counts[-1] for part in reversed(parts) if part.counts), None)
        if known is None or life.counts[0] > known:
            parts.append(life)
        elif life.counts[-1] > known:
            parts = [life]
    return parts or [lives[0]]


def _gapless(parts: Sequence[Life]) -> bool:
    """Whether nothing is missing between two files."""
    expected = 0
    for part in parts:
        if part.counts:
            if part.counts[0] > expected:
                return False
            expected = part.counts[-1] + 1
    return True

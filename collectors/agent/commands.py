"""The lines that the capturing side writes to the agent's standard input. Python >= 3.8."""

import os
import select
import time
from typing import List, Tuple


class Commands:
    """Reads lines without ever waiting longer than it was told to."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.ended = False
        self._buffer = b""
        self._lines: List[str] = []

    def next(self, deadline: float) -> Tuple[str, str]:
        """The next command as (word, argument); ``("end", "")`` at the end of input, or at the deadline."""
        while not self._lines:
            if self.ended or not self._read(deadline - time.monotonic()):
                return "end", ""
        word, _, argument = self._lines.pop(0).strip().partition(" ")
        return word, argument.strip()

    def wait(self, seconds: float, deadline: float, patient: bool) -> bool:
        """Waits for a gap between samples. False when the capture is to end instead.

        An ``end`` breaks the wait. So does the end of input, unless ``patient``: it may have been closed
        from the start.
        """
        until = time.monotonic() + seconds
        if until >= deadline:
            return False
        while True:
            if "end" in self._lines or (self.ended and not patient):
                return False
            left = until - time.monotonic()
            if left <= 0:
                return True
            if self.ended:
                time.sleep(left)
            else:
                self._read(left)

    def _read(self, seconds: float) -> bool:
        """Takes in what comes within ``seconds``. False when nothing did."""
        if seconds <= 0:
            return False
        readable, _, _ = select.select([self.descriptor], [], [], seconds)
        if not readable:
            return False
        try:
            chunk = os.read(self.descriptor, 4096)
        except OSError:  # closed, or a terminal that is not ours to read
            chunk = b""
        self.ended = not chunk
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        self._lines += [line.decode("ascii", "replace").strip() for line in lines]
        return bool(self._lines) or not self.ended

"""Standard input, output and error as a command may rely on them, whatever it was started with."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TextIO, cast


class Heedless(io.FileIO):
    """A file whose writes never fail: notes for people must not end a capture when nobody takes them."""

    def write(self, data: object) -> int:
        """Writes what can be written, and says that all was."""
        size = memoryview(data).nbytes  # type: ignore[arg-type]  # whatever a file takes
        with contextlib.suppress(OSError):  # a full disk, or a reader that has gone
            super().write(data)  # type: ignore[arg-type]  # the same
        return size


def prepare() -> None:
    """Makes this process's three streams whole.

    Closed ones become /dev/null (else the next file that is opened takes their number), a terminal that is
    not UTF-8 gets ``?`` for what it cannot show, and standard error swallows its own failures.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    raw = io.BufferedWriter(cast(io.RawIOBase, Heedless(2, "wb", closefd=False)))
    sys.stderr = cast(TextIO, io.TextIOWrapper(raw, encoding, errors="replace", line_buffering=True))


def drop_unwritten() -> None:
    """What standard output did not take goes nowhere when Python flushes it at its exit (which would end with
    status 120)."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

"""What the person sees on standard error while the capture works.

Names and reasons come from the target: control characters are replaced before they reach the terminal.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol, TextIO

from ..model.ranges import ranks_phrase


def clean(text: str) -> str:
    """The text without control characters. The report is loaded here, once the agent is at work."""
    from ..report.interface import printable

    return printable(text)


class Progress(Protocol):
    """Told of everything that happens; shows as much of it as was asked for."""

    def working(self, text: str) -> None:
        """What goes on now; replaced by the next."""
        ...

    def note(self, text: str) -> None:
        """A line that stays."""
        ...

    def close(self) -> None:
        """Ends whatever moves on the terminal."""
        ...


class Quiet:
    """Shows nothing."""

    def working(self, text: str) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Plain:
    """One line each, with the seconds since the start: for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.start = time.monotonic()

    def working(self, text: str) -> None:
        self.note(text)

    def note(self, text: str) -> None:
        seconds = time.monotonic() - self.start
        self.stream.write(f"hangscope: {seconds:5.1f} s  {clean(text)}\n")
        self.stream.flush()

    def close(self) -> None:
        self.stream.flush()


class Live:
    """A line that moves, on a terminal (rich is loaded here, not before it is needed)."""

    def __init__(self, stream: TextIO, color: bool) -> None:
        from rich.console import Console

        self.console = Console(file=stream, no_color=not color, highlight=False)
        self.status = self.console.status("")
        self.status.start()

    def working(self, text: str) -> None:
        from rich.text import Text

        self.status.update(Text(clean(text)))

    def note(self, text: str) -> None:
        self.console.print(clean(text), markup=False, soft_wrap=True)

    def close(self) -> None:
        self.status.stop()


def open_progress(stream: TextIO, *, quiet: bool, batch: bool, color: bool) -> Progress:
    """The progress display for a stream: none, plain lines, or a live line on a terminal."""
    if quiet:
        return Quiet()
    if batch or not stream.isatty():
        return Plain(stream)
    return Live(stream, color)


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"


def show_event(progress: Progress, event: Mapping[str, Any], verbose: bool) -> None:
    """Shows one event line of the agent (see ``collectors/agent/run.py`` for their fields)."""
    kind = event.get("event")
    if kind == "found":
        if not event.get("processes"):
            progress.note("found no process of the job: it has ended, or cannot be seen from here")
            return
        who = ranks_phrase(event.get("ranks") or ())
        count = _processes(event["processes"])
        progress.note(f"found {event.get('job') or 'the process'}: {who}, {count}")
        denied = event.get("denied") or ()
        if denied:
            pids = ", ".join(str(pid) for pid in denied[:4]) + (", …" if len(denied) > 4 else "")
            why = f"other user, or stuck: pid {pids}"
            progress.note(f"{_processes(len(denied))} could not be told apart from ranks ({why})")
    elif kind == "sample-start":
        progress.working(f"sample {event.get('sample', 0) + 1}: reading threads, stacks, memory, sockets")
    elif kind == "sample-end":
        progress.note(f"sample {event.get('sample', 0) + 1} taken in {event.get('seconds', 0.0):.1f} s")
    elif kind == "cell" and (verbose or event.get("status") in ("timeout", "error")):
        where = f" of pid {event['pid']}" if event.get("pid") is not None else ""
        progress.note(f"{event.get('collector')}{where}: {event.get('status')} ({event.get('reason')})")
    elif kind == "finishing":
        progress.working(f"waiting {event.get('seconds', 0.0):.0f} s: NCCL's RAS is asked a second time")
    elif kind == "note":
        progress.note(str(event.get("text")))
    elif kind == "node" and event.get("ptrace"):
        progress.note(f"no Python stacks without the right to trace: {event['ptrace']}")
    elif kind == "abandoned":
        pids = ", ".join(str(pid) for pid in event.get("pids") or ())
        progress.note(f"left behind, they cannot be killed before the kernel answers them: readers {pids}")

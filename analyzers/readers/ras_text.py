"""NCCL RAS: a saved text report of ``ncclras`` (upstream src/ras/client_support.cc, from 2.24).

>>> from hangscope.model.loose import NOBODY
>>> from .interface import Line
>>> rows = '''NCCL version 2.27.3 compiled with CUDA 12.9
... Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
...     0         1         1         4         4         4   RUNNING  MISMATCH
... #0-0 (00c0ffee00c0ffee) MISMATCH
...   Communicator ranks have different AllReduce operation counts
...   3 ranks have launched up to operation 81
...   Rank 2 has launched up to operation 80 -- GPU 2 managed by process 4020 on node 10.0.0.1'''
>>> facts, _ = read([Line(n, row, NOBODY, "x.log") for n, row in enumerate(rows.splitlines(), 1)], 0)
>>> facts[0].communicators[0].groups
(('AllReduce', 81, (0, 1, 3)), ('AllReduce', 80, (2,)))

Ranks are of the communicator, and its hash is the commId of the logs (from 2.27). A node is the address of
the bootstrap's interface. Only outliers are listed, the minority, which may be *ahead*; the others are
told by their number, and who they are only where the numbers add up. 2.27.3 prints some ranks that no
communicator has: what names one is left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangscope.model.loose import LooseFact, RasReport

from .clocks import dated
from .interface import BlockForm, Line
from .ras_block import CommunicatorDraft

MOST_LINES = 400_000
_STRANGE = 3
"""Lines in a row that are in no report: it is over."""
_VERSION = re.compile(r"NCCL version (?P<version>\S{1,40}) compiled with CUDA")
_TABLE = re.compile(
    r"(?P<group>\d{1,7}) +\d{1,9} +\d{1,9} +[\d-]{1,20} +(?P<size>\d{1,7}) +\d{1,9} +"
    r"(?P<status>[A-Z]{4,10}) +(?P<errors>[A-Z,]{2,40})$"
)
_HEAD = re.compile(
    r"#(?P<group>\d{1,7})-(?P<index>\d{1,7}) \((?P<hash>[0-9a-f]{16})\) (?P<what>INCOMPLETE|ERROR|MISMATCH)$"
)
_PROCESS = re.compile(r"Process (?P<pid>\d{1,10}) on node (?P<node>\S{1,80}) managing GPUs?\b")
_TOTAL = re.compile(r"(?:\d{1,9} +)?(?:[\d-]{1,20} +){2}\d{1,9} +(?P<gpus>\d{1,9})$")
_TIMEOUTS = re.compile(r"Encountered (\d{1,9}) communication timeouts?")
_FRAME = re.compile(
    r"CUDA runtime version|Job summary|Communicators\.\.\.|=+$|Errors$|Warnings$|Group +Comms|# +in group|"
    r"Nodes +Processes|\(total\)|INCOMPLETE$|DEAD$|TIMEOUT$|Missing communicator data from|"
    r"\d{1,9} job process(?:es)? (?:is|are) considered dead|The outlier node|No communicator data|"
    r"SERVER PROTOCOL|OK$|Connection to \S{1,80} .{0,60}succeeded"
)


class _Draft:
    """A report while it is read."""

    def __init__(self, first: Line, wall: float | None) -> None:
        self.first = first
        self.wall = wall
        self.version: str | None = None
        self.gpus: int | None = None
        self.table: dict[str, tuple[int, str, str]] = {}
        self.found: dict[str, CommunicatorDraft] = {}
        self.current: CommunicatorDraft | None = None
        self.section = ""
        self.summary = False
        self.dead: list[tuple[str, int]] = []
        self.silent: list[tuple[str, int]] = []
        self.notes: list[str] = []
        self.known = 0

    def take(self, text: str) -> bool:
        """One more line; False for one that is in no report."""
        if self._head(text) or (self.current is not None and self.current.take(text)):
            self.known += 1
            return True
        if _FRAME.match(text) is not None:
            self._frame(text)
            return True
        return self._row(text) or self.summary

    def _head(self, text: str) -> bool:
        match = _HEAD.match(text)
        if match is None:
            return False
        self.summary = False
        size, status, errors = self.table.get(match["group"], (0, "", ""))
        draft = self.found.get(match["hash"])
        if draft is None:
            draft = self.found[match["hash"]] = CommunicatorDraft(match["hash"], size, (status, errors))
        draft.open(match["what"])
        self.current = draft
        return True

    def _frame(self, text: str) -> None:
        self.current = None
        if text.startswith("Job summary"):
            self.summary = True
        elif text.startswith("Communicators..."):
            self.summary = False
        elif text in ("INCOMPLETE", "DEAD", "TIMEOUT"):
            self.section = text
        elif text.startswith("No communicator data"):
            self.notes.append("RAS knew of no communicator")
        self.known += not text.startswith(("OK", "="))

    def _row(self, text: str) -> bool:
        match = _TABLE.match(text)
        if match is not None:
            self.table[match["group"]] = (int(match["size"]), match["status"], match["errors"])
            self.known += 1
            return True
        match = _PROCESS.match(text)
        if match is not None:
            there = self.dead if self.section == "DEAD" else self.silent
            there.append((match["node"], int(match["pid"])))
            return True
        match = _TIMEOUTS.match(text)
        if match is not None:
            self.notes.append(f"{match[1]} time-outs while RAS gathered the data")
            return True
        match = _TOTAL.match(text) if self.summary else None
        if match is not None:
            self.gpus = int(match["gpus"])
        return match is not None

    def report(self) -> RasReport:
        drafts = [self.found[name] for name in sorted(self.found)]
        if not self.found:
            for size, status, errors in self.table.values():
                self.notes.append(f"communicators of {size} ranks: {status}, {errors}")
        dead = set(self.dead)
        return RasReport(
            nccl_version=self.version,
            wall=self.wall,
            gpus=self.gpus,
            communicators=tuple(draft.communicator(dead) for draft in drafts),
            dead_processes=tuple(dict.fromkeys(self.dead)),
            silent_processes=tuple(dict.fromkeys(self.silent)),
            notes=(*self.notes, *(note for draft in drafts for note in draft.notes)),
            ref=self.first.ref,
        )


def read(lines: Sequence[Line], index: int) -> tuple[list[LooseFact], int]:
    """One report, and the index behind its last line. A report that was cut at its beginning is one too."""
    draft = _Draft(lines[index], _time_of(lines, index))
    end, strange = index, 0
    for place in range(index, min(len(lines), index + MOST_LINES)):
        text = lines[place].text.strip()
        version = _VERSION.search(text[:200])
        if version is not None:
            if place > index:
                break
            draft.version = version["version"].partition("+")[0]
        elif not draft.take(text):
            strange += 1
            if strange > _STRANGE:
                break
            continue
        end, strange = place + 1, 0
    if draft.version is None and not draft.found and not draft.table:
        return [], index
    if draft.known == 0:
        return [], index
    return [draft.report()], end


def _time_of(lines: Sequence[Line], index: int) -> float | None:
    """When it was taken: by its lines' prefix, or by a date that somebody printed just before."""
    for line in reversed(lines[max(index - 3, 0) : index + 1]):
        if line.origin.wall is not None:
            return line.origin.wall
        stamp = dated(line.text.lstrip("=#- [")[:40])
        if stamp is not None:
            return stamp.wall
    return None


FORM = BlockForm(
    name="ras-text",
    title="NCCL RAS report (text)",
    openers=("compiled with CUDA", "Job summary", "Group     Comms", "#0-0 ("),
    read=read,
)

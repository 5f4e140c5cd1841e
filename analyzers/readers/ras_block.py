"""One communicator's paragraphs in a RAS text report (``#0-0 (hash) MISMATCH`` and the like).

2.24 and 2.25 count all kinds of collectives together; from 2.26 there is one block a kind.
"""

from __future__ import annotations

import re

from hangscope.model.loose import RasCommunicator, RasRank

_KIND = re.compile(
    r"Communicator ranks have different (?:(?P<kind>\w{1,40}) operation counts|(?P<state>status))$"
)
_MANY = re.compile(
    r"(?P<count>\d{1,9}) ranks? (?:have|has) (?:launched up to operation (?P<upto>\d{1,19})|"
    r"(?P<none>not launched any operations)|status (?P<state>[A-Z]{4,10}))$"
)
_REPORTED = re.compile(r"\d{1,9} ranks? reported (?P<error>\S.{0,100})$")
_RANK = re.compile(
    r"Rank (?P<rank>-?\d{1,12})(?: (?:has launched up to operation (?P<upto>\d{1,19})|"
    r"(?P<none>has not launched any operations)|has status (?P<state>[A-Z]{4,10})|"
    r"reported (?P<error>.{1,100}?)))? -- (?:GPUs? (?P<gpu>\d{1,4})[\d,]{0,60}(?: \(NVML [\d,]{1,60}\))? "
    r"managed by process (?P<pid>\d{1,10}) on node (?P<node>\S{1,80})|\[process information not found\])"
)
_MISSING = re.compile(r"The (?:missing|unknown) ranks?: (?P<ranks>[\d,]{1,2000})$")
_COUNTED = re.compile(
    r"Missing communicator data from (?P<missing>\d{1,9}) ranks?|"
    r"(?:Initialization|Asynchronous) errors? on \d"
)
MOST_RANKS = 1 << 20
NO_MEMBER = ("NOCOMM", "UNKNOWN")
"""Ranks whose process answers and has no data of the communicator; 2.24 and 2.25 say UNKNOWN."""


class Row:
    """Ranks that launched equally many. ``size``: how many; ``ranks``: those that are listed."""

    def __init__(self, kind: str, upto: int, size: int) -> None:
        self.kind = kind
        self.upto = upto
        self.size = size
        self.ranks: list[int] = []


class CommunicatorDraft:
    """A communicator while its paragraphs are read."""

    def __init__(self, name: str, size: int, status: tuple[str, ...]) -> None:
        self.name = name
        self.size = size
        self.status = status
        self.section = ""
        """The paragraph: INCOMPLETE, ERROR or MISMATCH."""
        self.sections: list[str] = []
        self.kind: str | None = None
        self.row: Row | None = None
        self.rows: list[Row] = []
        self.state: str | None = None
        self.error: str | None = None
        self.ranks: dict[int, RasRank] = {}
        self.missing: dict[int, RasRank] = {}
        self.absent = 0
        """How many ranks it says are missing."""
        self.notes: list[str] = []

    def open(self, section: str) -> None:
        """A paragraph begins."""
        self.section, self.kind, self.row, self.state, self.error = section, None, None, None, None
        self.sections.append(section)

    def _is_rank(self, rank: int) -> bool:
        return 0 <= rank < (self.size or MOST_RANKS)

    def take(self, text: str) -> bool:
        """One more line; False for one that is of no paragraph."""
        return self._kind(text) or self._many(text) or self._rank(text) or self._absent(text)

    def _kind(self, text: str) -> bool:
        match = _KIND.match(text)
        if match is None:
            return False
        self.kind, self.row, self.state = match["kind"], None, None
        return True

    def _many(self, text: str) -> bool:
        match = _MANY.match(text)
        if match is not None:
            self.state = match["state"]
            if self.state is None:
                self._begin(int(match["upto"] or 0), int(match["count"]))
            return True
        match = _REPORTED.match(text)
        self.error = match["error"] if match is not None else self.error
        return match is not None

    def _begin(self, upto: int, size: int) -> None:
        self.row = Row(self.kind or "collective", upto, size)
        self.rows.append(self.row)

    def _rank(self, text: str) -> bool:
        match = _RANK.match(text)
        if match is None:
            return False
        rank = int(match["rank"])
        counted = match["upto"] is not None or match["none"] is not None
        if counted:
            self._begin(int(match["upto"] or 0), 1)
        if self.row is not None and self.section == "MISMATCH" and (counted or match["state"] is None):
            self.row.ranks.append(rank)
        if not self._is_rank(rank):
            self.notes.append(f"RAS named rank {rank} in a communicator of {self.size}: left out")
            return True
        seen = self._seen(rank, match)
        (self.missing if self.section == "INCOMPLETE" else self.ranks)[rank] = seen
        return True

    def _seen(self, rank: int, match: re.Match[str]) -> RasRank:
        before = self.ranks.get(rank) or RasRank(rank=rank)
        erring = self.section == "ERROR"
        known = match["pid"] is not None
        state = match["state"] or (self.state if self.row is None else None) or before.state
        return RasRank(
            rank=rank,
            node=match["node"] if known else before.node,
            pid=int(match["pid"]) if known else before.pid,
            gpu=int(match["gpu"]) if known else before.gpu,
            state=state if self.section == "MISMATCH" else before.state,
            error=(match["error"] or self.error) if erring else before.error,
        )

    def _absent(self, text: str) -> bool:
        match = _MISSING.match(text)
        if match is not None:
            for word in match["ranks"].split(","):
                rank = int(word) if word and len(word) < 10 else -1
                if self._is_rank(rank):
                    self.missing[rank] = RasRank(rank=rank)
            return True
        match = _COUNTED.match(text)
        if match is not None and match["missing"] is not None:
            self.absent = int(match["missing"])
        return match is not None

    def communicator(self, dead: set[tuple[str, int]]) -> RasCommunicator:
        """The communicator; ``dead``: processes (node, pid) that RAS considers dead."""
        return RasCommunicator(
            hash=self.name,
            size=self.size,
            ranks=tuple(self.ranks[rank] for rank in sorted(self.ranks)),
            missing=tuple(self.missing[rank] for rank in sorted(self.missing)),
            dead=tuple(rank for rank, item in sorted(self.missing.items()) if (item.node, item.pid) in dead),
            status=tuple(
                dict.fromkeys(
                    part for told in (*self.status, *self.sections) for part in told.split(",") if part
                )
            ),
            groups=tuple(self._groups()),
        )

    def _groups(self) -> list[tuple[str, int, tuple[int, ...]]]:
        found: list[tuple[str, int, tuple[int, ...]]] = []
        for kind in dict.fromkeys(row.kind for row in self.rows):
            rows = [row for row in self.rows if row.kind == kind]
            if self._fill(kind, rows):
                found += [(kind, row.upto, tuple(sorted(row.ranks))) for row in rows]
        return found

    def _fill(self, kind: str, rows: list[Row]) -> bool:
        """Lists the ranks of the one row that lists none, where the numbers add up. False: the kind's rows
        say nothing that can be relied on."""
        listed = [rank for row in rows for rank in row.ranks]
        if not all(map(self._is_rank, listed)) or len(set(listed)) != len(listed):
            return False
        bare = [row for row in rows if not row.ranks]
        if len(bare) != 1:
            return all(not row.ranks or len(row.ranks) == row.size for row in rows)
        told = sum(row.size for row in rows)
        outside = set(self.missing) | {rank for rank, item in self.ranks.items() if item.state in NO_MEMBER}
        if not 0 < self.size < MOST_RANKS or told + len(outside) != self.size:
            rows.remove(bare[0])
            self.notes.append(
                f"{kind}: the {bare[0].size} ranks at {bare[0].upto} are not told apart from missing ones"
            )
            return True
        bare[0].ranks = sorted(set(range(self.size)) - set(listed) - outside)
        return len(bare[0].ranks) == bare[0].size

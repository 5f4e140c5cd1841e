"""The collector matrix of a bundle: what was captured, what was not, and why."""

from __future__ import annotations

from collections import Counter

from ..model.evidence import Cell, Evidence
from ..model.ranges import ranks_phrase
from ..report.interface import printable


def render(evidence: Evidence) -> str:
    """A line a collector with the statuses of each sample, then every gap with its reason."""
    cells = [cell for shard in evidence.shards for cell in shard.cells]
    samples = sorted({cell.sample for cell in cells})
    names = list(dict.fromkeys(cell.collector for cell in cells))
    lines = ["collector       " + "".join(f"{f'sample {sample + 1}':<28}" for sample in samples).rstrip()]
    for name in names:
        row = "".join(f"{_counts(cells, name, sample):<28}" for sample in samples)
        lines.append(f"{name:<16}{row}".rstrip())
    gaps = _gaps(evidence)
    if gaps:
        lines += ["", "not captured, or not all of it:", *(f"  {gap}" for gap in gaps)]
    lines += [f"note: {note}" for note in evidence.notes]
    lines += [f"{node}: nothing captured: {reason}" for node, reason in evidence.missing_nodes]
    return "".join(printable(line) + "\n" for line in lines)


def _counts(cells: list[Cell], collector: str, sample: int) -> str:
    counts = Counter(cell.status for cell in cells if (cell.collector, cell.sample) == (collector, sample))
    return ", ".join(f"{status} {count}" for status, count in counts.most_common()) or "-"


def _gaps(evidence: Evidence) -> list[str]:
    """Equal gaps of several processes are one line."""
    ranks = {
        (shard.name, row.pid): row.rank
        for shard in evidence.shards
        if shard.scan is not None
        for row in shard.scan.processes
        if row.role == "rank" and row.rank is not None
    }
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for shard in evidence.shards:
        for cell in shard.cells:
            if cell.status != "ok":
                key = (cell.collector, cell.status, cell.reason or "no reason given")
                groups.setdefault(key, []).append(cell)
    return [
        f"{name}: {status}: {reason} ({_whose(cells, ranks)})"
        for (name, status, reason), cells in groups.items()
    ]


def _whose(cells: list[Cell], ranks: dict[tuple[str, int], int]) -> str:
    pids = sorted({cell.pid for cell in cells if cell.pid is not None})
    named = [rank for cell in cells if (rank := ranks.get((cell.node, cell.pid or 0))) is not None]
    others = [pid for pid in pids if all((cell.node, pid) not in ranks for cell in cells if cell.pid == pid)]
    parts = [ranks_phrase(named)] if named else []
    if others:
        parts.append("pid " + ", ".join(str(pid) for pid in others[:6]) + (" …" if len(others) > 6 else ""))
    return "; ".join(parts) or "the node"

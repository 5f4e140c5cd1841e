"""The ledger's cost follows operations and ranks, not pairs of ranks."""

from __future__ import annotations

import time

from hangscope.analyzers.loose import analyze_facts
from hangscope.model.loose import LooseFact

from .builder import LedgerBuilder


def _facts(ranks: int) -> tuple[list[LooseFact], int]:
    """Groups of 8, across them, and of 16: one rank never enters its group's operation, and all wait."""
    job = LedgerBuilder(ranks, window=4)
    for first in range(0, ranks, 8):
        job.group(f"tp{first}", range(first, first + 8), "tp")
    for first in range(8):
        job.group(f"dp{first}", range(first, ranks, 8), "dp")
    for first in range(0, ranks, 16):
        job.group(f"pp{first}", range(first, first + 16), "pp")
    for name in list(job.groups):
        job.run(group=name, times=3)
    late = ranks // 2 + 3
    mine = late // 8 * 8
    job.stuck(on=[rank for rank in range(mine, mine + 8) if rank != late], group=f"tp{mine}")
    for first in range(8):
        job.stuck(on=[rank for rank in range(first, ranks, 8) if rank // 8 * 8 != mine], group=f"dp{first}")
    return job.facts(), late


def _seconds(facts: list[LooseFact]) -> float:
    """CPU seconds, the best of three."""
    found = []
    for _ in range(3):
        began = time.process_time()
        analyze_facts(facts)
        found.append(time.process_time() - began)
    return min(found)


def test_the_right_rank_among_a_thousand_and_no_quadratic_time() -> None:
    small, _late = _facts(256)
    large, late = _facts(1024)
    found = analyze_facts(large)[0]
    assert (found.kind, found.initiators) == ("rank-blocked", (late,))
    assert len(found.waiting) == 1023
    assert _seconds(large) <= 10 * max(_seconds(small), 0.02)

"""Parts of huge logs, and what stands in them: line numbers, budgets, times, and bytes that never end."""

from __future__ import annotations

import io
import pathlib
import random

import pytest

from hangscope.analyzers.readers.interface import Document
from hangscope.loose import Unread, Window, opened
from hangscope.loose.streams import Peeked
from hangscope.loose.window import excerpts

NEEDLE = b"[rank1]:[E814 13:15:55.5 a.cpp:1] [Rank 1] Watchdog caught collective operation timeout: x"


def excerpted(data: bytes, window: Window, start: int = 1000) -> list[tuple[int, bytes]]:
    parts = excerpts(data[:start], io.BytesIO(data[start:]), window, lambda said: None)
    return [(part.first, part.data) for part in parts]


@pytest.mark.parametrize("seed", range(4))
def test_excerpts_are_parts_of_the_log_with_their_numbers(seed: int) -> None:
    chance = random.Random(seed)
    rows = [
        NEEDLE if chance.random() < 0.001 else b"step %d %s" % (number, b"x" * chance.randrange(80))
        for number in range(30_000)
    ]
    data = b"\n".join(rows) + b"\n" * chance.randrange(2)
    window = Window(edge=20_000, matched=1 << 20, before=3, after=chance.choice((0, 5, 50)))
    parts = excerpted(data, window, chance.randrange(1000, 50_000))
    behind = 0
    for first, text in parts:
        assert first > behind
        kept = text.split(b"\n")
        kept = kept[:-1] if kept[-1] == b"" else kept
        assert rows[first - 1 : first - 1 + len(kept)] == kept
        behind = first + len(kept) - 1
    kept_rows = {number for first, text in parts for number in range(first, first + text.count(b"\n") + 1)}
    for number, row in enumerate(rows, 1):
        if row == NEEDLE:
            assert number in kept_rows
    assert parts[0][0] == 1 and data.endswith(parts[-1][1])


def test_too_many_matches_keep_the_first_and_the_last() -> None:
    data = (NEEDLE + b"\n") * 200_000
    window = Window(edge=10_000, matched=200_000)
    parts = excerpted(data, window)
    assert sum(len(text) for _, text in parts) < 10 << 20
    assert parts[0][0] == 1 and data.endswith(parts[-1][1])


def test_a_log_without_line_feeds() -> None:
    data = b"a" * (5 << 20)
    window = Window(edge=1 << 19)
    parts = excerpted(data, window)
    assert sum(len(text) for _, text in parts) <= 5 << 20


def test_blocks_outside_the_time_are_passed_over() -> None:
    days = [
        b"2026-01-%02d 10:00:00 filler\n" % day * 100_000
        + NEEDLE
        + b"\n"
        + b"2026-01-%02d 11:00:00 x\n" % day * 100_000
        for day in (1, 2, 3)
    ]
    window = Window(since=1_767_312_000.0, until=1_767_398_400.0, edge=1000)
    found = excerpted(b"".join(days), window)
    hits = [first for first, text in found if NEEDLE in text]
    assert 299_000 < hits[0] <= 300_002  # that of the second day


def test_a_huge_log_in_an_archive_says_what_was_read(tmp_path: pathlib.Path) -> None:
    import gzip

    data = b"step 1\n" * 400_000 + NEEDLE + b"\n" + b"step 2\n" * 400_000
    (tmp_path / "rank_1.log.gz").write_bytes(gzip.compress(data))
    found = list(opened([str(tmp_path)], Window(whole=1 << 20, edge=1 << 12, after=2)))
    parts = [item for item in found if isinstance(item, Document)]
    assert any(NEEDLE in part.data for part in parts) and len(parts) == 3
    assert {part.origin.rank for part in parts} == {1}
    assert any(isinstance(item, Unread) and "a huge log" in item.why for item in found)


def test_peeking_takes_nothing() -> None:
    source = Peeked(io.BytesIO(b"abcdef"))
    assert source.peek(3) == b"abc" and source.peek(9) == b"abcdef"
    assert source.read(4) == b"abcd" and source.read(9) == b"ef" and source.read(9) == b""
    assert source.taken == 6

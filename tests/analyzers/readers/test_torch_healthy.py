"""What torch prints in healthy runs is no evidence of a hang; no input makes its readers raise or crawl."""

from __future__ import annotations

import pathlib
import random
import time

import pytest

from hangscope.analyzers.readers import (
    elastic_table,
    elastic_text,
    fr_analyzer_text,
    gloo_text,
    monitored_barrier,
    torch_debug_server,
    torch_desync,
    torch_failed_stack,
    torch_fingerprint,
    torch_heartbeat,
    torch_store,
    torch_wait_counters,
    torch_watchdog,
    torch_wrapped,
)
from hangscope.analyzers.readers.documents import read_with
from hangscope.analyzers.readers.interface import Document, Form

from ...forms.cases import FIXTURES

FORMS: tuple[Form, ...] = (
    elastic_table.FAILURES_FORM,
    elastic_table.START_FORM,
    elastic_text.FORM,
    fr_analyzer_text.FORM,
    gloo_text.FORM,
    monitored_barrier.FORM,
    torch_debug_server.FORM,
    torch_desync.FORM,
    torch_failed_stack.FORM,
    torch_fingerprint.FORM,
    torch_heartbeat.FORM,
    torch_store.FORM,
    torch_wait_counters.FORM,
    torch_watchdog.FORM,
    torch_wrapped.FORM,
)

HEALTHY = (pathlib.Path(__file__).parents[1] / "data" / "torch_in_healthy_runs.txt").read_text(
    encoding="utf-8"
)


@pytest.mark.parametrize("line", HEALTHY.strip().splitlines())
def test_a_healthy_line_says_nothing(line: str) -> None:
    assert read_with(Document(path="x.log", data=line.encode()), FORMS).facts == ()


def corpus() -> list[str]:
    names = {form.name for form in FORMS}
    found = sorted(path for name in names for path in (FIXTURES / name).iterdir() if path.is_file())
    paths = [path for path in found if path.suffix != ".toml"]
    assert len(paths) > 40
    return [path.read_text(encoding="utf-8") for path in paths]


def test_no_damage_makes_a_reader_raise() -> None:
    dice = random.Random(17)
    rows = [row for text in corpus() for row in text.splitlines()]
    for _ in range(120):
        picked = [dice.choice(rows) for _ in range(30)]
        start = dice.randrange(len(rows))
        picked += rows[start : start + 30]
        damaged = []
        for row in picked:
            cut = dice.randrange(len(row) + 1)
            other = dice.choice(rows)
            damaged.append(
                dice.choice([row, row[:cut], row[cut:], row[:cut] + other, row[:cut] + "\x00" + row[cut:]])
            )
        read_with(Document(path="x.log", data="\n".join(damaged).encode()), FORMS)


@pytest.mark.parametrize(
    "row",
    [
        "Watchdog caught " + "[E" * 2000,
        "dump signal " + "[rank1]:[E " * 400,
        "CollectiveFingerPrint(" * 190,
        "in store based barrier rank: 1, " * 130,
        "[Rank 0]: Ranks " + "1, " * 1200 + "failed to pass monitoredBarrier",
        "To our best knowledge, the lagging/dead/mismatched ranks [" + "1, " * 1200,
        "keys: wait timeout after 1ms, keys: " + "/" * 3900,
        "=== Rank 1: http://" + "a" * 3900,
        "failed (exitcode: " + "-1" * 1900,
    ],
)
def test_hostile_lines_take_linear_time(row: str) -> None:
    def seconds(count: int) -> float:
        data = (row + "\n").encode() * count
        began = time.perf_counter()
        read_with(Document(path="x.log", data=data), FORMS)
        return time.perf_counter() - began

    few, many = seconds(10), seconds(80)
    assert many < 8 * few * 4 + 0.2
    assert many / 80 < 0.02


def test_a_log_is_read_at_200_megabytes_a_minute() -> None:
    dice = random.Random(3)
    texts = [row for text in corpus() for row in text.splitlines() if row]
    plain = [f"[rank{n % 8}]: step {n} loss {n / 7:.4f} tokens/s {n * 13}" for n in range(400)]
    rows = [dice.choice(plain) for _ in range(60_000)] + [dice.choice(texts) for _ in range(600)]
    dice.shuffle(rows)
    data = "\n".join(rows).encode()
    began = time.process_time()
    read_with(Document(path="x.log", data=data), FORMS)
    assert len(data) / (time.process_time() - began) > 200e6 / 60 * 0.6

"""A log four times as long takes four times as long, and 200 MB are read in a minute."""

from __future__ import annotations

import sys

from tests.benchmarks.log_reading import BAR, make_log, seconds


def test_reading_a_log_is_linear_and_fast() -> None:
    small, large = make_log(10_000), make_log(40_000)
    seconds(small)  # the forms' patterns are made once
    least = min(seconds(small)[0] for _ in range(2))
    took, facts = seconds(large)
    assert facts > 0 and took < 6 * least + 0.2
    if "coverage" not in sys.modules:  # which makes every line slower
        assert len(large) / 1e6 / took * 60 >= BAR

"""Every scenario's kind, initiators, cause and confidence."""

import pytest

from .scenarios import SCENARIOS


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_truth_is_reached(name: str) -> None:
    make, truth = SCENARIOS[name]
    verdict = make().verdict()
    assert (verdict.kind, verdict.initiators, verdict.cause) == (truth.kind, truth.initiators, truth.cause)
    if truth.confidence is not None:
        assert verdict.confidence == truth.confidence, verdict.why_not_higher
    assert (verdict.why_not_higher is None) == (verdict.confidence == "high")

"""Recorded captures of the zoo's jobs: the verdict and its text must be what they were.

After a wanted change: ``python -m tests.zoo --refresh``, and read the difference.
"""

from __future__ import annotations

import json
import pathlib

import pytest

from hangscope.bundle.reader import read_bundle
from hangscope.report import render
from hangscope.report.interface import Style

BUNDLES = pathlib.Path(__file__).parents[1] / "fixtures" / "bundles"
RECORDED = sorted(path.parent.name for path in BUNDLES.glob("*/bundle.tar"))


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_capture_still_gives_its_verdict(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from hangscope.analyzers.analysis import analyze

    folder = BUNDLES / name
    monkeypatch.chdir(folder)
    verdict = analyze(read_bundle("bundle.tar"))
    expected = json.loads((folder / "verdict.json").read_text(encoding="utf-8"))
    assert (verdict.kind, list(verdict.initiators), verdict.cause) == (
        expected["kind"],
        expected["initiators"],
        expected["cause"],
    )
    style = Style(width=100, saved="bundle.tar")
    assert render(verdict, "text", style) == (folder / "verdict.txt").read_text(encoding="utf-8")
    assert json.loads(render(verdict, "json", style)) == expected


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_capture_is_small_and_explained(name: str) -> None:
    folder = BUNDLES / name
    assert (folder / "bundle.tar").stat().st_size <= 512 * 1024
    assert name in (folder / "README.md").read_text(encoding="utf-8")

"""Recorded captures: ``fixtures/bundles/<scenario>/``, checked by plain pytest without torch."""

from __future__ import annotations

import json
import pathlib

from .anonymise import anonymise
from .capture import Answer, analyze
from .judge import Judgement
from .launch import Job

BUNDLES = pathlib.Path(__file__).parents[2] / "fixtures" / "bundles"
LARGEST = 512 * 1024
"""Bytes; a recorded bundle is kept small enough for a repository."""


def record(job: Job, answer: Answer, judgement: Judgement, seed: int) -> pathlib.Path:
    """Writes the bundle, what is expected of it, and a README. Returns the folder.

    Raises ValueError for a verdict that is not right, and for a bundle that is too large.
    """
    if judgement.grade != "right":
        raise ValueError(
            f"{job.scenario.name}: only a right verdict is recorded, this one is {judgement.grade}"
        )
    size = answer.bundle.stat().st_size
    if size > LARGEST:
        raise ValueError(f"{job.scenario.name}: the bundle has {size} bytes, more than {LARGEST}")
    folder = BUNDLES / job.scenario.name
    folder.mkdir(parents=True, exist_ok=True)
    bundle = folder / "bundle.tar"
    bundle.unlink(missing_ok=True)
    anonymise(answer.bundle, bundle)
    refresh(folder)
    (folder / "README.md").write_text(_readme(job, seed), encoding="utf-8")
    return folder


def refresh(folder: pathlib.Path) -> None:
    """Writes the expected text and JSON anew from the bundle that is there."""
    bundle = folder / "bundle.tar"
    (folder / "verdict.txt").write_text(analyze(bundle, "text"), encoding="utf-8")
    verdict = json.loads(analyze(bundle, "json"))
    (folder / "verdict.json").write_text(json.dumps(verdict, indent=1) + "\n", encoding="utf-8")


def _readme(job: Job, seed: int) -> str:
    truth = job.scenario.truth
    named = job.chosen_ranks(truth.initiators)
    return (
        f"# {job.scenario.name}\n\n{truth.title[0].upper()}{truth.title[1:]}.\n\n"
        f"Captured from `fixtures/zoo/{job.scenario.name}/job.py`, seed {seed}, by\n"
        f"`python -m tests.zoo --only {job.scenario.name} --seeds {seed} --record`, which takes the\n"
        "recording machine's paths, kernel log and own variables out (`tests/zoo/anonymise.py`).\n\n"
        f"- kind: {' or '.join(truth.kind)}\n- initiators: {named}\n- cause: {' or '.join(truth.cause)}\n\n"
        "`verdict.txt` and `verdict.json` are what `hangscope analyze bundle.tar` must print; after\n"
        "a wanted change of the wording: `python -m tests.zoo --refresh`.\n\n"
        f"The script as it ran:\n\n```python\n{job.script.text}```\n"
    )

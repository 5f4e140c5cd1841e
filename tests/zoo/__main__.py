"""Runs the zoo: ``python -m tests.zoo [--seeds 1,2,3] [--only NAME]``.

Every scenario is started for real, captured by the real command, and judged. Exit status 1 when any
answer is not right.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import shutil
import signal
import sys
import tempfile
import time
from typing import Any, NamedTuple

from . import record, scenario
from .capture import Answer, CaptureFailed, capture, smallest_class
from .judge import Judgement, judge
from .launch import Job, JobFailed, running

HEADER = (
    "scenario",
    "seed",
    "named",
    "truth",
    "kind",
    "cause",
    "conf.",
    "grade",
    "stuck",
    "capture",
    "baseline",
)
WIDTHS = (25, 4, 11, 11, 14, 30, 6, 9, 6, 7, 11)


class Result(NamedTuple):
    judgement: Judgement
    row: tuple[str, ...]
    baseline_right: bool
    confidence: str | None


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that jobs are ended
    if options.refresh:
        for folder in sorted(path.parent for path in record.BUNDLES.glob("*/bundle.tar")):
            record.refresh(folder)
        return 0
    names = [
        name for name in scenario.names() if not options.only or any(part in name for part in options.only)
    ]
    line(HEADER)
    results = [
        result
        for name in names
        for seed in options.seeds
        if (result := one(scenario.load(name), seed, options)) is not None
    ]
    return summary(results)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.zoo", description=__doc__)
    parser.add_argument("--seeds", type=lambda text: [int(part) for part in text.split(",")], default=[1])
    parser.add_argument("--only", action="append", metavar="NAME", help="a scenario, or a part of its name")
    parser.add_argument("--skip-slow", action="store_true", help="leave out the scenarios that take minutes")
    parser.add_argument(
        "--keep", type=pathlib.Path, metavar="DIR", help="keep every bundle, verdict and script there"
    )
    parser.add_argument("--record", action="store_true", help="write right captures to fixtures/bundles")
    parser.add_argument(
        "--refresh", action="store_true", help="write the recorded verdicts anew, run nothing"
    )
    return parser.parse_args()


def one(subject: scenario.Scenario, seed: int, options: argparse.Namespace) -> Result | None:
    """Runs one scenario once, prints its row, and what did not fit."""
    reason = scenario.unmet(subject) or ("slow" if subject.truth.slow and options.skip_slow else None)
    if reason is not None:
        line((subject.name, str(seed), f"skipped: {reason}"))
        return None
    start = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            job = stack.enter_context(running(subject, seed))
            stuck = time.monotonic() - start
            answer = capture(job, folder / "bundle.tar", seed)
            baseline = smallest_class(job)
        except (JobFailed, CaptureFailed) as error:
            sys.stdout.write(f"{subject.name} seed {seed}: {error}\n")
            return Result(Judgement("wrong", ("no verdict",)), (), False, None)
        result = judged(job, answer, baseline, stuck, seed)
        keep(job, answer, result, seed, options)
    return result


def judged(job: Job, answer: Answer, baseline: list[int], stuck: float, seed: int) -> Result:
    truth, verdict = job.scenario.truth, answer.verdict
    judgement = judge(verdict, truth, job.chosen_ranks, job.script.words)
    expected = job.chosen_ranks(truth.initiators)
    row = (
        job.scenario.name,
        str(seed),
        ranks(verdict["initiators"]),
        ranks(expected),
        str(verdict["kind"]),
        str(verdict["cause"]),
        str(verdict["confidence"]),
        judgement.grade,
        f"{stuck:.0f} s",
        f"{answer.seconds:.0f} s",
        ranks(baseline) + ("" if baseline == expected else " wrong"),
    )
    line(row)
    for fault in judgement.why:
        sys.stdout.write(f"    {fault}\n")
    sys.stdout.flush()
    return Result(judgement, row, baseline == expected, verdict["confidence"])


def keep(job: Job, answer: Answer, result: Result, seed: int, options: argparse.Namespace) -> None:
    if options.keep is not None:
        folder = options.keep / f"{job.scenario.name}-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(answer.bundle, folder / "bundle.tar")
        (folder / "train.py").write_text(job.script.text, encoding="utf-8")
        (folder / "notes.txt").write_text(
            answer.notes + "\n" + "\n".join(result.judgement.why), encoding="utf-8"
        )
        (folder / "verdict.json").write_text(pretty(answer.verdict), encoding="utf-8")
    if options.record and result.judgement.grade == "right":
        record.record(job, answer, result.judgement, seed)


def summary(results: list[Result]) -> int:
    """The counts that the project holds itself to, and the exit status."""
    right = [result for result in results if result.judgement.grade == "right"]
    high = [result for result in right if result.confidence == "high"]
    undecided = sum(result.judgement.grade == "undecided" for result in results)
    baseline = sum(result.baseline_right for result in results)
    sys.stdout.write(
        f"{len(right)} of {len(results)} right ({len(high)} of them high), {undecided} undecided, "
        f"{len(results) - len(right) - undecided} wrong; "
        f'"the smallest stack class is guilty": {baseline} right\n'
    )
    return 0 if len(right) == len(results) else 1


def ranks(numbers: Any) -> str:
    return ",".join(str(number) for number in numbers) or "-"


def pretty(verdict: dict[str, Any]) -> str:
    return json.dumps(verdict, indent=1) + "\n"


def line(columns: tuple[str, ...]) -> None:
    padded = [f"{text:<{width}}" for text, width in zip(columns, WIDTHS, strict=False)]
    sys.stdout.write(" ".join(padded).rstrip() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

"""The zoo itself: truths that can be read, scripts that give nothing away, a judge that is strict."""

from __future__ import annotations

import ast
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

from . import observe, scenario
from .judge import judge
from .launch import Job, JobFailed, running
from .scenario import Launch, Never, Ready, Root, Scenario, Truth, ranks_of
from .script import POOL, render

NAMES = scenario.names()
ROWS = {"01a", "01b", "01c", "01d", "02", "03", "04", "05", "06a", "06b", "07", "08", "09"}
ROWS |= {"10a", "10b", "11a", "11b", "12", "13"}


def test_every_row_of_the_zoo_is_there() -> None:
    assert {name.split("-")[0] for name in NAMES} >= ROWS


@pytest.mark.parametrize("name", NAMES)
def test_a_truth_is_complete_and_does_not_contradict_itself(name: str) -> None:
    truth = scenario.load(name).truth
    assert truth.kind and truth.cause and truth.ready
    assert not set(truth.cause) & set(truth.never.cause)
    assert not set(truth.kind) & set(truth.never.kind)
    wrong = ranks_of(truth.never.initiators, 4, 2, 0)
    assert not set(ranks_of(truth.initiators, 4, 2, 0)) & set(wrong)
    # a wrong answer is named in every truth
    assert wrong or truth.never.cause or truth.never.kind
    for pattern in [*truth.evidence, *truth.asks_for]:
        re.compile(pattern)
    if truth.launch.gate is not None:
        assert truth.gate_ready


@pytest.mark.parametrize("name", NAMES)
def test_what_runs_gives_nothing_away(name: str) -> None:
    subject = scenario.load(name)
    texts = {seed: render(subject.template, name, seed, subject.candidates).text for seed in range(1, 9)}
    assert render(subject.template, name, 3, subject.candidates).text == texts[3]
    for text in texts.values():
        tree = ast.parse(text)
        assert "#" not in text
        assert not re.search(r"CHOSEN|PARTNER|ANY_ORDER|EITHER|\"\"\"|@\d", text)
        defined = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        own = {"main", "run", "forward", "do_GET"}
        assert all(name in POOL or name in own or name.startswith("__") for name in defined), defined


@pytest.mark.parametrize("name", [name for name in NAMES if name[:2] in ("03", "06", "08", "09")])
def test_rank_names_and_order_follow_the_seed(name: str) -> None:
    subject = scenario.load(name)
    scripts = [render(subject.template, name, seed, subject.candidates) for seed in range(1, 13)]
    assert {script.chosen for script in scripts} == {0, 1, 2, 3}
    assert all(script.partner != script.chosen for script in scripts)
    shapes = {re.sub(r"\b(" + "|".join(POOL) + r"|\d)\b", "x", script.text) for script in scripts}
    assert len(shapes) > 1, "the lines always come in one order"


def test_attributes_of_libraries_keep_their_names() -> None:
    template = (
        "import torch\nclass Box:\n    def __init__(self, device):\n        self.held = device\n"
        "def make(device):\n    return Box(torch.device(device)).held\n"
    )
    text = render(template, "x", 1, [0, 1]).text
    assert "torch.device(" in text
    assert "held" not in text and "Box" not in text


def test_rank_expressions() -> None:
    assert ranks_of("none", 4, 2, 0) == []
    assert ranks_of("others", 4, 2, 0) == [0, 1, 3]
    assert ranks_of("chosen+partner", 4, 2, 0) == [0, 2]
    assert ranks_of("rest", 4, 2, 0) == [1, 3]


def verdict(**fields: Any) -> dict[str, Any]:
    root = {"type": "rank", "thread": "moss", "role": "trainer", "state": "D", "wait": "host-memory"}
    said: dict[str, Any] = {"kind": "rank-blocked", "initiators": [2], "cause": "host-memory-limit"}
    said |= {"roots": [root], "stragglers": [], "deciding_fact": "memory 5/5 MiB"}
    return {**said, "evidence": [], "missing": [], "next": [], **fields}


TRUTH = Truth(
    title="t",
    kind=["rank-blocked"],
    initiators="chosen",
    cause=["host-memory-limit"],
    root=Root(thread="@1", state=["D"]),
    evidence=["5/5"],
    never=Never(initiators="others", cause=["rank-stopped"]),
)


def grade(**fields: Any) -> str:
    return judge(verdict(**fields), TRUTH, lambda text: ranks_of(text, 4, 2, 0), {"@1": "moss"}).grade


def test_the_judge_accepts_only_the_truth() -> None:
    assert grade() == "right"
    assert grade(kind="undecided", initiators=[], cause=None, roots=[]) == "undecided"
    assert grade(kind="undecided", initiators=[], cause="rank-stopped", roots=[]) == "wrong"
    assert grade(kind="all-joined", initiators=[], cause=None) == "wrong"
    assert grade(initiators=[1]) == "wrong"
    assert grade(initiators=[1, 2]) == "wrong"
    assert grade(cause=None) == "wrong"
    assert grade(roots=[{"thread": "MainThread", "state": "D"}]) == "wrong"
    assert grade(deciding_fact=None) == "wrong"


def test_an_undecided_that_is_the_truth_must_ask_for_the_missing_fact() -> None:
    truth = Truth(title="t", kind=["undecided"], initiators="none", cause=["none"], asks_for=["recorder"])
    empty: dict[str, Any] = {"kind": "undecided", "initiators": [], "cause": None, "deciding_fact": None}
    asking = {"missing": [{"what": "the flight recorder", "why": "", "command": None}]}
    assert judge(verdict(**empty), truth, lambda text: [], {}).grade == "wrong"
    assert judge(verdict(**empty, **asking), truth, lambda text: [], {}).grade == "right"


def sleeping_job(template: str, **launch: Any) -> Scenario:
    ready = [Ready(who="all", wchan="hrtimer_nanosleep", still=True)]
    truth = Truth(
        title="t", kind=["undecided"], initiators="none", cause=["none"], ready=ready,
        launch=Launch(start="hand", world_size=2, seconds=10.0, **launch),
    )  # fmt: skip
    return Scenario("sleeping", truth, template)


def test_a_job_is_ended_with_everything_that_it_started() -> None:
    """Also an orphan in a session of its own, and a process that was stopped."""
    template = (
        "import os, time, signal\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        os.kill(os.getpid(), signal.SIGSTOP)\n    os._exit(0)\ntime.sleep(60)\n"
    )
    with running(sleeping_job(template), 1) as job:
        mine = observe.processes_in(job.directory)
        assert len(mine) >= 4
        assert {observe.rank_of(pid) for pid in mine} == {0, 1}
        assert "truth" not in " ".join(os.listdir(job.directory))
    assert observe.processes_in(job.directory) == []
    assert not job.directory.exists()


def test_a_job_that_ends_instead_of_hanging_is_told_with_its_output() -> None:
    with (
        pytest.raises(JobFailed, match="no such thing"),
        running(sleeping_job("raise SystemExit('no such thing')"), 1),
    ):
        pytest.fail("it did not hang")


def test_a_job_that_hangs_in_another_way_is_not_taken_for_stuck() -> None:
    subject = sleeping_job("import time\nwhile True: time.sleep(0.05)")
    subject.truth.launch.seconds = 3.0
    with pytest.raises(JobFailed, match="not within 3 s"), running(subject, 1):
        pytest.fail("its threads are not still")


def test_variables_of_the_runner_do_not_reach_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "10.1.1.1")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "7")
    template = (
        "import os, time\nprint(sorted(os.environ), os.environ['MASTER_ADDR'], flush=True)\ntime.sleep(60)"
    )
    with running(sleeping_job(template), 1) as job:
        text = job.output()
    assert "127.0.0.1" in text and "OMPI" not in text and "PYTEST" not in text
    job.close()


def test_the_table_runs_and_says_why_it_skips(tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.zoo", "--only", "nothing-has-this-name"],
        capture_output=True, text=True, cwd=scenario.ZOO.parents[1], timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "baseline" in done.stdout and "0 of 0 right" in done.stdout


def test_a_job_object_is_closed_without_ever_being_started() -> None:
    job = Job(sleeping_job("pass"), 1)
    assert job.directory.exists()
    job.close()
    assert not job.directory.exists()

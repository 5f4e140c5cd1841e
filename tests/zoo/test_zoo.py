"""Jobs that really hang, captured by the real command, judged against the truth."""

from __future__ import annotations

import pathlib

import pytest

from . import observe, scenario
from .capture import capture
from .judge import judge
from .launch import running

SEED = 1


def marked() -> list[object]:
    """Every scenario; those that take minutes are marked slow, the others realjob."""
    return [
        pytest.param(
            name, id=name, marks=pytest.mark.slow if scenario.load(name).truth.slow else pytest.mark.realjob
        )
        for name in scenario.names()
    ]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", marked())
def test_the_command_finds_what_really_happened(name: str, tmp_path: pathlib.Path) -> None:
    subject = scenario.load(name)
    reason = scenario.unmet(subject)
    if reason is not None:
        pytest.skip(reason)
    with running(subject, SEED) as job:
        answer = capture(job, tmp_path / "bundle.tar", SEED)
        stopped = [pid for pid in observe.processes_in(job.directory) if observe.state_of(pid) in ("T", "t")]
        expected = [job.ranks[job.script.chosen]] if subject.truth.launch.gate == "stop" else []
    judgement = judge(answer.verdict, subject.truth, job.chosen_ranks, job.script.words)
    assert judgement.grade == "right", "\n".join([*judgement.why, str(answer.verdict), answer.notes])
    assert stopped == expected, "the capture left a process stopped"
    assert observe.processes_in(job.directory) == []

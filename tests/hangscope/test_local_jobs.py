"""The local scheduler: from running processes to jobs that can be named on the command line."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangscope.collectors.ranks import discovery
from hangscope.collectors.ranks.roles import ProcessInfo
from hangscope.errors import NoSuchTarget
from hangscope.jobs import SCHEDULERS
from hangscope.jobs.interface import Job
from hangscope.jobs.local import LocalScheduler, user_name

from ..collectors.rank_processes import SLEEP, Processes, processes


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Processes]:
    with processes(tmp_path) as started:
        yield started


def test_a_job_is_listed_found_by_pid_and_by_name(running: Processes) -> None:
    script = running.script("listed.py", SLEEP)
    ranks = running.ranks(script, "02", 3, 29431)
    local = LocalScheduler()
    job = local.job_of_pid(ranks[1].pid)
    assert job.selector == "local:listed-29431"
    assert (job.ranks, job.world_size, job.launcher, job.nodes) == (
        (0, 2),
        3,
        "by hand",
        (os.uname().nodename,),
    )
    assert [(process.pid, process.role, process.rank) for process in job.processes] == [
        (ranks[0].pid, "rank", 0),
        (ranks[1].pid, "rank", 2),
    ]
    assert script in job.title and job.started_wall is not None and abs(time.time() - job.started_wall) < 60
    assert _pids(local.job_named("listed-29431")) == _pids(job)
    assert _pids(job) in [_pids(other) for other in local.jobs()]


def _pids(job: Job) -> tuple[str, list[int]]:
    """What does not change from one look to the next, as a process's state does."""
    return job.selector, [process.pid for process in job.processes]


def test_a_name_that_nothing_has_is_refused_with_what_there_is(running: Processes) -> None:
    running.ranks(running.script("there.py", SLEEP), "0", 1, 29432)
    with pytest.raises(NoSuchTarget, match="local:there-29432") as error:
        LocalScheduler().job_named("not-there")
    assert error.value.advice


def test_the_note_names_what_could_not_be_told(running: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    script = running.script("noted.py", SLEEP)
    (rank,) = running.ranks(script, "0", 2, 29433)
    unread = running.start(script)
    scan = discovery.scan

    def scan_unread(*arguments: str) -> list[ProcessInfo]:
        return [
            info._replace(env=None, reason="no answer in 1.5 s") if info.pid == unread.pid else info
            for info in scan(*arguments)
        ]

    monkeypatch.setattr(discovery, "scan", scan_unread)
    job = LocalScheduler().job_of_pid(rank.pid)
    assert "could not be told apart from ranks" in (job.note or "") and str(unread.pid) in (job.note or "")


def test_users_are_named_without_a_directory_service() -> None:
    assert (user_name(0), user_name(None), user_name(4294967294)) == ("root", "?", "4294967294")


def test_the_local_scheduler_is_asked() -> None:
    assert [scheduler.prefix for scheduler in SCHEDULERS] == ["local"]

"""``analyze`` and ``show`` on a bundle of real ranks, ``capture`` and ``demo`` as they report."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import hangscope.demo
import hangscope.jobs
from hangscope.bundle.reader import read_bundle
from hangscope.capture import session
from hangscope.capture.launch import children_of
from hangscope.capture.session import Captured, Request
from hangscope.cli import capture as capture_command
from hangscope.cli import selection
from hangscope.cli.main import main
from hangscope.errors import NoSuchTarget
from hangscope.jobs.interface import Job, JobProcess
from tests.benchmarks.plain_job import plain_job
from tests.capture.test_followup import a_verdict

ROOT = pathlib.Path(hangscope.__file__ or "").parents[1]

Capsys = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def job() -> Iterator[list[int]]:
    with plain_job(2, 3, "cli") as pids:
        yield pids


@pytest.fixture(scope="module")
def bundle(job: list[int], tmp_path_factory: pytest.TempPathFactory) -> str:
    """A bundle captured by the real command, in a process of its own."""
    path = tmp_path_factory.mktemp("bundle") / "b.tar"
    command = [sys.executable, "-m", "hangscope", "capture", "-p", str(job[0]), "-o", str(path)]
    done = subprocess.run(
        [*command, "--interval", "0.1", "--patience", "0"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    assert "sample 2 taken" in done.stderr and "\x1b" not in done.stderr
    assert f"evidence saved to {path}" in done.stdout
    return str(path)


def test_analyze_says_what_capture_said(bundle: str, capsys: Capsys) -> None:
    assert main(["analyze", "--json", bundle]) == 0
    first = capsys.readouterr().out
    assert '"format": "hangscope-verdict/1"' in first
    assert main(["analyze", bundle, bundle]) == 0
    assert capsys.readouterr().out.count(f"{bundle}:\n") == 2


def test_analyze_from_standard_input(bundle: str) -> None:
    with open(bundle, "rb") as data:
        done = subprocess.run(
            [sys.executable, "-m", "hangscope", "analyze", "-"],
            stdin=data,
            capture_output=True,
            cwd=ROOT,
            timeout=60,
        )
    assert done.returncode == 0 and done.stdout


@pytest.mark.parametrize("command", ["analyze", "show"])
def test_what_is_no_bundle_is_told(command: str, tmp_path: pathlib.Path, capsys: Capsys) -> None:
    (tmp_path / "x.tar").write_text("not a bundle")
    for name in ("x.tar", "missing.tar"):
        assert main([command, str(tmp_path / name)]) == 1
        err = capsys.readouterr().err
        assert name in err and "Traceback" not in err


def test_show_merges_the_ranks(bundle: str, capsys: Capsys) -> None:
    assert main(["show", bundle]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^<module> \(\S*rank_program.py:\d+\)   \[ranks 0-1, 2 threads\]$", out, re.MULTILINE)
    assert "×20" in out
    assert out.index("wait_below") < out.index("collector       sample 1")
    assert "threads" in out and "ok 2" in out and "not captured" in out


def test_show_one_rank(bundle: str, job: list[int], capsys: Capsys) -> None:
    assert main(["show", bundle, "--rank", "1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("rank 1 · ") and f"pid {job[1]}" in out
    assert f"thread {job[1]} MainThread: S futex" in out
    assert main(["show", bundle, "--rank", "7"]) == 1
    assert "ranks in it: 0, 1" in capsys.readouterr().err


def test_show_of_damaged_evidence(bundle: str, tmp_path: pathlib.Path, capsys: Capsys) -> None:
    with open(bundle, "rb") as data:
        whole = data.read()
    for cut in (5000, len(whole) // 2):
        (tmp_path / "cut.tar").write_bytes(whole[:cut])
        assert main(["show", str(tmp_path / "cut.tar")]) == 0
        assert capsys.readouterr().out


def captured(**fields: object) -> Captured:
    return Captured(**{"evidence": None, "verdict": a_verdict(), "saved": "/x.tar", "notes": (), **fields})  # type: ignore[arg-type]


class Captures:
    """Stands for a capture: remembers what was asked, gives what it was told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, gives: Captured) -> None:
        self.asked: list[Request] = []
        self.gives = gives
        monkeypatch.setattr(session, "capture", self)

    def __call__(self, request: Request, progress: object, *, verbose: bool) -> Captured:
        self.asked.append(request)
        return self.gives


def test_the_options_reach_the_capture(
    job: list[int], monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    captures = Captures(monkeypatch, captured(notes=("a note",)))
    arguments = [
        "--samples",
        "3",
        "--interval",
        "0.5",
        "--deadline",
        "30",
        "--patience",
        "9",
        "-o",
        "out.tar",
    ]
    arguments += ["--skip-collectors", "gpus,native", "--batch"]
    assert main(["capture", "-p", str(job[1]), *arguments]) == 0
    request = captures.asked[0]
    assert (request.samples, request.interval, request.deadline, request.patience) == (3, 0.5, 30.0, 9.0)
    assert request.pid == job[1] and set(job) <= set(request.pids) and request.skip == ("gpus", "native")
    assert request.output == "out.tar" and request.job is not None
    streams = capsys.readouterr()
    assert "a note" in streams.err and "undecided" in streams.out
    assert main(["capture", "-p", str(job[1]), "--only-this-process", "-q"]) == 0
    assert captures.asked[1].only_this_process and captures.asked[1].job is None
    assert "a note" not in capsys.readouterr().err


def test_exit_code(job: list[int], monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> None:
    for fields, status in (
        ({"kind": "rank-blocked", "initiators": (1,)}, 10),
        ({"kind": "undecided"}, 11),
        ({"kind": "slow"}, 0),
        ({"kind": "not-stuck"}, 0),
    ):
        Captures(monkeypatch, captured(verdict=a_verdict(**fields)))
        assert main(["capture", "-p", str(job[0]), "--exit-code"]) == status
        assert main(["capture", "-p", str(job[0])]) == 0
    capsys.readouterr()


def test_an_interrupted_capture_says_where_the_evidence_is(
    job: list[int], monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    Captures(monkeypatch, captured(verdict=None, interrupted=True))
    assert main(["capture", "-p", str(job[0])]) == 130
    streams = capsys.readouterr()
    assert (
        "saved in /x.tar" in streams.err and "hangscope analyze /x.tar" in streams.err and streams.out == ""
    )


def test_no_evidence_is_a_failure(job: list[int], monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> None:
    Captures(monkeypatch, captured(verdict=None, notes=("why",)))
    assert main(["capture", "-p", str(job[0]), "-q"]) == 1
    assert "no evidence was captured: why" in capsys.readouterr().err


def test_the_bundle_on_standard_output_and_the_verdict_beside_it(
    job: list[int], tmp_path: pathlib.Path
) -> None:
    command = [sys.executable, "-m", "hangscope", "capture", "-p", str(job[0]), "-o", "-"]
    command += ["--interval", "0", "--patience", "0", "--skip-collectors", "native"]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, timeout=90)
    assert done.returncode == 0, done.stderr
    (tmp_path / "b.tar").write_bytes(done.stdout)
    assert read_bundle(str(tmp_path / "b.tar")).shards[0].sealed
    assert b"confidence" in done.stderr or b"[" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["b.tar"]


def test_ctrl_c_in_the_middle(job: list[int], tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-m", "hangscope", "capture", "-p", str(job[0]), "--interval", "60"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert process.stderr is not None and process.stdout is not None
    for line in process.stderr:
        if "sample 1 taken" in line:
            break
    children = children_of(process.pid)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130 and out == ""
    saved = next(tmp_path.glob("*.tar"))
    assert f"saved in {saved}" in err and [path.name for path in tmp_path.iterdir()] == [saved.name]
    shard = read_bundle(str(saved)).shards[0]
    assert shard.sealed and {cell.pid for cell in shard.cells if cell.collector == "stacks"} == set(job)
    assert children and not any(os.path.exists(f"/proc/{pid}") for pid in children)


def a_job(name: str = "llama", **fields: object) -> Job:
    given: dict[str, object] = {
        "scheduler": "local",
        "name": name,
        "world_size": 4,
        "ranks": (0, 1, 3),
        "launcher": "torchrun",
        "launcher_pid": 4242,
        "nodes": ("node-a",),
        "processes": (JobProcess(pid=4243, role="rank", rank=0, state="S", title="python"),),
        "started_wall": time.time() - 840,
        "user": "alice",
        "title": "train.py --x \x1b[31m",
        "note": "rank 2 is missing",
        **fields,
    }
    return Job(**given)  # type: ignore[arg-type]


class Local:
    prefix = "local"

    def __init__(self, *jobs: Job) -> None:
        self.found = jobs

    def jobs(self) -> tuple[Job, ...]:
        return self.found

    def job_of_pid(self, pid: int) -> Job:
        return self.found[0]

    def job_named(self, name: str) -> Job:
        for job in self.found:
            if job.name == name:
                return job
        raise NoSuchTarget(f"no job local:{name}")


def seen(monkeypatch: pytest.MonkeyPatch, *jobs: Job) -> None:
    for module in (hangscope.jobs, selection):
        monkeypatch.setattr(module, "SCHEDULERS", (Local(*jobs),))


def test_bare_hangscope_lists_the_jobs(monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> None:
    seen(monkeypatch, a_job())
    assert main([]) == 0
    out = capsys.readouterr().out
    assert "ranks 0-1,3 of 4, torchrun, user alice, started 14 min ago" in out
    assert "hangscope capture --job local:llama" in out and "rank 2 is missing" in out and "\x1b" not in out
    seen(monkeypatch)
    assert main([]) == 0
    assert "No distributed job" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("selector", "status", "text"),
    [
        ("slurm:1234", 2, "this release takes jobs of one machine only"),
        ("twice", 2, "twice fits 2 jobs"),
        ("1234", 1, "no job 1234 is seen here: known forms: local:NAME"),
        ("local:none", 1, "no job local:none"),
    ],
)
def test_jobs_that_cannot_be_meant(
    selector: str, status: int, text: str, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    seen(monkeypatch, a_job(), a_job("twice"), a_job("twice"))
    assert main(["capture", "--job", selector]) == status
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("selector", ["local:llama", "llama"])
def test_a_job_by_name(selector: str, monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> None:
    seen(monkeypatch, a_job())
    captures = Captures(monkeypatch, captured())
    assert main(["capture", "--job", selector]) == 0
    assert (captures.asked[0].pid, captures.asked[0].job) == (4243, "llama")
    capsys.readouterr()


def test_a_job_without_processes(monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> None:
    seen(monkeypatch, a_job(launcher_pid=None, processes=()))
    assert main(["capture", "--job", "llama"]) == 1
    assert "has no process left" in capsys.readouterr().err


def test_a_pid_that_no_process_has(capsys: Capsys) -> None:
    assert main(["capture", "-p", "4194305"]) == 1
    err = capsys.readouterr().err
    assert "no process 4194305" in err and "Traceback" not in err


def test_the_demo_reports(monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> None:
    result = hangscope.demo.DemoResult(verdict=a_verdict(), blocked_rank=2, saved=None, seconds=9.0)
    monkeypatch.setattr(hangscope.demo, "run", lambda **options: result)
    assert main(["demo"]) == 0
    streams = capsys.readouterr()
    assert "undecided" in streams.out and "blocked rank 2 on purpose" in streams.err
    assert main(["demo", "--torch", "--keep", "-q"]) == 0
    assert capsys.readouterr().err == ""


def test_term_ends_a_capture_like_an_interrupt() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    try:
        capture_command._stop_like_an_interrupt()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGHUP), before, strict=True):
            signal.signal(number, handler)

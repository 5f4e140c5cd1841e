"""A capture from beginning to end, of real ranks; what is concluded is the test's own, to be quick."""

import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest

from hangscope.bundle.reader import read_bundle
from hangscope.capture import launch, session
from hangscope.capture.session import Captured, Request, capture
from hangscope.errors import CaptureFailed, UsageError
from hangscope.model.evidence import Evidence
from hangscope.model.verdict import RootEntry, Verdict
from tests.benchmarks.plain_job import plain_job, thread_states

from .test_followup import a_verdict


class Notes:
    """A progress display that remembers."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def working(self, text: str) -> None:
        self.lines.append(text)

    def note(self, text: str) -> None:
        self.lines.append(text)

    def close(self) -> None:
        """Nothing is open."""

    def has(self, text: str) -> bool:
        return any(text in line for line in self.lines)


@pytest.fixture(scope="module")
def job() -> Iterator[list[int]]:
    with plain_job(2, 3, "session") as pids:
        yield pids


@pytest.fixture
def concluded(monkeypatch: pytest.MonkeyPatch) -> list[Evidence]:
    """Replaces the analysis: every verdict is ``slow``. Returns the evidence that it was given."""
    return judging(monkeypatch, lambda evidence, provisional: a_verdict(kind="slow", provisional=provisional))


def judging(monkeypatch: pytest.MonkeyPatch, judge: Callable[[Evidence, bool], Verdict]) -> list[Evidence]:
    seen: list[Evidence] = []

    def analyze(evidence: Evidence, provisional: bool = False) -> Verdict:
        seen.append(evidence)
        return judge(evidence, provisional)

    monkeypatch.setattr(session, "_analyze", analyze)
    return seen


def a_request(job: list[int], directory: pathlib.Path, **fields: object) -> Request:
    given: dict[str, object] = {
        "pid": job[0],
        "job": "test",
        "pids": tuple(job),
        "interval": 0.05,
        "output": str(directory / "b.tar"),
        **fields,
    }
    return msgspec.convert(given, Request)


def test_the_bundle_is_saved_and_the_verdict_rests_on_it(
    job: list[int], tmp_path: pathlib.Path, concluded: list[Evidence]
) -> None:
    notes = Notes()
    captured = capture(a_request(job, tmp_path), notes)
    assert captured.saved == str(tmp_path / "b.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["b.tar"]
    assert captured.notes == () and not captured.interrupted and captured.verdict is not None
    assert notes.has("found") and notes.has("sample 2 taken")
    again = read_bundle(captured.saved)
    assert again.job == "test"
    assert again.shards[0].cells == concluded[-1].shards[0].cells
    with tarfile.open(captured.saved) as tar:
        manifest = json.load(tar.extractfile("manifest.json"))  # type: ignore[arg-type]
    assert [(row["rank"], row["pid"]) for row in manifest["ranks"]] == list(enumerate(job))
    assert manifest["nodes"][0]["status"] == "ok" and manifest["scheduler"] == "local"


def test_a_provisional_verdict_is_printed_after_the_first_sample(
    job: list[int], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = a_verdict(kind="rank-blocked", initiators=(1,), deciding_fact="it sleeps")
    judging(monkeypatch, lambda evidence, provisional: verdict)
    notes = Notes()
    start = time.monotonic()
    capture(a_request(job, tmp_path, interval=1.0, samples=2, skip=("native",)), notes)
    assert notes.has("provisional, after one sample: rank-blocked, rank 1 [low]: it sleeps")
    assert time.monotonic() - start < 20


def test_further_samples_are_taken_while_they_could_decide(
    job: list[int], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session.followup, "GAPS", (0.1, 0.2, 0.3))

    def judge(evidence: Evidence, provisional: bool) -> Verdict:
        samples = len({cell.sample for cell in evidence.shards[0].cells})
        return a_verdict(kind="slow", samples=samples, more_samples_would_decide=samples < 4)

    judging(monkeypatch, judge)
    captured = capture(a_request(job, tmp_path), Notes())
    assert captured.verdict is not None and captured.verdict.samples == 4


def test_patience_bounds_further_samples(
    job: list[int], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judging(monkeypatch, lambda evidence, provisional: a_verdict(kind="slow", more_samples_would_decide=True))
    captured = capture(a_request(job, tmp_path, patience=3.0), Notes())
    assert captured.evidence is not None
    assert {cell.sample for cell in captured.evidence.shards[0].cells} == {0, 1}


def test_native_stacks_of_the_suspect(
    job: list[int], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = RootEntry(type="rank", rank=1, pid=job[1])
    judging(monkeypatch, lambda evidence, provisional: a_verdict(kind="rank-blocked", roots=(root,)))
    captured = capture(a_request(job, tmp_path), Notes())
    assert captured.evidence is not None
    native = [cell for cell in captured.evidence.shards[0].cells if cell.collector == "native"]
    assert [cell.pid for cell in native] == [job[1]]
    skipped = capture(a_request(job, tmp_path, skip=("native",), output=str(tmp_path / "c.tar")), Notes())
    assert skipped.evidence is not None
    assert not [cell for cell in skipped.evidence.shards[0].cells if cell.collector == "native"]


def test_standard_output_takes_the_bundle(job: list[int], concluded: list[Evidence]) -> None:
    captured = capture(msgspec.structs.replace(a_request(job, pathlib.Path("/")), output="-"), Notes())
    assert captured.saved is None and captured.bundle is not None
    with tarfile.open(fileobj=io.BytesIO(captured.bundle)) as tar:
        assert "manifest.json" in tar.getnames()


def test_an_output_that_exists_is_refused_before_anything_is_captured(
    job: list[int], tmp_path: pathlib.Path, concluded: list[Evidence]
) -> None:
    (tmp_path / "b.tar").write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        capture(a_request(job, tmp_path), Notes())
    assert (tmp_path / "b.tar").read_text() == "mine" and concluded == []


class WithAgent(Notes):
    """Does something to the agent when a line is said."""

    def __init__(self, when: str, act: Callable[[], None]) -> None:
        super().__init__()
        self.when, self.act = when, act

    def note(self, text: str) -> None:
        super().note(text)
        if self.when in text:
            self.act()


def agents() -> list[int]:
    return [pid for pid in launch.children_of(os.getpid()) if b"agent_entry" in cmdline(pid)]


def cmdline(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def kill_agent() -> None:
    for pid in agents():
        os.kill(pid, signal.SIGKILL)


def test_an_agent_that_is_killed_is_a_finding_and_what_it_sent_is_used(
    job: list[int], tmp_path: pathlib.Path, concluded: list[Evidence]
) -> None:
    captured = capture(a_request(job, tmp_path, interval=5.0), WithAgent("sample 1 taken", kill_agent))
    assert captured.verdict is not None and captured.saved is not None
    assert "ended by SIGKILL" in captured.notes[0] and "out-of-memory" in captured.notes[0]
    assert any(note.endswith(captured.notes[0]) for note in concluded[-1].notes)
    saved = read_bundle(captured.saved)
    assert not saved.shards[0].sealed
    assert {cell.pid for cell in saved.shards[0].cells if cell.collector == "stacks"} == set(job)


def stop_agent() -> None:
    for pid in agents():
        os.kill(pid, signal.SIGSTOP)


def test_an_agent_that_is_blocked_does_not_outlive_the_deadline(
    job: list[int], tmp_path: pathlib.Path, concluded: list[Evidence], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped agent stands for one that the kernel does not let go on."""
    monkeypatch.setattr(session, "GRACE", 0.5)
    monkeypatch.setattr(launch, "GRACE", 0.5)
    start = time.monotonic()
    captured = capture(
        a_request(job, tmp_path, interval=60.0, deadline=3.0), WithAgent("sample 1 taken", stop_agent)
    )
    assert time.monotonic() - start < 15
    assert "did not end in time and was killed" in captured.notes[0] and "state T" in captured.notes[0]
    assert captured.verdict is not None and agents() == []


def test_an_interrupt_saves_what_was_gathered_and_leaves_no_child(
    job: list[int], tmp_path: pathlib.Path, concluded: list[Evidence]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    captured = capture(a_request(job, tmp_path, interval=60.0), WithAgent("sample 1 taken", interrupt))
    assert captured.interrupted and captured.verdict is None and captured.saved is not None
    shard = read_bundle(captured.saved).shards[0]
    assert shard.sealed and {cell.sample for cell in shard.cells} == {0}
    assert agents() == []
    assert not set(thread_states(job).values()) & {"T", "t"}


def test_a_second_interrupt_ends_the_agent_at_once(
    job: list[int], tmp_path: pathlib.Path, concluded: list[Evidence], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(launch.AgentProcess, "_signal", interrupt)
    captured = capture(a_request(job, tmp_path, interval=60.0), WithAgent("sample 1 taken", interrupt))
    assert captured.interrupted and captured.saved is not None and agents() == []
    assert read_bundle(captured.saved).shards[0].cells


def test_an_interrupt_of_the_analysis_leaves_the_bundle(
    job: list[int], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge(evidence: Evidence, provisional: bool) -> Verdict:
        if provisional:
            return a_verdict(kind="slow")
        raise KeyboardInterrupt

    judging(monkeypatch, judge)
    captured = capture(a_request(job, tmp_path), Notes())
    assert captured.interrupted and captured.saved is not None and captured.verdict is None


def test_a_fault_in_the_analysis_loses_no_evidence(
    job: list[int], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(evidence: Evidence, provisional: bool) -> Verdict:
        raise ZeroDivisionError("a fault of ours")

    judging(monkeypatch, fault)
    with pytest.raises(ZeroDivisionError):
        capture(a_request(job, tmp_path), Notes())
    assert read_bundle(str(tmp_path / "b.tar")).shards[0].cells and agents() == []


def test_when_nothing_was_captured_the_reason_is_told(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, job: list[int]
) -> None:
    monkeypatch.setattr(
        launch, "agent_command", lambda arguments: [sys.executable, "-c", "raise SystemExit('no')"]
    )
    with pytest.raises(CaptureFailed, match="nothing was captured") as caught:
        capture(a_request(job, tmp_path), Notes())
    assert "failed with status 1: no" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_does_not_end_the_capture(
    job: list[int], tmp_path: pathlib.Path, concluded: list[Evidence], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = tmp_path / "full"
    full.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(full)], capture_output=True)
    if done.returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        monkeypatch.setattr(session.destination, "LEAST_FREE", 0)
        monkeypatch.setattr(session.os, "environ", {"TMPDIR": str(tmp_path)})
        monkeypatch.chdir(full)
        notes = Notes()
        captured = capture(a_request(job, tmp_path, output=None), notes)
        assert notes.has(f"{full}: No space left on device; moving on")
        assert captured.saved is not None and captured.saved.startswith(f"{tmp_path}/hangscope-test-")
        assert read_bundle(captured.saved).shards[0].sealed and list(full.iterdir()) == []
    finally:
        monkeypatch.undo()
        subprocess.run(["umount", str(full)], check=True)


def test_the_deadline_shrinks_to_what_the_watchdog_leaves(
    job: list[int], tmp_path: pathlib.Path, concluded: list[Evidence], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        session.followup, "watchdog_seconds", lambda evidence, now: (12.0, "the watchdog of x")
    )
    notes = Notes()
    start = time.monotonic()
    captured: list[Captured] = []
    thread = threading.Thread(
        target=lambda: captured.append(capture(a_request(job, tmp_path, interval=1.0), notes))
    )
    thread.start()
    thread.join(30)
    assert notes.has("the watchdog of x leaves 12 s: the capture ends after")
    assert captured and time.monotonic() - start < 20


def test_arguments_of_the_agent(job: list[int], tmp_path: pathlib.Path) -> None:
    request = a_request(job, tmp_path, only=("threads", "stacks"), skip=("native",), only_this_process=True)
    arguments = request.agent_arguments()
    assert arguments[arguments.index("--only") + 1] == "threads,stacks"
    assert arguments[arguments.index("--skip") + 1] == "native"
    assert "--only-this-process" in arguments

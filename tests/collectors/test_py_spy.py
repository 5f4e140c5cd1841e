import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hangscope.collectors import py_spy, py_spy_answer
from hangscope.collectors.interface import ABSENT, DENIED, ERROR, OK, TIMEOUT

from . import victims
from .stack_victims import REAL_PY_SPY, SLEEPER_AND_SPINNER, program, traced

FRAME = {
    "name": "f",
    "filename": "/a.py",
    "module": None,
    "short_filename": "a.py",
    "line": 3,
    "locals": None,
    "is_entry": False,
    "is_shim_entry": True,
}
THREAD = {
    "pid": 1,
    "thread_id": 140,
    "thread_name": None,
    "os_thread_id": None,
    "active": True,
    "owns_gil": False,
    "frames": [FRAME],
    "process_info": None,
}


def test_an_answer_is_kept_record_by_record() -> None:
    assert py_spy_answer.parse(json.dumps([THREAD]).encode()) == (THREAD,)
    extra = {**THREAD, "new": 1, "frames": [{**FRAME, "new": 1}]}
    assert py_spy_answer.parse(json.dumps([extra]).encode()) == (THREAD,)


@pytest.mark.parametrize(
    "value",
    [{}, [1], [{}], [{**THREAD, "os_thread_id": "7"}], [{**THREAD, "frames": [{**FRAME, "line": True}]}],
     [{**THREAD, "frames": [{**FRAME, "name": 1}]}], [{**THREAD, "frames": 3}]],
)  # fmt: skip
def test_anything_else_is_no_answer(value: Any) -> None:
    assert py_spy_answer.parse(json.dumps(value).encode()) is None


@pytest.mark.parametrize("data", [b"", b"[", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_no_answer(data: bytes) -> None:
    assert py_spy_answer.parse(data) is None


def test_a_stack_that_repeats_is_read_once_and_its_frames_are_shared() -> None:
    other = {**FRAME, "name": 'g\n    "frames": [\n', "filename": "/\udcff.py\n    ]"}
    rows = [{**THREAD, "thread_id": number, "frames": frames} for number, frames in enumerate(
        [[FRAME, other], [FRAME, other], [], [{**other, "locals": [{"name": "x", "more": []}]}, FRAME]]
    )]  # fmt: skip
    known = py_spy_answer.Known()
    answer = json.dumps(rows, indent=2).encode()
    first, second = (py_spy_answer.parse(answer, known) for _ in range(2))
    assert first == second == tuple(rows) == py_spy_answer.parse(json.dumps(rows).encode())
    assert first is not None and second is not None
    assert len(known.stacks) == 1 and len(known.frames) == 2
    assert first[0]["frames"] is not second[0]["frames"]
    assert all(
        first[0]["frames"][0] is row["frames"][place] for row, place in ((second[1], 0), (first[3], 1))
    )


def test_the_text_of_stacks_is_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(py_spy_answer, "TEXT_KEPT", 10)
    known = py_spy_answer.Known()
    assert py_spy_answer.parse(json.dumps([THREAD], indent=2).encode(), known) == (THREAD,)
    assert known.stacks == {} and known.text_kept == 0


@pytest.mark.parametrize("broken", [b"    ]", b'        "line": 3,', b"      }"])
def test_an_answer_with_a_line_lost_is_no_answer(broken: bytes) -> None:
    answer = json.dumps([THREAD, THREAD], indent=2).encode()
    assert py_spy_answer.parse(answer.replace(broken, b"", 1)) is None


@pytest.mark.parametrize(
    ("text", "status", "meaning", "final"),
    [
        ("Permission Denied: Try running again with elevated permissions", DENIED, "CAP_SYS_PTRACE", True),
        ("Error: x\n\nCaused by:\n    Permission denied (os error 13)", DENIED, "refuses to show", True),
        (
            "Error: y\n    0: Failed to suspend process\n    1: EPERM: Operation",
            ERROR,
            "traces it already",
            True,
        ),
        ("Error: Operation not permitted (os error 1)", DENIED, "ptrace is refused", True),
        ("0: Failed to suspend process\n1: unexpected waitpid result", ERROR, "was stopped", True),
        ("Error: Failed to find python version from target process", ABSENT, "not a Python process", True),
        ("Error: Failed to find a python interpreter in the .data section", ERROR, "no interpreter", False),
        ("Error: No such process (os error 3)", ERROR, "ended while it was read", False),
        ("Error: odd\n\nCaused by:\n    0: less odd", ERROR, "py-spy: Error: odd (0: less odd)", False),
        ("", ERROR, "no message", False),
    ],
)
def test_complaints_become_a_status_and_the_next_step(
    text: str, status: str, meaning: str, final: bool
) -> None:
    found = py_spy.explain(text, os.getpid())
    assert (found[0], found[2]) == (status, final)
    assert meaning in found[1]


def test_the_state_of_the_process_explains_more_than_the_complaint() -> None:
    zombie = subprocess.Popen(["true"])
    victims.wait_until(lambda: victims.state(zombie.pid) == "Z")
    text = "Error: Failed to get process executable name. Check that the process is running."
    assert "zombie" in py_spy.explain(text, zombie.pid)[1]
    zombie.wait()
    assert py_spy.explain(text, zombie.pid) == (ABSENT, "the process has ended", True)
    if os.path.exists("/proc/2/stat") and not os.path.exists("/proc/2/exe"):
        assert "kernel thread" in py_spy.explain(text, 2)[1]


def test_the_real_program_is_found_and_answers() -> None:
    with victims.victim(SLEEPER_AND_SPINNER) as pid:
        for arguments in ({}, {"blocking": True}, {"with_locals": True}):
            answer = py_spy.dump(REAL_PY_SPY, pid, 10.0, **arguments)
            assert answer.status == OK, answer.reason
            assert len(answer.threads) == 2
        with traced(pid):
            answer = py_spy.dump(REAL_PY_SPY, pid, 10.0, blocking=True)
            assert (answer.status, answer.final) == (ERROR, True)
            assert "detach" in str(answer.reason)


def test_the_program_is_the_given_one_or_one_of_the_known_places(tmp_path: Path, monkeypatch: Any) -> None:
    given = program(tmp_path / "mine", "exit 0\n")
    assert py_spy.find(given) == given
    fallback = py_spy.find(str(tmp_path / "not-there"))
    assert fallback is not None
    monkeypatch.setattr(py_spy.sys, "executable", str(tmp_path / "python"))
    assert py_spy.find() is not None
    from importlib import metadata

    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", missing)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert py_spy.find() is None
    path = program(tmp_path / "py-spy", "exit 0\n")
    assert py_spy.find() == path


def test_other_ends_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.getpid()
    assert py_spy.dump(str(tmp_path / "none"), own, 1.0).status == ABSENT
    assert py_spy.dump(program(tmp_path / "slow", "exec sleep 60\n"), own, 0.2).status == TIMEOUT
    assert py_spy.dump(program(tmp_path / "odd", "echo hello\n"), own, 5.0).status == ERROR
    monkeypatch.setattr(py_spy, "CAP", 100)
    answer = py_spy.dump(program(tmp_path / "much", "yes | head -c 100000\n"), own, 5.0)
    assert (answer.status, answer.final) == (ERROR, True)

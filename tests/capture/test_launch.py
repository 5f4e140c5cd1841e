"""The agent as a process: heard to its last word, and ended whatever state it is in."""

import os
import pathlib
import signal
import sys
import time
from typing import Any

import pytest

from hangscope.capture import launch, outcome
from hangscope.capture.launch import AgentProcess, agent_command, children_of, state_of

Started = tuple[AgentProcess, list[bytes], list[dict[str, Any]]]


def start(monkeypatch: pytest.MonkeyPatch, code: str) -> Started:
    """An agent process that runs ``code`` instead of the agent."""
    monkeypatch.setattr(launch, "agent_command", lambda arguments: [sys.executable, "-c", code])
    data: list[bytes] = []
    events: list[dict[str, Any]] = []
    return AgentProcess([], data.append, events.append), data, events


def listen(agent: AgentProcess, until: Any, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not until() and time.monotonic() < end:
        agent.pump(0.2)
    assert until()


def gone(pid: int, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        line = launch.procfs.stat_fields(pid)
        if line is None or line.state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_the_command_is_a_bare_interpreter() -> None:
    command = agent_command(["--pid", "1"])
    assert command[1:4] == ["-I", "-S", "-B"]
    assert command[5:7] == ["--pid", "1"]
    assert os.access(command[command.index("--py-spy") + 1], os.X_OK)
    assert pathlib.Path(command[command.index("--pynvml") + 1]).name == "pynvml.py"


def test_data_and_events_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
import os, sys
os.write(1, b"shard"); os.write(2, b'{"event": "ready"}\\nnot json\\n[1]\\n{"event":')
os.write(2, b' "end"}\\n')
assert sys.stdin.readline() == "end\\n"
"""
    agent, data, events = start(monkeypatch, code)
    listen(agent, lambda: len(events) == 2)
    agent.finish(time.monotonic() + 5)
    assert b"".join(data) == b"shard"
    assert [event["event"] for event in events] == ["ready", "end"]
    assert agent.other_output == ["not json"]
    assert agent.process.returncode == 0
    assert outcome.agent_problem(agent, None, None, False) is None


def test_all_is_heard_of_an_agent_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, data, _ = start(monkeypatch, "import os; os.write(1, b'x' * 300000)")
    while agent.pump(0.2):
        pass
    assert sum(map(len, data)) == 300_000
    agent.end()


def test_a_child_that_holds_the_pipes_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a reader in uninterruptible sleep would."""
    code = "import os, subprocess; subprocess.Popen(['sleep', '30']); os.write(1, b'shard')"
    agent, data, _ = start(monkeypatch, code)
    begin = time.monotonic()
    while agent.pump(0.2):
        pass
    agent.end()
    assert time.monotonic() - begin < 10.0
    assert b"".join(data) == b"shard"
    for entry in filter(str.isdigit, os.listdir("/proc")):
        line = launch.procfs.stat_fields(int(entry))
        if line is not None and line.session == agent.process.pid and line.state != "Z":
            os.kill(line.pid, signal.SIGKILL)


def test_term_first(monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
import os, signal, time
def seal(*_):
    os.write(1, b"seal"); os._exit(130)
signal.signal(signal.SIGTERM, seal)
os.write(2, b'{"event": "ready"}\\n')
time.sleep(60)
"""
    agent, data, events = start(monkeypatch, code)
    listen(agent, lambda: events)
    agent.end()
    assert data == [b"seal"] and agent.process.returncode == 130 and not agent.killed


def test_one_that_does_not_listen_is_killed_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
quiet = subprocess.DEVNULL
child = subprocess.Popen(["sleep", "60"], start_new_session=True, stdout=quiet, stderr=quiet)
os.write(2, b'{"event": "ready", "child": %d}\\n' % child.pid)
time.sleep(60)
"""
    monkeypatch.setattr(launch, "GRACE", 0.2)
    agent, _, events = start(monkeypatch, code)
    listen(agent, lambda: events)
    child = events[0]["child"]
    assert children_of(agent.process.pid) == [child]
    agent.end()
    assert agent.killed and agent.process.returncode == -signal.SIGKILL
    assert gone(child)
    problem = outcome.agent_problem(agent, None, "/job", False) or ""
    assert "did not end in time" in problem and "state S" in problem and "memory cgroup /job" in problem


def test_one_that_something_else_killed_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, _, events = start(monkeypatch, "import os, time; os.write(2, b'{}\\n'); time.sleep(60)")
    listen(agent, lambda: events)
    agent.process.kill()
    while agent.pump(0.2):
        pass
    agent.end()
    problem = outcome.agent_problem(agent, None, "/job", False) or ""
    assert "ended by SIGKILL" in problem and "out-of-memory killer" in problem and "/job" in problem


def test_one_that_failed_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, _, _ = start(monkeypatch, "raise SystemExit('no such thing')")
    while agent.pump(0.2):
        pass
    agent.end()
    assert outcome.agent_problem(agent, None, None, False) == "the agent failed with status 1: no such thing"
    assert outcome.agent_problem(agent, "told: why", None, False) == "told: why"
    assert outcome.agent_problem(agent, None, None, True) is None


def test_sending_to_one_that_is_gone_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, _, _ = start(monkeypatch, "pass")
    agent.process.wait()
    agent.send("sample 4")
    agent.end()
    assert state_of(2**22 + 1) is None


def test_the_memory_cgroup_of_a_process_is_known() -> None:
    path = outcome.memory_cgroup(os.getpid())
    assert path is None or path.startswith("/")

import os
import signal
from pathlib import Path

import pytest

from hangscope.collectors import native, program_counter, stacks
from hangscope.collectors.interface import ABSENT, DENIED, ERROR, OK, PARTIAL, TIMEOUT

from . import victims
from .stack_victims import SLEEPER_AND_SPINNER, TracedPySpy, body, context, functions, program, tasks


def wanted(pid: int, **kwargs: object) -> "native.Context":
    options = {"native_pids": [pid], "pystack": kwargs.pop("pystack", None)}
    return context(pid, options=options, **kwargs)


@pytest.fixture(autouse=True)
def no_pystack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether pystack is installed here must not decide a test."""
    monkeypatch.setattr(native, "find_pystack", lambda given=None: given)


def test_native_frames_by_py_spy() -> None:
    with victims.victim(SLEEPER_AND_SPINNER) as pid:
        ctx = wanted(pid)
        result = native.COLLECTOR.collect(ctx, ctx.targets[0])
        assert result.status == OK, result.reason
        found = body(result, "native.json")
        assert (found["mode"], found["tries"]) == ("native", 1)
        assert found["pause_ns"] > 0
        frames = [frame for stack in ctx.intern.stacks for frame in stack]
        assert any(frame["module"] is not None for frame in frames)
        assert "sleeper" in functions(ctx, result, "native.json")["sleeper"]
        assert {"T", "t"}.isdisjoint(found["after"].values())


def test_only_on_request_only_for_the_living_and_never_where_it_could_hang(tmp_path: Path) -> None:
    spy = TracedPySpy(tmp_path)
    with victims.blocked_in_kernel(tmp_path) as pid:
        ctx = wanted(pid, py_spy=spy.path)
        result = native.COLLECTOR.collect(ctx, ctx.targets[0])
        assert result.status == ABSENT
        assert "is in state D" in str(result.reason)
        other = context(pid)
        assert native.COLLECTOR.collect(other, other.targets[0]).reason == "native stacks were not asked for"
    assert native.COLLECTOR.collect(ctx, ctx.targets[0]).status == ABSENT
    assert spy.calls() == []


@pytest.mark.parametrize(
    ("script", "status", "reason", "artifact"),
    [
        ("echo Traceback for thread 1; exit 0", OK, None, True),
        ("echo half; exec sleep 60", TIMEOUT, "killed after", True),
        ("echo 'Operation not permitted' >&2; exit 1", DENIED, "CAP_SYS_PTRACE", False),
        ("echo broken >&2; exit 1", ERROR, "broken", False),
    ],
)
def test_pystack_where_it_is_installed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    status: str,
    reason: str | None,
    artifact: bool,
) -> None:
    monkeypatch.setattr(native, "TIMEOUT_S", 0.5)
    path = program(tmp_path / "pystack", script + "\n")
    with victims.victim(SLEEPER_AND_SPINNER) as pid:
        ctx = wanted(pid, pystack=path)
        result = native.COLLECTOR.collect(ctx, ctx.targets[0])
    assert result.status == status
    assert reason is None or reason in str(result.reason)
    assert [name for name, _ in result.artifacts] == (["native.txt"] if artifact else [])


def test_a_process_that_pystack_left_stopped_goes_on(tmp_path: Path) -> None:
    with victims.victim(SLEEPER_AND_SPINNER) as pid:
        path = program(tmp_path / "pystack", f"kill -STOP {pid}; echo done\n")
        ctx = wanted(pid, pystack=path)
        result = native.COLLECTOR.collect(ctx, ctx.targets[0])
        assert result.status == PARTIAL
        assert "SIGCONT" in str(result.reason)
        victims.wait_until(lambda: all(victims.state(pid, tid) != "T" for tid in tasks(pid)))


def test_py_spy_is_never_followed_by_a_signal(tmp_path: Path) -> None:
    with victims.victim(SLEEPER_AND_SPINNER) as pid:
        path = program(tmp_path / "stops", f"kill -STOP {pid}; sleep 0.2; echo odd >&2; exit 1\n")
        ctx = wanted(pid, py_spy=path)
        result = native.COLLECTOR.collect(ctx, ctx.targets[0])
        assert result.status == ERROR
        assert "stopped since the dump" in str(result.reason)
        assert victims.state(pid) == "T"
        os.kill(pid, signal.SIGCONT)


def test_without_any_tool_the_cell_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangscope.collectors.py_spy.find", lambda given=None: None)
    with victims.victim(SLEEPER_AND_SPINNER) as pid:
        ctx = wanted(pid)
        assert native.COLLECTOR.collect(ctx, ctx.targets[0]).status == ABSENT


def test_pystack_is_looked_for_beside_python_and_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    path = program(tmp_path / "pystack", "exit 0\n")
    assert native.find_pystack(path) == path
    monkeypatch.setattr(native.sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert native.find_pystack() == path


def test_the_program_counter_of_a_thread_in_state_d(tmp_path: Path) -> None:
    with victims.blocked_in_kernel(tmp_path) as pid:
        blocked = [tid for tid in tasks(pid) if victims.state(pid, tid) == "D"]
        ctx = context(pid)
        found = program_counter.of_blocked(pid, [*blocked, 4_000_000], ctx)
        assert list(found) == [str(tid) for tid in blocked]
        module, _, offset = found[str(blocked[0])].partition("+0x")
        assert ".so" in module or "libc" in module
        assert int(offset.split()[0], 16) > 0


NO_PYTHON = """
echo "Permission Denied: no" >&2
exit 1
"""


def test_where_nothing_can_attach_the_counters_take_the_place_of_the_stacks(tmp_path: Path) -> None:
    refused = program(tmp_path / "refused", NO_PYTHON)
    with victims.blocked_in_kernel(tmp_path) as pid:
        ctx = context(pid, py_spy=refused)
        result = stacks.COLLECTOR.collect(ctx, ctx.targets[0])
    assert result.status == DENIED
    found = body(result)
    assert found["threads"] == []
    assert len(found["program_counters"]) == 1


def test_exported_symbols_are_named_only_where_they_cover_the_place() -> None:
    with victims.victim("import time; print('ready', flush=True); time.sleep(600)") as pid:
        victims.wait_until(lambda: victims.state(pid) == "S")
        counter = program_counter.read_counter(pid, pid)
        assert counter is not None
        maps = program_counter.parse_maps(Path(f"/proc/{pid}/maps").read_text())
        where = program_counter.locate(counter, maps)
        assert where is not None
        descriptor = os.open(where[0], os.O_RDONLY)
        try:
            assert "nanosleep" in str(program_counter.exported_symbol(descriptor, where[1]))
            assert program_counter.exported_symbol(descriptor, 1) is None
        finally:
            os.close(descriptor)
        assert "nanosleep" in program_counter.of_blocked(pid, [pid], context(pid))[str(pid)]


@pytest.mark.parametrize(
    "data", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 100, b"\x7fELF\x02\x01" + bytes(100)]
)
def test_a_broken_module_has_no_symbols(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "module.so"
    path.write_bytes(data)
    assert program_counter._symbol(str(path), 16) is None
    assert program_counter._symbol(str(tmp_path), 16) is None
    assert program_counter._symbol(str(tmp_path / "none"), 16) is None


@pytest.mark.parametrize("line", ["running", "", "202 0x1 zz", "-1 0x7ff 0x10"])
def test_program_counters_of_odd_lines(tmp_path: Path, line: str) -> None:
    place = tmp_path / "7" / "task" / "7"
    place.mkdir(parents=True)
    (place / "syscall").write_text(line)
    expected = 16 if line.startswith("-1") else None
    assert program_counter.read_counter(7, 7, str(tmp_path)) == expected
    assert program_counter.locate(16, program_counter.parse_maps("00-08 r 0 0 0 /x\n10-20 r 0 0 0\n")) is None

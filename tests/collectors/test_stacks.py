import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hangscope.collectors import attach, guarded, procfs, stack_read, stacks
from hangscope.collectors.interface import ABSENT, DENIED, ERROR, OK, PARTIAL, TIMEOUT, Context, Target

from . import victims
from .stack_victims import (
    REAL_PY_SPY,
    SLEEPER_AND_SPINNER,
    TracedPySpy,
    body,
    context,
    functions,
    locked_memory_map,
    program,
    tasks,
    traced,
)

PYENV = Path("~/.pyenv/versions").expanduser()
VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")


def stopped_tasks(pid: int) -> list[int]:
    return [tid for tid in tasks(pid) if victims.state(pid, tid) in ("T", "t")]


def test_a_quiet_process_is_read_without_being_stopped(tmp_path: Path) -> None:
    spy = TracedPySpy(tmp_path)
    with victims.victim(SLEEPER_AND_SPINNER) as pid:
        victims.wait_until(lambda: all(victims.state(pid, tid) == "S" for tid in tasks(pid)))
        ctx = context(pid, py_spy=spy.path)
        before = time.monotonic()
        result = stacks.COLLECTOR.collect(ctx, ctx.targets[0])
        assert (result.status, result.reason) == (OK, None)
        found = body(result)
        assert (found["mode"], found["tries"], found["pause_ns"]) == ("nonblocking", 1, None)
        began, ended = found["dumped"]
        assert before <= began < ended <= time.monotonic()
        assert functions(ctx, result)["sleeper"][0] == "sleeper"
        assert functions(ctx, result)["MainThread"][-1] == "<module>"
        assert set(found["after"]) == {str(tid) for tid in tasks(pid)}
        main = next(thread for thread in found["threads"] if thread["thread_name"] == "MainThread")
        assert main["os_thread_id"] == pid
        assert any(owner == pid and file.endswith("threading.py") for owner, file, _ in ctx.shared["frames"])
        assert ctx.shared[stacks.GIL_OWNERS] == {ctx.targets[0][:2]: [None]}
    assert spy.blocking_calls() == []


def test_a_busy_thread_tears_only_itself_and_is_fetched_by_a_short_stop(tmp_path: Path) -> None:
    spy = TracedPySpy(tmp_path)
    with victims.victim(SLEEPER_AND_SPINNER, "spin") as pid:
        ctx = context(pid, py_spy=spy.path)
        result = stacks.COLLECTOR.collect(ctx, ctx.targets[0])
        found = body(result)
        assert result.status == OK, result.reason
        assert found["mode"] == "blocking"
        assert 0 < found["pause_ns"] < 3e9
        assert "spinner" in functions(ctx, result)["spinner"]
        assert functions(ctx, result)["sleeper"][0] == "sleeper"
        assert stopped_tasks(pid) == []
        assert len(spy.blocking_calls()) == 1
        spinner = next(t["os_thread_id"] for t in found["threads"] if t["thread_name"] == "spinner")
        assert ctx.shared[stacks.GIL_OWNERS][ctx.targets[0][:2]] in ([spinner], [None])

        outsider = Target(pid, 0, "launcher")
        ctx = context(pid, py_spy=spy.path)
        result = stacks.dump_all(ctx, [outsider])[pid]
        torn = {thread["thread_name"]: thread["torn"] for thread in body(result)["threads"]}
        assert torn["sleeper"] is False
        assert torn["spinner"] is True
        assert result.status == PARTIAL
        assert "ran while" in str(result.reason)
        assert len(spy.blocking_calls()) == 1


@pytest.mark.parametrize("busy", [False, True])
def test_with_a_thread_in_state_d_nothing_is_ever_stopped(tmp_path: Path, busy: bool) -> None:
    spy = TracedPySpy(tmp_path)
    with victims.blocked_in_kernel(tmp_path) as pid:
        ctx = context(pid, py_spy=spy.path)
        start = time.monotonic()
        result = stacks.COLLECTOR.collect(ctx, ctx.targets[0])
        assert time.monotonic() - start < 2.0
        assert result.status == OK, result.reason
        assert any("offload" in names for names in functions(ctx, result).values())
        assert "D" in body(result)["after"].values()
        assert stopped_tasks(pid) == []
        if busy:  # as a reading that found the thread running: still never
            read = stack_read.StackRead(ctx, ctx.targets[0], spy.path)
            assert read.stop_and_ask() is None
            assert "is in state D" in read.notes[-1]
    assert spy.calls() != []
    assert spy.blocking_calls() == []


def test_a_stopped_process_is_read_and_left_stopped(tmp_path: Path) -> None:
    spy = TracedPySpy(tmp_path)
    with victims.victim(SLEEPER_AND_SPINNER) as pid:
        os.kill(pid, signal.SIGSTOP)
        victims.wait_until(lambda: all(victims.state(pid, tid) == "T" for tid in tasks(pid)))
        ctx = context(pid, py_spy=spy.path)
        result = stacks.COLLECTOR.collect(ctx, ctx.targets[0])
        assert result.status == OK, result.reason
        assert "sleeper" in functions(ctx, result)
        assert set(body(result)["after"].values()) == {"T"}
        assert "is in state T" in str(attach.refusal(pid))
    assert spy.blocking_calls() == []


def test_a_traced_process_is_read_but_never_stopped(tmp_path: Path) -> None:
    spy = TracedPySpy(tmp_path)
    with victims.victim(SLEEPER_AND_SPINNER, "spin") as pid, traced(pid) as tracer:
        ctx = context(pid, py_spy=spy.path)
        result = stacks.COLLECTOR.collect(ctx, ctx.targets[0])
        assert "sleeper" in functions(ctx, result)
        assert f"is traced by process {tracer}" in str(result.reason)
    assert spy.blocking_calls() == []


@victims.needs_root
def test_a_locked_memory_map_costs_one_second_and_no_py_spy(tmp_path: Path) -> None:
    spy = TracedPySpy(tmp_path)
    with locked_memory_map(tmp_path) as stuck, victims.victim(SLEEPER_AND_SPINNER) as healthy:
        ctx = context(stuck, healthy, py_spy=spy.path)
        start = time.monotonic()
        results = stacks.dump_all(ctx, ctx.targets)
        assert time.monotonic() - start < 5.0
        assert results[stuck].status == TIMEOUT
        assert "memory map is locked" in str(results[stuck].reason)
        assert results[healthy].status == OK
        assert all(str(healthy) in call for call in spy.calls())


def test_a_py_spy_that_hangs_holds_up_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_read, "NONBLOCKING_TIMEOUT", 0.7)
    with victims.victim(SLEEPER_AND_SPINNER) as stuck, victims.victim(SLEEPER_AND_SPINNER) as healthy:
        real = TracedPySpy(tmp_path).path
        path = program(
            tmp_path / "hangs", f'case "$*" in *"--pid {stuck}"*) exec sleep 60;; esac\nexec "{real}" "$@"\n'
        )
        ctx = context(stuck, healthy, py_spy=path)
        results = stacks.dump_all(ctx, ctx.targets)
        assert results[stuck].status == TIMEOUT
        assert "killed after" in str(results[stuck].reason)
        assert results[healthy].status == OK
    assert guarded.running == []


def test_twenty_dumps_cut_off_at_random_leave_no_thread_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = random.Random(7)
    with victims.victim(SLEEPER_AND_SPINNER, "spin") as pid:
        for _ in range(20):
            monkeypatch.setattr(stack_read, "BLOCKING_TIMEOUT", generator.uniform(0.002, 0.03))
            monkeypatch.setattr(stack_read, "TRIES", 1)
            ctx = context(pid)
            stacks.COLLECTOR.collect(ctx, ctx.targets[0])
            assert stopped_tasks(pid) == []


def test_what_is_not_a_live_python_process_is_absent_with_the_reason() -> None:
    child = subprocess.Popen(["sleep", "60"])
    zombie = subprocess.Popen(["true"])
    try:
        victims.wait_until(lambda: victims.state(zombie.pid) == "Z")
        victims.wait_until(lambda: (procfs.read_text(f"/proc/{child.pid}/comm")[0] or "").startswith("sleep"))
        ctx = context(child.pid, zombie.pid)
        results = stacks.dump_all(ctx, [*ctx.targets, Target(4_000_000, 1, "rank"), Target(1, 12345, "rank")])
        assert {result.status for result in results.values()} == {ABSENT}
        assert "not a Python process" in str(results[child.pid].reason)
        assert "zombie" in str(results[zombie.pid].reason)
        assert "has ended" in str(results[4_000_000].reason)
        assert "belongs to another" in str(results[1].reason)
        assert all(result.artifacts == () for result in results.values())
    finally:
        child.kill()
        child.wait()
        zombie.wait()


def test_a_dead_leader_with_a_living_thread_is_read_through_that_thread(tmp_path: Path) -> None:
    with victims.exited_leader(tmp_path / "held") as pid:
        ctx = context(pid)
        result = stacks.COLLECTOR.collect(ctx, ctx.targets[0])
        found = body(result)
        assert found["mode"] == "dead-leader"
        assert found["after"][str(pid)] == "Z"
        assert any("stay" in names for names in functions(ctx, result).values())
        assert result.status == PARTIAL
        assert "main thread has ended" in str(result.reason)


def test_a_process_that_exits_in_the_middle_is_absent(tmp_path: Path) -> None:
    with victims.victim(SLEEPER_AND_SPINNER) as pid:
        path = program(
            tmp_path / "kills", f"kill -9 {pid}\necho 'Error: No such process (os error 3)' >&2\nexit 1\n"
        )
        ctx = context(pid, py_spy=path)
        reaper = threading.Timer(0.0, os.waitpid, (pid, 0))
        reaper.start()
        result = stacks.COLLECTOR.collect(ctx, ctx.targets[0])
        assert result.status == ABSENT
        assert "has ended" in str(result.reason)
        reaper.join()


REFUSED = """
echo "Permission Denied: Try running again with elevated permissions by going 'sudo env !!'" >&2
exit 1
"""


def test_no_ptrace_emulation_by_a_py_spy_that_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    path = program(tmp_path / "refused", f'echo "$@" >> "{log}"\n{REFUSED}')
    with victims.victim(SLEEPER_AND_SPINNER) as pid:
        ctx = context(pid, py_spy=path)
        result = stacks.COLLECTOR.collect(ctx, ctx.targets[0])
    assert result.status == DENIED
    assert "CAP_SYS_PTRACE" in str(result.reason)
    assert len(log.read_text().splitlines()) == 1


@victims.needs_root
def test_another_users_process_is_denied(tmp_path: Path) -> None:
    if not os.access("/usr/bin/setpriv", os.X_OK):
        pytest.skip("needs setpriv")
    copy = tmp_path / "copied"
    copy.write_bytes(Path(REAL_PY_SPY).read_bytes())
    copy.chmod(0o755)
    for folder in [tmp_path, *tmp_path.parents][:3]:
        folder.chmod(folder.stat().st_mode | 0o011)
    user = str(victims.NOBODY)
    as_nobody = f'exec setpriv --reuid {user} --regid {user} --clear-groups "{copy}" "$@"\n'
    path = program(tmp_path / "as-nobody", as_nobody)
    with victims.victim(SLEEPER_AND_SPINNER) as pid:
        ctx = context(pid, py_spy=path)
        result = stacks.COLLECTOR.collect(ctx, ctx.targets[0])
    assert result.status == DENIED
    assert "run hangscope as the job's user or as root" in str(result.reason)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_python_from_3_8_on_is_read_with_its_thread_ids(version: str) -> None:
    python = next(iter(sorted(PYENV.glob(f"{version}.*/bin/python"))), None)
    if python is None:
        pytest.skip(f"no Python {version} here")
    process = subprocess.Popen([python, "-c", SLEEPER_AND_SPINNER], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        ctx = context(process.pid)
        result = stacks.COLLECTOR.collect(ctx, ctx.targets[0])
        assert result.status == OK, result.reason
        assert functions(ctx, result)["sleeper"][0] == "sleeper"
        ids = {thread["thread_name"]: thread["os_thread_id"] for thread in body(result)["threads"]}
        assert ids["MainThread"] == process.pid
        assert ids["sleeper"] in tasks(process.pid)
        assert ids["sleeper"] != process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@victims.needs_root
def test_thread_ids_of_an_inner_pid_namespace_are_translated() -> None:
    if not os.access("/usr/bin/unshare", os.X_OK):
        pytest.skip("needs unshare")
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", SLEEPER_AND_SPINNER]
    outer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert outer.stdout is not None
    try:
        if not outer.stdout.readline():
            pytest.skip("no pid namespace can be made here")
        pid = int((procfs.read_text(f"/proc/{outer.pid}/task/{outer.pid}/children")[0] or "0").split()[0])
        ctx = context(pid)
        result = stacks.COLLECTOR.collect(ctx, ctx.targets[0])
        assert result.status == OK, result.reason
        assert {thread["os_thread_id"] for thread in body(result)["threads"]} == set(tasks(pid))
        os.kill(pid, signal.SIGKILL)
    finally:
        outer.kill()
        outer.wait()
        outer.stdout.close()


P2P = """
import threading
def send(tensor, dst=None, group=None, tag=0, group_dst=None):
    secret = "hunter2"
    print("ready", flush=True)
    threading.Event().wait(600)
send([1], dst=2, tag=7)
"""


def test_of_point_to_point_code_only_the_integers_of_the_peer_are_kept(tmp_path: Path) -> None:
    place = tmp_path / "torch" / "distributed" / "distributed_c10d.py"
    place.parent.mkdir(parents=True)
    place.write_text(P2P)
    code = "import sys; exec(compile(open(sys.argv[1]).read(), sys.argv[1], 'exec'))"
    with victims.victim(code, str(place)) as pid:
        ctx = context(pid)
        result = stacks.COLLECTOR.collect(ctx, ctx.targets[0])
        assert body(result)["locals"] is True
        frames = [frame for stack in ctx.intern.stacks for frame in stack]
        send = next(frame for frame in frames if frame["name"] == "send")
        assert {record["name"]: record["repr"] for record in send["locals"]} == {"dst": "2", "tag": "7"}
        assert [frame["name"] for frame in frames if frame["locals"]] == ["send"]
        assert "hunter2" not in repr(frames)


def test_a_blocking_dump_that_fails_is_tried_again_and_its_pause_is_told(tmp_path: Path) -> None:
    spy = TracedPySpy(tmp_path)
    path = program(
        tmp_path / "odd",
        f'echo "$@" >> "{tmp_path}/calls"\n'
        f'case "$*" in *--nonblocking*) exec "{spy.path}" "$@";; esac\necho "Error: odd" >&2\nexit 1\n',
    )
    with victims.victim(SLEEPER_AND_SPINNER, "spin") as pid:
        ctx = context(pid, py_spy=path)
        result = stacks.COLLECTOR.collect(ctx, ctx.targets[0])
    assert result.status == PARTIAL
    assert "ran while" in str(result.reason)
    assert "the last try failed: py-spy: Error: odd" in str(result.reason)
    assert body(result)["pause_ns"] > 0
    assert body(result)["mode"] == "nonblocking"
    assert len((tmp_path / "calls").read_text().splitlines()) == 6


def test_a_dump_that_always_fails_ends_with_its_reason(tmp_path: Path) -> None:
    path = program(tmp_path / "odd", "echo 'Error: odd' >&2\nexit 1\n")
    with victims.victim(SLEEPER_AND_SPINNER) as pid:
        ctx = context(pid, py_spy=path)
        result = stacks.COLLECTOR.collect(ctx, ctx.targets[0])
    assert result.status == ERROR
    assert str(result.reason).startswith("py-spy: Error: odd")
    assert body(result)["threads"] == []
    assert body(result)["tries"] == 6


def test_without_py_spy_or_time_the_cell_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with victims.victim(SLEEPER_AND_SPINNER) as pid:
        late = context(pid, deadline=time.monotonic())
        assert stacks.COLLECTOR.collect(late, late.targets[0]).status == TIMEOUT
        monkeypatch.setattr("hangscope.collectors.py_spy.find", lambda given=None: None)
        ctx = context(pid)
        result = stacks.COLLECTOR.dump_all(ctx, ctx.targets)[pid]
        assert result.status == ABSENT
        assert "install py-spy" in str(result.reason)


def test_an_interruption_ends_the_dumps_that_run(tmp_path: Path) -> None:
    path = program(tmp_path / "hangs", "exec sleep 60\n")
    alarm = threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGUSR1))

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with victims.victim(SLEEPER_AND_SPINNER) as one, victims.victim(SLEEPER_AND_SPINNER) as two:
            ctx = context(one, two, py_spy=path)
            alarm.start()
            start = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                stacks.dump_all(ctx, ctx.targets)
            assert time.monotonic() - start < 2.0
            assert guarded.running == []
    finally:
        alarm.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_stack_known_by_its_frames_keeps_them() -> None:
    """The identity of a frame that is gone may be another's: it must not stand for another stack."""
    ctx = Context([], intern=Interned())
    for number in range(200):
        assert stacks._interned(ctx, [{"name": f"f{number}", "locals": None}]) == number
    same = [{"name": "same", "locals": None}]
    assert stacks._interned(ctx, same) == stacks._interned(ctx, list(same)) == 200


class Interned:
    """A table that counts what it is asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def stack(self, frames: object) -> int:
        self.asked += 1
        return self.asked - 1

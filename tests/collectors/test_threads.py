"""Every thread, in every state that a process can be in without help from the network."""

import json
import os
import signal

import pytest

from hangscope.collectors import guarded, procfs, threads

from .victims import (
    NAME_THREAD,
    become_nobody,
    blocked_in_kernel,
    context,
    exited_leader,
    needs_root,
    settle,
    state,
    target,
    victim,
    wait_until,
)

WAITERS = (
    NAME_THREAD
    + """
import os, select, threading, time
lock = threading.Lock(); lock.acquire()
read_end, write_end = os.pipe()
def run(name, wait):
    def body():
        name_thread(name)
        wait()
    threading.Thread(target=body, daemon=True).start()
run("t-futex", lock.acquire)
run("t-poll", lambda: select.poll().poll(60000))
run("t-pipe", lambda: os.read(read_end, 1))
run("t-sleep", lambda: time.sleep(60))
time.sleep(0.1)
print("ready")
time.sleep(60)
"""
)


def take(pid: int, ctx=None):
    """(result, rows by comm, what the other collectors get by comm)."""
    ctx = ctx or context(pid)
    result = threads.COLLECTOR.collect(ctx, ctx.targets[0])
    rows = json.loads(result.artifacts[0][1])["threads"] if result.artifacts else []
    briefs = ctx.shared.get("threads", {}).get(pid, [])
    return result, {row["comm"]: row for row in rows}, {entry["comm"]: entry for entry in briefs}


def test_names_waits_and_counters_of_each_thread():
    with victim(WAITERS) as pid:
        settle(pid, 5)
        result, rows, briefs = take(pid)
    assert {"t-futex", "t-poll", "t-pipe", "t-sleep"} < set(rows) and len(rows) == 5
    assert "futex" in rows["t-futex"]["wchan"]
    assert "pipe" in rows["t-pipe"]["wchan"]
    assert briefs["t-futex"]["state"] == "S" and briefs["t-futex"]["tracer"] == 0
    assert briefs["t-pipe"]["syscall"] == 0 or os.uname().machine != "x86_64"
    for row in rows.values():
        assert row["status"].startswith("Name:\t" + row["comm"])
        assert procfs.parse_stat(row["stat"]).pid == row["tid"]
        assert len(row["schedstat"].split()) == 3
    for brief in briefs.values():
        assert brief["voluntary"] >= 1 and brief["utime"] >= 0 and brief["involuntary"] >= 0
    assert result.status == ("ok" if os.geteuid() == 0 else "partial")


def test_a_thread_blocked_in_the_kernel(tmp_path):
    with blocked_in_kernel(tmp_path) as pid:
        _, rows, briefs = take(pid)
    assert briefs["ds-offload"]["state"] == "D"
    if os.geteuid() == 0:
        assert rows["ds-offload"]["wchan"] == "kernel_clone" or "fork" in rows["ds-offload"]["stack"]
        assert "kernel_clone" in rows["ds-offload"]["stack"] or "fork" in rows["ds-offload"]["stack"]


def test_a_stopped_process():
    with victim("print('ready')\nimport time; time.sleep(60)") as pid:
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: state(pid) == "T")
        _, _, briefs = take(pid)
        assert {brief["state"] for brief in briefs.values()} == {"T"}
        assert state(pid) == "T"


def test_a_zombie():
    with victim("print('ready')\nimport sys; sys.stdin.read(1)") as pid:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: state(pid) == "Z")
        result, rows, briefs = take(pid)
    (row,) = rows.values()
    assert next(iter(briefs.values()))["state"] == "Z"
    assert procfs.parse_stat(row["stat"]).exit_code in (0, 9)
    assert result.artifacts


def test_a_leader_that_has_exited(tmp_path):
    with exited_leader(tmp_path / "held") as pid:
        ctx = context(pid)
        threads.COLLECTOR.collect(ctx, ctx.targets[0])
    assert sorted(entry["state"] for entry in ctx.shared["threads"][pid]) == ["S", "Z"]


def test_a_spinning_thread_is_read_to_the_end():
    with victim("print('ready')\nwhile True: pass") as pid:
        _, _, briefs = take(pid)
    (brief,) = briefs.values()
    assert brief["state"] == "R" and brief["syscall"] is None and brief["wchan"] == "0"


def test_threads_that_come_and_go():
    code = (
        "import threading, time\nprint('ready')\n"
        "while True:\n    t = [threading.Thread(target=time.sleep, args=(0.001,)) for _ in range(8)]\n"
        "    [x.start() for x in t]; [x.join() for x in t]"
    )
    with victim(code) as pid:
        for _ in range(30):
            result, rows, _ = take(pid)
            assert all(row["stat"] for row in rows.values())
            assert result.status == "ok" or os.geteuid() != 0, result.reason


def test_counters_that_do_not_belong_together_are_read_again(monkeypatch, tmp_path):
    """Emulated: the thread is switched between the first file and the last, once."""
    task = tmp_path / "7" / "task" / "7"
    task.mkdir(parents=True)
    for name in (*threads.COUNTERS, *threads.PLACE, "comm"):
        (task / name).write_text("1 2 3")
    readings = []
    plain = procfs.read_whole

    def read(path):
        if path.endswith("status"):
            readings.append(path)
            return f"voluntary_ctxt_switches:\t{min(len(readings), 2)}\n", None
        return plain(path)

    monkeypatch.setattr(procfs, "read_whole", read)
    row = threads.read_task(7, 7, str(tmp_path))
    assert len(readings) == 4
    assert row["status"].endswith("2\n")


def test_a_process_that_ends_meanwhile(monkeypatch):
    plain = threads.read_task
    with victim(WAITERS) as pid:
        ctx, seen = context(pid), []

        def read(*arguments):
            row = plain(*arguments)
            seen.append(row)
            if len(seen) == 2:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            return row

        monkeypatch.setattr(threads, "read_task", read)
        result = threads.COLLECTOR.collect(ctx, ctx.targets[0])
    assert (result.status, result.reason) == ("partial", "the process has ended")
    assert len(json.loads(result.artifacts[0][1])["threads"]) == 2


def test_a_process_that_is_not_there_or_another():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    ctx = context(os.getpid())
    gone = threads.COLLECTOR.collect(ctx, target(pid)._replace(start_ticks=3))
    assert (gone.status, gone.reason, gone.artifacts) == ("absent", "the process has ended", ())
    other = threads.COLLECTOR.collect(ctx, ctx.targets[0]._replace(start_ticks=3))
    assert other.status == "absent" and "another" in other.reason


def test_what_does_not_fit_is_said(monkeypatch):
    monkeypatch.setattr(threads, "MOST", 2)
    with victim(WAITERS) as pid:
        result, rows, _ = take(pid)
    assert result.status == "partial" and "3 threads were not read in time" in result.reason
    assert len(rows) == 2


def test_a_task_directory_that_refuses(monkeypatch):
    monkeypatch.setattr(procfs, "tasks", lambda *_: [])
    monkeypatch.setattr(procfs, "list_names", lambda *_: ([], "EACCES"))
    result, _, _ = take(os.getpid())
    assert (result.status, result.reason) == ("denied", f"/proc/{os.getpid()}/task: EACCES")


def collect_as_nobody(pid: int):
    become_nobody()
    result, rows, briefs = take(pid)
    return [result.status, result.reason, list(rows.values()), list(briefs.values())]


@needs_root
def test_another_users_process_shows_no_place():
    with victim("print('ready')\nimport time; time.sleep(60)") as pid:
        settle(pid, 1)
        outcome = guarded.call(collect_as_nobody, pid, timeout=10)
    assert outcome.status == "ok", outcome.reason
    status, reason, (row,), (brief,) = outcome.value
    assert status == "partial"
    for name in ("stack", "syscall", "wchan"):
        assert f"{name}: " in reason and row[name] is None and row["errors"][name] in ("EACCES", "EPERM")
    assert brief["wchan"] is None and brief["syscall"] is None
    assert brief["state"] == "S" and brief["voluntary"] >= 1


@pytest.mark.parametrize("word", ["", "x", "12a"])
def test_numbers_that_are_none(word):
    assert threads._number(word) is None

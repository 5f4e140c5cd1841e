"""One process as a whole: files, positions, locks, children, command line, and what is refused."""

import fcntl
import json
import os
import signal
import time

import pytest

from hangscope.collectors import cgroups, guarded, locks, process, procfs

from .victims import (
    become_nobody,
    blocked_in_kernel,
    context,
    exited_leader,
    needs_root,
    state,
    target,
    victim,
    wait_until,
)

IDLE = "print('ready')\nimport sys; sys.stdin.read()"


def take(pid: int, ctx=None):
    ctx = ctx or context(pid, salt=b"salt")
    result = process.COLLECTOR.collect(ctx, ctx.targets[0])
    return result, json.loads(result.artifacts[0][1]) if result.artifacts else None


def test_files_positions_and_flags(tmp_path):
    path = tmp_path / "log"
    code = (
        "import os, sys\nf = os.open(sys.argv[1], os.O_WRONLY|os.O_CREAT|os.O_APPEND)\nos.write(f, b'x'*42)\n"
        + IDLE
    )
    with victim(code, str(path), cwd=tmp_path) as pid:
        result, row = take(pid)
        assert (row["cwd"], row["exe"]) == (str(tmp_path), os.path.realpath(f"/proc/{pid}/exe"))
    (entry,) = [entry for entry in row["fds"] if entry["target"] == str(path)]
    assert entry["pos"] == 42 and entry["flags"] & os.O_APPEND and "lock" not in entry
    assert [entry["fd"] for entry in row["fds"]][:3] == [0, 1, 2]
    assert result.status == "ok", result.reason
    assert row["errors"] == {} and row["via"] is None and row["mapped_gpu"] == []
    assert row["cmdline"][-1] == str(path) and row["cmdline"][1] == "-u"
    assert row["ns"]["pid"] == os.readlink("/proc/self/ns/pid")
    assert row["cgroup"].strip() and "Max open files" in row["limits"] and "rchar" in row["io"]
    assert int(row["oom_score_adj"]) == int(open("/proc/self/oom_score_adj").read())
    assert procfs.parse_stat(row["stat"]).pid == row["pid"] == pid


def test_secrets_of_the_command_line_are_masked():
    with victim(IDLE, "--api-key", "sk-abcdefghijklmnopqrstuvwx", "--lr", "0.1") as pid:
        _, row = take(pid)
    assert "sk-abcdefghijklmnopqrstuvwx" not in json.dumps(row)
    assert row["cmdline"][-2:] == ["--lr", "0.1"] and len(row["cmdline"]) == 8


def test_a_lock_holder_and_one_who_waits(tmp_path):
    path = tmp_path / "lock"
    holder = "import fcntl, sys\nf = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX)\n" + IDLE
    waiter = "import fcntl, sys\nf = open(sys.argv[1], 'w'); print('ready'); fcntl.flock(f, fcntl.LOCK_EX)"
    with victim(holder, str(path)) as pid, victim(waiter, str(path)) as other:
        wait_until(lambda: "-> FLOCK" in locks_now())
        _, row = take(pid)
        text = locks_now()
        inode = path.stat().st_ino
    (entry,) = [entry for entry in row["fds"] if entry["target"] == str(path)]
    assert "FLOCK" in entry["lock"] and f":{inode} " in entry["lock"]
    mine = [line for line in text.splitlines() if f":{inode} " in line]
    assert [str(pid) in mine[0].split(), "->" in mine[1], str(other) in mine[1].split()] == [True, True, True]
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def locks_now() -> str:
    result = locks.COLLECTOR.collect(context(), None)
    assert result.status == "ok" and result.artifacts[0][0] == "locks.json"
    return json.loads(result.artifacts[0][1])["locks"]


def test_locks_that_cannot_be_read_or_are_too_many(tmp_path, monkeypatch):
    assert locks.COLLECTOR.collect(context(proc=str(tmp_path)), None)[:2] == ("error", "/proc/locks: ENOENT")
    (tmp_path / "locks").write_text("1: FLOCK\n2: POSIX\n3: OFD\n")
    monkeypatch.setattr(locks, "CAP", 22)
    result = locks.COLLECTOR.collect(context(proc=str(tmp_path)), None)
    assert result.status == "partial"
    assert json.loads(result.artifacts[0][1])["locks"] == "1: FLOCK\n2: POSIX\n"


def test_children_of_any_thread():
    code = """
import subprocess, sys, threading
def start():
    children.append(subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"]))  # ends with us
children = []
thread = threading.Thread(target=start)
thread.start(); thread.join(); start()
print("ready")
sys.stdin.read()
"""
    with victim(code) as pid:
        found = process.children(pid, "/proc")
        assert len(found) == 2
        assert all(procfs.stat_fields(child).ppid == pid for child in found)


def test_children_where_the_kernel_does_not_list_them(tmp_path):
    for pid, parent in ((7, 1), (8, 7), (9, 7), (10, 8)):
        task = tmp_path / str(pid) / "task" / str(pid)
        task.mkdir(parents=True)
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (x) S {parent} " + "0 " * 48)
    assert process.children(7, str(tmp_path)) == [8, 9]


def test_a_leader_that_has_exited_shows_its_files_through_a_live_thread(tmp_path):
    path = tmp_path / "held"
    with exited_leader(path) as pid:
        result, row = take(pid)
        tids = procfs.tasks(pid)
    assert row["via"] == tids[1] and procfs.parse_stat(row["stat"]).state == "Z"
    (entry,) = [entry for entry in row["fds"] if entry["target"] == str(path)]
    assert entry["pos"] == 7
    assert row["cwd"] and row["cmdline"] and "Max open files" in row["limits"]
    assert result.status == "ok", result.reason


def test_a_zombie_has_an_exit_status_and_no_files():
    with victim(IDLE) as pid:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: state(pid) == "Z")
        result, row = take(pid)
    assert row["fds"] == [] and row["cmdline"] is None and row["via"] is None
    assert procfs.parse_stat(row["stat"]).exit_code in ((9,) if os.geteuid() == 0 else (0, 9))
    assert result.artifacts


def test_a_process_blocked_in_the_kernel_is_read_whole(tmp_path):
    with blocked_in_kernel(tmp_path) as pid:
        start = time.monotonic()
        result, row = take(pid)
    assert result.status == "ok", result.reason
    assert row["children"] and row["cmdline"] and time.monotonic() - start < 3


def test_emulated_stuck_mmap_lock_costs_only_the_command_line(monkeypatch):
    """A reader that never comes back stands for /proc/PID/cmdline behind a held mmap_lock."""
    monkeypatch.setattr(process, "WAIT", 0.2)
    monkeypatch.setattr(process, "_behind_lock", lambda *_: time.sleep(60))
    with victim(IDLE) as pid:
        result, row = take(pid)
    assert (result.status, result.reason) == ("partial", "timeout: cmdline")
    assert row["cmdline"] is None and row["errors"] == {"cmdline": "timeout"} and len(row["fds"]) == 3


def test_emulated_gpu_process(monkeypatch, tmp_path):
    """Device files of a GPU are opened and mapped; its driver is not asked through fdinfo."""
    place = tmp_path / "7"
    for name in ("fd", "fdinfo"):
        (place / name).mkdir(parents=True)
    for fd, path in enumerate(("/dev/null", "/dev/nvidia3", "/dev/dri/renderD128", "/dmabuf:x")):
        (place / "fd" / str(fd)).symlink_to(path)
        (place / "fdinfo" / str(fd)).write_text("pos:\t0\nflags:\t02\nlock:\t1: x\nlock:\t2: y\n")
    (place / "fd" / "self").symlink_to("/x")
    (place / "cmdline").write_bytes(b"python\0-m\0train\0")
    (place / "maps").write_text(
        "7f00-7f01 rw-s 0000 00:05 12 /dev/nvidia3\n7f01-7f02 r-xp 0 fe:00 3 /lib/libc.so\n"
        "7f03-7f04 rw-p 0 0:0 0\n"
        "7f04-7f05 rw-s 0000 00:05 12 /dev/nvidia3\n7f06-7f07 rw-s 0000 00:05 13 /dev/nvidiactl\n"
    )
    (place / "stat").write_text("7 (python) S 1 " + "0 " * 48)
    result, row = take(7, _context_of(tmp_path))
    assert row["fds"] == [
        {"fd": 0, "target": "/dev/null", "pos": 0, "flags": 2, "lock": "1: x\n2: y"},
        {"fd": 1, "target": "/dev/nvidia3"},
        {"fd": 2, "target": "/dev/dri/renderD128"},
        {"fd": 3, "target": "/dmabuf:x"},
    ]
    assert row["mapped_gpu"] == ["/dev/nvidia3", "/dev/nvidiactl"]
    assert row["cmdline"] == ["python", "-m", "train"]
    assert result.status == "ok" and row["errors"]["statm"] == "ENOENT"


def _context_of(proc):
    ctx = context(proc=str(proc))
    ctx.targets.append(target(os.getpid())._replace(pid=7, start_ticks=0))
    return ctx


def test_too_many_files_are_cut(monkeypatch):
    monkeypatch.setattr(process, "MOST_FILES", 2)
    with victim(IDLE) as pid:
        result, row = take(pid)
    assert (result.status, result.reason) == ("partial", "1 of 3 open files were not read")
    assert len(row["fds"]) == 2


def test_a_process_that_ends_meanwhile(monkeypatch):
    plain = process.open_files
    with victim(IDLE) as pid:

        def end_then_read(*arguments):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return plain(*arguments)

        monkeypatch.setattr(process, "open_files", end_then_read)
        ctx = context(pid)
        result, row = take(pid, ctx)
        again = process.COLLECTOR.collect(ctx, ctx.targets[0])
    assert (result.status, result.reason) == ("partial", "the process has ended")
    assert row["limits"] and row["fds"] == []
    assert (again.status, again.reason) == ("absent", "the process has ended")


def collect_as_nobody(pid: int):
    become_nobody()
    result, row = take(pid)
    return [result.status, result.reason, row]


@needs_root
def test_another_users_process():
    with victim(IDLE) as pid:
        outcome = guarded.call(collect_as_nobody, pid, timeout=10)
    assert outcome.status == "ok", outcome.reason
    status, reason, row = outcome.value
    assert (status, reason) == ("partial", "EACCES: io, exe, cwd, ns, fds")
    assert row["fds"] == [] and row["exe"] is None and row["status"] and row["cgroup"] and row["cmdline"]


def test_what_needs_the_lock_is_read_by_name():
    place = f"/proc/{os.getpid()}"
    answers = list(process._behind_lock(place, True))
    assert [(name, error) for name, _, error in answers] == [("cmdline", None), ("mapped_gpu", None)]
    assert "pytest" in " ".join(answers[0][1])
    assert list(process._behind_lock("/proc/0", False)) == [("cmdline", None, "ENOENT")]


@pytest.mark.parametrize("text", ["", "pos:\tx\nflags:\t9\n", "pos 3"])
def test_fdinfo_that_says_nothing(text):
    assert process.position(text) == {}


@pytest.mark.realjob
@needs_root
def test_a_frozen_process():
    found = [mount for mount in cgroups.hierarchies() if "freezer" in mount.controllers]
    if not found:
        pytest.skip("no v1 freezer hierarchy is mounted")
    directory = f"{found[0].point}/hangscope-test-{os.getpid()}"
    os.mkdir(directory)
    try:
        with victim(IDLE) as pid:
            write(f"{directory}/cgroup.procs", str(pid))
            assert take(pid)[1]["freezer"] == "THAWED"
            write(f"{directory}/freezer.state", "FROZEN")
            try:
                wait_until(lambda: "FROZEN" in open(f"{directory}/freezer.state").read())
                result, row = take(pid)
            finally:
                write(f"{directory}/freezer.state", "THAWED")
        assert row["freezer"] == "FROZEN" and row["cmdline"] and result.status == "ok"
    finally:
        wait_until(lambda: not open(f"{directory}/cgroup.procs").read())
        os.rmdir(directory)


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)

"""The plain readers, on live processes and on what /proc might say."""

import os
import socket
import time

import pytest

from hangscope.collectors import procfs

from .victims import NAME_THREAD, exited_leader, victim

STAT = (
    "4242 ({comm}) S 17 18 19 0 -1 4194304 100 0 0 0 11 12 0 0 20 0 5 0 98765 3133440 414 "
    + "0 " * 27
    + "9\n"
)


@pytest.mark.parametrize(
    "comm", ["python3", "a) R 1 (b", "with space", "(((", ")", "", "line\nbreak", "\u00e9"]
)
def test_stat_lines_with_any_name(comm):
    line = procfs.parse_stat(STAT.format(comm=comm))
    assert line == procfs.StatLine(4242, comm, "S", 17, 18, 19, 11, 12, 5, 98765, 9)


@pytest.mark.parametrize(
    "text", ["", "4242", "4242 (x", "x (y) S 1", ") 4242 (", STAT.format(comm="x")[:40], "z" + STAT]
)
def test_what_is_no_stat_line(text):
    assert procfs.parse_stat(text) is None


def test_a_live_process():
    pid = os.getpid()
    line = procfs.stat_fields(pid)
    assert (line.pid, line.ppid, line.pgrp) == (pid, os.getppid(), os.getpgrp())
    assert pid in procfs.list_pids() and pid in procfs.tasks(pid)
    assert procfs.start_ticks(pid) == line.start_ticks
    assert procfs.owner(pid) == os.getuid()
    assert procfs.nspid(pid)[0] == pid
    assert procfs.namespace(pid, "pid") == os.readlink("/proc/self/ns/pid")
    assert procfs.identity_problem(pid, line.start_ticks) is None
    started = procfs.boot_time() + line.start_ticks / os.sysconf("SC_CLK_TCK")
    assert time.time() - 3600 * 24 < started < time.time() + 5


def test_a_thread_has_its_own_line():
    code = """
import threading, time
def run():
    name_thread("odd ) name (")
    print("ready")
    time.sleep(60)
threading.Thread(target=run).start()
"""
    with victim(NAME_THREAD + code) as pid:
        leader, tid = procfs.tasks(pid)
        assert leader == pid
        assert procfs.stat_fields(pid, tid=tid).comm == "odd ) name ("


def test_an_exited_leader_keeps_its_tasks(tmp_path):
    with exited_leader(tmp_path / "held") as pid:
        assert procfs.stat_fields(pid).state == "Z"
        assert len(procfs.tasks(pid)) == 2


def test_a_process_that_is_gone():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert procfs.stat_fields(pid) is None and procfs.start_ticks(pid) is None
    assert procfs.tasks(pid) == [] and procfs.nspid(pid) == () and procfs.owner(pid) is None
    assert procfs.namespace(pid, "net") is None
    assert procfs.read_text(f"/proc/{pid}/stat") == (None, "ENOENT")
    assert procfs.identity_problem(pid, 5) == ("absent", "the process has ended")


def test_a_pid_that_belongs_to_another_process_now():
    status, reason = procfs.identity_problem(os.getpid(), 1)
    assert status == "absent" and "belongs to another" in reason
    assert procfs.identity_problem(os.getpid(), 0) is None


def test_a_stat_file_that_says_nothing(tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("nonsense")
    assert procfs.identity_problem(7, 0, str(tmp_path)) == ("denied", "/proc/7/stat: not in the known form")
    assert procfs.boot_time(str(tmp_path)) is None


def test_caps_bytes_and_special_files(tmp_path):
    big = tmp_path / "big"
    big.write_bytes(b"ab\xff" * 100_000)
    assert procfs.read_text(str(big), 5) == ("ab\ufffdab", None)
    assert len(procfs.read_bytes(str(big))[0]) == 300_000
    os.mkfifo(tmp_path / "fifo")
    assert procfs.read_bytes(str(tmp_path / "fifo")) == (b"", None)
    assert procfs.read_bytes(str(tmp_path)) == (None, "EISDIR")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "socket"))
    assert procfs.read_bytes(str(tmp_path / "socket")) == (None, "ENXIO")
    listener.close()
    assert procfs.read_link(str(big)) == (None, "EINVAL")
    assert procfs.list_names(str(big)) == ([], "ENOTDIR")


def test_mounts_with_odd_names(tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountinfo").write_text(
        "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
        r"40 27 0:50 /a\040b /mnt/x\011y\134z rw shared:7 master:2 - nfs4 host:/e\040f rw,vers=4.2" + "\n"
        "a line that is cut - \n"
    )
    lines = procfs.mountinfo("self", str(tmp_path))
    assert lines[1] == procfs.MountLine("/a b", "/mnt/x\ty\\z", "nfs4", "host:/e f", "rw,vers=4.2")
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("name", "value"), [("Name", "x"), ("Pid", "7"), ("TracerPid", "0"), ("racerPid", None), ("Last", "1 2")]
)
def test_one_field_of_a_status_file(name, value):
    assert procfs.status_field("Name:\tx\nTracerPid:\t0\nPid:\t7\nLast:\t1 2", name) == value


def test_a_file_in_one_read(tmp_path):
    place = f"/proc/{os.getpid()}"
    for name in ("comm", "limits", "cgroup", "wchan"):
        assert procfs.read_whole(f"{place}/{name}") == procfs.read_text(f"{place}/{name}")
    assert procfs.read_whole(str(tmp_path / "none")) == (None, "ENOENT")
    assert procfs.read_whole(str(tmp_path)) == (None, "EISDIR")

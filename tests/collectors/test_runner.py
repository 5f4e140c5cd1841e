"""External commands: how they end, what of their output is kept, and that nothing of them is left."""

import errno
import os
import signal
import sys
import time

import pytest

from hangscope.collectors import guarded, procfs, runner


def shell(script: str, timeout: float = 10.0, **kwargs) -> runner.Completed:
    return runner.run(["/bin/sh", "-c", script], timeout, **kwargs)


def ends(pid: int) -> bool:
    """Whether a process is gone, or a zombie of somebody else's, within two seconds."""
    for _ in range(200):
        line = procfs.stat_fields(pid)
        if line is None or line.state in "ZX":
            return True
        time.sleep(0.01)
    return False


def test_output_and_exit_status():
    done = shell("echo out; echo err >&2")
    assert (done.status, done.returncode, done.stdout, done.stderr) == ("ok", 0, b"out\n", b"err\n")
    assert not done.truncated and guarded.running == []


def test_a_failure_names_its_first_line():
    done = shell("echo 'no such driver' >&2; echo more >&2; exit 9")
    assert (done.status, done.returncode) == ("failed", 9)
    assert done.complaint() == "exit 9: no such driver"
    assert shell("exit 1").complaint() == "exit 1: no message"


def test_a_signal_is_a_negative_return_code():
    assert shell("kill -SEGV $$").returncode == -signal.SIGSEGV


def test_a_program_that_does_not_exist():
    done = runner.run(["no-such-program-here"], 5)
    assert (done.status, done.returncode) == ("missing", None)
    assert done.complaint() == "no-such-program-here: not found"


def test_a_file_that_is_no_program(tmp_path):
    (tmp_path / "tool").write_text("data")
    done = runner.run([str(tmp_path / "tool")], 5)
    assert (done.status, done.complaint()) == ("missing", f"{tmp_path}/tool: Permission denied")


def test_where_there_is_no_shell(monkeypatch):
    monkeypatch.setattr(runner, "SHELL", "/nonexistent/sh")
    assert runner.run(["echo", "hello"], 5).stdout == b"hello\n"
    done = runner.run(["no-such-program-here"], 5)
    assert (done.status, done.complaint()) == ("missing", "no-such-program-here: No such file or directory")


def test_what_the_program_itself_says_is_not_taken_for_the_shells():
    done = shell("echo 'hangscope: something' >&2; exit 127")
    assert (done.status, done.returncode) == ("failed", 127)


def test_both_pipes_are_drained_together():
    script = "import sys\nfor _ in range(64): sys.stdout.write('o'*65536); sys.stderr.write('e'*65536)"
    done = runner.run([sys.executable, "-c", script], 20)
    assert done.status == "ok"
    assert len(done.stdout) == 64 << 16 and not done.truncated
    assert done.stderr == b"e" * (1 << 16)


@pytest.mark.parametrize("cap", [1, 1000, 100_000])
def test_of_too_much_output_the_tail_is_kept(cap):
    done = shell("seq 100000", cap=cap)
    assert done.truncated and len(done.stdout) == cap
    assert done.stdout.endswith(b"100000\n"[-cap:])


def test_a_late_command_is_terminated_and_its_output_kept():
    done = shell("echo first; sleep 60", timeout=0.3)
    assert (done.status, done.returncode, done.stdout) == ("timeout", -signal.SIGTERM, b"first\n")
    assert done.complaint().startswith("killed after 0.")


def test_a_command_that_ignores_term_is_killed():
    done = shell("trap '' TERM; echo set; while :; do sleep 1; done", timeout=0.3, grace=0.2)
    assert (done.status, done.returncode) == ("timeout", -signal.SIGKILL)


def test_the_whole_process_group_ends():
    done = shell("sleep 60 & echo $!; wait", timeout=0.3)
    assert done.status == "timeout"
    assert ends(int(done.stdout))


def test_a_grandchild_that_keeps_the_pipe_does_not_hold_the_result():
    done = shell("sleep 60 & echo $!", timeout=20)
    assert done.status == "ok" and done.seconds < 5
    assert ends(int(done.stdout))


def test_closed_pipes_are_not_the_end():
    done = shell("exec >&- 2>&-; sleep 0.3; exit 4")
    assert (done.status, done.returncode) == ("failed", 4)
    late = shell("exec >&- 2>&-; sleep 60", timeout=0.3)
    assert late.status == "timeout" and late.seconds < 5


def test_environment_group_input_and_files():
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    try:
        done = shell(
            "echo $COLOUR; cat; ls -l /proc/self/fd; cut -d' ' -f5 /proc/self/stat", env={"COLOUR": "red"}
        )
        held = os.readlink(f"/proc/self/fd/{write_end}")
    finally:
        os.close(read_end)
        os.close(write_end)
    lines = done.stdout.decode().splitlines()
    assert lines[0] == "red"
    assert held not in done.stdout.decode()
    assert int(lines[-1]) != os.getpgrp()


def test_emulated_program_on_a_dead_mount(monkeypatch):
    """An exec that never returns: the deadline holds all the same."""
    monkeypatch.setattr(runner, "LOAD", "sleep 60")
    done = runner.run(["/dead/mount/tool"], 0.3)
    assert done.status == "timeout" and done.seconds < 3


def test_emulated_unkillable_command_is_listed_and_left(monkeypatch):
    monkeypatch.setattr(os, "kill", lambda *_: None)
    monkeypatch.setattr(os, "killpg", lambda *_: None)
    done = runner.run(["sleep", "60"], 0.1, grace=0.05)
    monkeypatch.undo()
    pid = guarded.abandoned.pop()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert (done.status, done.returncode) == ("abandoned", None)
    assert done.complaint().endswith("and it cannot be killed")
    assert guarded.running == [] and guarded.abandoned == []


def test_an_interrupt_ends_the_command(monkeypatch):
    started = []

    def interrupt(pid, *_):
        started.append(pid)
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "_drain", interrupt)
    with pytest.raises(KeyboardInterrupt):
        runner.run(["sleep", "60"], 30)
    assert ends(started[0]) and guarded.running == []


def test_no_process_left_to_start_one(monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "posix_spawnp", refuse)
    done = runner.run(["true"], 1)
    assert done.status == "missing" and done.complaint() == "true: Resource temporarily unavailable"
    assert len(os.listdir("/proc/self/fd")) == before

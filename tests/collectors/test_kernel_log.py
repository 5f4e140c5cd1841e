"""The kernel's log: how it is read, and whose names stay in it."""

import os
from pathlib import Path

import pytest

from hangscope.collectors.interface import Context, Target
from hangscope.collectors.kernel_log import CAP, KernelLog, Strangers, _read_kmsg, kmsg_line, newest

LINES = """\
[   10.000001] Memory cgroup out of memory: Killed process 1 (secretsim) total-vm:9kB, UID:1001 pgtables:1kB
[   10.000002] Memory cgroup out of memory: Killed process 2 (python3) total-vm:9kB, UID:1000 pgtables:1kB
[   10.000003] oom-kill:constraint=NONE,task_memcg=/u/secretsim,task=secretsim,pid=1,uid=1001
[   10.000004] [      1]  1001     1     2222      333    4444        0             0 secretsim
[   10.000005] INFO: task secretsim:99999999 blocked for more than 120 seconds.
[   10.000006] CPU: 1 PID: 99999999 Comm: secretsim Not tainted 6.18.0 #1
[   10.000007] secretsim[99999999]: segfault at 0 ip 0 sp 0 error 4
[   10.000008] secretsim invoked oom-killer: gfp_mask=0xcc0
[   10.000009] audit: type=1400 audit(1.2:3): apparmor="DENIED" comm="secretsim"
[   10.000010] python3 invoked oom-killer: gfp_mask=0xcc0
[   10.000011] NVRM: Xid (PCI:0000:53:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[   10.000012] nfs: server 10.0.0.9 not responding, still trying
"""


def test_names_of_other_users_processes_are_masked_and_ours_stay() -> None:
    mask = Strangers({1000, 0}, frozenset({"python3"}))
    shown = [mask.line(line) for line in LINES.splitlines()]
    assert "secretsim" not in "\n".join(shown)
    assert (
        "Killed process 2 (python3)" in shown[1]
        and "Killed process 1 (<other user>) total-vm:9kB" in shown[0]
    )
    assert shown[9:] == LINES.splitlines()[9:]
    assert shown[4] == "[   10.000005] INFO: task <other user>:99999999 blocked for more than 120 seconds."


def test_a_living_process_is_named_by_its_owner() -> None:
    line = f"[    1.000000] INFO: task myname:{os.getpid()} blocked for more than 120 seconds."
    assert Strangers({os.getuid()}, frozenset()).line(line) == line
    assert "myname" not in Strangers({os.getuid() + 1}, frozenset()).line(line)


def test_records_that_are_none_are_left_out() -> None:
    for record in ("", "no semicolon", "6,1;x", "6,1,abc,-;x"):
        assert kmsg_line(record) is None


def test_the_newest_lines_are_kept() -> None:
    assert newest(["aaaa", "bbbb", "cccc"], 10) == ["bbbb", "cccc"]
    assert newest(["x" * (CAP + 1)]) == []


def test_the_log_of_this_machine_or_the_reason_why_not() -> None:
    result = KernelLog().collect(Context([Target(os.getpid(), 1, "rank", uid=os.getuid())]), None)
    assert result.status in ("ok", "denied", "absent"), result
    if result.status == "ok":
        ((name, data),) = result.artifacts
        assert name == "kernel.txt" and len(data) <= 2 * CAP
    else:
        assert "/dev/kmsg" in (result.reason or "")


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("sh", "-c", "echo '[    1.000000] token=abcdefghijklmnop1234'"), "ok"),
        (
            ("sh", "-c", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1"),
            "denied",
        ),
        (("no-such-program",), "absent"),
        (("sh", "-c", "exit 3"), "error"),
        (("sleep", "30"), "timeout"),
    ],
)
def test_dmesg_takes_the_place_of_a_device_that_is_not_there(
    tmp_path: Path, command: tuple[str, ...], status: str
) -> None:
    device = "/nonexistent/kmsg" if status == "absent" else str(tmp_path)
    collector = KernelLog(device, command)
    collector.budget = 1.0
    result = collector.collect(Context([]), None)
    assert result.status == status, result
    if status == "ok":
        assert b"abcdefghijklmnop" not in result.artifacts[0][1]
    else:
        assert result.reason and command[0] in result.reason


def test_a_device_is_read_to_its_end(tmp_path: Path) -> None:
    record = tmp_path / "kmsg"
    assert list(_read_kmsg("/dev/null")) == []
    record.write_text("6,339,5140900,-;Linux version 6.18\n SUBSYSTEM=x\n")
    result = KernelLog(str(record), ("false",)).collect(Context([]), None)
    assert result.artifacts == (("kernel.txt", b"[    5.140900] Linux version 6.18"),)


def test_a_device_without_a_further_record_is_not_waited_for(tmp_path: Path) -> None:
    fifo = tmp_path / "kmsg"
    os.mkfifo(fifo)
    writer = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    try:
        os.write(writer, b"4,340,6000001,-;Out of memory\n")
        assert list(_read_kmsg(str(fifo))) == [["[    6.000001] Out of memory"]]
    finally:
        os.close(writer)


def test_records_overwritten_meanwhile_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([BrokenPipeError(), b"4,1,1,-;after", b""])

    def read(descriptor: int, size: int) -> bytes:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("hangscope.collectors.kernel_log.os.read", read)
    assert list(_read_kmsg("/dev/null")) == [["[    0.000001] after"]]

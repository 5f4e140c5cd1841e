"""Kernel lines in loose files: every clock, every kind of line, and storms of them."""

from __future__ import annotations

import time

import pytest

from hangscope.analyzers.readers import kernel_clock, kernel_hung_task, kernel_oom, kernel_text, pci
from hangscope.analyzers.readers.documents import read_document
from hangscope.analyzers.readers.interface import Document, Line
from hangscope.model.facts import KernelEvent
from hangscope.model.loose import NOBODY, LooseFact, Origin, StackDump
from tests.forms.cases import FIXTURES

XID = "NVRM: Xid (PCI:0000:44:00): 79, pid=4711, name=python3, GPU has fallen off the bus."


def facts(path: str) -> tuple[LooseFact, ...]:
    return read_document(Document(path=path, data=(FIXTURES / path).read_bytes())).facts


def events(path: str) -> list[KernelEvent]:
    return [fact for fact in facts(path) if isinstance(fact, KernelEvent)]


def one(text: str) -> KernelEvent:
    (event,) = (f for f in read_document(Document(path="x", data=text.encode())).facts)
    assert isinstance(event, KernelEvent)
    return event


@pytest.mark.parametrize(
    ("before", "seconds", "wall", "node"),
    [
        ("", None, None, ""),
        ("[ 1843.308145] ", 1843.308145, None, ""),
        ("[  +0.000316] ", None, None, ""),
        ("[Aug30 11:43] ", None, None, ""),
        ("[Fri Aug 30 11:43:09 2024] ", None, 1725018189.0, ""),
        ("[Fri Aug 99 11:43:09 2024] ", None, None, ""),
        ("2024-08-30T11:43:09,250000+00:00 ", None, 1725018189.25, ""),
        ("<3>[ 10.5] ", 10.5, None, ""),
        ("kern  :err   : [ 10.5] ", 10.5, None, ""),
        ("[    7.5][ T1234] ", 7.5, None, ""),
        ("kernel: ", None, None, ""),
        ("Aug 30 11:43:09 node-a kernel: ", None, None, "node-a"),
        ("Aug 30 11:43:09 node-a kernel: [14282.651831] ", 14282.651831, None, "node-a"),
        ("2024-08-30T13:43:09.250000+02:00 node-a kernel: ", None, 1725018189.25, "node-a"),
        ("Fri 2024-08-30 11:43:09 UTC node-a kernel: ", None, 1725018189.0, "node-a"),
        ("1725018189.250000 node-a kernel: ", None, 1725018189.25, "node-a"),
        ("[ 1843.308145] node-a kernel: ", 1843.308145, None, "node-a"),
    ],
)
def test_every_clock(before: str, seconds: float | None, wall: float | None, node: str) -> None:
    event = one(before + XID)
    assert (event.kind, event.pid, event.pci, event.task) == ("xid-79", 4711, "0000:44:00", "python3")
    assert (event.seconds, event.wall, event.node, event.text) == (seconds, wall, node, XID)


def test_a_syslog_date_gets_its_year_from_the_file() -> None:
    data = f"Aug 30 11:43:09 node-a kernel: {XID}\n".encode()
    (event,) = read_document(Document(path="x", data=data, mtime=1725100000.0)).facts
    assert isinstance(event, KernelEvent) and event.wall == 1725018189.0


def test_xids_in_their_order_with_storms_folded() -> None:
    assert [event.kind for event in events("kernel-xid/boot-clock.txt")] == ["xid-79", "gpu-lost", "xid-45"]
    assert [event.kind for event in events("kernel-xid/step-clock.txt")] == ["xid-62", "xid-45"]
    assert {event.pid for event in events("kernel-xid/step-clock.txt")} == {None}
    assert {event.task for event in events("kernel-xid/step-clock.txt")} == {None}
    assert [event.kind for event in events("kernel-xid/name-only.txt")] == ["xid-45", "xid-149", "xid-145"]


def test_equal_lines_of_two_hosts_are_two_events() -> None:
    date = "2025-03-04T09:12:45+00:00"
    for text in (XID, "[7.5] pcieport 0000:00:03.0: AER: Corrected error received: 0000:00:03.0"):
        data = "".join(f"{date} node-{host} kernel: {text}\n" for host in "aabb").encode()
        found = read_document(Document(path="x", data=data)).facts
        assert [f.node for f in found if isinstance(f, KernelEvent)] == ["node-a", "node-b"]


def test_a_lost_gpu_over_several_lines_has_the_address_of_the_first() -> None:
    (event,) = events("kernel-xid/several-lines.txt")
    assert (event.kind, event.pci, event.ref.line) == ("gpu-lost", "0000:b3:00", 3)
    assert event.text.startswith("GPU 0000:b3:00.0: NVRM")
    other = "[1.0] NVRM: The NVIDIA GPU 0000:b3:00.0\n[1.1] usb 1-1: new device\n"
    assert read_document(Document(path="x", data=other.encode())).facts == ()


def test_mig_old_and_switch_lines() -> None:
    kinds = [(event.kind, event.pci) for event in events("kernel-xid/mig-and-old.txt")]
    assert kinds == [
        ("xid-31", "0000:01:00"), ("xid-14", "0000:03:00"), ("xid-13", "0000:41:00"),
        ("sxid-12028", "0000:05:00"), ("xid-74", "0000:5d:00"),
    ]  # fmt: skip


def test_memory_kills_name_the_limit() -> None:
    invoked, killed = events("kernel-oom/cgroup.txt")
    assert (invoked.kind, invoked.pid) == ("oom-invoked", None)
    assert (killed.kind, killed.pid, killed.task) == ("oom-kill", 40027, "python3")
    assert killed.text.endswith("[limit of /slurm/job_71]")
    (cut,) = events("kernel-oom/cut.txt")
    assert (cut.kind, cut.pid, cut.seconds) == ("oom-kill", 40027, 90213.00018)
    assert events("kernel-oom/linux-4.txt")[1].text.endswith("[limit of /kubepods/pod7]")
    last = events("kernel-oom/global.txt")[-1]
    assert last.text.endswith("[the host's memory]") and last.wall == 1741079566.0


def test_a_torn_constraint_and_other_words_are_no_kill() -> None:
    rows = [Line(1, "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(nu", NOBODY, "x")]
    assert kernel_oom.read(rows, 0) == ((), 1)
    assert kernel_oom.read([Line(1, "Killed process by hand", NOBODY, "x")], 0) == ((), 0)


def test_a_hung_thread_is_told_from_its_process() -> None:
    event, dump = facts("kernel-hung-task/nvidia-uvm.txt")
    assert isinstance(event, KernelEvent) and isinstance(dump, StackDump)
    assert (event.kind, event.pid, event.task) == ("hung-task", 40023, "pt_autograd_0")
    (thread,) = dump.threads
    assert (dump.tool, dump.origin.pid, thread.tid, thread.main) == ("kernel", 40023, 40311, False)
    assert thread.kernel_stack[:4] == (
        "__schedule", "schedule", "rwsem_down_write_slowpath", "uvm_va_space_down_write [nvidia_uvm]",
    )  # fmt: skip
    assert thread.state == "D" and "entry_SYSCALL_64_after_hwframe" in thread.kernel_stack


def test_hung_tasks_of_old_kernels_and_without_a_stack() -> None:
    dumps = [fact for fact in facts("kernel-hung-task/linux-4.txt") if isinstance(fact, StackDump)]
    assert [dump.threads[0].kernel_stack for dump in dumps] == [
        ("schedule", "__mutex_lock_slowpath", "nvidia_ioctl [nvidia]"), ("schedule",),
    ]  # fmt: skip
    assert [dump.origin.pid for dump in dumps] == [15277, 15278]
    waiting, held = events("kernel-hung-task/io-wait-and-holder.txt")
    assert (waiting.pid, waiting.task, waiting.node) == (5403, "nvc:[driver]", "node-a")
    assert held.text.endswith("[lock held by python3:40022]")
    row = Line(1, "the task was blocked for more than 3 seconds", NOBODY, "x")
    assert kernel_hung_task.read([row], 0) == ((), 0)


def test_lines_of_the_host() -> None:
    assert [event.kind for event in events("kernel-host/lock-ups.txt")] == [
        "soft-lockup", "rcu-stall", "rcu-stall", "hard-lockup", "segfault", "segfault",
    ]  # fmt: skip
    assert [event.pid for event in events("kernel-host/lock-ups.txt")][-2:] == [40025, 40026]
    assert sorted(event.kind for event in events("kernel-host/storage.txt")) == [
        "ceph-stuck", "lustre-error", "lustre-evicted", "lustre-lost", "lustre-ok",
        "nfs-not-responding", "nfs-not-responding", "nfs-ok", "storage-error",
    ]  # fmt: skip
    network = events("kernel-host/network-and-hardware.txt")
    assert [event.kind for event in network] == [
        "link-down", "nic-error", "nic-error", "nic-error",
        "link-down", "nic-error", "machine-check", "thermal",
    ]  # fmt: skip
    assert network[0].pci == "0000:d2:00"


def test_corrected_pcie_errors_are_one_event_and_fatal_ones_come_before_the_gpu() -> None:
    (storm,) = events("kernel-aer/corrected-storm.txt")
    assert (storm.kind, storm.pci) == ("aer-corrected", "0000:00:03")
    assert storm.text.endswith("(40 such reports)")
    assert [event.kind for event in events("kernel-aer/fatal-then-79.txt")] == [
        "aer-fatal", "aer-nonfatal", "aer-fatal", "xid-79",
    ]  # fmt: skip


def test_the_node_of_the_file_is_the_events() -> None:
    row = Line(1, XID, Origin(node="node-b", wall=7.0), "x")
    event = kernel_text.event_of(row)
    assert event is not None and (event.node, event.wall) == ("node-b", 7.0)
    assert kernel_text.event_of(Line(1, "NVRM: loading", NOBODY, "x")) is None
    assert kernel_text.read_gpu([Line(1, "NVRM: loading", NOBODY, "x")], 0) == ((), 0)
    assert kernel_text.read_aer([Line(1, "AER: enabled", NOBODY, "x")], 0) == ((), 0)


def test_warnings_of_forks_and_a_healthy_log_are_no_evidence() -> None:
    text = (
        "DeprecationWarning: This process (pid=4711) is multi-threaded, use of fork() may lead to deadlocks "
        "in the child.\nRuntimeWarning: os.fork() was called. os.fork() is incompatible with threads.\n"
        "[ 12.5] usb 1-1: new high-speed USB device\nkernel: NVRM: loading NVIDIA UNIX x86_64 Kernel Module\n"
    )
    assert read_document(Document(path="x", data=text.encode())).facts == ()


def test_addresses() -> None:
    assert pci.normal("00000000:0A:00.0") == "0000:0a:00"
    assert [pci.normal(text) for text in ("", None, "12:30:45:99", "none")] == [None] * 4


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: " + "NVRM: GPU at PCI:" * 400,
        "x" * 3900 + " invoked oom-killer",
        "[" * 2000 + "segfault at " + "[" * 1900,
        "Lustre: " * 500,
        "INFO: task " + "a:1 " * 900 + "blocked for more than",
        "rcu" * 1200 + "detected stall",
        "pcieport 0000:00:03.0 " * 180 + "AER: ",
    ],
)
def test_no_line_takes_long(line: str) -> None:
    data = (line + "\n").encode() * 300
    began = time.perf_counter()
    read_document(Document(path="x", data=data))
    assert time.perf_counter() - began < 6.0


def test_the_clock_of_nothing() -> None:
    assert kernel_clock.split("") == kernel_clock.KernelLine("")

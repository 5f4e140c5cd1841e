"""The frame dictionary is whole: every listed function and kernel symbol resolves."""

from __future__ import annotations

import json
import pathlib

import pytest

from hangscope.analyzers import dictionary
from hangscope.analyzers.dictionary import lookup, lookup_kernel, lookup_native, lookup_thread, tables
from hangscope.model.facts import Frame
from hangscope.model.waits import WaitKind

DATA = pathlib.Path(__file__).with_name("data")
ROOT = pathlib.Path(__file__).parents[2]
FUNCTIONS = [tuple(row) for row in json.loads((DATA / "framework_functions.json").read_text())]


def test_every_known_framework_function_resolves_with_its_phase() -> None:
    """Qualified as Python 3.11 prints it, and by its last part as 3.10 does."""
    assert len(FUNCTIONS) > 700
    missing, misplaced = [], []
    for framework, file, name, phase in FUNCTIONS:
        for shown in (name, name.rpartition(".")[2]):
            found = lookup(Frame(function=shown, file=f"/env/lib/python3.11/site-packages/{file}"))
            if found is None:
                missing.append((framework, file, shown))
            elif shown == name and found.row.phase != phase:
                misplaced.append((file, name, found.row.phase))
    assert missing == [] and misplaced == []


def test_every_row_says_what_is_waited_for() -> None:
    for row in tables().python:
        assert row.role == "wrapper" or row.phase is not None or row.kind is not WaitKind.RUNNING, row
        assert row.functions and not row.file.startswith("/")
    listed = [(row.file, name) for row in tables().python for name in row.functions]
    assert len(listed) == len(set(listed)), sorted({item for item in listed if listed.count(item) > 1})


KERNEL = {
    "mem_cgroup_oom_synchronize": WaitKind.HOST_MEMORY,
    "mem_cgroup_handle_over_high": WaitKind.HOST_MEMORY,
    "try_to_free_mem_cgroup_pages": WaitKind.HOST_MEMORY,
    "shrink_folio_list": WaitKind.HOST_MEMORY,
    "handle_userfault": WaitKind.KERNEL,
    "kernel_clone": WaitKind.KERNEL,
    "percpu_rwsem_wait": WaitKind.KERNEL,
    "vm_mmap_pgoff": WaitKind.KERNEL,
    "__access_remote_vm": WaitKind.KERNEL,
    "process_vm_rw_core": WaitKind.KERNEL,
    "process_timeout": WaitKind.KERNEL,
    "request_wait_answer": WaitKind.FILESYSTEM,
    "__folio_lock": WaitKind.FILESYSTEM,
    "folio_wait_bit_common": WaitKind.FILESYSTEM,
    "rpc_wait_bit_killable": WaitKind.FILESYSTEM,
    "__rpc_execute [sunrpc]": WaitKind.FILESYSTEM,
    "nfs_start_io_read": WaitKind.FILESYSTEM,
    "do_truncate": WaitKind.FILESYSTEM,
    "nfs_setattr": WaitKind.FILESYSTEM,
    "wait_for_partner": WaitKind.FIFO,
    "anon_pipe_write": WaitKind.PIPE,
    "pipe_read": WaitKind.PIPE,
    "locks_lock_inode_wait": WaitKind.FILE_LOCK,
    "do_signal_stop": WaitKind.STOPPED,
    "ptrace_stop": WaitKind.TRACED,
    "hrtimer_nanosleep": WaitKind.SLEEP,
    "poll_schedule_timeout.constprop.0": WaitKind.POLL,
    "ep_poll": WaitKind.POLL,
    "do_wait": WaitKind.CHILD,
    "futex_do_wait": WaitKind.SIGNALLED,
    "futex_wait_queue": WaitKind.SIGNALLED,
    "sk_wait_data": WaitKind.SOCKET,
    "inet_csk_accept": WaitKind.SOCKET,
    "read_events": WaitKind.DISK,
    "mutex_lock": WaitKind.KERNEL,
    "uvm_ioctl [nvidia_uvm]": WaitKind.DRIVER,
    "os_acquire_mutex [nvidia]": WaitKind.DRIVER,
    "anything [lustre]": WaitKind.FILESYSTEM,
}


@pytest.mark.parametrize(("symbol", "kind"), KERNEL.items())
def test_kernel_symbols(symbol: str, kind: WaitKind) -> None:
    found = lookup_kernel((symbol,))
    assert found is not None and found[0].kind is kind


def test_a_kernel_stack_is_searched_for_what_tells_most() -> None:
    high = lookup_kernel(("process_timeout", "schedule_timeout_killable", "mem_cgroup_handle_over_high"))
    fifo = lookup_kernel(("wait_for_partner", "fifo_open", "do_dentry_open", "path_openat"))
    reclaim = lookup_kernel(("folio_wait_bit_common", "shrink_folio_list", "filemap_fault"))
    assert high is not None and high[0].kind is WaitKind.HOST_MEMORY
    assert fifo is not None and fifo[0].kind is WaitKind.FIFO and not fifo[0].strong
    assert reclaim is not None and reclaim[0].kind is WaitKind.HOST_MEMORY
    assert lookup_kernel(("no_such_symbol",)) is None


NATIVE = {
    ("pthread_cond_wait", "c10d::Work::wait(std::chrono)"): (WaitKind.COLLECTIVE, None),
    ("UnboundBuffer::waitRecv", "gloo::(anonymous)::allreduce"): (WaitKind.COLLECTIVE, "all_reduce"),
    ("poll", "c10d::TCPStore::doWait"): (WaitKind.STORE, None),
    ("pthread_cond_timedwait", "take_gil", "PyEval_RestoreThread"): (WaitKind.GIL, None),
    ("cuStreamSynchronize", "cudaStreamSynchronize"): (WaitKind.DEVICE, None),
    ("c10d::ProcessGroupGloo::SendWork::wait",): (WaitKind.SEND, "send"),
    ("c10d::Reducer::finalize_backward",): (WaitKind.AUTOGRAD, None),
    ("opal_progress", "PMPI_Allreduce"): (WaitKind.COLLECTIVE, None),
    ("ncclCommInitRankFunc",): (WaitKind.INIT, None),
    ("io_getevents",): (WaitKind.DISK, None),
}


@pytest.mark.parametrize(("functions", "expected"), NATIVE.items())
def test_native_functions(functions: tuple[str, ...], expected: tuple[WaitKind, str | None]) -> None:
    found = lookup_native(functions)
    assert found is not None and (found[0].kind, found[0].operation) == expected


def test_threads_by_the_names_of_programs_mean_nothing() -> None:
    for name in ("python3", "pt_main_thread", "pt_elastic", "pt_data_worker", "ray::RayTrainWo"):
        assert lookup_thread(name) is None
    loop = lookup_thread("gloo_tcp_loop")
    assert loop is not None and loop.kind is WaitKind.TRANSPORT_IDLE


@pytest.mark.parametrize(
    ("function", "file", "known"),
    [
        ("Queue.get", "/usr/lib/python3.11/queue.py", True),
        ("get", "/usr/lib/python3.10/queue.py", True),
        ("Queue.get", "/opt/python311.zip/queue.py", True),
        ("Queue.get", "/home/me/project/queue.py", False),
        ("Queue.get", "/home/me/my_queue.py", False),
        ("_MultiIter._try_get_data", "/x/torch/utils/data/dataloader.py", True),
        ("Other.__init__", "/x/deepspeed/runtime/engine.py", False),
        ("all_reduce", "/x/nottorch/distributed/distributed_c10d.py", False),
        ("_ModuleLock.acquire", "<frozen importlib._bootstrap>", True),
    ],
)
def test_where_a_function_must_stand(function: str, file: str, known: bool) -> None:
    assert (lookup(Frame(function=function, file=file)) is not None) is known


def test_native_frames_are_not_looked_up_as_python() -> None:
    file = "/usr/lib/python3.11/queue.py"
    assert lookup(Frame(function="Queue.get", file=file, library="libx.so")) is None


def test_no_row_names_a_function_of_the_zoo_or_the_demo() -> None:
    """Files of the dictionary are those of installed packages; none is a scenario's script."""
    folders = (ROOT / "fixtures" / "zoo", ROOT / "hangscope" / "demo")
    scripts = {path.name for folder in folders for path in folder.rglob("*.py")} - {
        "__init__.py",
        "__main__.py",
    }
    plain = {row.file for row in tables().python if "/" not in row.file}
    assert not scripts & plain
    assert dictionary.PATH.is_file()

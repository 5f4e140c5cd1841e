"""What a thread waits for: state, kernel, stack, source line, role."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hangscope.analyzers.facts import read_capture
from hangscope.analyzers.waits import thread_wait, waits_of
from hangscope.model.facts import (
    Frame,
    OpenFile,
    Process,
    ProcessSample,
    Ref,
    Socket,
    SourceLine,
    Syscall,
    ThreadSample,
)
from hangscope.model.waits import ReleasedBy, Wait, WaitKind

from .evidence_builder import NodeBuilder, evidence, task

LIB = "/env/lib/python3.11/site-packages"
STD = "/usr/lib/python3.11"
C10D = f"{LIB}/torch/distributed/distributed_c10d.py"
THREADING = f"{STD}/threading.py"
PID = 41


def at(
    function: str, file: str = "/job/x.py", line: int = 7, text: str | None = None, **source: Any
) -> Frame:
    """A frame; with ``text`` its source was captured."""
    known = SourceLine(text=text, **source) if text is not None else None
    return Frame(function=function, file=file, line=line, source=known)


def std(function: str, module: str, line: int = 7) -> Frame:
    return at(function, f"{STD}/{module}", line)


def native(*functions: str) -> tuple[Frame, ...]:
    return tuple(Frame(function=name, file="lib.so", library="lib.so") for name in functions)


CALLS = {
    "futex": Syscall(number=202, name="futex", args=(0xABC,)),
    "poll": Syscall(number=7, name="poll", args=(1,)),
    "read": Syscall(number=0, name="read", args=(5,)),
    "write": Syscall(number=1, name="write", args=(5,)),
    "recv": Syscall(number=45, name="recvfrom", args=(5,)),
    "accept": Syscall(number=288, name="accept4", args=(5,)),
    "sleep": Syscall(number=230, name="clock_nanosleep"),
    "wait4": Syscall(number=61, name="wait4", args=(77,)),
    "waitid": Syscall(number=247, name="waitid", args=(1, 78)),
    "open": Syscall(number=257, name="openat"),
    "ioctl": Syscall(number=16, name="ioctl", args=(5,)),
    "flock": Syscall(number=73, name="flock", args=(5,)),
    "running": Syscall(number=None),
    "fault": Syscall(number=-1),
}


def wait_for(
    *stack: Frame,
    state: str = "S",
    wchan: str | None = "futex_do_wait",
    call: str | None = "futex",
    others: tuple[ThreadSample, ...] = (),
    process: dict[str, Any] | None = None,
    sample: dict[str, Any] | None = None,
    python: bool = True,
    tid: int = PID,
    before: dict[str, Any] | None = None,
    **thread: Any,
) -> Wait:
    """The wait of one thread of a rank. ``before``: fields of the thread in an earlier sample, 2 s ago."""
    fields: dict[str, Any] = {
        "tid": tid,
        "comm": "python3",
        "sample": 1,
        "state": state,
        "wchan": wchan,
        "syscall": CALLS[call] if call else None,
        "stack": tuple(stack) if python else None,
        "ref": Ref("threads.json"),
        "stack_ref": Ref("stacks.json"),
    }
    me = ThreadSample(**{**fields, **thread})
    now: dict[str, Any] = {"sample": 1, "wall": 2.0, "monotonic": 2.0, "state": "S", "threads": (me, *others)}
    current = ProcessSample(**{**now, **(sample or {})})
    samples = [current]
    if before is not None:
        old = msgspec.structs.replace(me, sample=0, **before)
        earlier = {"sample": 0, "monotonic": 0.0, "threads": (old, *others)}
        samples.insert(0, msgspec.structs.replace(current, **earlier))
    base: dict[str, Any] = {
        "node": "n", "pid": PID, "ppid": 1, "start_ticks": 1, "start_wall": None, "comm": "python3",
        "title": "x", "role": "rank", "rank": 2, "parent_rank": None, "world_size": 4,
    }  # fmt: skip
    owner = Process(**{**base, **(process or {}), "samples": tuple(samples)})
    return thread_wait(owner, current, me)


def other(tid: int, comm: str = "python3", **fields: Any) -> ThreadSample:
    base: dict[str, Any] = {"sample": 1, "state": "S", "ref": Ref("threads.json")}
    return ThreadSample(tid=tid, comm=comm, **{**base, **fields})


GLOO = other(99, "gloo_tcp_loop")
WRAPPER = at("_exception_logger.<locals>.wrapper", f"{LIB}/torch/distributed/c10d_logger.py")
USER = at("train", line=30, text="dist.all_reduce(t)")


# --- states and kernel


@pytest.mark.parametrize(
    ("state", "kind", "released_by"),
    [
        ("Z", WaitKind.DEAD, ReleasedBy.NOBODY),
        ("X", WaitKind.DEAD, ReleasedBy.NOBODY),
        ("T", WaitKind.STOPPED, ReleasedBy.REMOTE),
        ("t", WaitKind.TRACED, ReleasedBy.REMOTE),
    ],
)
def test_states_that_are_no_wait(state: str, kind: WaitKind, released_by: ReleasedBy) -> None:
    found = wait_for(at("all_reduce", C10D, text="work.wait()"), USER, state=state)
    assert (found.kind, found.released_by, found.ref) == (kind, released_by, Ref("threads.json"))
    assert found.operation == "all_reduce"


def test_a_frozen_process_is_stopped() -> None:
    found = wait_for(at("f"), sample={"frozen": True})
    assert found.kind is WaitKind.STOPPED and "cgroup" in found.why


@pytest.mark.parametrize(
    ("wchan", "call", "kind"),
    [
        ("mem_cgroup_oom_synchronize", "fault", WaitKind.HOST_MEMORY),
        ("kernel_clone", None, WaitKind.KERNEL),
        ("__folio_lock", "fault", WaitKind.FILESYSTEM),
        ("rpc_wait_bit_killable", "read", WaitKind.FILESYSTEM),
        ("percpu_rwsem_wait", "open", WaitKind.FILESYSTEM),
        ("percpu_rwsem_wait", None, WaitKind.KERNEL),
        ("some_new_function", None, WaitKind.KERNEL),
        (None, None, WaitKind.KERNEL),
        ("mem_cgroup_out_of_memory", None, WaitKind.HOST_MEMORY),
    ],
)
def test_uninterruptible_sleep_is_the_kernels(wchan: str | None, call: str | None, kind: WaitKind) -> None:
    found = wait_for(at("load"), USER, state="D", wchan=wchan, call=call)
    assert (found.kind, found.released_by) == (kind, ReleasedBy.KERNEL)
    assert found.resolved and "state D" in found.why


def test_the_kernel_wins_on_the_issuing_line_but_the_operation_is_kept() -> None:
    leaf = at("reduce_scatter_single", C10D, 4936, "work = group.reduce_scatter_single(output, input, opts)")
    outer = at("__avg_scatter_grads", f"{LIB}/deepspeed/runtime/zero/stage3.py", 1912)
    outer = msgspec.structs.replace(outer, function="DeepSpeedZeroOptimizer_Stage3.__avg_scatter_grads")
    found = wait_for(leaf, WRAPPER, outer, USER, state="D", wchan="mem_cgroup_oom_synchronize", call="fault")
    assert (found.kind, found.operation, found.phase) == (
        WaitKind.HOST_MEMORY,
        "reduce_scatter_single",
        "reduce",
    )
    assert found.framework == "DeepSpeed" and found.caller == outer
    assert found.chain == (outer, USER)


def test_a_page_fault_served_by_user_space_is_a_kernel_wait_in_state_s() -> None:
    found = wait_for(at("touch"), wchan="handle_userfault", call="fault")
    assert (found.kind, found.released_by) == (WaitKind.KERNEL, ReleasedBy.KERNEL)


def test_a_driver_is_known_by_its_module_or_its_device() -> None:
    stack = ("rwsem_down_read_slowpath", "os_acquire_rwlock_read [nvidia]")
    assert wait_for(at("f"), state="D", wchan=None, call=None, kernel_stack=stack).kind is WaitKind.DRIVER
    files = {"files": (OpenFile(fd=5, target="/dev/nvidia0"),)}
    found = wait_for(at("f"), state="D", wchan="new_lock", call="ioctl", sample=files)
    assert (found.kind, found.remote) == (WaitKind.DRIVER, "/dev/nvidia0")


# --- descriptors


def test_a_pipe_read_names_the_process_at_the_other_end() -> None:
    one = {"files": (OpenFile(fd=5, target="pipe:[7]", peers=(50,)),)}
    many = {"files": (OpenFile(fd=5, target="pipe:[7]", peers=(50, 51)),)}
    found = wait_for(at("f", text="os.read(fd, 1)"), wchan="anon_pipe_read", call="read", sample=one)
    assert (found.kind, found.peer_pid, found.remote) == (WaitKind.PIPE, 50, "pipe:[7]")
    found = wait_for(at("f"), wchan="anon_pipe_write", call="write", sample=many)
    assert (found.peer_pid, found.peer_pids, found.released_by) == (None, (50, 51), ReleasedBy.PEER)


def test_a_pipe_with_a_path_is_a_fifo_and_a_terminal_is_not() -> None:
    fifo = {"files": (OpenFile(fd=5, target="/job/fifo"),)}
    found = wait_for(at("f"), wchan="anon_pipe_read", call="read", sample=fifo)
    assert (found.kind, found.remote) == (WaitKind.FIFO, "/job/fifo")
    terminal = {"files": (OpenFile(fd=5, target="/dev/pts/3"),)}
    assert wait_for(at("f"), wchan="n_tty_read", call="read", sample=terminal).kind is WaitKind.PIPE
    assert wait_for(at("f"), wchan="wait_for_partner", call="open").kind is WaitKind.FIFO


def test_a_socket_read_names_its_peer() -> None:
    end = Socket(
        inode=7, pid=PID, fd=5, family="tcp", state="ESTABLISHED", local="a:1", remote="b:2", peer_pid=60
    )
    found = wait_for(at("f"), wchan="sk_wait_data", call="recv", sample={"sockets": (end,)})
    assert (found.kind, found.peer_pid, found.remote) == (WaitKind.SOCKET, 60, "b:2")
    recv = std("Connection._recv", "multiprocessing/connection.py")
    found = wait_for(recv, wchan=None, call="read", sample={"sockets": (end,)})
    assert (found.kind, found.peer_pid) == (WaitKind.SOCKET, 60)


def test_accepting_is_serving_in_a_helper_thread_only() -> None:
    accept = std("socket.accept", "socket.py")
    assert wait_for(accept, wchan="inet_csk_accept", call="accept").kind is WaitKind.SOCKET
    assert wait_for(accept, wchan="inet_csk_accept", call="accept", tid=43).kind is WaitKind.SERVICE
    assert wait_for(at("serve"), wchan="inet_csk_accept", call="accept", tid=43).kind is WaitKind.SERVICE


@pytest.mark.parametrize(("call", "child"), [("wait4", 77), ("waitid", 78)])
def test_waiting_for_a_child_names_it(call: str, child: int) -> None:
    found = wait_for(
        std("Popen._try_wait", "subprocess.py"),
        std("Popen.wait", "subprocess.py"),
        wchan="do_wait",
        call=call,
    )
    assert (found.kind, found.peer_pid, found.released_by) == (WaitKind.CHILD, child, ReleasedBy.CHILDREN)


def test_file_locks() -> None:
    files = {"files": (OpenFile(fd=5, target="/job/x.lock"),)}
    found = wait_for(at("f"), wchan="locks_lock_inode_wait", call="flock", sample=files)
    assert (found.kind, found.remote) == (WaitKind.FILE_LOCK, "/job/x.lock")
    acquire = at("LockAcquisition._poll_until_acquired", f"{LIB}/filelock/_core/_acquire.py", 177)
    assert wait_for(acquire, USER, wchan="hrtimer_nanosleep", call="sleep").kind is WaitKind.FILE_LOCK
    baton = at("FileBaton.wait", f"{LIB}/torch/utils/file_baton.py", 50)
    found = wait_for(baton, USER, wchan="hrtimer_nanosleep", call="sleep")
    assert (found.kind, found.phase) == (WaitKind.FILE_LOCK, "init.jit_lock_wait")


@pytest.mark.parametrize(
    ("call", "files", "kind"),
    [
        ("sleep", (), WaitKind.SLEEP),
        ("poll", (), WaitKind.POLL),
        ("wait4", (), WaitKind.CHILD),
        ("read", (OpenFile(fd=5, target="pipe:[7]"),), WaitKind.PIPE),
        ("read", (OpenFile(fd=5, target="socket:[7]"),), WaitKind.SOCKET),
        ("read", (OpenFile(fd=5, target="anon_inode:[eventfd]"),), WaitKind.SIGNALLED),
        ("read", (OpenFile(fd=5, target="/dev/tty1"),), WaitKind.PIPE),
        ("read", (OpenFile(fd=5, target="/data/x"),), WaitKind.FILESYSTEM),
        ("read", (), WaitKind.UNKNOWN),
        (None, (), WaitKind.UNKNOWN),
    ],
)
def test_the_system_call_alone_where_the_wchan_is_hidden(
    call: str | None, files: tuple[OpenFile, ...], kind: WaitKind
) -> None:
    found = wait_for(at("f"), wchan=None, call=call, sample={"files": files})
    assert found.kind is kind and found.resolved == (kind is not WaitKind.UNKNOWN)


# --- collectives


def test_joined_and_entering_are_told_by_the_leafs_line() -> None:
    joined = wait_for(at("all_reduce", C10D, 3252, "work.wait()"), WRAPPER, USER)
    assert (joined.kind, joined.operation, joined.released_by) == (
        WaitKind.COLLECTIVE, "all_reduce", ReleasedBy.MEMBERS,
    )  # fmt: skip
    assert joined.caller == USER and joined.chain == (USER,) and joined.ref == Ref("stacks.json")
    issuing = wait_for(at("all_reduce", C10D, 3245, "work = group.allreduce([tensor], opts)"), WRAPPER, USER)
    assert (issuing.kind, issuing.operation) == (WaitKind.ENTERING, "all_reduce")
    unknown = wait_for(at("all_reduce", C10D, 3245), WRAPPER, USER)
    assert unknown.kind is WaitKind.ENTERING
    below = native("pthread_cond_wait", "c10d::Work::wait")
    assert wait_for(at("all_reduce", C10D), USER, native=below).kind is WaitKind.COLLECTIVE


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("barrier", "work.wait()", WaitKind.BARRIER),
        ("barrier", "work = group.barrier(opts=opts)", WaitKind.ENTERING),
        ("monitored_barrier", "return group_to_use.monitored_barrier(", WaitKind.BARRIER),
        ("send", "work.wait()", WaitKind.SEND),
        ("recv", "work.wait()", WaitKind.RECV),
        ("isend", "return group.send([tensor], group_dst, tag)", WaitKind.ENTERING),
        ("_new_process_group_helper", "backend = create()", WaitKind.INIT),
        ("_store_based_barrier", "store.wait([last_worker_key])", WaitKind.INIT),
        ("destroy_process_group", "_shutdown_backend(pg)", WaitKind.BARRIER),
        ("all_gather_object", "object_list[i] = _tensor_to_object(tensor)", WaitKind.ENTERING),
    ],
)
def test_functions_of_c10d(name: str, text: str, kind: WaitKind) -> None:
    assert wait_for(at(name, C10D, text=text), WRAPPER, USER).kind is kind


def test_the_inner_operation_counts_and_object_collectives_are_its_callers() -> None:
    frames = (
        at("all_gather", C10D, text="work.wait()"),
        WRAPPER,
        at("all_gather_object", C10D),
        WRAPPER,
        USER,
    )
    found = wait_for(*frames)
    assert (found.operation, found.caller, found.phase) == ("all_gather", USER, "collective")


def test_point_to_point_peers_come_from_the_kept_integers() -> None:
    leaf = msgspec.structs.replace(at("send", C10D, text="work.wait()"), ints=(("dst", 3), ("group_dst", 1)))
    assert wait_for(leaf, USER).peer == 3
    leaf = msgspec.structs.replace(at("recv", C10D, text="work.wait()"), ints=(("src", 1),))
    assert wait_for(leaf, USER).peer == 1
    leaf = msgspec.structs.replace(at("isend", C10D), ints=(("dst", 0),))
    assert wait_for(leaf, USER).peer == 0
    assert wait_for(at("recv", C10D, text="work.wait()"), USER).peer is None


def test_a_work_waited_for_in_user_code_has_no_torch_frame() -> None:
    leaf = at("step", text="work.wait()")
    found = wait_for(leaf, others=(GLOO,))
    assert (found.kind, found.operation, found.caller) == (WaitKind.COLLECTIVE, None, leaf)
    assert wait_for(leaf).kind is WaitKind.SIGNALLED
    assert wait_for(at("step"), others=(GLOO,)).kind is WaitKind.UNKNOWN
    assert wait_for(leaf, others=(GLOO,), wchan="anon_pipe_read", call="read").kind is WaitKind.PIPE


def test_deepspeed_waits_without_a_torch_frame() -> None:
    zero = f"{LIB}/deepspeed/runtime/zero"
    frames = (
        at("AllGatherCoalescedHandle.wait", f"{zero}/partition_parameters.py", 761),
        at("MultipleAllGatherHandles.wait", f"{zero}/partition_parameters.py", 818),
        at(
            "PartitionedParameterCoordinator._fetch_sub_module_impl",
            f"{zero}/partitioned_param_coordinator.py",
            406,
        ),
        at("instrument_w_nvtx.<locals>.wrapped_fn", f"{LIB}/deepspeed/utils/nvtx.py"),
        USER,
    )
    found = wait_for(*frames)
    assert (found.kind, found.operation, found.framework) == (WaitKind.COLLECTIVE, "all_gather", "DeepSpeed")
    assert (found.phase, found.caller) == ("fetch.wait", frames[2])
    assert found.chain == (frames[2], USER)


def test_backward_waits_for_autograd_unless_it_computes() -> None:
    leaf = at("_engine_run_backward", f"{LIB}/torch/autograd/graph.py", 979)
    found = wait_for(leaf, at("Tensor.backward", f"{LIB}/torch/_tensor.py"), USER)
    assert (found.kind, found.caller) == (WaitKind.AUTOGRAD, USER)
    assert wait_for(leaf, USER, state="R", wchan=None, call="running").kind is WaitKind.RUNNING
    reducer = native("pthread_cond_wait", "c10d::Reducer::finalize_backward")
    assert wait_for(leaf, USER, native=reducer).kind is WaitKind.AUTOGRAD


def test_a_collective_that_spins_is_still_waited_for() -> None:
    found = wait_for(at("all_reduce", C10D, text="work.wait()"), USER, state="R", wchan=None, call="running")
    assert found.kind is WaitKind.COLLECTIVE


def test_stores_devices_and_native_only_evidence() -> None:
    store = at("f", text="store.get('key')")
    assert wait_for(store, wchan="poll_schedule_timeout.constprop.0", call="poll").kind is WaitKind.STORE
    assert wait_for(store, wchan="hrtimer_nanosleep", call="sleep").kind is WaitKind.STORE
    loss = at("f", text="total += loss.item()")
    gpu = {"gpus": ("GPU-a",)}
    assert wait_for(loss, state="R", wchan=None, call="running", process=gpu).kind is WaitKind.DEVICE
    assert wait_for(loss, state="R", wchan=None, call="running").kind is WaitKind.RUNNING
    assert wait_for(at("f"), native=native("cudaStreamSynchronize")).kind is WaitKind.DEVICE
    tcp = native("poll", "c10d::TCPStore::doWait")
    assert wait_for(at("f"), wchan=None, call="poll", native=tcp).kind is WaitKind.STORE
    leaf = at("isend", C10D, text="return group.send(")
    assert wait_for(leaf, native=native("x::SendWork::wait")).kind is WaitKind.SEND


# --- inside a process


@pytest.mark.parametrize(
    ("outer", "kind", "released_by"),
    [
        (std("Event.wait", "threading.py"), WaitKind.SIGNALLED, ReleasedBy.IN_PROCESS),
        (std("Semaphore.acquire", "threading.py"), WaitKind.SIGNALLED, ReleasedBy.IN_PROCESS),
        (std("Queue.get", "queue.py"), WaitKind.QUEUE, ReleasedBy.IN_PROCESS),
        (std("Future.result", "concurrent/futures/_base.py"), WaitKind.FUTURE, ReleasedBy.IN_PROCESS),
        (std("TMonitor.run", "x/tqdm/_monitor.py"), WaitKind.RUNTIME, ReleasedBy.IN_PROCESS),
    ],
)
def test_what_a_condition_is_waited_on_for(outer: Frame, kind: WaitKind, released_by: ReleasedBy) -> None:
    found = wait_for(std("Condition.wait", "threading.py"), outer, USER)
    assert (found.kind, found.released_by, found.frame, found.caller) == (kind, released_by, outer, USER)
    assert found.address == 0xABC


def test_joining_a_thread_and_pool_threads() -> None:
    tstate = std("Thread._wait_for_tstate_lock", "threading.py")
    found = wait_for(tstate, std("Thread.join", "threading.py"), USER)
    assert (found.kind, found.released_by) == (WaitKind.JOIN_THREAD, ReleasedBy.THREAD)
    assert wait_for(at("f", text="worker.join()")).kind is WaitKind.JOIN_THREAD
    assert wait_for(std("_worker", "concurrent/futures/thread.py"), tid=43).kind is WaitKind.RUNTIME
    shutdown = std("ThreadPoolExecutor.shutdown", "concurrent/futures/thread.py")
    found = wait_for(tstate, std("Thread.join", "threading.py"), shutdown, USER)
    assert found.thread_pattern == "ThreadPoolExecutor-"
    assert wait_for(at("f", text="item = ready.get()")).kind is WaitKind.QUEUE


def test_the_lock_waited_for_and_the_locks_held() -> None:
    leaf = at("Cache.put", text="with self._second:", withs=((3, "self._first"), (4, "torch.no_grad()")))
    found = wait_for(leaf, at("run", text="cache.put(1)", withs=((1, "table_lock, open(p) as f"),)))
    assert (found.kind, found.lock) == (WaitKind.LOCK, "Cache._second")
    assert found.held == ("table_lock", "Cache._first")
    assert wait_for(at("f", text="lock_b.acquire()")).lock == "lock_b"
    assert wait_for(at("f", text="with a, b:")).lock is None
    assert wait_for(at("f", text="with locks[i]:")).kind is WaitKind.LOCK
    assert wait_for(at("f", text="with torch.no_grad():")).kind is WaitKind.UNKNOWN


def test_taking_a_condition_or_a_lock_between_processes_has_frames() -> None:
    found = wait_for(std("Condition.__enter__", "threading.py"), at("f", text="with self.ready:"))
    assert (found.kind, found.lock) == (WaitKind.LOCK, "self.ready")
    found = wait_for(std("SemLock.__enter__", "multiprocessing/synchronize.py"), at("f", text="with shared:"))
    assert (found.kind, found.lock, found.released_by) == (WaitKind.LOCK, "shared", ReleasedBy.PEER)
    found = wait_for(at("_ModuleLock.acquire", "<frozen importlib._bootstrap>"), USER)
    assert (found.kind, found.lock) == (WaitKind.LOCK, "import lock")
    assert wait_for(std("Condition.__enter__", "threading.py")).lock is None


def test_a_condition_gives_its_lock_back_while_it_waits() -> None:
    inner = std("Condition.wait", "threading.py")
    inner = msgspec.structs.replace(
        inner, source=SourceLine(text="waiter.acquire()", withs=((2, "self._cond"),))
    )
    user = at("Box.get", text="self.full.wait()", withs=((4, "self.outer"), (5, "self.full")))
    assert wait_for(inner, user).held == ("Box.outer",)
    helper = at("Box.ready", text="self.full.wait()")
    caller = at("Box.get", text="self.ready()", withs=((4, "self.outer"), (5, "self.full")))
    assert wait_for(inner, helper, caller).held == ("Box.outer",)
    around = at("Box.get", text="self.filled.wait()", withs=((4, "self.outer"), (5, "self.mutex")))
    assert wait_for(inner, around).held == ("Box.outer",)
    assert wait_for(inner, std("Condition.wait_for", "threading.py"), around).held == ("Box.outer",)
    event = at("Box.get", text="self.done.wait()", withs=((5, "self.mutex"),))
    assert wait_for(inner, std("Event.wait", "threading.py"), event).held == ("Box.mutex",)


def test_the_wait_of_a_work_does_not_tell_a_collective_from_a_transfer() -> None:
    loop = other(60, comm="gloo_tcp_loop")
    leaf = at("exchange", text="request.wait()")
    found = wait_for(leaf, others=(loop,))
    assert (found.kind, found.released_by) == (WaitKind.COLLECTIVE, ReleasedBy.PEER)
    assert wait_for(leaf, others=(loop,), native=native("c10d::Work::wait")).released_by is ReleasedBy.MEMBERS
    assert wait_for(leaf, others=(loop,), native=native("RecvWork::wait")).kind is WaitKind.RECV


def test_native_frames_outside_of_the_innermost_python_frame_say_nothing() -> None:
    hook = at("Scale.backward", text="time.sleep(60)")
    engine = at("_engine_run_backward", f"{LIB}/torch/autograd/graph.py")
    native = (
        Frame(function="clock_nanosleep", file="libc.so.6", library="libc.so.6"),
        msgspec.structs.replace(hook, source=None),
        Frame(function="torch::autograd::Engine::execute", file="x.so", library="libtorch_cpu.so"),
        msgspec.structs.replace(engine, source=None),
    )
    asleep: dict[str, Any] = {"wchan": "hrtimer_nanosleep", "call": "sleep", "native": native}
    assert wait_for(hook, engine, **asleep).kind is WaitKind.SLEEP


def test_tcp_and_terminals_sleep_at_one_place() -> None:
    assert wait_for(USER, wchan="wait_woken", call="recv").kind is WaitKind.SOCKET


def test_queues_between_processes_depend_on_who_reads() -> None:
    frames = (
        std("PollSelector.select", "selectors.py"),
        std("wait", "multiprocessing/connection.py"),
        std("_ConnectionBase.poll", "multiprocessing/connection.py"),
        std("Queue.get", "multiprocessing/queues.py"),
    )
    poll: dict[str, Any] = {"wchan": "poll_schedule_timeout.constprop.0", "call": "poll"}
    found = wait_for(*frames, USER, **poll)
    assert (found.kind, found.released_by) == (WaitKind.CHILD, ReleasedBy.CHILDREN)
    found = wait_for(*frames, USER, process={"role": "helper"}, **poll)
    assert (found.kind, found.released_by) == (WaitKind.QUEUE, ReleasedBy.PEER)
    loader = at("_MultiProcessingDataLoaderIter._try_get_data", f"{LIB}/torch/utils/data/dataloader.py")
    found = wait_for(*frames, loader, USER, **poll)
    assert (found.kind, found.framework, found.phase) == (WaitKind.CHILD, "torch.utils.data", "wait_batch")
    worker = at("_worker_loop", f"{LIB}/torch/utils/data/_utils/worker.py")
    assert wait_for(*frames, worker, process={"role": "dataloader"}, **poll).kind is WaitKind.SERVICE


def test_idle_server_loops() -> None:
    select = std("EpollSelector.select", "selectors.py")
    poll: dict[str, Any] = {"wchan": "ep_poll", "call": "poll"}
    assert (
        wait_for(select, std("BaseServer.serve_forever", "socketserver.py"), **poll).kind is WaitKind.SERVICE
    )
    run = std("BaseEventLoop.run_forever", "asyncio/base_events.py")
    assert (
        wait_for(select, std("BaseEventLoop._run_once", "asyncio/base_events.py"), run, **poll).kind
        is WaitKind.SERVICE
    )
    assert wait_for(select, USER, **poll).kind is WaitKind.POLL
    agent = at("SimpleElasticAgent._invoke_run", f"{LIB}/torch/distributed/elastic/agent/server/api.py")
    assert wait_for(agent, wchan="hrtimer_nanosleep", call="sleep").kind is WaitKind.SERVICE


def test_the_interpreter_lock_kept_over_both_samples() -> None:
    owner = other(50, owns_gil=True)
    asking = {"voluntary": 1000}
    leaf = at("f", text="x = x + 1")
    assert wait_for(leaf, others=(owner,), before=asking, voluntary=1400).kind is WaitKind.GIL
    assert wait_for(leaf, others=(owner,)).kind is WaitKind.UNKNOWN
    event = (std("Condition.wait", "threading.py"), std("Event.wait", "threading.py"), USER)
    assert wait_for(*event, others=(owner,), before=asking, voluntary=1400).kind is WaitKind.GIL
    assert wait_for(*event, others=(owner,), before=asking, voluntary=1001).kind is WaitKind.SIGNALLED
    assert wait_for(others=(owner,), before=asking, tid=43).kind is WaitKind.GIL


def test_running_is_told_from_passing_by() -> None:
    leaf = at("spin", text="while not done:")
    running: dict[str, Any] = {"state": "R", "wchan": None, "call": "running"}
    assert wait_for(leaf, **running).kind is WaitKind.RUNNING
    assert wait_for(leaf, before={"run_ns": 0}, run_ns=1_900_000_000, **running).kind is WaitKind.RUNNING
    assert wait_for(leaf, before={"run_ns": 0}, run_ns=1_900_000_000).kind is WaitKind.RUNNING
    sleeping: dict[str, Any] = {"wchan": "hrtimer_nanosleep", "call": "sleep"}
    found = wait_for(leaf, before={"run_ns": 0}, run_ns=5_000_000, **sleeping)
    assert (found.kind, found.released_by) == (WaitKind.SLEEP, ReleasedBy.ITSELF)
    assert wait_for(leaf, torn=True, **running).kind is WaitKind.RUNNING
    compiling = at("_jit_compile", f"{LIB}/torch/utils/cpp_extension.py")
    assert wait_for(compiling, **running).kind is WaitKind.COMPILE


def test_a_place_implies_a_wait_only_when_nothing_else_decides() -> None:
    save = at(
        "TorchCheckpointEngine.save", f"{LIB}/deepspeed/runtime/checkpoint_engine/torch_checkpoint_engine.py"
    )
    assert wait_for(save, USER).kind is WaitKind.FILESYSTEM
    assert wait_for(save, USER, wchan="anon_pipe_write", call="write").kind is WaitKind.PIPE
    forward = at("DeepSpeedEngine.forward", f"{LIB}/deepspeed/runtime/engine.py")
    found = wait_for(forward, USER)
    assert (found.kind, found.resolved, found.phase) == (WaitKind.UNKNOWN, False, "forward")
    assert "does not know" in found.why
    fetch = at(
        "PartitionedParameterCoordinator.fetch_sub_module",
        f"{LIB}/deepspeed/runtime/zero/partitioned_param_coordinator.py",
    )
    found = wait_for(fetch, USER)
    assert (found.kind, found.operation) == (WaitKind.ENTERING, "all_gather")
    assert "file call" in wait_for(at("f", text="open(path)"), wchan=None, call=None).why
    init = at("init_distributed", f"{LIB}/deepspeed/comm/comm.py")
    assert wait_for(init, USER, wchan="hrtimer_nanosleep", call="sleep").kind is WaitKind.INIT


def test_user_code_below_a_framework_is_not_waiting_in_it() -> None:
    loader = at("_MultiProcessingDataLoaderIter._try_get_data", f"{LIB}/torch/utils/data/dataloader.py")
    found = wait_for(
        at("callback", text="time.sleep(9)"), loader, USER, wchan="hrtimer_nanosleep", call="sleep"
    )
    assert (found.kind, found.framework) == (WaitKind.SLEEP, "torch.utils.data")


# --- threads without Python frames


def test_threads_of_c_code() -> None:
    stacked = (other(PID, stack=(USER,)),)
    epoll: dict[str, Any] = {"python": False, "tid": 43, "wchan": "ep_poll", "call": "poll"}
    found = wait_for(comm="gloo_tcp_loop", **epoll)
    assert (found.kind, found.framework, found.resolved) == (WaitKind.TRANSPORT_IDLE, "gloo", True)
    assert wait_for(comm="pt_nccl_watchdg", **epoll).kind is WaitKind.RUNTIME
    assert wait_for(others=stacked, **epoll).kind is WaitKind.RUNTIME
    assert wait_for(**epoll).kind is WaitKind.UNKNOWN
    assert wait_for(
        comm="gloo_tcp_loop", python=False, tid=43, state="D", wchan="mem_cgroup_oom_synchronize"
    ).kind is (WaitKind.HOST_MEMORY)
    assert wait_for(python=False, tid=43, state="R", wchan=None, call="running").kind is WaitKind.RUNNING
    assert wait_for(native=native("io_getevents"), **epoll).kind is WaitKind.DISK
    working = native("UnboundBuffer::waitRecv", "c10d::AsyncAllreduceWork::run")
    assert wait_for(comm="pt_gloo_runloop", native=working, **epoll).operation == "all_reduce"


def test_a_leader_without_a_stack_is_known_by_its_system_call_at_most() -> None:
    bare: dict[str, Any] = {"python": False, "comm": "pt_main_thread"}
    found = wait_for(**bare)
    assert (found.kind, found.resolved, found.frame) == (WaitKind.UNKNOWN, False, None)
    assert "no stack" in found.why
    assert wait_for(wchan="anon_pipe_read", call="read", **bare).kind is WaitKind.PIPE
    assert wait_for(wchan="hrtimer_nanosleep", call="sleep", **bare).kind is WaitKind.SLEEP


# --- the whole capture


def test_every_thread_of_the_newest_sample_has_a_wait() -> None:
    node = NodeBuilder().process(41, rank=0).process(42, rank=1).process(43, rank=2)
    for pid in (41, 42):
        rows = (
            task(pid),
            task(pid + 100, "D", "mem_cgroup_oom_synchronize", None),
            task(pid + 200, comm="gloo_tcp_loop"),
        )
        node.threads(pid, *rows).threads(pid, *rows, sample=1)
        node.stack(pid, {pid: [("all_reduce", C10D, 3252), ("train", "/job/x.py", 8)]}, sample=1)
    found = waits_of(read_capture(evidence(node)))
    assert {key[1:] for key in found} == {(p, p + more) for p in (41, 42) for more in (0, 100, 200)}
    assert found["node-a", 41, 41].kind is WaitKind.ENTERING
    assert found["node-a", 42, 142].kind is WaitKind.HOST_MEMORY
    assert found["node-a", 42, 242].kind is WaitKind.TRANSPORT_IDLE


def test_bare_names_of_python_before_311() -> None:
    stack = (at("wait", f"{STD}/threading.py"), at("get", f"{STD}/queue.py"), at("load", text="q.get()"))
    found = wait_for(*stack)
    assert (found.kind, found.caller) == (WaitKind.QUEUE, stack[2])
    stack = (at("wait", f"{STD}/threading.py"), at("acquire", f"{STD}/threading.py"), USER)
    assert wait_for(*stack).kind is WaitKind.SIGNALLED
    zero = f"{LIB}/deepspeed/runtime/zero/partition_parameters.py"
    assert wait_for(at("wait", zero), at("fetch_sub_module"), USER).kind is WaitKind.COLLECTIVE


def test_long_hostile_lines_cost_nothing() -> None:
    line = {"file": "/job/x.py", "line": 8, "text": "a" * 200_000 + ".wait(", "withs": [[1, "(" * 200_000]]}
    node = NodeBuilder().process(41, rank=0).threads(41, task(41)).stack(41, {41: [("f", "/job/x.py", 8)]})
    node.add("source", "source.json", {"frames": [line]}, 41)
    assert waits_of(read_capture(evidence(node)))["node-a", 41, 41].held == ()

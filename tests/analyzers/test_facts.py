"""Evidence → capture: what is joined with what."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hangscope.analyzers.facts import read_capture
from hangscope.analyzers.facts.peers import Connections
from hangscope.analyzers.waits import waits_of
from hangscope.model.evidence import Evidence
from hangscope.model.facts import Capture, Process

from .evidence_builder import NodeBuilder, evidence, task

THREADING = "/usr/lib/python3.11/threading.py"
PROCESS = "/usr/lib/python3.11/multiprocessing/process.py"
FORK = "/usr/lib/python3.11/multiprocessing/popen_fork.py"


def only(capture: Capture, pid: int) -> Process:
    return next(process for process in capture.processes if process.pid == pid)


def hex_address(ip: str, port: int) -> str:
    return "".join(f"{int(part):02X}" for part in reversed(ip.split("."))) + f":{port:04X}"


def tcp_row(local: tuple[str, int], remote: tuple[str, int], inode: int, state: str = "01") -> str:
    left, right = hex_address(*local), hex_address(*remote)
    return f"0: {left} {right} {state} 00000000:00000000 00:00000000 00000000 0 0 {inode} 1 0\n"


def sockets(net: str, tcp: str, owners: list[tuple[int, int, int]], tcp6: str = "") -> dict[str, Any]:
    return {
        "namespaces": [{"net": net, "tcp": "sl local\n" + tcp, "tcp6": tcp6, "unix": ""}],
        "tcp_info": [],
        "owners": [{"pid": pid, "fd": fd, "inode": inode} for pid, fd, inode in owners],
    }


def test_threads_get_their_stacks_names_and_source() -> None:
    node = NodeBuilder().process(41, rank=2)
    node.threads(41, task(41), task(43, "D", "mem_cgroup_oom_synchronize", "-1 0x1 0x2"))
    node.stack(41, {41: [("Condition.wait", THREADING, 327), ("step", "/job/x.py", 8)]})
    line = {"file": "/job/x.py", "line": 8, "text": "    event.wait()", "function": "def step():"}
    node.add("source", "source.json", {"frames": [line]}, 41)
    process = only(read_capture(evidence(node)), 41)
    main, other = process.samples[0].threads
    assert (main.python_name, main.stack_ref is not None) == ("MainThread", True)
    assert main.stack is not None and main.stack[1].source is not None
    assert main.stack[1].source.text == "event.wait()"
    assert (other.state, other.stack, other.syscall and other.syscall.number) == ("D", None, -1)
    assert main.syscall is not None and main.syscall.name == "futex"
    assert process.start_wall == 900.0 + 941 / 100


def test_a_whole_stack_beats_a_torn_one_and_missing_indices_are_no_stack() -> None:
    node = NodeBuilder().process(41, rank=0).threads(41, task(41), task(42))
    node.stack(41, {41: [("whole", "/x.py", 1)]})
    node.stack(41, {41: [("torn", "/x.py", 2)]}, torn=True)
    node.add("stacks", "stacks.json", {"pid": 41, "threads": [{"os_thread_id": 42, "stack": 999}]}, 41)
    main, other = only(read_capture(evidence(node)), 41).samples[0].threads
    assert main.stack is not None and main.stack[0].function == "whole" and not main.torn
    assert other.stack is None


def test_a_thread_that_only_the_dump_saw_is_listed() -> None:
    node = NodeBuilder().process(41, rank=0).stack(41, {41: [("f", "/x.py", 1)]})
    sample = only(read_capture(evidence(node)), 41).samples[0]
    assert [(item.tid, item.state) for item in sample.threads] == [(41, "?")]
    assert sample.ref is not None


def test_the_parents_frames_are_cut_from_a_forked_child() -> None:
    inner = [
        ("_worker_loop", "/x/torch/utils/data/_utils/worker.py", 244),
        ("BaseProcess._bootstrap", PROCESS, 314),
    ]
    outer = [("Popen._launch", FORK, 71), ("train", "/job/x.py", 90)]
    node = NodeBuilder().process(41, rank=0)
    node.process(50, "dataloader", ppid=41, parent_rank=0, comm="pt_data_worker", title="other")
    node.threads(50, task(50)).stack(50, {50: inner + outer})
    worker = only(read_capture(evidence(node)), 50)
    stack = worker.samples[0].threads[0].stack
    assert worker.forked
    assert stack is not None and [frame.function for frame in stack] == [
        "_worker_loop",
        "BaseProcess._bootstrap",
    ]


def test_forked_is_told_from_the_command_line_where_no_stack_tells_it() -> None:
    node = NodeBuilder().process(40, "launcher", title="torchrun x.py").process(41, rank=0, ppid=40)
    node.process(50, "helper", ppid=41).process(51, "helper", ppid=41, title="sleep 5").process(
        42, rank=1, ppid=41
    )
    capture = read_capture(evidence(node))
    assert [process.pid for process in capture.processes if process.forked] == [50]


def test_sockets_find_the_process_at_the_other_end_over_nodes_and_families() -> None:
    a, b = ("10.0.0.1", 4000), ("10.0.0.2", 5000)
    mapped = "0000000000000000FFFF0000" + hex_address(*b)[:8]
    first = NodeBuilder("node-a").process(41, rank=0).threads(41, task(41))
    first.add("sockets", "sockets.json", sockets("net:[1]", tcp_row(a, b, 71), [(41, 9, 71)]))
    row6 = f"0: {mapped}:{b[1]:04X} 0000000000000000FFFF0000{hex_address(*a)} 01 0:0 00:0 0 0 0 72 1 0\n"
    listening = tcp_row(b, ("0.0.0.0", 0), 73, "0A")
    second = NodeBuilder("node-b").process(51, rank=1).threads(51, task(51))
    table = sockets("net:[1]", listening, [(51, 7, 72), (51, 6, 73)], "sl\n" + row6)
    second.add("sockets", "sockets.json", table)
    capture = read_capture(evidence(first, second))
    left = only(capture, 41).samples[0].sockets[0]
    right = {item.fd: item for item in only(capture, 51).samples[0].sockets}
    assert (left.peer_node, left.peer_pid, left.remote) == ("node-b", 51, "10.0.0.2:5000")
    assert (right[7].peer_pid, right[7].listening_owner, left.listening_owner) == (41, True, False)
    assert (right[6].state, right[6].remote, right[6].peer_pid) == ("LISTEN", None, None)


def test_loopback_stays_in_its_namespace_and_inherited_sockets_belong_to_the_rank() -> None:
    a, b = ("127.0.0.1", 4000), ("127.0.0.1", 5000)
    both = tcp_row(a, b, 71) + tcp_row(b, a, 72)
    near = NodeBuilder("node-a").process(41, rank=0).process(42, rank=1)
    near.process(60, "helper", ppid=42, start_ticks=1).threads(41, task(41))
    near.add("sockets", "sockets.json", sockets("net:[1]", both, [(41, 9, 71), (60, 5, 72), (42, 5, 72)]))
    far = NodeBuilder("node-b").process(41, rank=2).threads(41, task(41))
    far.add("sockets", "sockets.json", sockets("net:[1]", tcp_row(a, b, 71), [(41, 9, 71)]))
    capture = read_capture(evidence(near, far))
    here, there = (process.samples[0].sockets[0] for process in capture.processes if process.pid == 41)
    assert here.peer_pid == 42
    assert there.peer_pid is None


def test_pipes_know_who_holds_the_other_end() -> None:
    node = NodeBuilder().process(41, rank=0).process(50, "helper", ppid=41).process(51, "helper", ppid=41)
    for pid, flags in ((41, "0100000"), (50, "0100001"), (51, "0100000")):
        fds = [{"fd": 5, "target": "pipe:[7]", "flags": flags, "pos": 0}]
        node.threads(pid, task(pid)).add("process", "process.json", {"pid": pid, "fds": fds}, pid)
    capture = read_capture(evidence(node))
    assert only(capture, 41).samples[0].files[0].peers == (50,)
    assert only(capture, 50).samples[0].files[0].peers == (41, 51)


def test_gpus_belong_to_who_has_their_device_open_else_to_whom_nvml_lists() -> None:
    gpus = [
        {"index": 0, "uuid": "GPU-a", "minor": 0, "processes": [{"pid": 41}, {"pid": 42}]},
        {"index": 1, "uuid": "GPU-b", "minor": 1, "processes": [{"pid": 43}]},
    ]
    node = NodeBuilder().process(41, rank=0, nspid=(41, 7)).process(42, rank=1).process(7, rank=3)
    node.add("gpus", "nvml.json", {"gpus": gpus})
    fds = [{"fd": 3, "target": "/dev/nvidia1"}, {"fd": 4, "target": "/dev/nvidiactl"}]
    node.add("process", "process.json", {"pid": 42, "fds": fds}, 42)
    capture = read_capture(evidence(node))
    assert [process.gpus for process in capture.processes] == [("GPU-a",), ("GPU-b",), ()]
    assert [(gpu.node, gpu.uuid) for gpu in capture.gpus] == [("node-a", "GPU-a"), ("node-a", "GPU-b")]


def test_cgroups_of_a_process_come_nearest_first() -> None:
    groups = [
        {"path": path, "version": 1, "level": level, "pids": [41], "files": {}}
        for level, path in ((1, "/job"), (0, "/job/task"), (2, "/"))
    ]
    node = NodeBuilder().process(41, rank=0).process(42, rank=1)
    node.add("memory", "memory.json", {"meminfo": "MemTotal: 8 kB\n", "cgroups": groups}, sample=1)
    capture = read_capture(evidence(node))
    assert only(capture, 41).cgroups == ("/job/task", "/job", "/")
    assert only(capture, 42).cgroups == ()
    assert {group.sample for group in capture.cgroups} == {1}
    assert capture.memory[0].total == 8192


def test_file_locks_carry_the_holders_path() -> None:
    text = "1: FLOCK  ADVISORY  WRITE 99 fe:00:5 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 41 fe:00:5 0 EOF\n"
    other = "2: OFDLCK ADVISORY  WRITE -1 fe:00:6 0 EOF\n3: POSIX  ADVISORY  WRITE 1 fe:00:7 0 EOF\n"
    node = (
        NodeBuilder()
        .process(41, rank=0)
        .process(42, rank=1)
        .add("locks", "locks.json", {"locks": text + other})
    )
    fds = [{"fd": 3, "target": "/job/x.lock", "lock": "1: OFDLCK ADVISORY  WRITE -1 fe:00:6 0 EOF"}]
    node.add("process", "process.json", {"pid": 42, "fds": fds}, 42)
    locks = read_capture(evidence(node)).locks
    assert [(item.holder_pid, item.waiter_pids, item.path) for item in locks] == [
        (99, (41,), None),
        (42, (), "/job/x.lock"),
    ]


def test_point_to_point_integers_and_lock_addresses_survive() -> None:
    node = NodeBuilder().process(41, rank=0).threads(41, task(41))
    values = (
        {"name": "dst", "repr": "1"},
        {"name": "tag", "repr": "None"},
        {"name": "lock", "repr": "<_thread.lock at 0x7f00aa>"},
    )
    file = "/x/torch/distributed/distributed_c10d.py"
    index = node.intern([("send", file, 2753), ("mine", "/job/x.py", 5)], locals=values)
    node.add("stacks", "stacks.json", {"pid": 41, "threads": [{"os_thread_id": 41, "stack": index}]}, 41)
    stack = only(read_capture(evidence(node)), 41).samples[0].threads[0].stack
    assert stack is not None
    assert stack[0].ints == (("dst", 1),) and stack[1].ints == ()
    assert stack[0].lock_address == 0x7F00AA


def test_native_stacks_and_program_counters() -> None:
    text = (
        b"Traceback for thread 41 (python3) [Has the GIL] (most recent call last):\n"
        b'    (Python) File "/x.py", line 3, in f\n    (C) File "a.c", line 9, in read (libc.so.6)\n'
    )
    node = NodeBuilder().process(41, rank=0).threads(41, task(41), task(42, "D"), task(43))
    node.stack(41, {41: [("f", "/x.py", 3)]}).add("native", "native.txt", text, 41)
    body = {"pid": 41, "threads": [], "program_counters": {"42": "libc.so.6+0x98 (malloc)", "junk": "x"}}
    node.add("stacks", "stacks.json", body, 41)
    index = node.intern([("pthread_join", "libc.so.6", 0)], module="libc.so.6")
    node.add("native", "native.json", {"pid": 41, "threads": [{"os_thread_id": 43, "stack": index}]}, 41)
    main, blocked, third = only(read_capture(evidence(node)), 41).samples[0].threads
    assert main.native is not None and [f.function for f in main.native] == ["read", "f"]
    assert main.native[0].library == "libc.so.6" and main.native[1].library is None
    assert blocked.native is not None and (blocked.native[0].function, blocked.native[0].library) == (
        "malloc",
        "libc.so.6",
    )
    assert third.native is not None and third.native[0].function == "pthread_join"


def test_output_environment_recorder_and_exit_code() -> None:
    node = NodeBuilder().process(41, rank=0)
    node.threads(41, task(41, "Z", "0", None, code=9))
    stat = task(41, "Z", code=9)["stat"]
    node.add("process", "process.json", {"pid": 41, "stat": stat, "statm": "9 3 1", "cwd": "/job"}, 41)
    files = [{"fd": 1, "size": 10, "mtime": 5.0, "tail": "step 3"}, {"fd": 2, "size": 4, "mtime": 9.0}]
    node.add("output", "output.json", {"files": files}, 41)
    node.add("nccl_log", "nccl_log.json", {"files": [{"tail": "NCCL WARN"}]}, 41)
    node.add("environment", "environment.json", {"variables": {"RANK": "0"}}, 41)
    entry = {"process_group": ["0", "default_pg"], "collective_seq_id": 4, "profiling_name": "gloo:barrier"}
    node.add("recorder", "fr_trace.json", {"entries": [entry]}, 41, sample=1)
    process = only(read_capture(evidence(node)), 41)
    sample = process.samples[0]
    assert (sample.state, sample.exit_code, sample.rss) == ("Z", 9, 3 * 4096)
    assert (sample.output_size, sample.output_mtime) == (14, 9.0)
    assert (process.output_tail, process.nccl_tail, process.cwd) == ("step 3", "NCCL WARN", "/job")
    assert process.environment == {"RANK": "0"}
    assert [(item.sample, item.pending[0].kind) for item in process.recorders] == [(1, "barrier")]


def test_what_the_capture_says_of_its_nodes() -> None:
    first, second = NodeBuilder("node-a"), NodeBuilder("node-b")
    first.scan = {"complete": True, "single_node": True, "expected_local": (0, 1), "notes": ("x",)}
    second.scan = {"complete": True, "denied": (7,), "single_node": None}
    first.process(41, rank=0).threads(41, task(41)).threads(41, task(41), sample=1)
    second.add("mounts", "mounts.json", {"mounts": [{"path": "/d", "statvfs": {}}, {"path": "/e"}]})
    second.add("kernel_log", "kernel.txt", b"[1.0] Killed process 41 (python3)")
    capture = read_capture(evidence(first, second, missing_nodes=(("node-c", "ssh failed"),)))
    assert (capture.nodes, capture.complete_nodes) == (("node-a", "node-b"), ("node-a",))
    assert (capture.samples, capture.world_size, capture.single_node) == (2, 4, None)
    assert capture.expected_ranks == (("node-a", (0, 1)),)
    assert ("node-a", 1, 102.0) in capture.sample_times
    assert [mount.responsive for mount in capture.mounts] == [True, None]
    assert (capture.kernel[0].node, capture.missing_nodes) == ("node-b", (("node-c", "ssh failed"),))
    assert capture.notes == ("x",)


def test_unreadable_artifacts_are_noted_and_the_rest_is_read() -> None:
    node = NodeBuilder().process(41, rank=0).threads(41, task(41))
    node.add("process", "process.json", b'{"pid": "x"', 41).add("memory", "memory.json", b"[]")
    capture = read_capture(evidence(node))
    assert len(only(capture, 41).samples) == 1
    assert sum("skipped" in note for note in capture.notes) == 2
    assert any("pid-41/process.json" in note for note in capture.notes)


def test_a_shard_without_a_process_table_is_noted() -> None:
    shard = NodeBuilder().process(41, rank=0).threads(41, task(41)).shard()
    bare = type(shard)(
        name="n", node=None, scan=None, artifacts=shard.artifacts, cells=(), problem="stream cut"
    )
    capture = read_capture(Evidence(job=None, shards=(bare,)))
    assert capture.processes == () and len(capture.notes) == 2


def test_one_address_pair_with_two_possible_ends_is_nobody() -> None:
    a, b = ("10.0.0.1", 4000), ("10.0.0.2", 5000)
    nodes = [NodeBuilder("node-a").process(41, rank=0).threads(41, task(41))]
    nodes[0].add("sockets", "sockets.json", sockets("net:[1]", tcp_row(a, b, 71), [(41, 9, 71)]))
    for name in ("node-b", "node-c"):
        other = NodeBuilder(name).process(51, rank=1)
        nodes.append(
            other.add("sockets", "sockets.json", sockets("net:[2]", tcp_row(b, a, 72), [(51, 7, 72)]))
        )
    assert only(read_capture(evidence(*nodes)), 41).samples[0].sockets[0].peer_pid is None
    assert Connections([], 0, {}).of("node-a", 1) == ()


JUNK = [None, -1, 1 << 62, "", "\x00", "9" * 400, [], {}, [[]], {"tid": 1}]


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_the_artifacts_hold_a_capture_and_its_waits_come_out(data: st.DataObject) -> None:
    node = NodeBuilder().process(41, rank=0).process(50, "dataloader", ppid=41)
    node.threads(41, task(41), task(42, "D")).threads(41, task(41), task(42, "D"), sample=1)
    node.stack(41, {41: [("Condition.wait", THREADING, 1), ("f", "/x.py", 2)]}, sample=1)
    fds = [{"fd": 5, "target": "pipe:[7]", "flags": "0100001", "pos": 0}]
    node.add("process", "process.json", {"pid": 41, "fds": fds, "stat": task(41)["stat"]}, 41, 1)
    table = sockets("net:[1]", tcp_row(("127.0.0.1", 1), ("127.0.0.1", 2), 71), [(41, 9, 71)])
    node.add("sockets", "sockets.json", table, sample=1)
    index = data.draw(st.integers(0, len(node.artifacts) - 1))
    document = json.loads(node.artifacts[index].data)
    for _ in range(data.draw(st.integers(1, 3))):
        spot = document
        while isinstance(spot, (dict, list)) and spot:
            keys = list(spot) if isinstance(spot, dict) else list(range(len(spot)))
            key = data.draw(st.sampled_from(keys))
            if not isinstance(spot[key], (dict, list)) or not spot[key] or data.draw(st.booleans()):
                spot[key] = copy.deepcopy(data.draw(st.sampled_from(JUNK)))
                break
            spot = spot[key]
    old = node.artifacts[index]
    node.artifacts[index] = type(old)(
        **{name: getattr(old, name) for name in old.__struct_fields__ if name != "data"},
        data=json.dumps(document).encode(),
    )
    capture = read_capture(evidence(node))
    assert len(capture.processes) == 2
    assert all(wait.why for wait in waits_of(capture).values())


def test_unix_sockets_and_damaged_table_lines() -> None:
    unix = (
        "Num RefCount Protocol Flags Type St Inode Path\n"
        "ffff: 00000002 00000000 00010000 0001 01 81 /run/x.sock\n"
        "ffff: 00000003 00000000 00000000 0001 03 82\n"
        "ffff: 00000003 00000000 00000000 0001 03 0\nffff: x\n"
    )
    tcp = "0: 0100007F:0001 ZZ:0001 01 0:0 00:0 0 0 0 83 1\n"
    tcp += "0: 0100007F:0001 00:1 01 0:0 00:0 0 0 0 84 1\n0: x\n"
    table = sockets("net:[1]", tcp, [(41, 5, 81), (41, 6, 82), (41, 7, 83), (41, 8, 84)])
    table["namespaces"][0]["unix"] = unix
    node = NodeBuilder().process(41, rank=0).threads(41, task(41)).add("sockets", "sockets.json", table)
    found = only(read_capture(evidence(node)), 41).samples[0].sockets
    assert [(item.fd, item.family, item.state, item.local) for item in found] == [
        (5, "unix", "LISTEN", "/run/x.sock"),
        (6, "unix", "ESTABLISHED", ""),
    ]


def test_nodes_agree_on_the_world_and_on_being_alone_or_say_nothing() -> None:
    first, second = NodeBuilder("a", world_size=4), NodeBuilder("b", world_size=8)
    first.scan["single_node"] = second.scan["single_node"] = True
    assert read_capture(evidence(first)).world_size == 4
    assert read_capture(evidence(first, second)).world_size is None
    assert read_capture(evidence(first, second)).single_node is True
    second.scan["single_node"] = False
    assert read_capture(evidence(first, second)).single_node is False

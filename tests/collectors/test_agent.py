"""The agent on real processes: order, protocol, memory, what happens to it and to the job."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from hangscope.bundle.reader import read_bundle_bytes
from hangscope.bundle.writer import ShardWriter
from hangscope.collectors.agent import first_look, node_capture
from hangscope.collectors.agent import run as agent
from hangscope.collectors.registry import AT_THE_END, COLLECTORS, ON_REQUEST
from tests.benchmarks.plain_job import plain_job, thread_states

from .agent_process import RunningAgent, status_of

FAST = ("--interval", "0.05")


@pytest.fixture(scope="module")
def job() -> Iterator[list[int]]:
    with plain_job(2, 4, "agent") as pids:
        yield pids


def members(running: RunningAgent) -> list[str]:
    """Names of the shard's members in the order in which they were written."""
    tar = subprocess.run(["tar", "tzf", "-"], input=bytes(running.data), capture_output=True)
    return tar.stdout.decode().splitlines()


def test_a_whole_capture(job: list[int]) -> None:
    running = RunningAgent(job[1], *FAST)
    shard = running.finish()
    assert running.process.returncode == 0 and running.lines == []
    assert shard.sealed and shard.problem is None
    assert shard.scan is not None
    assert [(row.rank, row.pid) for row in shard.scan.processes] == list(enumerate(job))
    assert shard.node is not None and shard.node.ptrace is None
    happened = [event["event"] for event in running.events]
    assert happened.count("ready") == 1 and happened[-1] == "end"
    for collector in COLLECTORS:
        if collector.name in ON_REQUEST:
            continue
        subjects = job if collector.scope == "process" else [None]
        samples = (1,) if collector.name in AT_THE_END else (0,) if collector.once else (0, 1)
        expected = {(pid, sample) for pid in subjects for sample in samples}
        found = {(cell.pid, cell.sample) for cell in shard.cells if cell.collector == collector.name}
        assert found == expected, collector.name
    for name in ("threads", "stacks", "process"):
        assert {status_of(shard, name, pid, sample) for pid in job for sample in (0, 1)} == {"ok"}, name


def test_perishable_evidence_comes_first(job: list[int]) -> None:
    running = RunningAgent(job[0], *FAST, "--samples", "1")
    running.finish()
    names = members(running)
    assert names[0] == "node.json" and names[-1] == "status.json"
    order = [names.index(next(n for n in names if n.startswith(prefix))) for prefix in (
        f"s0/threads/pid-{job[0]}/", "s0/memory/node/", "processes.json", "s0/recorder/", "s0/stacks/",
        "s0/sockets/", "s0/process/", "s0/gpus/", "s0/output/", "s0/mounts/",
    )]  # fmt: skip
    assert order == sorted(order)


def test_it_is_lean_and_the_first_to_be_killed(job: list[int]) -> None:
    running = RunningAgent(job[0], *FAST, "--skip", "stacks")
    running.wait_for("ready")
    peak = running.memory_peak()
    with open(f"/proc/{running.process.pid}/oom_score_adj") as score:
        assert score.read().strip() == "1000"
    running.finish()
    assert peak <= 25 << 20


def test_further_samples_and_native_stacks_on_request(job: list[int]) -> None:
    running = RunningAgent(job[0], *FAST, "--samples", "1")
    running.wait_for("ready")
    running.send("sample 0.1")
    running.wait_for("ready", 2)
    running.send(f"native {job[1]}")
    running.wait_for("ready", 3)
    running.send("end")
    running.process.wait(timeout=20)
    shard = running.finish()
    assert {cell.sample for cell in shard.cells if cell.collector == "threads"} == {0, 1}
    native = [cell for cell in shard.cells if cell.collector == "native"]
    assert [(cell.pid, cell.sample) for cell in native] == [(job[1], 1)]


def test_only_this_process(job: list[int]) -> None:
    shard = RunningAgent(job[1], *FAST, "--only-this-process").finish()
    assert shard.scan is not None and [row.pid for row in shard.scan.processes] == [job[1]]
    assert {cell.pid for cell in shard.cells} == {job[1], None}


def test_chosen_collectors(job: list[int]) -> None:
    shard = RunningAgent(job[0], *FAST, "--only", "threads,locks", "--skip", "locks").finish()
    assert {cell.collector for cell in shard.cells} == {"threads"}


def test_an_unknown_collector_is_told(job: list[int]) -> None:
    running = RunningAgent(job[0], "--only", "magic")
    running.process.wait(timeout=20)
    assert "no collector 'magic'" in running.wait_for("failed")["text"]
    running.close()
    assert running.process.returncode == 2


def test_terminated_in_the_middle_it_seals_what_there_is(job: list[int]) -> None:
    running = RunningAgent(job[0], "--interval", "60")
    running.wait_for("sample-end")
    running.signal()
    running.process.wait(timeout=20)
    shard = running.finish()
    assert running.process.returncode == 130 and shard.sealed
    assert status_of(shard, "stacks", job[0]) == "ok"
    assert running.wait_for("end")["samples"] == 1


def test_killed_in_the_middle_what_it_sent_is_readable(job: list[int]) -> None:
    running = RunningAgent(job[0], "--interval", "60")
    running.wait_for("sample-end")
    running.signal(signal.SIGKILL)
    running.process.wait(timeout=20)
    shard = running.finish()
    assert not shard.sealed and status_of(shard, "stacks", job[1]) == "ok"


def test_it_ends_when_nobody_reads_its_shard(job: list[int]) -> None:
    command = subprocess.Popen(
        [sys.executable, "-c", READS_NOTHING, str(job[0])], stdout=subprocess.PIPE, start_new_session=True
    )
    out, _ = command.communicate(timeout=30)
    assert out.strip() == b"1"


READS_NOTHING = """
import subprocess, sys
from hangscope.capture.launch import agent_command
agent = subprocess.Popen(
    agent_command(["--pid", sys.argv[1], "--interval", "0"]),
    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
)
agent.stdout.close()
print(agent.wait())
"""


def test_its_deadline_ends_it_and_no_gap_is_silent(job: list[int]) -> None:
    running = RunningAgent(job[0], "--samples", "3", "--interval", "60", "--deadline", "3")
    start = time.monotonic()
    shard = running.finish()
    assert time.monotonic() - start < 10
    assert shard.sealed and running.process.returncode == 0
    late = RunningAgent(job[0], *FAST, "--deadline", "0").finish()
    assert {cell.status for cell in late.cells if cell.collector == "process"} == {"timeout"}


def test_a_rank_that_exits_in_the_middle() -> None:
    with plain_job(2, 3, "exits") as pids:
        running = RunningAgent(pids[0], *FAST, "--samples", "1")
        running.wait_for("ready")
        os.kill(pids[0], signal.SIGKILL)
        running.send("sample 0.2")
        running.wait_for("ready", 2)
        shard = running.finish()
    assert status_of(shard, "stacks", pids[0], 0) == "ok"
    assert status_of(shard, "stacks", pids[0], 1) == "absent"
    assert status_of(shard, "stacks", pids[1], 1) == "ok"
    assert shard.scan is not None and [row.rank for row in shard.scan.processes] == [0, 1]


def test_of_a_job_that_has_ended_no_neighbour_is_captured_in_its_place() -> None:
    """The process ends before it is looked for: only what is known to be of its job may stand for it."""
    with plain_job(2, 3, "ends") as pids, plain_job(1, 3, "stays") as others:
        options = agent.parse(
            ["--pid", str(pids[0]), "--members", f"{pids[0]},{pids[1]}", "--only", "threads"]
        )
        running = agent.Agent(options, ShardWriter(io.BytesIO()), time.monotonic(), [])
        running.targets = first_look.targets_of([*pids, *others])
        capture = node_capture.NodeCapture(running)
        alone = node_capture.NodeCapture(
            agent.Agent(agent.parse(["--pid", "4194305"]), ShardWriter(io.BytesIO()), time.monotonic(), [])
        )
        alone.agent.targets = first_look.targets_of(others)
        assert (capture.members(), alone.members()) == ([pids[0], *pids], [4194305])
        alone.find()
        assert alone.rows == [] and alone.agent.targets == []
        capture.find()
        assert [row["pid"] for row in capture.rows] == pids
        assert set(capture.members()) == set(pids)


def test_a_child_that_appears_between_samples() -> None:
    code = (
        "import os, subprocess, sys, time\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print('grown', flush=True); time.sleep(60)"
    )
    environment = {
        **os.environ,
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29872",
    }
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    ) as rank:
        assert rank.stdin is not None and rank.stdout is not None
        rank.stdout.readline()
        running = RunningAgent(rank.pid, *FAST, "--samples", "1")
        running.wait_for("ready")
        rank.stdin.write(b"\n")
        rank.stdin.flush()
        rank.stdout.readline()
        running.send("sample 0.3")
        running.wait_for("ready", 2)
        shard = running.finish()
        os.killpg(rank.pid, signal.SIGKILL)
    assert shard.scan is not None and len(shard.scan.processes) == 2
    child = next(row.pid for row in shard.scan.processes if row.pid != rank.pid)
    assert status_of(shard, "threads", child, 1) in ("ok", "partial")


@pytest.fixture
def lone_rank() -> Iterator[int]:
    with plain_job(1, 3, "lone") as pids:
        yield pids[0]


def test_a_stopped_rank_is_captured_and_stays_as_it_was(lone_rank: int) -> None:
    os.kill(lone_rank, signal.SIGSTOP)
    shard = RunningAgent(lone_rank, *FAST).finish()
    assert status_of(shard, "stacks", lone_rank, 1) in ("ok", "partial")
    assert set(thread_states([lone_rank]).values()) == {"T"}
    os.kill(lone_rank, signal.SIGCONT)


TRACER = """
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
assert libc.ptrace(0x4206, int(sys.argv[1]), None, None) == 0, ctypes.get_errno()  # PTRACE_SEIZE
print("traced", flush=True)
time.sleep(60)
"""


def test_a_traced_rank_is_captured_without_attaching(lone_rank: int) -> None:
    with subprocess.Popen([sys.executable, "-c", TRACER, str(lone_rank)], stdout=subprocess.PIPE) as tracer:
        assert tracer.stdout is not None
        if tracer.stdout.readline() != b"traced\n":
            pytest.skip("this user may not trace")
        shard = RunningAgent(lone_rank, *FAST).finish()
        tracer.kill()
    assert status_of(shard, "threads", lone_rank) == "ok"
    assert status_of(shard, "stacks", lone_rank) in ("ok", "partial")


FREEZER = "/sys/fs/cgroup/freezer"


def test_a_frozen_rank_is_captured_in_time(lone_rank: int) -> None:
    group = f"{FREEZER}/hangscope-test-{os.getpid()}"
    try:
        os.mkdir(group)
    except OSError as error:
        pytest.skip(f"no v1 freezer to be used here: {error}")
    try:
        for name, text in (("cgroup.procs", str(lone_rank)), ("freezer.state", "FROZEN")):
            with open(f"{group}/{name}", "w") as file:
                file.write(text)
        start = time.monotonic()
        shard = RunningAgent(lone_rank, *FAST).finish()
        assert time.monotonic() - start < 20
        assert status_of(shard, "threads", lone_rank) == "ok"
        process = next(a for a in shard.artifacts if a.name == "process.json")
        assert b"FROZEN" in process.data or b"FREEZING" in process.data
    finally:
        with open(f"{group}/freezer.state", "w") as file:
            file.write("THAWED")
        with open(f"{FREEZER}/cgroup.procs", "w") as file:
            file.write(str(lone_rank))
        os.rmdir(group)


MEMORY = "/sys/fs/cgroup/memory"
HOARDER = """
import sys
group, spare = sys.argv[1], int(sys.argv[2])
def read(name):
    with open(f"{group}/{name}") as file:
        return int(file.read())
kept = []
while read("memory.limit_in_bytes") - read("memory.usage_in_bytes") > spare:
    kept.append(bytearray(b"x" * (256 << 10)))
print("ready", flush=True)
sys.stdin.read()
"""
SPARE = 5 << 20
"""Bytes left below the limit: enough for an interpreter to start in, not for an agent."""


def test_at_the_memory_limit_of_the_job_the_agent_dies_and_the_rank_lives() -> None:
    """The agent is charged to the job's memory cgroup, as in a container or an srun step."""
    group = f"{MEMORY}/hangscope-test-{os.getpid()}"
    try:
        os.mkdir(group)
        with open(f"{group}/memory.limit_in_bytes", "w") as limit:
            limit.write(str(64 << 20))
    except OSError as error:
        pytest.skip(f"no v1 memory cgroup to be used here: {error}")
    inside = ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
    try:
        with subprocess.Popen(
            [*inside, sys.executable, "-c", HOARDER, group, str(SPARE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as rank:
            assert rank.stdout is not None and rank.stdout.readline() == b"ready\n"
            running = RunningAgent(rank.pid, *FAST, prefix=inside)
            with contextlib.suppress(BrokenPipeError):  # killed already
                running.send("end")
            status = running.process.wait(timeout=30)
            running.close()
            alive = rank.poll() is None
            rank.kill()
        assert (status, alive) == (-signal.SIGKILL, True)
    finally:
        os.rmdir(group)


def test_without_ptrace_it_works_from_what_remains(lone_rank: int) -> None:
    """Emulates Yama and containers: the agent lacks CAP_SYS_PTRACE and the rank has more capabilities than
    it, so the kernel refuses ptrace, process_vm_readv, mem, environ, syscall, stack and fd."""
    if os.getuid() != 0:
        pytest.skip("dropping a capability that the rank keeps needs root")
    drop = ("setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace")
    if subprocess.run([*drop, "true"], capture_output=True).returncode:
        pytest.skip("setpriv cannot drop the capability here")
    running = RunningAgent(lone_rank, *FAST, prefix=drop)
    shard = running.finish()
    assert shard.sealed and shard.node is not None
    assert "CAP_SYS_PTRACE" in (shard.node.ptrace or "")
    assert status_of(shard, "stacks", lone_rank) in ("denied", "error")
    assert status_of(shard, "threads", lone_rank) == "partial"
    assert any(a.name == "threads.json" and b'"comm"' in a.data for a in shard.artifacts)


def test_the_first_look_is_out_before_any_child(job: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def no_child() -> int:
        raise AssertionError("a child was started")

    monkeypatch.setattr(os, "fork", no_child)
    stream = io.BytesIO()
    looking = agent.Agent(
        agent.parse(["--pid", str(job[0])]), ShardWriter(stream), time.monotonic(), ["a note"]
    )
    looking.look_first()
    monkeypatch.undo()
    shard = read_bundle_bytes(stream.getvalue()).shards[0]
    assert shard.node is not None and shard.node.notes == ("a note",)
    assert status_of(shard, "threads", job[0]) == "ok"
    assert status_of(shard, "memory", None) in ("ok", "partial")


def test_when_the_search_for_processes_fails_the_first_look_still_counts(
    job: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(node_capture.discovery, "scan_record", fail)
    stream = io.BytesIO()
    options = agent.parse(["--pid", str(job[0]), "--only-this-process", "--only", "threads,process"])
    running = agent.Agent(options, ShardWriter(stream), time.monotonic(), [])
    running.look_first()
    capture = node_capture.NodeCapture(running)
    capture.find()
    capture.sample()
    shard = read_bundle_bytes(stream.getvalue()).shards[0]
    assert shard.scan is not None and not shard.scan.complete
    assert [(row.pid, row.role) for row in shard.scan.processes] == [(job[0], "helper")]
    assert "ZeroDivisionError: a fault of ours" in shard.scan.notes[0]
    assert status_of(shard, "process", job[0]) == "ok"


@pytest.mark.parametrize("pid", [2**22 + 1, 0])
def test_a_pid_that_is_not_there(pid: int) -> None:
    running = RunningAgent(pid, *FAST)
    shard = running.finish()
    assert shard.sealed and shard.scan is not None
    assert shard.scan.processes == () and not shard.scan.complete

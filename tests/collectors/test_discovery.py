"""Real processes: who is found to be a rank, a helper, an orphan, and of which job."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangscope.collectors import procfs
from hangscope.collectors.ranks import discovery
from hangscope.errors import NoSuchTarget, PermissionRefused

from .rank_processes import (
    NAME,
    SLEEP,
    Processes,
    by_pid,
    eventually,
    jobs_of,
    processes,
    rank_variables,
    roles_of,
    the_job,
)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Processes]:
    with processes(tmp_path) as started:
        yield started


def test_ranks_started_by_hand_make_one_job_and_the_missing_one_is_told(running: Processes) -> None:
    script = running.script("byhand.py", SLEEP)
    ranks = running.ranks(script, "013", 4, 29411)
    job = the_job(script)
    assert {pid: role[:2] for pid, role in roles_of(job).items()} == {
        ranks[0].pid: ("rank", 0),
        ranks[1].pid: ("rank", 1),
        ranks[2].pid: ("rank", 3),
    }
    assert (job.name, job.world_size, job.single_node, job.launcher) == ("byhand-29411", 4, True, "by hand")
    assert job.expected_local == (0, 1, 2, 3)
    assert by_pid(job)[ranks[0].pid]["why"] == "live RANK"


def test_children_of_a_rank_inherit_its_variables_and_are_no_ranks(running: Processes) -> None:
    script = running.script(
        "family.py",
        NAME
        + """
import os, subprocess, sys, time
for kind in ("pt_data_worker", ""):
    child = os.fork()
    if child == 0:
        if kind:
            name(kind)
        time.sleep(120)
    print("child", child, flush=True)
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
print("child", other.pid, flush=True)
tail = subprocess.Popen(["sleep", "120"])
print("child", tail.pid, flush=True)
print("ready", flush=True)
time.sleep(120)
""",
    )
    (rank,) = running.ranks(script, "1", 2, 29412)
    worker, forked, other, tail = running.others
    eventually(lambda: (procfs.stat_fields(worker) or None) is not None)
    job = the_job(script)
    assert roles_of(job) == {
        rank.pid: ("rank", 1, None),
        worker: ("dataloader", None, 1),
        forked: ("helper", None, 1),
        other: ("helper", None, 1),
        tail: ("helper", None, 1),
    }


def test_ranks_that_a_program_sets_after_exec_are_found(running: Processes) -> None:
    script = running.script(
        "spawner.py",
        """
        import multiprocessing, os, time
        def work(rank):
            os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT="29413")
            print("child", os.getpid(), flush=True)
            time.sleep(120)
        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            for rank in range(2):
                context.Process(target=work, args=(rank,)).start()
            time.sleep(120)
        """,
    )
    launcher = running.start(script, wait=False)
    running.line(launcher, "child")
    running.line(launcher, "child")
    job = the_job(script)
    found = roles_of(job)
    ranks = sorted(role[1] for role in found.values() if role[0] == "rank")
    trackers = [pid for pid, role in found.items() if role[0] == "resource-tracker"]
    running.others += trackers
    assert ranks == [0, 1] and len(trackers) == 1
    assert found[launcher.pid] == ("launcher", None, None)
    assert (job.launcher, job.launcher_pid, job.name) == ("multiprocessing", launcher.pid, "spawner-29413")


def test_a_title_that_wipes_the_block_of_exec_does_not_hide_a_rank(running: Processes) -> None:
    pytest.importorskip("setproctitle")
    script = running.script(
        "wiped.py", "import setproctitle\nsetproctitle.setproctitle('wiped.py ' * 90)\n" + SLEEP
    )
    (rank,) = running.ranks(script, "1", 2, 29414)
    assert b"RANK" not in Path(f"/proc/{rank.pid}/environ").read_bytes()
    jobs = [job for job in discovery.recognise(discovery.scan()) if rank.pid in by_pid(job)]
    assert [job.ranks for job in jobs] == [(1,)]


def test_shells_and_timeout_around_a_rank_are_not_it(running: Processes) -> None:
    script = running.script("wrapped.py", "import os\nprint('child', os.getpid(), flush=True)\n" + SLEEP)
    for rank in range(2):
        command = f"timeout 100 {sys.executable} {script}; true"
        running.start("bash", "-c", command, **rank_variables(rank, 2, 29415))
    job = the_job(script)
    assert {pid: role[:2] for pid, role in roles_of(job).items()} == {
        running.others[0]: ("rank", 0),
        running.others[1]: ("rank", 1),
    }
    shell = discovery.job_of_pid(running.started[0].pid, discovery.scan())
    assert shell.name == job.name


def test_a_killed_rank_with_a_living_child_is_an_orphan_and_no_rank(running: Processes) -> None:
    script = running.script(
        "killed.py",
        """
        import os, time
        child = os.fork()
        if child:
            print("child", child, flush=True)
            print("ready", flush=True)
        time.sleep(120)
        """,
    )
    ranks = running.ranks(script, "012", 3, 29416)
    victim, orphan = ranks[1], running.others[1]
    victim.send_signal(signal.SIGKILL)
    eventually(lambda: (procfs.stat_fields(orphan) or None) is not None and _parent(orphan) != victim.pid)

    zombie = the_job(script)
    assert roles_of(zombie)[orphan] == ("orphan", None, 1)
    assert roles_of(zombie)[victim.pid] == ("rank", 1, None)
    assert by_pid(zombie)[victim.pid]["state"] == "Z"

    victim.wait(10)
    job = the_job(script)
    assert victim.pid not in by_pid(job)
    assert roles_of(job)[orphan] == ("orphan", None, 1)
    assert job.ranks == (0, 2) and job.expected_local == (0, 1, 2) and job.single_node is True


def _parent(pid: int) -> int:
    line = procfs.stat_fields(pid)
    assert line is not None
    return line.ppid


def test_orphans_of_a_dead_rank_that_ran_another_program_are_no_ranks(running: Processes) -> None:
    script = running.script(
        "helped.py",
        """
        import subprocess, sys, time
        for command in ([sys.executable, "-c", "import time; time.sleep(120)"], ["sleep", "120"]):
            print("child", subprocess.Popen(command).pid, flush=True)
        print("ready", flush=True)
        time.sleep(120)
        """,
    )
    ranks = running.ranks(script, "01", 2, 29417)
    python, sleep = running.others[2:]
    ranks[1].kill()
    ranks[1].wait(10)
    found = roles_of(the_job(script))
    assert found[python] == ("orphan", None, 1) and found[sleep] == ("orphan", None, 1)
    assert found[ranks[0].pid] == ("rank", 0, None)


def test_a_leader_that_exited_under_a_living_thread_is_still_the_rank(running: Processes) -> None:
    script = running.script(
        "leaderless.py",
        """
        import ctypes, platform, threading, time
        def stay():
            print("ready", flush=True)
            time.sleep(120)
        threading.Thread(target=stay).start()
        ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
        """,
    )
    (rank,) = running.ranks(script, "0", 2, 29418)
    eventually(lambda: Path(f"/proc/{rank.pid}/stat").read_text().split(") ")[1][0] == "Z")
    job = the_job(script)
    assert roles_of(job) == {rank.pid: ("rank", 0, None)}
    assert by_pid(job)[rank.pid]["state"] == "Z"


def test_ranks_outlive_their_launcher(running: Processes) -> None:
    script = running.script("left.py", SLEEP)
    launcher = running.script(
        "pt_launch.py",
        NAME
        + """
import os, subprocess, sys
name("pt_elastic")
for rank in range(2):
    env = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2",
               MASTER_ADDR="node", MASTER_PORT="29419", TORCHELASTIC_RUN_ID="my run/7", GROUP_RANK="0",
               TORCHELASTIC_RESTART_COUNT="0")
    child = subprocess.Popen([sys.executable, sys.argv[1]], env=env, stdout=subprocess.PIPE)
    child.stdout.readline()
    print("child", child.pid, flush=True)
print("ready", flush=True)
child.wait()
""",
    )
    agent = running.start(launcher, script)
    job = the_job(script)
    assert (job.name, job.launcher, job.launcher_pid, job.single_node) == (
        "my-run-7",
        "torchrun",
        agent.pid,
        True,
    )
    assert roles_of(job)[agent.pid] == ("launcher", None, None)
    assert sorted(discovery.cheap_tree(running.others[0])) == sorted([agent.pid, *running.others])
    agent.kill()
    agent.wait(10)
    job = the_job(script)
    assert job.ranks == (0, 1) and job.launcher_pid is None and len(job.rows) == 2


def test_two_jobs_of_one_script_and_port_are_not_mixed_up(running: Processes) -> None:
    script = running.script("twice.py", SLEEP)
    old = running.ranks(script, "01", 2, 29420)
    eventually(lambda: os.times().elapsed * 100 > (procfs.start_ticks(old[0].pid) or 0) + 100)
    new = running.ranks(script, "01", 2, 29420)
    other = running.ranks(script, "01", 2, 29421)
    jobs = jobs_of(script)
    assert [sorted(by_pid(job)) for job in jobs] == [
        sorted(one.pid for one in part) for part in (old, new, other)
    ]
    assert len({job.name for job in jobs}) == 3
    assert jobs[2].name == "twice-29421"


def test_the_record_has_the_shape_of_a_scan_record(running: Processes) -> None:
    msgspec = pytest.importorskip("msgspec")
    from hangscope.model.evidence import ScanRecord

    script = running.script("shape.py", SLEEP)
    ranks = running.ranks(script, "10", 2, 29422, API_TOKEN="hunter2hunter2")
    record, targets = discovery.scan_record(ranks[0].pid)
    scan = msgspec.convert(record, ScanRecord)
    assert [(row.rank, row.world_size, row.role) for row in scan.processes] == [
        (0, 2, "rank"),
        (1, 2, "rank"),
    ]
    assert [target.rank for target in targets] == [0, 1] and scan.complete and scan.expected_local == (0, 1)
    assert "hunter2" not in repr(record)
    only, alone = discovery.scan_record(ranks[0].pid, only=True)
    assert [target.pid for target in alone] == [ranks[0].pid] and only["complete"] is False


def test_a_single_python_process_is_a_job_of_one(running: Processes) -> None:
    script = running.script("alone.py", SLEEP)
    process = running.start(script)
    job = discovery.job_of_pid(process.pid, discovery.scan())
    assert roles_of(job) == {process.pid: ("rank", 0, None)}
    assert (job.world_size, job.name) == (1, f"alone-p{process.pid}")


def test_pids_that_cannot_be_meant_are_refused_with_the_next_step(running: Processes) -> None:
    sleep = running.start("bash", "-c", "echo ready; sleep 100 & echo child $!; wait")
    running.line(sleep, "child")
    dead = running.start("bash", "-c", "echo ready")
    eventually(lambda: Path(f"/proc/{dead.pid}/stat").read_text().split(") ")[1][0] == "Z")
    seen = discovery.scan()
    for pid, words in (
        (running.others[0], "no Python process"),
        (dead.pid, "is dead"),
        (2**22 + 1, "no process"),
    ):
        with pytest.raises(NoSuchTarget, match=words) as error:
            discovery.job_of_pid(pid, seen)
        assert error.value.advice
    record, targets = discovery.scan_record(2**22 + 1)
    assert record["processes"] == [] and targets == [] and record["complete"] is False
    record, targets = discovery.scan_record(sleep.pid)
    assert "no Python process" in record["notes"][0] and targets[0].pid == sleep.pid


def test_a_thread_id_and_a_kernel_thread_are_told_apart(running: Processes) -> None:
    script = running.script(
        "threads.py",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(120,)).start()\n" + SLEEP,
    )
    process = running.start(script)
    tid = procfs.tasks(process.pid)[1]
    with pytest.raises(NoSuchTarget, match="is a thread of process") as error:
        discovery.job_of_pid(tid, discovery.scan())
    assert error.value.advice == f"hangscope capture -p {process.pid}"
    if "kthreadd" in (procfs.read_text("/proc/2/comm")[0] or ""):
        with pytest.raises(NoSuchTarget, match="kernel thread"):
            discovery.job_of_pid(2, discovery.scan())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_the_process_of_another_user_is_refused(running: Processes) -> None:
    script = running.script("foreign.py", SLEEP)
    process = running.start(script)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgid(65534)
            os.setuid(65534)
            discovery.job_of_pid(process.pid, discovery.scan())
        except PermissionRefused as error:
            status = 0 if error.advice else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0

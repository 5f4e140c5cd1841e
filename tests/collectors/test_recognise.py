"""Process tables of launchers that a test machine lacks, as they were seen on machines that have them."""

import base64
import json
import os

import pytest

from hangscope.collectors.ranks.discovery import recognise
from hangscope.collectors.ranks.found_job import FoundJob
from hangscope.collectors.ranks.job_of_pid import job_of_pid
from hangscope.collectors.ranks.roles import ProcessInfo, identity, launcher_kind, program, told_role
from hangscope.errors import NoSuchTarget, PermissionRefused

GLOO = ("python3", "pt_gloo_runloop", "gloo_tcp_loop")
LOOKER = 90000
FORKSERVER = "from multiprocessing.forkserver import main; main(3)"
TRACKER = "from multiprocessing.resource_tracker import main;main(5)"
ELASTIC = {"MASTER_ADDR": "node-a", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none", "GROUP_RANK": "0"}


def process(pid: int, ppid: int, *cmdline: str, **fields: object) -> ProcessInfo:
    """A Python process of user 1000 with a readable environment, unless told otherwise."""
    told = {
        "start_ticks": 1000 + pid,
        "comm": "python3",
        "state": "S",
        "uid": 1000,
        "session": pid,
        "pgrp": pid,
        "exe": "/usr/bin/python3.11",
        "env": {},
        "env_source": "live",
        "cmdline": cmdline or ("python3", "train.py"),
        **fields,
    }
    return ProcessInfo(pid=pid, ppid=ppid, **told)  # type: ignore[arg-type]  # the fields that a test names


def rank(
    pid: int, ppid: int, number: int, size: int, local: int | None = None, **more: object
) -> ProcessInfo:
    env = {**ELASTIC, "RANK": str(number), "WORLD_SIZE": str(size), "LOCAL_RANK": str(number)}
    if local is not None:
        env.update(LOCAL_WORLD_SIZE=str(local), LOCAL_RANK=str(number % local))
    env.update(more.pop("variables", {}))  # type: ignore[call-overload]  # a dict
    return process(pid, ppid, **{"env": env, "exec_env": env, "threads": GLOO, **more})


def agent(pid: int, ppid: int = 1) -> ProcessInfo:
    return process(pid, ppid, "python3", "/venv/bin/torchrun", "train.py", comm="pt_elastic")


def look(*processes: ProcessInfo) -> list[FoundJob]:
    init = process(1, 0, "/sbin/init", comm="systemd", exe="/usr/lib/systemd/systemd")
    return recognise([init, *processes], self_pid=LOOKER)


def ranks(job: FoundJob) -> dict[int, int | None]:
    return {row["pid"]: row["rank"] for row in job.rows if row["role"] == "rank"}


def test_one_agent_of_several_says_that_ranks_are_elsewhere() -> None:
    (job,) = look(agent(10), rank(11, 10, 2, 4, 2), rank(12, 10, 3, 4, 2))
    assert (job.single_node, job.expected_local, job.launcher) == (False, (2, 3), "torchrun")


def test_two_agents_of_one_job_on_this_host_are_joined() -> None:
    first = [agent(10), rank(11, 10, 0, 4, 2), rank(12, 10, 1, 4, 2)]
    second = [agent(20), rank(21, 20, 2, 4, 2), rank(22, 20, 3, 4, 2)]
    (job,) = look(*first, *second)
    assert job.ranks == (0, 1, 2, 3) and job.single_node is True
    (job,) = look(*first, *second[:2])
    assert job.ranks == (0, 1, 2) and job.expected_local == (0, 1, 2, 3)


def test_a_second_launch_with_the_port_of_the_first_is_another_job() -> None:
    jobs = look(agent(10), rank(11, 10, 0, 2, 2), rank(12, 10, 1, 2, 2), agent(20), rank(21, 20, 1, 2, 2))
    assert [(job.name, sorted(ranks(job))) for job in jobs] == [
        ("train-29500-p10", [11, 12]),
        ("train-29500-p20", [21]),
    ]


def test_launches_without_launcher_are_told_apart_by_their_error_directory() -> None:
    def left(pid: int, number: int, launch: str) -> ProcessInfo:
        file = f"/tmp/torchelastic_{launch}/none_x/attempt_0/{number}/error.json"
        return rank(pid, 1, number, 2, 2, variables={"TORCHELASTIC_ERROR_FILE": file})

    jobs = look(left(11, 0, "aa"), left(12, 1, "aa"), left(21, 0, "bb"), left(22, 1, "bb"))
    assert [sorted(ranks(job)) for job in jobs] == [[11, 12], [21, 22]]
    assert jobs[0].launcher == "launcher gone"


def test_an_unkillable_rank_of_an_older_attempt_is_not_joined_with_the_new_one() -> None:
    def attempt(pid: int, number: int, restart: int) -> ProcessInfo:
        return rank(pid, 10, number, 2, 2, variables={"TORCHELASTIC_RESTART_COUNT": str(restart)})

    jobs = look(agent(10), attempt(11, 1, 0), attempt(21, 0, 1), attempt(22, 1, 1))
    assert [sorted(ranks(job)) for job in jobs] == [[11], [21, 22]]


def test_an_older_attempt_by_hand_is_told_apart_by_its_start() -> None:
    old = [rank(11, 1, 0, 2, start_ticks=100), rank(12, 1, 1, 2, start_ticks=110)]
    (job_old, job_new) = look(*old, rank(21, 1, 0, 2, start_ticks=90000))
    assert (ranks(job_old), ranks(job_new)) == ({11: 0, 12: 1}, {21: 0})


def test_three_holders_of_one_number_are_never_one_job() -> None:
    jobs = look(*(rank(pid, 1, 1, 2, start_ticks=500) for pid in (11, 12, 13)))
    assert [ranks(job) for job in jobs] == [{11: 1}, {12: 1}, {13: 1}]


def test_below_srun_torchrun_the_agents_procid_is_nobodys_rank() -> None:
    slurm = {"SLURM_PROCID": "1", "SLURM_TASK_PID": "10", "SLURM_JOB_ID": "7", "SLURM_NTASKS": "2"}
    launcher = agent(10)._replace(env=slurm)
    (job,) = look(launcher, *(rank(11 + n, 10, 2 + n, 4, 2, variables=slurm) for n in range(2)))
    assert ranks(job) == {11: 2, 12: 3}


def test_slurm_tasks_tell_their_node_and_their_children_claim_nothing() -> None:
    step = process(5, 1, "slurmstepd: [7.0]", comm="slurmstepd", exe="/usr/sbin/slurmstepd", uid=0)
    tasks = [
        process(
            10 + n,
            5,
            env={
                "SLURM_PROCID": str(2 + n),
                "SLURM_TASK_PID": str(10 + n),
                "SLURM_STEP_NUM_TASKS": "4",
                "SLURM_STEP_NUM_NODES": "2",
                "SLURM_GTIDS": "2,3",
                "SLURM_JOB_ID": "7",
                "SLURM_LOCALID": str(n),
            },
        )
        for n in range(2)
    ]
    child = process(20, 10, env=tasks[0].env)
    (job,) = look(step, *tasks, child)
    assert ranks(job) == {10: 2, 11: 3} and (job.single_node, job.expected_local) == (False, (2, 3))
    assert {row["pid"]: row["role"] for row in job.rows}[20] == "helper"
    assert 5 not in {row["pid"] for row in job.rows}


def test_mpi_ranks_before_they_know_where_to_meet() -> None:
    def task(pid: int, number: int, **more: str) -> ProcessInfo:
        env = {
            "OMPI_COMM_WORLD_RANK": str(number),
            "OMPI_COMM_WORLD_SIZE": "3",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "3",
            "PMIX_RANK": str(number),
            "PMIX_NAMESPACE": "ns1",
        }
        return process(pid, 10, env={**env, **more})

    mpirun = process(10, 1, "mpirun", "-n", "3", comm="mpirun.openmpi", exe="/usr/bin/orterun")
    meets = {"MASTER_ADDR": "node-a", "MASTER_PORT": "29500"}
    (job,) = look(mpirun, task(11, 0, **meets), task(12, 1, **meets), task(13, 2))
    assert ranks(job) == {11: 0, 12: 1, 13: 2}
    assert (job.launcher, job.single_node, job.world_size) == ("mpirun", True, 3)


def test_mpich_and_pmix_variables() -> None:
    hydra = process(10, 1, comm="hydra_pmi_proxy", exe="/usr/bin/hydra_pmi_proxy")
    env = {"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "2", "MPI_LOCALRANKID": "1"}
    (job,) = look(hydra, process(11, 10, env=env))
    assert (ranks(job), job.single_node, job.expected_local) == ({11: 1}, False, None)
    found = identity(process(12, 1, env={"PMIX_RANK": "3", "SLURM_STEP_NUM_TASKS": "8"}))
    assert found is not None and (found.rank, found.world_size, found.source) == (3, 8, "live PMIX_RANK")


@pytest.mark.parametrize(
    ("node", "hosts", "expected"), [(1, 2, (False, (2, 3))), (0, 1, (True, (0, 1, 2, 3)))]
)
def test_deepspeed_tells_its_hosts(node: int, hosts: int, expected: object) -> None:
    slots = {f"host{n}": list(range(4 // hosts)) for n in range(hosts)}
    info = base64.urlsafe_b64encode(json.dumps(slots).encode()).decode()
    words = (
        "python3",
        "-u",
        "-m",
        "deepspeed.launcher.launch",
        f"--world_info={info}",
        f"--node_rank={node}",
    )
    (job,) = look(process(10, 1, *words), rank(11, 10, 2, 4), rank(12, 10, 3, 4))
    assert (job.single_node, job.expected_local) == expected and job.launcher == "deepspeed"


@pytest.mark.parametrize("info", ["!", base64.urlsafe_b64encode(b"[1]").decode(), ""])
def test_a_broken_world_info_tells_nothing(info: str) -> None:
    words = ("python3", "-m", "deepspeed.launcher.launch", "--world_info", info)
    (job,) = look(process(10, 1, *words), rank(11, 10, 2, 4))
    assert (job.single_node, job.expected_local) == (None, None)


def test_loopback_proves_one_node_but_not_in_a_pod() -> None:
    loopback = {"MASTER_ADDR": "localhost"}
    (job,) = look(rank(11, 1, 0, 2, variables=loopback))
    assert (job.single_node, job.expected_local) == (True, (0, 1))
    (job,) = look(rank(11, 1, 0, 2, variables={**loopback, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}))
    assert (job.single_node, job.expected_local) == (None, None)


def test_a_pods_own_number_is_not_that_of_the_ranks_it_starts() -> None:
    pod = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "m-0", "MASTER_PORT": "29500"}
    entry = process(10, 1, "python3", "entry.py", env=pod, exec_env=pod)
    (job,) = look(entry, *(rank(11 + n, 10, n, 8, 4) for n in range(4)))
    assert ranks(job) == {11 + n: n for n in range(4)}
    (job,) = look(entry, agent(20, 10), *(rank(21 + n, 20, n, 8, 4) for n in range(4)))
    assert ranks(job) == {21 + n: n for n in range(4)}


def test_a_python_wrapper_hands_on_and_the_one_with_the_threads_is_the_rank() -> None:
    wrapper = rank(10, 1, 0, 2, threads=("python3",))
    (job,) = look(wrapper, rank(11, 10, 0, 2))
    assert ranks(job) == {11: 0}


def test_ray_workers_have_a_live_rank_and_share_their_raylet() -> None:
    raylet = process(10, 1, "/ray/raylet", comm="raylet", exe="/ray/raylet")
    idle = process(13, 10, "ray::IDLE", comm="ray::IDLE")
    workers = [
        rank(11 + n, 10, n, 2, comm="ray::RayTrainWo", cmdline=("ray::RayTrainWorker",)) for n in range(2)
    ]
    (job,) = look(raylet, idle, *workers)
    assert ranks(job) == {11: 0, 12: 1}
    assert {row["pid"] for row in job.rows} == {11, 12} and job.launcher == "ray"


def test_helpers_by_name_are_told_and_belong_to_their_rank() -> None:
    env = rank(1, 1, 0, 2).env
    inductor = "/venv/torch/_inductor/compile_worker/__main__.py"
    helpers = [
        process(21, 11, "python3", inductor, "--kind=fork", env=env),
        process(22, 21, "python3", inductor, "--kind=fork", env=env, forked=True),
        process(23, 11, "python3", "-c", TRACKER, env=env),
        process(24, 11, "python3", "-c", FORKSERVER, env=env),
        process(25, 24, "python3", "-c", FORKSERVER, env=env, forked=True, comm="pt_data_worker"),
        process(26, 11, "/venv/wandb-core", comm="wandb-core", exe="/venv/wandb-core", env=env),
    ]  # fmt: skip
    (job,) = look(rank(11, 1, 0, 2), *helpers)
    roles = {row["pid"]: (row["role"], row["parent_rank"]) for row in job.rows}
    assert roles == {
        11: ("rank", None),
        21: ("compile-worker", 0),
        22: ("compile-worker", 0),
        23: ("resource-tracker", 0),
        24: ("forkserver", 0),
        25: ("dataloader", 0),
        26: ("helper", 0),
    }


def test_what_a_dead_launch_left_is_no_part_of_the_next_one() -> None:
    left = rank(9, 1, 1, 2, comm="pt_data_worker", threads=(), forked=True, start_ticks=50)
    (job,) = look(left, agent(10), rank(11, 10, 0, 2, 2), rank(12, 10, 1, 2, 2))
    assert 9 not in {row["pid"] for row in job.rows}


def test_a_helper_that_cut_itself_loose_is_no_orphan_while_its_rank_lives() -> None:
    loose = rank(13, 1, 1, 2, comm="pt_data_worker", threads=(), forked=True)
    (job,) = look(rank(11, 1, 0, 2), rank(12, 1, 1, 2), loose)
    assert {row["pid"]: (row["role"], row["parent_rank"]) for row in job.rows}[13] == ("dataloader", 1)


def test_an_unreadable_process_makes_the_look_incomplete_only_where_a_rank_is_missing() -> None:
    unread = process(13, 1, env=None, env_source=None, cmdline=None, reason="no answer in 1.5 s")
    (job,) = look(unread, rank(11, 1, 0, 2, variables={"MASTER_ADDR": "127.0.0.1"}))
    assert (job.complete, job.denied) == (False, (13,))
    (job,) = look(unread, rank(11, 1, 0, 2), rank(12, 1, 1, 2))
    assert (job.complete, job.denied) == (True, ())
    (job,) = look(unread, agent(10), rank(11, 10, 0, 2, 2), unread._replace(pid=14, ppid=10))
    assert job.denied == (13, 14)
    bash = unread._replace(exe="/usr/bin/bash", comm="bash")
    (job,) = look(bash, unread._replace(uid=0), rank(11, 1, 0, 2, variables={"MASTER_ADDR": "127.0.0.1"}))
    assert job.complete


def test_the_only_missing_rank_is_the_only_sibling_with_its_threads() -> None:
    stuck = process(
        13, 10, env=None, env_source=None, cmdline=None, reason="no answer in 1.5 s", threads=GLOO
    )
    (job,) = look(agent(10), rank(11, 10, 0, 3, 3), rank(12, 10, 1, 3, 3), stuck)
    assert ranks(job) == {11: 0, 12: 1, 13: 2} and job.complete
    (job,) = look(agent(10), rank(11, 10, 0, 4, 4), rank(12, 10, 1, 4, 4), stuck)
    assert ranks(job) == {11: 0, 12: 1, 13: None} and job.denied == (13,)


def test_a_stuck_sibling_without_such_a_thread_is_captured_without_a_number() -> None:
    """A memory map that is locked hides a rank's environment: it may be the very culprit."""
    stuck = process(13, 10, env=None, env_source=None, cmdline=None, reason="no answer in 1.5 s")
    (job,) = look(agent(10), rank(11, 10, 0, 3, 3), rank(12, 10, 1, 3, 3), stuck)
    assert ranks(job) == {11: 0, 12: 1, 13: None} and job.ranks == (0, 1)
    assert (job.complete, job.denied) == (False, (13,))
    assert "no answer in 1.5 s" in next(row["why"] for row in job.rows if row["pid"] == 13)
    (job,) = look(agent(10), rank(11, 10, 0, 2, 2), rank(12, 10, 1, 2, 2), stuck)
    assert ranks(job) == {11: 0, 12: 1}  # nobody is missing
    foreign = stuck._replace(reason="EPERM")
    (job,) = look(agent(10), rank(11, 10, 0, 3, 3), rank(12, 10, 1, 3, 3), foreign)
    assert ranks(job) == {11: 0, 12: 1} and job.denied == (13,)


def test_a_sibling_of_two_jobs_is_given_no_number() -> None:
    stuck = process(
        13, 10, env=None, env_source=None, cmdline=None, reason="no answer in 1.5 s", threads=GLOO
    )
    shell = process(10, 1, "bash", comm="bash", exe="/usr/bin/bash")
    loopback = {"MASTER_ADDR": "127.0.0.1"}
    other = rank(14, 10, 0, 2, variables={**loopback, "MASTER_PORT": "29501"})
    jobs = look(shell, rank(11, 10, 0, 2, variables=loopback), stuck, other)
    assert [ranks(job) for job in jobs] == [{11: 0}, {14: 0}]
    assert [job.denied for job in jobs] == [(13,), (13,)]


def test_a_spawned_rank_that_has_set_no_number_yet_is_not_taken_for_absent() -> None:
    spawn = (
        "python3",
        "-c",
        "from multiprocessing.spawn import spawn_main; spawn_main()",
        "--multiprocessing-fork",
    )
    launcher = process(10, 1, "python3", "train.py")
    workers = [
        rank(11 + n, 10, n, 3, cmdline=spawn, variables={"MASTER_ADDR": "localhost"}) for n in range(2)
    ]
    silent = process(13, 10, *spawn)
    (job,) = look(launcher, *workers, silent)
    assert (job.complete, job.denied, job.launcher_pid) == (False, (13,), 10)
    assert ranks(job) == {11: 0, 12: 1}


def test_ranks_with_threads_but_without_any_number_are_found_below_their_launcher() -> None:
    spawn = ("python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()")
    workers = [process(11 + n, 10, *spawn, threads=GLOO) for n in range(2)]
    (job,) = look(process(10, 1, "python3", "train.py"), *workers)
    assert ranks(job) == {11: None, 12: None} and job.world_size is None and job.name == "train-p11"


def test_dead_siblings_are_named_only_when_there_is_no_doubt() -> None:
    def dead(pid: int) -> ProcessInfo:
        return process(pid, 10, state="Z", env=None, cmdline=(), exe=None)

    (job,) = look(agent(10), rank(11, 10, 0, 3, 3), rank(12, 10, 1, 3, 3), dead(13))
    assert ranks(job) == {11: 0, 12: 1, 13: 2} and job.complete
    (job,) = look(agent(10), rank(11, 10, 0, 3, 3), dead(13), dead(14))
    assert ranks(job) == {11: 0} and "13, 14" in job.notes[0]


def test_ranks_of_a_program_that_starts_them_without_multiprocessing() -> None:
    program = process(10, 1, "python3", "my_launcher.py")
    (job,) = look(program, rank(11, 10, 0, 2), rank(12, 10, 1, 2))
    assert (job.launcher, job.launcher_pid) == ("my_launcher", 10)


def test_names_are_safe_and_apart() -> None:
    variables = {"TORCHELASTIC_RUN_ID": "../../x y;rm \x1b[31m" + "z" * 90}
    (job,) = look(rank(11, 1, 0, 2, variables=variables))
    assert job.name == "x-y-rm-31m" + "z" * 38
    (job,) = look(rank(11, 1, 0, 2, variables={"TORCHELASTIC_RUN_ID": "///"}))
    assert job.name == "job-p11"
    (job,) = look(
        rank(11, 1, 0, 2, variables={"TORCHELASTIC_RUN_ID": "83b3cb4f-ce20-4a43-8418-482d2f67442f"})
    )
    assert job.name == "train-29500"


@pytest.mark.parametrize(
    ("cmdline", "comm", "kind"),
    [
        (("python3", "/venv/bin/torchrun", "x.py"), "python3", "torchrun"),
        (("python3", "/l/torch/distributed/run.py", "x.py"), "python3", "torchrun"),
        (("python3", "-m", "accelerate.commands.launch", "x.py"), "python3", "accelerate"),
        (("/usr/bin/mpirun.openmpi", "-n", "2"), "mpirun.openmpi", "mpirun"),
        (("python3", "accelerate.py"), "python3", None),
        (("python3", "/home/me/deepspeed/train.py"), "python3", None),
        (("python3", "-c", "import deepspeed"), "python3", None),
        ((), "python3", None),
    ],
)  # fmt: skip
def test_launchers_by_name(cmdline: tuple[str, ...], comm: str, kind: str | None) -> None:
    assert launcher_kind(process(2, 1, comm=comm, exe=None)._replace(cmdline=cmdline)) == kind


def test_hostile_command_lines_and_numbers_tell_nothing() -> None:
    assert program(("python3", "-W")) == ("program", "python3")
    assert program(("python3", "-c")) == ("code", "")
    assert program(None) == ("program", "")
    for number in ("-1", "", "9" * 30, "٣", "4"):
        assert identity(process(2, 1, env={"RANK": number, "WORLD_SIZE": "4"})) is None
    assert told_role(process(2, 1, "\x00", comm="")) is None


def job_of(pid: int, *processes: ProcessInfo) -> FoundJob:
    return job_of_pid(pid, processes)


def test_a_shell_above_two_jobs_is_not_decided_for() -> None:
    shell = process(10, 1, "bash", comm="bash", exe="/usr/bin/bash")
    jobs = [rank(11 + n, 10, 0, 1, variables={"MASTER_PORT": str(29500 + n)}) for n in range(2)]
    with pytest.raises(NoSuchTarget, match="runs 2 jobs: local:train-29500, local:train-29501"):
        job_of(10, shell, *jobs)
    assert job_of(10, shell, jobs[0]).ranks == (0,)


def test_a_pid_of_no_job_is_taken_as_what_it_is() -> None:
    left = rank(9, 1, 1, 2, comm="pt_data_worker", threads=(), forked=True)
    (row,) = job_of(9, left).rows
    assert (row["role"], row["rank"], row["parent_rank"]) == ("orphan", None, 1)
    (row, child) = job_of(10, agent(10), process(11, 10, "wandb-core", comm="wandb-core")).rows
    assert (row["role"], row["rank"], child["role"]) == ("launcher", None, "helper")
    stuck = process(12, 1, env=None, cmdline=None, reason="no answer in 1.5 s")
    job = job_of(12, stuck)
    assert (job.rows[0]["rank"], job.world_size, job.single_node) == (None, None, None)


def test_what_may_not_be_looked_at_is_refused() -> None:
    closed = process(12, 1, env=None, cmdline=None, exe=None, reason="EACCES", uid=os.getuid())
    with pytest.raises(PermissionRefused, match="may not be looked at: EACCES") as error:
        job_of(12, closed)
    assert error.value.advice


def test_an_orphan_that_a_subreaper_has_adopted_is_no_rank() -> None:
    loopback = {"MASTER_ADDR": "127.0.0.1"}
    supervisor = process(50, 1, "/bin/supervisor", comm="supervisor", exe="/bin/supervisor")
    helper = rank(
        13, 50, 1, 2, threads=(), session=12, pgrp=12, cmdline=("python3", "helper.py"), variables=loopback
    )
    (job,) = look(supervisor, rank(11, 1, 0, 2, variables=loopback), helper)
    assert {row["pid"]: (row["role"], row["parent_rank"]) for row in job.rows} == {
        11: ("rank", None),
        13: ("orphan", 1),
    }


def test_an_orphan_that_the_launcher_itself_has_adopted_is_no_rank() -> None:
    left = rank(13, 10, 1, 2, 2, threads=(), forked=True, session=12)
    (job,) = look(agent(10), rank(11, 10, 0, 2, 2), left)
    assert ranks(job) == {11: 0}
    assert {row["pid"]: (row["role"], row["parent_rank"]) for row in job.rows}[13] == ("orphan", 1)

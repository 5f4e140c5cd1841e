"""Names by which launchers, wrappers, helpers and ranks' own threads are known; one line adds one.

As measured with torch 2.13, Open MPI 4.1, MPICH 4.0, Slurm 22.05, Ray 2.60.
Python >= 3.8, standard library only.
"""

PROOF_THREADS = ("pt_gloo_runloop", "gloo_tcp_loop", "pt_nccl_")
"""Beginnings of the names of c10d's and gloo's own threads. No fork inherits a thread, so a forked
data-loader worker has none. (``pt_tcpstore_uv`` proves nothing: an elastic agent hosts the store, too.)"""

# fmt: off
IDENTITY = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_ERROR_FILE",
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_RANK", "PMIX_NAMESPACE", "PMI_RANK", "PMI_SIZE",
    "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS",
    "SLURM_LOCALID", "SLURM_GTIDS", "SLURM_TASK_PID", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_NNODES",
    "SLURM_STEP_NUM_NODES", "KUBERNETES_SERVICE_HOST",
)
# fmt: on
"""The variables that tell ranks and jobs apart; a scan reads no others."""

# fmt: off
WRAPPERS = frozenset((
    "sh", "bash", "dash", "zsh", "ksh", "fish", "csh", "tcsh", "busybox", "timeout", "env", "nohup",
    "nice", "ionice", "numactl", "taskset", "setsid", "chrt", "stdbuf", "time", "strace", "ltrace",
    "gdb", "perf", "nsys", "ncu", "tee", "su", "sudo", "runuser", "setpriv", "sshd", "ssh", "tini",
    "dumb-init", "catatonit", "docker-init", "s6-svscan", "screen", "tmux", "script", "xargs",
    "parallel", "make", "unshare", "nsenter", "singularity", "apptainer",
))
# fmt: on
"""Programs that run another one and hand their environment on."""

# fmt: off
INIT = frozenset((
    "systemd", "init", "tini", "dumb-init", "catatonit", "docker-init", "s6-svscan", "containerd-shim",
    "conmon", "launchd",
))
# fmt: on
"""Programs that adopt orphans."""

LAUNCHER_PROGRAMS = {
    "torchrun": "torchrun",
    "deepspeed": "deepspeed",
    "ds": "deepspeed",
    "accelerate": "accelerate",
    "accelerate-launch": "accelerate",
    "horovodrun": "horovodrun",
    "colossalai": "colossalai",
    "mpirun": "mpirun",
    "mpiexec": "mpirun",
    "orterun": "mpirun",
    "prterun": "mpirun",
    "orted": "mpirun",
    "prted": "mpirun",
    "hydra_pmi_proxy": "mpirun",
    "hydra_bstrap_proxy": "mpirun",
    "srun": "srun",
    "slurmstepd": "srun",
    "raylet": "ray",
}
"""Program name (up to its first dot) → launcher."""

LAUNCHER_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "torch.distributed.elastic": "torchrun",
    "deepspeed.launcher": "deepspeed",
    "accelerate.commands": "accelerate",
    "horovod.runner": "horovodrun",
    "ray._private": "ray",
}
"""``python -m MODULE``, or a script of that path → launcher."""

SHARED_LAUNCHERS = ("ray", "srun")
"""Their other descendants may belong to somebody else's job, so they are not taken with the job."""

RELATED_COMMS = (
    "wandb",
    "gpu_stats",
    "tensorboard",
    "nvidia-smi",
    "dcgm",
    "ray::IDLE",
    "ray-gcs",
    "gcs_server",
)

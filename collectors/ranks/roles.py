"""What a process can be, told from itself alone: rank variables, program, thread names.

RANK in the environment makes no rank: everything that a rank starts inherits it. So what never is
a rank is told by its name, and a rank, where possible, by a thread that only a member of a process group has.
Python >= 3.8, standard library only.
"""

import os
import re
from typing import Dict, List, NamedTuple, Optional, Tuple

from . import known_programs as known


class ProcessInfo(NamedTuple):
    """One process as a scan saw it.

    ``forked``: forked, and has not exec'ed since. ``env``: the live values of ``IDENTITY``, None when the
    environment could not be read; ``exec_env``: what the block of exec still says of them; ``env_source``:
    live or static; ``reason``: why ``env`` is None or only static. ``threads``: names of its threads (the
    leader's first), read for processes that could be ranks. ``via``: a live thread, when the leader is dead.
    """

    pid: int
    ppid: int
    start_ticks: int
    comm: str
    state: str
    uid: Optional[int] = None
    threads: Tuple[str, ...] = ()
    nspid: Tuple[int, ...] = ()
    session: int = 0
    pgrp: int = 0
    forked: bool = False
    exe: Optional[str] = None
    cmdline: Optional[Tuple[str, ...]] = None
    env: Optional[Dict[str, str]] = None
    exec_env: Optional[Dict[str, str]] = None
    env_source: Optional[str] = None
    reason: Optional[str] = None
    via: Optional[int] = None


class Identity(NamedTuple):
    """Which rank a process says it is. ``source`` is shown to people: ``live RANK``, …"""

    rank: int
    world_size: Optional[int]
    local_rank: Optional[int]
    local_world_size: Optional[int]
    source: str


def identity(process: ProcessInfo) -> Optional[Identity]:
    """The rank that the environment names, by the most trustworthy set of variables that is complete.

    RANK beats Slurm's number: below ``srun torchrun`` every worker has its agent's SLURM_PROCID, which
    therefore counts only for the task's own process.
    """
    env = process.env or {}
    mark = process.env_source or "static"
    if "RANK" in env and ("WORLD_SIZE" in env or "MASTER_ADDR" in env):
        return _identity(env, f"{mark} RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    if "OMPI_COMM_WORLD_RANK" in env:
        names = ["OMPI_COMM_WORLD_" + name for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")]
        return _identity(env, f"{mark} {names[0]}", *names)
    if "PMIX_RANK" in env:
        return _identity(env, f"{mark} PMIX_RANK", "PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "")
    if "PMI_RANK" in env:
        return _identity(
            env, f"{mark} PMI_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"
        )
    if "SLURM_PROCID" in env and _number(env, "SLURM_TASK_PID") in (process.pid, *process.nspid):
        size = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in env else "SLURM_NTASKS"
        return _identity(env, f"{mark} SLURM_PROCID", "SLURM_PROCID", size, "SLURM_LOCALID", "")
    return None


def _identity(env: Dict[str, str], source: str, *names: str) -> Optional[Identity]:
    rank, size, local, local_size = (_number(env, name) for name in names)
    if rank is None or (size is not None and rank >= size):
        return None
    return Identity(rank, size, local, local_size, source)


def _number(env: Dict[str, str], name: str) -> Optional[int]:
    text = env.get(name, "")
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None


def proof(process: ProcessInfo) -> Optional[str]:
    """The name of a thread that only a member of a process group has, or None."""
    for name in process.threads:
        if name.startswith(known.PROOF_THREADS):
            return name
    return None


PYTHON = re.compile("(python|pypy)[0-9.]*(t|d|td|-dbg)?")
"""Names of interpreters, those without a GIL and for debugging included."""


def is_python(process: ProcessInfo) -> bool:
    """Whether it runs Python: by its executable, its title where that is hidden, or c10d's threads."""
    names = [process.exe or "", process.cmdline[0] if process.cmdline else "", process.comm]
    if any(PYTHON.fullmatch(os.path.basename(name)) for name in names[: 1 if process.exe else 3]):
        return True
    return process.comm == "pt_main_thread" or proof(process) is not None


def program(cmdline: Optional[Tuple[str, ...]]) -> Tuple[str, str]:
    """What a command line runs: (``script`` | ``module`` | ``code`` | ``program``, its name or text).

    >>> program(("/usr/bin/python3", "-u", "-m", "torch.distributed.run", "train.py"))
    ('module', 'torch.distributed.run')
    >>> program(("python", "-Wignore", "/opt/train.py", "--lr", "1"))
    ('script', '/opt/train.py')
    """
    words = list(cmdline or ())
    if not words or not PYTHON.fullmatch(os.path.basename(words[0])):
        return "program", words[0] if words else ""
    rest = iter(words[1:])
    for word in rest:
        if word in ("-W", "-X", "--check-hash-based-pycs"):
            next(rest, None)
        elif re.match("-[A-Za-z]*[mc]", word) and not word.startswith(("-W", "-X")):
            flag, _, glued = re.split("([mc])", word, maxsplit=1)
            kind = "module" if word[len(flag)] == "m" else "code"
            return kind, glued or next(rest, "")
        elif not word.startswith("-") or word == "-":
            return "script", word
    return "program", words[0]


def launcher_kind(process: ProcessInfo) -> Optional[str]:
    """``torchrun``, ``mpirun``, …, or None for a process that is no launcher known by name."""
    if process.comm == "pt_elastic":
        return "torchrun"
    kind, name = program(process.cmdline)
    if kind == "module":
        path = name
    elif kind == "script":
        path = name[:-3].replace("/", ".") if name.endswith(".py") else ""
    else:
        path = ""
    for module, launcher in known.LAUNCHER_MODULES.items():
        if path == module or path.startswith(module + ".") or f".{module}." in f".{path}.":
            return launcher
    names = [os.path.basename(name)] if kind == "script" else []
    if kind == "program":
        names = [os.path.basename(word).split(".")[0].rstrip(":") for word in (name, process.exe or "")]
    for candidate in (*names, process.comm.split(".")[0]):
        if candidate in known.LAUNCHER_PROGRAMS:
            return known.LAUNCHER_PROGRAMS[candidate]
    return None


def told_role(process: ProcessInfo) -> Optional[Tuple[str, str]]:
    """(role, why) of a process that is no rank whatever its environment says; None: it might be one."""
    if process.comm == "pt_data_worker":
        return "dataloader", "comm pt_data_worker"
    launcher = launcher_kind(process)
    if launcher is not None:
        return "launcher", launcher
    kind, text = program(process.cmdline)
    if kind == "code" and "multiprocessing.resource_tracker" in text:
        return "resource-tracker", "multiprocessing.resource_tracker"
    if kind == "code" and "multiprocessing.forkserver" in text and not process.forked:
        return "forkserver", "multiprocessing.forkserver"
    if "_inductor/compile_worker" in text or text.startswith("torch._inductor.compile_worker"):
        return "compile-worker", "torch._inductor.compile_worker"
    if process.comm.startswith(known.RELATED_COMMS) or text.split(".")[0] in ("wandb", "tensorboard"):
        return "helper", f"comm {process.comm}"
    return None


def is_wrapper(process: ProcessInfo) -> bool:
    """A shell, or a program such as ``timeout`` that only runs another."""
    return process.comm in known.WRAPPERS or os.path.basename(process.exe or "") in known.WRAPPERS


def is_spawned(process: ProcessInfo) -> bool:
    """Started by multiprocessing's spawn method: a rank of mp.spawn, or a helper of one."""
    kind, text = program(process.cmdline)
    return kind == "code" and "multiprocessing.spawn" in text


def script_name(cmdline: Optional[Tuple[str, ...]]) -> Optional[str]:
    """A short name for what runs: ``train`` of ``/x/train.py``, ``mod`` of ``-m pkg.mod``; None for code."""
    kind, name = program(cmdline)
    if kind == "module":
        words: List[str] = [word for word in name.split(".") if word != "__main__"]
        return words[-1] if words else None
    base = os.path.basename(name)
    return (base[:-3] if base.endswith(".py") else base) or None if kind == "script" else None

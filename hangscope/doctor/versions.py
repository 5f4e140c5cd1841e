"""Which torch and NCCL the job has: from the files that a process has mapped, else from this installation."""

from __future__ import annotations

import importlib.metadata
import re

from ..collectors import guarded, nccl_library, procfs, target_files
from ..collectors.target_files import TargetRoot
from .values import Versions

PATIENCE = 5.0
_TORCH = re.compile(r"\s(/\S{0,4000})/torch/lib/lib(?:torch|c10)\w{0,40}\.so$", re.MULTILINE)
_WHEEL = re.compile(r"torch-(\d[\w.+]{0,60})\.dist-info")


def of_process(pid: int) -> Versions:
    """The versions that a running process has loaded; None for what it has not, or what does not tell."""
    torch = guarded.call(_torch_of, pid, timeout=PATIENCE)
    nccl = guarded.call(nccl_library.version, pid, timeout=PATIENCE)
    return Versions(
        torch=torch.value if torch.status == "ok" else None,
        nccl=".".join(map(str, nccl.value)) if nccl.status == "ok" and nccl.value else None,
        source=f"the files that pid {pid} has mapped",
    )


def _torch_of(pid: int) -> str | None:
    """In a guarded child: the version in the name of the wheel's folder beside the mapped library."""
    text = procfs.read_text(f"/proc/{pid}/maps", nccl_library.MAPS_CAP)[0] or ""
    found, ids = _TORCH.search(text), target_files.ids_of(pid)
    if found is None or ids is None:
        return None
    view = TargetRoot(f"/proc/{pid}")
    target_files.become(ids)
    names = view.matching(found[1], _WHEEL)
    match = _WHEEL.fullmatch(names[0]) if len(names) == 1 else None
    return match[1] if match is not None else None


def installed() -> Versions:
    """The versions beside this program, which may be another environment than the job's."""
    torch = _distribution("torch")
    nccl = next(
        (
            found
            for name in ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")
            if (found := _distribution(name))
        ),
        None,
    )
    return Versions(torch=torch, nccl=nccl, source="what is installed beside hangscope")


def _distribution(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None

"""GPUs that cannot finish anything any more, and the ranks that work on them.

Proof is NVML's *GPU is lost*, or a kernel line (an Xid that ends a GPU's work, *fallen off the bus*) with the
PCI address of that GPU, younger than the rank's process. A call of NVML that never returned is evidence only
together with a thread that is itself stuck in the driver.
"""

from __future__ import annotations

import re

import msgspec

from ..model.facts import Capture, Gpu, KernelEvent, Process, Ref
from ..model.graph import Node
from .job import Job

LOST_EVENTS = ("xid-79", "gpu-lost")
FATAL_EVENTS = frozenset({"xid-48", "xid-62", "xid-64", "xid-95", "xid-109", "xid-119", "xid-120"})
"""Xids after which a GPU does not go on by itself (NVIDIA's Xid catalogue: double-bit ECC, internal halt,
uncontained memory error, context switch and GSP time-outs). 13, 31 and 43 are a program's own faults, 45 is
the clean-up after another one."""

ADDRESS = re.compile(
    r"(?:PCI:|GPU )(?P<domain>[0-9a-fA-F]{4,8}):(?P<bus>[0-9a-fA-F]{2}):(?P<device>[0-9a-fA-F]{2})"
)
PLAIN = re.compile(r"^(?P<domain>[0-9a-fA-F]{4,8}):(?P<bus>[0-9a-fA-F]{2}):(?P<device>[0-9a-fA-F]{2})")
TICKS = 100
"""Clock ticks a second of a process's start time: USER_HZ of every Linux that has NVIDIA's driver."""

Address = tuple[int, int, int]


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that is lost (``lost``) or that the driver gets no answer from. ``owners``: the ranks that may
    work on it, one where that is known."""

    node: str
    name: str
    lost: bool
    owners: tuple[int, ...]
    facts: tuple[tuple[str, Ref], ...]

    @property
    def id(self) -> str:
        """The id of its node in the graph."""
        return f"gpu:{'lost' if self.lost else 'stuck'}:{self.node}:{self.name}"


def is_gpu(node: Node) -> bool:
    return node.id.startswith(("gpu:", "device:"))


def gpu_name(node: Node) -> str | None:
    """The UUID in a ``gpu:`` node's id."""
    return node.id.split(":", 3)[3] if node.id.startswith("gpu:") else None


def address(text: str | None, pattern: re.Pattern[str] = ADDRESS) -> Address | None:
    """Domain, bus and device of a PCI address; the function, always 0 for a GPU, is left out.

    >>> address("NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus.")
    (0, 68, 0)
    >>> address("00000000:44:00.0", PLAIN)
    (0, 68, 0)
    """
    found = pattern.search(text or "")
    return (int(found[1], 16), int(found[2], 16), int(found[3], 16)) if found else None


def name_of(gpu: Gpu) -> str:
    """The UUID; ``index N`` where NVML no longer tells it."""
    return gpu.uuid or f"index {gpu.index}"


def troubles(job: Job) -> tuple[Trouble, ...]:
    """Returns every GPU of the job's nodes that is provably out of order, by node and name."""
    found: dict[tuple[str, str], Trouble] = {}
    for gpu in _newest(job.capture):
        if gpu.lost:
            _add(found, job, gpu, True, f"NVML: GPU {gpu.index} is lost", gpu.ref)
    for event in job.capture.kernel:
        lost = event.kind in LOST_EVENTS
        hit = _at(job.capture, event) if lost or event.kind in FATAL_EVENTS else None
        if hit is not None and not (lost and _answers(job.capture, hit)):
            _add(found, job, hit, lost, f"kernel: {event.text[:160]}", event.ref, event.seconds)
    return tuple(found[key] for key in sorted(found))


def unplaced(job: Job) -> tuple[tuple[str, str, Ref], ...]:
    """(node, text, ref) of GPUs out of order of which nothing tells whose they are: no rank is known to have
    it, or no GPU of that address was captured. Lines older than the node's ranks are left out."""
    named = {ref for trouble in troubles(job) for _text, ref in trouble.facts}
    starts: dict[str, float] = {}
    for process in job.ranks.values():
        began = process.start_ticks / TICKS
        starts[process.node] = min(began, starts.get(process.node, began))
    found = [(g.node, f"GPU {g.index} is lost", g.ref) for g in _newest(job.capture) if g.lost]
    for event in job.capture.kernel:
        fatal = event.kind in LOST_EVENTS or event.kind in FATAL_EVENTS
        old = event.seconds is not None and event.seconds < starts.get(event.node, 0.0)
        if fatal and not old and _at(job.capture, event) is None:
            found.append((event.node, event.text[:160], event.ref))
    return tuple(item for item in found if item[0] in starts and item[2] not in named)


def stuck_in_driver(job: Job, process: Process) -> Trouble | None:
    """For a rank with a thread in the driver: its GPU, when it is the one that NVML got no answer from."""
    for gpu in _newest(job.capture):
        if gpu.error is None or not gpu.error.startswith("no answer") or gpu.node != process.node:
            continue
        if process.gpus == (name_of(gpu),) and process.rank is not None:
            fact = (f"NVML: {gpu.error} for GPU {gpu.index}", gpu.ref)
            return Trouble(
                node=gpu.node, name=name_of(gpu), lost=False, owners=(process.rank,), facts=(fact,)
            )
    return None


def _newest(capture: Capture) -> list[Gpu]:
    last: dict[str, int] = {}
    for gpu in capture.gpus:
        last[gpu.node] = max(gpu.sample, last.get(gpu.node, 0))
    return [gpu for gpu in capture.gpus if gpu.sample == last[gpu.node]]


def _at(capture: Capture, event: KernelEvent) -> Gpu | None:
    place = address(event.text)
    if place is None:
        return None
    here = [gpu for gpu in capture.gpus if gpu.node == event.node and address(gpu.pci, PLAIN) == place]
    return here[-1] if here else None


def _answers(capture: Capture, gpu: Gpu) -> bool:
    """NVML reads it in the newest sample: it is back on the bus, or was never off it."""
    same = [one for one in _newest(capture) if (one.node, one.uuid) == (gpu.node, gpu.uuid)]
    return any(not one.lost and one.error is None and one.utilization is not None for one in same)


def _add(
    found: dict[tuple[str, str], Trouble],
    job: Job,
    gpu: Gpu,
    lost: bool,
    text: str,
    ref: Ref,
    seconds: float | None = None,
) -> None:
    """Adds the fact to the GPU's trouble; an event older than every rank on the GPU is of another epoch."""
    name = name_of(gpu)
    owners = [rank for rank, p in sorted(job.ranks.items()) if p.node == gpu.node and name in p.gpus]
    if seconds is not None:
        owners = [rank for rank in owners if job.ranks[rank].start_ticks / TICKS <= seconds]
    if not owners:
        return
    sole = [rank for rank in owners if job.ranks[rank].gpus == (name,)]
    known = found.get((gpu.node, name))
    facts = ((text, ref),) if known is None else (*known.facts, (text, ref))
    found[gpu.node, name] = Trouble(
        node=gpu.node,
        name=name,
        lost=lost or (known is not None and known.lost),
        owners=tuple(sole if len(sole) == 1 and len(owners) == 1 else owners),
        facts=facts[:4],
    )

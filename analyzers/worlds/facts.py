"""The facts of each world: its own ranks as they are, everybody else as a process outside of the job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ...model.facts import Capture, Process
from .partition import Meeting, Place, meetings, point_of

MOST = 32
"""Worlds that are judged, the largest first: more in one capture are no real job."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """One world. ``label`` tells it from the others; None where it is the only one."""

    capture: Capture
    label: str | None = None
    started: float = 0.0
    """Wall seconds at which its youngest rank started."""
    homeless: tuple[Process, ...] = ()
    """Ranks that may belong to it, or to another one."""


def worlds_of(capture: Capture) -> tuple[World, ...]:
    """Returns the capture itself where it holds one world, else a capture for each. Where a rank number
    occurs twice in one world and nothing tells the two apart, both are still in it."""
    ranks = [p for p in capture.processes if p.role == "rank" and p.rank is not None]
    found, homeless = meetings(ranks)
    if len(found) < 2 and not homeless:
        return (World(capture=capture),)
    found = sorted(found, key=lambda item: -len(item.members))[:MOST]
    return tuple(_world(capture, item, found, tuple(homeless)) for item in found)


def _world(
    capture: Capture, item: Meeting, everyone: Sequence[Meeting], homeless: tuple[Process, ...]
) -> World:
    own = {(p.node, p.pid) for p in item.members}
    others = {(p.node, p.pid) for p in capture.processes if p.role == "rank"} - own
    processes, unclear = _processes(capture, item, everyone, own, others)
    nodes = {node for node, _pid in own}
    doubt = bool(unclear) or any(p.rank not in item.ranks for p in homeless)
    whole = not doubt and _all_here(item)
    return World(
        capture=msgspec.structs.replace(
            capture,
            world_size=item.point.size,
            processes=processes,
            nodes=tuple(node for node in capture.nodes if node in nodes),
            complete_nodes=() if doubt else tuple(node for node in capture.complete_nodes if node in nodes),
            expected_ranks=(),
            single_node=True if whole and len(nodes) == 1 else None,
        ),
        label=_label(item, everyone),
        started=max((p.start_wall or 0.0 for p in item.members), default=0.0),
        homeless=homeless,
    )


def _processes(
    capture: Capture, item: Meeting, everyone: Sequence[Meeting], own: set[Place], others: set[Place]
) -> tuple[tuple[Process, ...], list[Process]]:
    """All processes as this world sees them, and those that may be what is left of a missing rank of it."""
    parents = {(p.node, p.pid): (p.node, p.ppid) for p in capture.processes}
    kept: list[Process] = []
    unclear: list[Process] = []
    for process in capture.processes:
        above = _rank_above((process.node, process.pid), parents, own | others)
        if above in own:
            kept.append(process)
        elif above in others:
            kept.append(_outside(process))
        elif process.parent_rank is None:
            kept.append(process)
        else:
            mine = point_of(process).fits(item.point)
            alone = sum(point_of(process).fits(other.point) for other in everyone) == 1
            kept.append(process if mine and alone else _outside(process))
            if mine and not alone and process.parent_rank not in item.ranks:
                unclear.append(process)
    return tuple(kept), unclear


def _rank_above(place: Place, parents: dict[Place, Place], ranks: set[Place]) -> Place | None:
    """The process itself or its nearest ancestor that is a rank."""
    seen: set[Place] = set()
    while place in parents and place not in seen:
        if place in ranks:
            return place
        seen.add(place)
        place = parents[place]
    return None


def _outside(process: Process) -> Process:
    return msgspec.structs.replace(process, role="outside", rank=None, parent_rank=None, world_size=None)


def _all_here(item: Meeting) -> bool:
    """True when the ranks' own launcher starts the whole world, so that no other node can have ranks."""
    sizes = {p.environment.get("LOCAL_WORLD_SIZE") for p in item.members}
    return item.point.size is not None and (
        sizes == {str(item.point.size)} or len(item.ranks) == item.point.size
    )


def _label(item: Meeting, everyone: Iterable[Meeting]) -> str:
    """What tells this world from the others: its size, and its port, its node or its oldest pid."""
    size = item.point.size if item.point.size is not None else len(item.ranks)
    text = f"the world of {size} rank{'s' if size != 1 else ''}"
    if item.point.port is not None:
        text += f" at port {item.point.port}"
    twins = [
        o
        for o in everyone
        if o is not item and (o.point.size, o.point.port) == (item.point.size, item.point.port)
    ]
    if twins:
        first = min(item.members, key=lambda p: (p.rank or 0, p.pid))
        text += f", rank {first.rank} of which is pid {first.pid} on {first.node}"
    return text

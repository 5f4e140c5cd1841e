"""Whether a job is in the state that its scenario is about: conditions of ``truth.toml`` against /proc."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import NamedTuple

from . import observe
from .scenario import Ready

CHILD = "child of "


class Look(NamedTuple):
    """The job at one moment. ``children``: rank → pids of its processes that are not the rank itself."""

    ranks: dict[int, int]
    children: dict[int, list[int]]
    threads: dict[int, list[observe.Thread]]


def look(directory: pathlib.Path, ranks: Mapping[int, int]) -> Look:
    """Reads /proc for everything that works in the job's directory."""
    pids = set(observe.processes_in(directory)) | set(ranks.values())
    children: dict[int, list[int]] = {}
    for pid in sorted(pids - set(ranks.values())):
        rank = observe.rank_of(pid)
        if rank is not None:
            children.setdefault(rank, []).append(pid)
    return Look(dict(ranks), children, {pid: observe.threads(pid) for pid in pids})


def holds(condition: Ready, ranks: list[int], now: Look, before: Look | None) -> bool:
    """True when it holds for every one of the ranks that was started, or for any of their children."""
    if condition.printed is not None:
        return True  # judged by the caller, who has the output
    if condition.who.startswith(CHILD):
        pids = [pid for rank in ranks for pid in now.children.get(rank, [])]
        return any(_fits(condition, pid, now, before) for pid in pids)
    return all(_fits(condition, now.ranks[rank], now, before) for rank in ranks if rank in now.ranks)


def _fits(condition: Ready, pid: int, now: Look, before: Look | None) -> bool:
    threads = now.threads.get(pid, [])
    if condition.has is not None:
        return any(thread.comm == condition.has for thread in threads)
    earlier = None if before is None else {thread.tid: thread for thread in before.threads.get(pid, [])}
    return any(_thread_fits(condition, pid, thread, earlier) for thread in threads)


def _thread_fits(
    condition: Ready, pid: int, thread: observe.Thread, earlier: Mapping[int, observe.Thread] | None
) -> bool:
    if condition.thread == "main" and thread.tid != pid:
        return False
    if condition.thread not in ("main", "any", thread.comm):
        return False
    if condition.state is not None and thread.state != condition.state:
        return False
    if condition.wchan is not None and not thread.wchan.startswith(tuple(condition.wchan.split("|"))):
        return False
    if condition.still and earlier is not None:
        old = earlier.get(thread.tid)
        return old is not None and old.switches == thread.switches
    return True

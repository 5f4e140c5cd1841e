"""The stacks of a bundle as text: merged over the ranks, or thread by thread for one of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec

from ..bundle.reader import stack_frames
from ..model.evidence import Artifact, Evidence, RawFrame, Shard
from ..model.ranges import ranks_phrase
from ..report.interface import printable


class ThreadView(msgspec.Struct, frozen=True):
    """A thread of the newest sample. ``frames`` are innermost first, empty without Python frames."""

    tid: int
    name: str
    state: str
    wchan: str
    frames: tuple[RawFrame, ...]
    torn: bool = False


class ProcessView(msgspec.Struct, frozen=True):
    """A process of the newest sample in which it was seen."""

    node: str
    pid: int
    role: str
    rank: int | None
    sample: int
    threads: tuple[ThreadView, ...]


def processes(evidence: Evidence) -> list[ProcessView]:
    """The captured processes, ranks first and in order. What cannot be understood is left out."""
    found = [view for shard in evidence.shards for view in _of_shard(shard)]
    return sorted(found, key=lambda view: (view.rank is None, view.rank or 0, view.node, view.pid))


def _of_shard(shard: Shard) -> Iterator[ProcessView]:
    newest: dict[tuple[int, str], Artifact] = {}
    for artifact in shard.artifacts:
        if artifact.pid is not None and artifact.name in ("stacks.json", "threads.json"):
            key = (artifact.pid, artifact.name)
            if key not in newest or newest[key].sample <= artifact.sample:
                newest[key] = artifact
    rows = {row.pid: row for row in shard.scan.processes} if shard.scan is not None else {}
    for pid in sorted({pid for pid, _ in newest}):
        row = rows.get(pid)
        stacks = _rows(newest.get((pid, "stacks.json")))
        threads = _rows(newest.get((pid, "threads.json")))
        sample = max(item.sample for (owner, _), item in newest.items() if owner == pid)
        yield ProcessView(
            shard.name,
            pid,
            "process" if row is None else row.role,
            None if row is None or row.role != "rank" else row.rank,
            sample,
            tuple(_threads(shard, stacks, threads)),
        )


def _rows(artifact: Artifact | None) -> list[dict[str, Any]]:
    try:
        value = msgspec.json.decode(artifact.data) if artifact is not None else {}
    except msgspec.DecodeError:
        return []
    rows = value.get("threads") if isinstance(value, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _threads(
    shard: Shard, stacks: list[dict[str, Any]], threads: list[dict[str, Any]]
) -> Iterator[ThreadView]:
    python = {row.get("os_thread_id"): row for row in stacks}
    kernel = {row.get("tid"): row for row in threads}
    for tid in sorted(tid for tid in {*python, *kernel} if isinstance(tid, int)):
        row, place = python.get(tid, {}), kernel.get(tid, {})
        index = row.get("stack")
        frames = stack_frames(shard, index) if isinstance(index, int) else None
        stat = str(place.get("stat") or "").rpartition(")")[2].split()
        yield ThreadView(
            tid,
            str(row.get("thread_name") or place.get("comm") or "?"),
            stat[0] if stat else "?",
            str(place.get("wchan") or "-"),
            frames or (),
            row.get("torn") is True,
        )


class _Branch:
    """A frame in the tree, with the ranks that have it at this depth."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.ranks: set[int] = set()
        self.threads = 0
        self.children: dict[str, _Branch] = {}


def merged(views: list[ProcessView]) -> str:
    """The Python stacks of all ranks as one tree, outermost frame first, each branch with its ranks."""
    root = _Branch("")
    for view in views:
        if view.rank is None:
            continue
        for thread in view.threads:
            branch = root
            for text in _runs([label(frame) for frame in reversed(thread.frames)]):
                branch = branch.children.setdefault(text, _Branch(text))
                branch.ranks.add(view.rank)
                branch.threads += 1
    if not root.children:
        return "no Python stacks of ranks were captured\n"
    return "".join(line + "\n" for line in _drawn(root))


def _drawn(root: _Branch) -> Iterator[str]:
    """The lines of the tree; indented where it branches, and the ranks named where they change."""
    todo: list[tuple[_Branch, int, tuple[int, ...]]] = [
        (child, 0, ()) for child in _largest_first(root)[::-1]
    ]
    while todo:
        branch, depth, shown = todo.pop()
        ranks = tuple(sorted(branch.ranks))
        who = "" if ranks == shown else f"   [{ranks_phrase(ranks)}, {branch.threads} threads]"
        yield printable("  " * min(depth, 40) + branch.label + who)
        children = _largest_first(branch)
        deeper = depth + (len(children) > 1)
        todo += [(child, deeper, ranks) for child in reversed(children)]


def _largest_first(branch: _Branch) -> list[_Branch]:
    return sorted(
        branch.children.values(), key=lambda child: (-len(child.ranks), -child.threads, child.label)
    )


def label(frame: RawFrame) -> str:
    """``function (file:line)``, the file without its directories."""
    file = frame.short_filename or frame.filename
    return f"{frame.name} ({file}:{frame.line})" if frame.line else f"{frame.name} ({file})"


def _runs(labels: list[str]) -> Iterator[str]:
    """Equal neighbours (recursion) as one, with their number."""
    for text, run in itertools.groupby(labels):
        count = len(list(run))
        yield text if count == 1 else f"{text} ×{count}"


def threads_of(view: ProcessView) -> str:
    """Every thread of a process: its state and wait in the kernel, then its frames, innermost first."""
    who = view.role if view.rank is None else f"rank {view.rank}"
    lines = [f"{who} · {view.node} · pid {view.pid} · sample {view.sample + 1}"]
    for thread in view.threads:
        torn = ", ran while it was read" if thread.torn else ""
        lines.append(f"  thread {thread.tid} {thread.name}: {thread.state} {thread.wchan}{torn}")
        lines += [f"      {text}" for text in _runs([label(frame) for frame in thread.frames])]
    return "".join(printable(line) + "\n" for line in lines)

"""``host-memory-limit``: a thread waits for memory that its cgroup does not give it.

Decided by the cgroup's own files: usage at the limit with a task under OOM or charges failing (v1), or
``memory.high`` exceeded with events still counting (v2). Pressure figures stay 0 in the purest case, and
the host as a whole looks healthy: neither is asked.
"""

from __future__ import annotations

from ...model.facts import MemoryCgroup
from ...model.graph import Node
from ...model.verdict import Action, EvidenceLine, NextStep
from ...model.waits import WaitKind
from .interface import Context, Explanation, Rule, gib, line


def explain(context: Context) -> Explanation | None:
    """The full cgroup of the blocked thread; None when no cgroup of it was captured at its limit."""
    for node in context.blocked():
        if node.wait is None or node.wait.kind is not WaitKind.HOST_MEMORY:
            continue
        cgroup = context.cgroup(node)
        if cgroup is not None:
            return Explanation(
                fact=memory_fact(context, node, cgroup),
                evidence=memory_evidence(cgroup),
                action=memory_action(cgroup),
                next=memory_next(cgroup),
            )
    return None


def memory_fact(context: Context, node: Node, cgroup: MemoryCgroup) -> str:
    thread = context.thread(node)
    where = thread.wchan if thread is not None and thread.wchan not in (None, "0") else "the kernel"
    state = thread.state if thread is not None else "?"
    limit = cgroup.limit if _at_limit(cgroup) else cgroup.high
    return f"{node.label} in {state} at {where}; memory {gib(cgroup.usage)} of {gib(limit)}"


def _at_limit(cgroup: MemoryCgroup) -> bool:
    return cgroup.limit is not None and cgroup.usage is not None and cgroup.usage >= 0.99 * cgroup.limit


def memory_evidence(cgroup: MemoryCgroup) -> tuple[EvidenceLine, ...]:
    limit = cgroup.limit if _at_limit(cgroup) else cgroup.high
    parts = [f"memory cgroup {cgroup.path}: {gib(cgroup.usage)} of {gib(limit)} used"]
    if cgroup.failcnt:
        parts.append(f"{cgroup.failcnt} failed charges")
    if cgroup.under_oom:
        parts.append("under OOM")
    if cgroup.oom_kill_disable:
        parts.append("its OOM killer is off, so the task waits for ever")
    if cgroup.high_events:
        parts.append(f"memory.high exceeded {cgroup.high_events} times")
    return (line(", ".join(parts), cgroup.ref),)


def memory_action(cgroup: MemoryCgroup) -> Action:
    return Action(
        kind="fix-config",
        safe_to_kill=True,
        text="restart alone will hang again; raise the job's memory limit, or offload and cache less",
    )


def memory_next(cgroup: MemoryCgroup) -> tuple[NextStep, ...]:
    name = "memory.limit_in_bytes" if cgroup.version == 1 else "memory.max"
    root = "/sys/fs/cgroup/memory" if cgroup.version == 1 else "/sys/fs/cgroup"
    return (
        NextStep(
            text="raising the limit lets the job go on at once (as root)",
            command=f"echo $((2 * {cgroup.limit or cgroup.high})) > {root}{_shell(cgroup.path)}/{name}",
        ),
    )


def _shell(path: str) -> str:
    """A cgroup path as one shell word: its name is the job's choice."""
    plain = all(c.isalnum() or c in "/._-:@" for c in path)
    return path if plain else "'" + path.replace("'", "'\\''") + "'"


RULE = Rule(
    id="host-memory-limit",
    kinds=("rank-blocked",),
    needs="a thread that waits for host memory, and its memory cgroup at the limit",
    explain=explain,
)

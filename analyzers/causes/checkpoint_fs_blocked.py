"""``checkpoint-fs-blocked``: a rank that saves or loads is blocked in the file system."""

from __future__ import annotations

import re

from ...model.verdict import Action
from ...model.waits import WaitKind
from ..graph.resources import blocked_mount
from .interface import Context, Explanation, Rule, line

SAVING = re.compile(r"(^|[._])(_?save|_?load|checkpoint|state_dict)", re.IGNORECASE)


def explain(context: Context) -> Explanation | None:
    for node in context.blocked():
        if node.wait is None or node.wait.kind not in (WaitKind.FILESYSTEM, WaitKind.DISK):
            continue
        process, thread = context.process(node), context.thread(node)
        if process is None or thread is None:
            continue
        saving = "checkpoint" in (node.wait.phase or "") or any(
            SAVING.search(frame.function) for frame in context.frames(node)
        )
        if not saving:
            continue
        mount = blocked_mount(context.job.capture, context.job, process)
        where = f"on {mount.path} ({mount.fstype})" if mount is not None else "in the file system"
        fact = f"{node.label} in {thread.state} at {thread.wchan or 'the kernel'} {where} during a checkpoint"
        return Explanation(
            fact=fact,
            evidence=(line(fact, thread.ref),),
            action=Action(
                kind="drain-node",
                safe_to_kill=True,
                text="the file system must answer first; a killed process may stay until it does",
            ),
        )
    return None


RULE = Rule(
    id="checkpoint-fs-blocked",
    kinds=("rank-blocked",),
    needs="a wait in the file system below code that saves or loads",
    explain=explain,
)

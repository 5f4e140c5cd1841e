"""``oom-killed-rank``: the kernel's log says that it killed the rank's process for want of memory."""

from __future__ import annotations

from ...model.verdict import Action
from .interface import Context, Explanation, Rule, line


def explain(context: Context) -> Explanation | None:
    for node in context.roots():
        presence = context.presences.get(node.rank) if node.rank is not None else None
        if presence is None or presence.being != "dead" or presence.process is None:
            continue
        for event in context.job.capture.kernel:
            if event.kind != "oom-kill" or event.node != presence.node or event.pid != presence.process.pid:
                continue
            return Explanation(
                fact=f"the kernel killed pid {presence.process.pid} for want of memory",
                evidence=(line(event.text, event.ref),),
                action=Action(
                    kind="fix-config",
                    safe_to_kill=True,
                    text="restart alone will die again; raise the memory limit or use less",
                ),
            )
    return None


RULE = Rule(
    id="oom-killed-rank",
    kinds=("rank-absent",),
    needs="a dead rank, and the kernel log's line of its killing",
    explain=explain,
)

"""``rank-killed``: a rank's process was killed; what it left behind (a child with its sockets) keeps the
peers from noticing."""

from __future__ import annotations

from ...model.verdict import Action
from .interface import Context, Explanation, Rule, line

SIGKILL = 9


def explain(context: Context) -> Explanation | None:
    """A zombie with SIGKILL in its status, or an orphan of a rank that has no process any more."""
    for node in context.roots():
        presence = context.presences.get(node.rank) if node.rank is not None else None
        if presence is None:
            continue
        ref = presence.refs[0] if presence.refs else None
        orphans = [
            process
            for process in context.job.processes
            if process.parent_rank == node.rank and process.role != "rank"
        ]
        killed = presence.being == "dead" and ((presence.exit_code or 0) & 0x7F) == SIGKILL
        if not killed and not (presence.being == "gone" and orphans):
            continue
        evidence = [line(f"rank {node.rank}: {presence.why}", ref)]
        if orphans:
            pids = ", ".join(str(process.pid) for process in orphans)
            text = f"its child (pid {pids}) lives on and keeps its sockets open, so the peers see no end"
            evidence.append(line(text, orphans[0].ref))
        commands = tuple(f"kill {process.pid}" for process in orphans[:3])
        return Explanation(
            fact=presence.why,
            evidence=tuple(evidence),
            action=Action(
                kind="restart",
                safe_to_kill=True,
                text="find who killed it (scheduler, OOM killer, a person), end what it left, restart",
                commands=commands,
            ),
        )
    return None


RULE = Rule(
    id="rank-killed",
    kinds=("rank-absent",),
    needs="a rank whose process was killed or is gone, or its orphaned child",
    explain=explain,
)

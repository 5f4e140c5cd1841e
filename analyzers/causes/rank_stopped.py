"""``rank-stopped``: state T on the process and no tracer: SIGSTOP, SIGTSTP, or a frozen cgroup."""

from __future__ import annotations

from ...model.verdict import Action, NextStep
from .interface import Context, Explanation, Rule, line


def explain(context: Context) -> Explanation | None:
    for node in context.roots():
        presence = context.presences.get(node.rank) if node.rank is not None else None
        if presence is None or presence.being not in ("stopped", "frozen") or presence.process is None:
            continue
        pid = presence.process.pid
        frozen = presence.being == "frozen"
        ref = presence.refs[0] if presence.refs else None
        threads = context.job.threads(presence.process).values()
        stopped = sum(thread.state == "T" for thread in threads)
        fact = f"pid {pid}: {presence.why}"
        evidence = (
            line(f"rank {node.rank}, pid {pid}: {stopped} of {len(threads)} threads in state T", ref),
        )
        if frozen:
            evidence = (line(f"rank {node.rank}, pid {pid}: {presence.why}", ref),)
        command = None if frozen else f"kill -CONT {pid}"
        text = (
            "thaw its cgroup" if frozen else "nothing is lost: let it run again, and find out who stopped it"
        )
        return Explanation(
            fact=fact,
            evidence=evidence,
            action=Action(
                kind="restart", safe_to_kill=True, text=text, commands=(command,) if command else ()
            ),
            next=(
                NextStep(
                    text="if nobody stopped it on purpose: job control and debuggers do",
                    command=f"ps -o pid,ppid,stat,tty,cmd -p {pid}",
                ),
            ),
        )
    return None


RULE = Rule(id="rank-stopped", kinds=("rank-absent",), needs="state T of a rank's process", explain=explain)

"""``rank-spinning``: a thread runs and never leaves its loop, while its peers wait for it."""

from __future__ import annotations

from ...model.verdict import Action, NextStep
from ...model.waits import WaitKind
from .interface import Context, Explanation, Rule, line


def explain(context: Context) -> Explanation | None:
    for node in context.roots():
        if node.wait is None or node.wait.kind is not WaitKind.RUNNING:
            continue
        process, thread = context.process(node), context.thread(node)
        if process is None or thread is None:
            continue
        stack = thread.stack or ()
        loop = next(((f, f.source.loops[-1]) for f in stack if f.source is not None and f.source.loops), None)
        where = (
            f"{stack[0].function} ({stack[0].file.rpartition('/')[2]}:{stack[0].line})" if stack else "C code"
        )
        fact = f"{node.label} runs in {where} and has not left it in {context.job.observed:.0f} s"
        ref = thread.stack_ref or thread.ref
        evidence = [line(fact, ref)]
        if loop is not None:
            frame, (number, header) = loop
            text = f"its loop: `{header.strip()}` ({frame.file.rpartition('/')[2]}:{number})"
            evidence.append(line(text, ref))
        seen = [t for s in process.samples for t in s.threads if t.tid == node.tid and t.utime is not None]
        if len(seen) > 1:
            ticks = (seen[-1].utime or 0) - (seen[0].utime or 0)
            evidence.append(line(f"{ticks} ticks of CPU time meanwhile, which is no progress", thread.ref))
        return Explanation(
            fact=fact,
            evidence=tuple(evidence),
            action=Action(
                kind="fix-code",
                safe_to_kill=True,
                text="look at the loop's condition: what should end it does not come",
            ),
            next=(
                NextStep(
                    text="watch it longer: slow work moves on, a spin does not",
                    command=f"py-spy dump --pid {node.pid}",
                ),
            ),
        )
    return None


RULE = Rule(
    id="rank-spinning",
    kinds=("rank-blocked",),
    needs="a running thread whose frames stay the same over the samples",
    explain=explain,
)

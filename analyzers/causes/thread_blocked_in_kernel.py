"""``thread-blocked-in-kernel``: uninterruptible, or held by a page fault that nobody serves.

Not for memory, a file system or a driver. Memory is never named for it, however full the host is.
"""

from __future__ import annotations

from ...model.verdict import Action, NextStep
from ...model.waits import WaitKind
from .interface import Context, Explanation, Rule, line


def explain(context: Context) -> Explanation | None:
    for node in context.blocked():
        if node.wait is None or node.wait.kind is not WaitKind.KERNEL:
            continue
        thread = context.thread(node)
        where = thread.wchan if thread is not None and thread.wchan else "a kernel wait"
        state = thread.state if thread is not None else "?"
        stack = " < ".join((thread.kernel_stack or ())[:4]) if thread is not None else ""
        evidence = [
            line(f"{node.label}: state {state}, kernel wait {where}", node.refs[0] if node.refs else None)
        ]
        if stack:
            evidence.append(line(f"kernel stack: {stack}", node.refs[0] if node.refs else None))
        return Explanation(
            fact=f"{node.label} in {state} at {where}",
            evidence=tuple(evidence),
            action=Action(
                kind="fix-code",
                safe_to_kill=True,
                text=f"find what {where} waits for before restarting: the same call will block again",
            ),
            next=(
                NextStep(
                    text="the kernel's own view of the thread (as root)",
                    command=f"cat /proc/{node.pid}/task/{node.tid}/stack",
                ),
            ),
        )
    return None


RULE = Rule(
    id="thread-blocked-in-kernel",
    kinds=("rank-blocked",),
    needs="a thread in a kernel wait that is neither memory, file system nor driver",
    explain=explain,
)

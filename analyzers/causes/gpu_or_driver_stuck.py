"""``gpu-or-driver-stuck``: a thread is in a device driver and does not come back."""

from __future__ import annotations

from ...model.verdict import Action, NextStep
from ...model.waits import WaitKind
from ..devices import stuck_in_driver, troubles
from .interface import Context, Explanation, Rule, line

DRAIN = Action(
    kind="drain-node",
    safe_to_kill=True,
    text="take the node out of service; a process in the driver may not end when killed",
)
DMESG = (NextStep(text="what the kernel says of the device", command="dmesg | grep -iE 'xid|nvrm'"),)


def explain(context: Context) -> Explanation | None:
    return _troubled(context) or _in_driver(context)


def _troubled(context: Context) -> Explanation | None:
    """A GPU of which the kernel or NVML says that it does not go on."""
    for node in context.roots():
        if not node.id.startswith("gpu:stuck:"):
            continue
        process = context.process(node)
        asked = stuck_in_driver(context.job, process) if process is not None else None
        known = [t for t in (*troubles(context.job), asked) if t is not None and t.id == node.id]
        facts = known[0].facts if known else ()
        threads = [f"{n.label} is in the driver" for n in context.blocked() if n.wait and n.tid is not None]
        return Explanation(
            fact="; ".join([*(text for text, _ref in facts[:1]), *threads[:1]]) or node.label,
            evidence=tuple(line(text, ref) for text, ref in facts),
            action=DRAIN,
            next=DMESG,
        )
    return None


def _in_driver(context: Context) -> Explanation | None:
    for node in context.blocked():
        if node.wait is None or node.wait.kind is not WaitKind.DRIVER:
            continue
        thread = context.thread(node)
        where = thread.wchan if thread is not None and thread.wchan else "a driver call"
        fact = f"{node.label} is in {where} of a device driver"
        return Explanation(
            fact=fact,
            evidence=(line(fact, node.refs[0] if node.refs else None),),
            action=DRAIN,
            next=DMESG,
        )
    return None


RULE = Rule(
    id="gpu-or-driver-stuck",
    kinds=("rank-blocked",),
    needs="a thread in a device driver, or a GPU that does not go on by the kernel's log",
    explain=explain,
)

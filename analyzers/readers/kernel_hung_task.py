"""``INFO: task … blocked for more than … seconds``, with the kernel stack that follows it.

The number in the line is a thread's; kernels since 6.7 print its process (``tgid``) too. Frames marked ``?``
are leftovers on the stack, not calls. Killable waits (NFS, Lustre, FUSE) never come here.

>>> from .interface import Line
>>> from hangscope.model.loose import NOBODY
>>> report = '''[ 721.02] INFO: task pt_main_thread:15277 blocked for more than 120 seconds.
... [ 721.02]       Tainted: P           OE      6.8.0-node #1
... [ 721.02] task:pt_main_thread  state:D stack:0     pid:15277 tgid:15277 ppid:15257 flags:0x00000002
... [ 721.02] Call Trace:
... [ 721.02]  <TASK>
... [ 721.02]  __schedule+0x2cb/0x750
... [ 721.02]  ? finish_wait+0x10/0x60
... [ 721.02]  uvm_va_space_down_write+0x34/0x40 [nvidia_uvm]
... [ 721.02]  </TASK>
... [ 722.00] something else'''
>>> lines = [Line(at, text, NOBODY, "x") for at, text in enumerate(report.splitlines(), 1)]
>>> (event, dump), after = read(lines, 0)
>>> event.kind, event.pid, dump.threads[0].kernel_stack, after
('hung-task', 15277, ('__schedule', 'uvm_va_space_down_write [nvidia_uvm]'), 9)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from hangscope.model.loose import DumpedThread, Origin, StackDump

from .interface import BlockForm, Facts, Line
from .kernel_clock import split
from .kernel_text import event_of
from .raw import number

MOST_LINES = 120
_STATE = re.compile(
    r"^(?:task:\S.{0,40}? {1,20}state:|\S.{0,30}? {1,20})(?P<state>[DRSTtZI])"
    r"(?: +stack:| [0-9a-f]{16}\b| {1,10}\d)"
)
_HOLDER = re.compile(r"^INFO: task .{1,80} blocked on a .{1,40} owned by task (?P<holder>.{1,64}:\d{1,9})")
_PROCESS = re.compile(r"\btgid: ?(?P<tgid>\d{1,9})")
_FRAME = re.compile(
    r"^(?:\[<[0-9a-f]{8,16}>\] )?(?P<unsure>\? )?"
    r"(?P<function>[A-Za-z_][\w.]{0,120})\+0x[0-9a-f]{1,8}/0x[0-9a-f]{1,8}"
    r"(?: \[(?P<module>[\w-]{1,64})(?: [0-9a-f]{1,64})?\])?$"
)
_OTHER = re.compile(
    r"^(?:Tainted: |Not tainted|\"echo 0 > /proc|Call Trace:|</?(?:TASK|IRQ|NMI)>|Workqueue: |RIP: |RSP: "
    r"|R[A-Z0-9]{2}: |Code: |ORIG_RAX|[0-9a-f]{16}(?: [0-9a-f]{16}){0,4}$|Call trace:)"
)


def read(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """The event, and the stack as a dump of one thread when one follows."""
    event = event_of(lines[start])
    if event is None or event.kind != "hung-task":
        return (), start
    frames: list[str] = []
    process, state, at = None, "D", start + 1
    while at < min(start + MOST_LINES, len(lines)):
        text = split(lines[at].text[:500]).text.strip()
        frame = _FRAME.match(text)
        if frame is not None:
            if frame["unsure"] is None:
                frames.append(frame["function"] + (f" [{frame['module']}]" if frame["module"] else ""))
        elif (said := _STATE.match(text)) is not None and not frames:
            state = said["state"]
            found = _PROCESS.search(text)
            process = number(found["tgid"]) if found is not None else None
        elif (held := _HOLDER.match(text)) is not None:
            event = msgspec.structs.replace(event, text=f"{event.text} [lock held by {held['holder']}]")
        elif _OTHER.match(text) is None:
            break
        at += 1
    pid = process or event.pid
    if not frames:
        return (msgspec.structs.replace(event, pid=pid),), at
    thread = DumpedThread(
        tid=event.pid,
        name=event.task,
        main=None if process is None else process == event.pid,
        state=state,
        kernel_stack=tuple(frames),
        ref=lines[start].ref,
    )
    dump = StackDump(
        tool="kernel",
        origin=Origin(node=event.node or None, pid=pid, wall=event.wall),
        title=event.text,
        threads=(thread,),
        native=True,
        ref=lines[start].ref,
    )
    return (msgspec.structs.replace(event, pid=pid), dump), at


FORM = BlockForm(
    name="kernel-hung-task",
    title="kernel log: hung tasks with their kernel stack",
    openers=("blocked for more than", "blocked in I/O wait for more than"),
    read=read,
)

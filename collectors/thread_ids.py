"""Which kernel thread is which Python thread, where py-spy cannot say.

Up to Python 3.10 a thread state has the pthread id only, and ``py-spy --nonblocking`` prints no
``os_thread_id``. glibc keeps the tid in its ``struct pthread``, to which the pthread id points (x86-64:
at 720 bytes, in glibc 2.3 to 2.41). The place is found, not assumed: the offset at which every thread
has a different tid of this very process. From 3.11 on py-spy prints the id that the thread has in its
own pid namespace, which is translated here. Python >= 3.8.
"""

import struct
from typing import Any, Dict, Iterable, List, Optional, Sequence

from . import guarded
from .attach import Task

SPAN = 1024
"""Bytes of each ``struct pthread`` that are looked through."""


def translate(threads: Iterable[Dict[str, Any]], tasks: Dict[int, Task]) -> None:
    """Replaces ids of an inner pid namespace in ``os_thread_id`` by this one's; unknown ones by None."""
    outer = {task.inner_tid: tid for tid, task in tasks.items()}
    for thread in threads:
        thread["os_thread_id"] = outer.get(thread["os_thread_id"])


def of_pthreads(
    pid: int, pthreads: Sequence[int], tasks: Dict[int, Task], timeout: float, proc: str = "/proc"
) -> Dict[int, int]:
    """``{pthread id: tid}`` out of the target's memory, in a killable child; {} when it cannot be told."""
    if not pthreads:
        return {}
    outcome = guarded.call(_read_blocks, f"{proc}/{pid}/mem", list(pthreads), timeout=timeout)
    if outcome.status != "ok":
        return {}
    outer = {task.inner_tid: tid for tid, task in tasks.items()}
    return match(pthreads, [_words(block) for block in outcome.value], outer)


def match(pthreads: Sequence[int], blocks: Sequence[Sequence[int]], outer: Dict[int, int]) -> Dict[int, int]:
    """The assignment that some word of the blocks makes, when all words that make one agree."""
    found: Optional[Dict[int, int]] = None
    for column in zip(*blocks):
        tids = [outer.get(word) for word in column]
        distinct = {tid for tid in tids if tid is not None}
        if len(distinct) < len(tids):
            continue
        candidate = {pthread: tid for pthread, tid in zip(pthreads, tids) if tid is not None}
        if found is not None and candidate != found:
            return {}
        found = candidate
    return found or {}


def _read_blocks(path: str, addresses: List[int]) -> List[str]:
    blocks = []
    with open(path, "rb", buffering=0) as memory:
        for address in addresses:
            memory.seek(address)
            blocks.append(memory.read(SPAN).hex())
    return blocks


def _words(block: str) -> Sequence[int]:
    data = bytes.fromhex(block)
    return struct.unpack(f"={len(data) // 4}i", data[: len(data) // 4 * 4])

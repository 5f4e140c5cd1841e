"""Which thread of a dump is the main one, where the tool does not say: the only one that began in a script.

>>> from hangscope.model.facts import Ref
>>> main = DumpedThread(frames=(Frame(function="<module>", file="train.py"),), ref=Ref("x"))
>>> other = DumpedThread(frames=(Frame(function="Thread._bootstrap", file="threading.py"),), ref=Ref("x"))
>>> [thread.main for thread in marked([other, main])], [thread.main for thread in marked([other, other])]
([False, True], [None, None])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from hangscope.model.facts import Frame
from hangscope.model.loose import DumpedThread

_ENTRIES = frozenset({"_run_module_as_main", "spawn_main", "main", "console_entry"})
"""Outermost functions of a main thread besides ``<module>``: ``python -m``, multiprocessing's spawn."""


def marked(threads: Iterable[DumpedThread]) -> tuple[DumpedThread, ...]:
    """The threads with ``main`` set, where exactly one can be it; as they are where one is marked, or
    several or none could be."""
    rows = tuple(threads)
    if any(row.main for row in rows):
        return rows
    found = [index for index, row in enumerate(rows) if _began_in_a_script(row.frames)]
    if len(found) != 1:
        return rows
    return tuple(msgspec.structs.replace(row, main=index == found[0]) for index, row in enumerate(rows))


def main_of(threads: Sequence[DumpedThread]) -> DumpedThread | None:
    """The marked main thread; None when there is none."""
    return next((thread for thread in threads if thread.main), None)


def _began_in_a_script(frames: tuple[Frame, ...]) -> bool:
    outermost = next((frame for frame in reversed(frames) if frame.library is None), None)
    if outermost is None:
        return False
    return outermost.function == "<module>" or (
        outermost.function in _ENTRIES and not outermost.file.endswith("threading.py")
    )

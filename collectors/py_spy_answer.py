"""What ``py-spy dump --json`` prints, rebuilt record by record.

The names in it come out of the target's memory: nothing about them is trusted. Most of an answer repeats,
from thread to thread and from rank to rank: a stack whose text was seen before is not read again.
Python >= 3.8, standard library only.
"""

import json
from typing import Any, Dict, List, Optional, Tuple

Frame = Dict[str, Any]
Thread = Dict[str, Any]

OPENING, CLOSING = b'\n    "frames": [\n', b"\n    ]"
"""Around the frames of a thread as py-spy 0.4 indents them. No name can hold these lines: JSON escapes a line
end within a string. In any other layout nothing is cut out, and everything is read."""

TEXT_KEPT = 4 << 20
"""Bytes of stacks that are kept as text; what comes later is read each time."""


class Known:
    """Frames and stacks seen before: equal frames without locals are one object. They are shared, and nobody
    may change them."""

    def __init__(self) -> None:
        self.frames: Dict[Tuple[Any, ...], Frame] = {}
        """By all that py-spy printed of them."""
        self.stacks: Dict[bytes, List[Frame]] = {}
        """By their text."""
        self.text_kept = 0

    def stack(self, text: bytes) -> List[Frame]:
        """The frames between the brackets, in a list of the caller's own.

        Raises ValueError, TypeError, KeyError or RecursionError for what are no frames.
        """
        frames = self.stacks.get(text)
        if frames is None:
            frames = self.checked(json.loads("[" + text.decode("utf-8", "replace") + "]"))
            plain = all(frame["locals"] is None for frame in frames)
            if plain and self.text_kept + len(text) <= TEXT_KEPT:
                self.text_kept += len(text)
                self.stacks[text] = frames
        return list(frames)

    def checked(self, rows: List[Any]) -> List[Frame]:
        """Every frame rebuilt from the known keys. Raises as ``stack``."""
        return [self._frame(row) for row in rows]

    def _frame(self, row: Dict[str, Any]) -> Frame:
        if row["locals"] is not None:
            return _checked_frame(row)
        key = tuple(row.values())
        frame = self.frames.get(key)
        if frame is None:
            frame = self.frames.setdefault(key, _checked_frame(row))
        return frame


def parse(data: bytes, known: Optional[Known] = None) -> Optional[Tuple[Thread, ...]]:
    """The threads of an answer, their frames innermost first under py-spy's own keys; None when it is
    something else."""
    known = Known() if known is None else known
    try:
        short, stacks = _cut_out(data)
        rows = json.loads(short.decode("utf-8", "replace"))
        return tuple(_thread(row, stacks, known) for row in rows) if isinstance(rows, list) else None
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return None


def _cut_out(data: bytes) -> Tuple[bytes, List[bytes]]:
    """The answer with the number of each stack in its place, and the stacks as text."""
    parts: List[bytes] = []
    stacks: List[bytes] = []
    done, last, closed = 0, b"", CLOSING
    while True:
        opening = data.find(OPENING, done)
        start = opening + len(OPENING)
        if opening < 0:
            break
        if not data.startswith(closed, start):  # else it is the last one again, and need not be searched
            end = data.find(CLOSING, start)
            if end < 0:
                break
            last, closed = data[start:end], data[start : end + len(CLOSING)]
        parts.append(b'%s\n    "frames": %d' % (data[done:opening], len(stacks)))
        stacks.append(last)
        done = start + len(closed)
    parts.append(data[done:])
    return b"".join(parts), stacks


def _thread(row: Dict[str, Any], stacks: List[bytes], known: Known) -> Thread:
    name, tid, frames = row["thread_name"], row["os_thread_id"], row["frames"]
    return {
        "pid": _integer(row["pid"]),
        "thread_id": _integer(row["thread_id"]),
        "thread_name": None if name is None else str(name),
        "os_thread_id": None if tid is None else _integer(tid),
        "active": row["active"] is True,
        "owns_gil": row["owns_gil"] is True,
        "process_info": None,
        "frames": known.checked(frames)
        if isinstance(frames, list)
        else known.stack(stacks[_integer(frames)]),
    }


def _checked_frame(row: Dict[str, Any]) -> Frame:
    name, filename, module, short = row["name"], row["filename"], row["module"], row["short_filename"]
    if not (isinstance(name, str) and isinstance(filename, str)):
        raise TypeError("a frame without a name")
    return {
        "name": name,
        "filename": filename,
        "module": module if module is None or isinstance(module, str) else str(module),
        "short_filename": short if short is None or isinstance(short, str) else str(short),
        "line": _integer(row["line"]),
        "locals": row["locals"],
        "is_entry": row.get("is_entry") is True,
        "is_shim_entry": row.get("is_shim_entry") is True,
    }


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("not an integer")
    return value

"""What py-spy says when it could not dump a process (0.2 to 0.4), and of which process it says so.

>>> from hangscope.model.loose import NOBODY
>>> texts = ("$ py-spy dump --pid 8102", "Error: Permission denied (os error 13)")
>>> lines = [Line(n, text, NOBODY, "x.txt") for n, text in enumerate(texts, 1)]
>>> failure(lines, 1), asked(lines, 1)
(('Error: Permission denied (os error 13)', 2), 8102)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .interface import Line

FAILURES = (
    "Failed to suspend process",
    "Permission denied (os error 13)",
    "Permission Denied: Try running again with elevated permissions",
    "Failed to copy Py_Version symbol",
    "Failed to copy PyInterpreterState",
    "Failed to copy PyThreadState",
    "Failed to get process executable name",
    "Failed to find python version from target process",
    "Failed to find a python interpreter in the .data section",
    "Failed to merge native and python frames",
    "Failed to get stack trace from",
    "UNW_EBADREG",
    "add the SYS_PTRACE capability",
    "capability SYS_PTRACE",
    "Can't get native stack traces with the --nonblocking option",
)
_FAILED = re.compile("|".join(map(re.escape, FAILURES)))
_ASKED = re.compile(r"py-spy\b.{0,200}?(?:--pid|-p)[ =](?P<pid>\d{1,9})")


def failure(lines: Sequence[Line], index: int) -> tuple[str, int] | None:
    """py-spy's own error, and the index behind the lines that it takes."""
    for place in range(index, min(index + 3, len(lines))):
        text = lines[place].text
        if _FAILED.search(text) is not None:
            return text.strip()[:400], place + 1
    return None


def asked(lines: Sequence[Line], start: int) -> int | None:
    """The pid of the command line that somebody pasted with it."""
    for index in range(start, max(-1, start - 4), -1):
        found = _ASKED.search(lines[index].text[:1000])
        if found is not None:
            return int(found["pid"])
    return None

"""What the source line of a leaf frame says, where the wait itself is C code without a frame."""

from __future__ import annotations

import re

JOINED = re.compile(r"\.(?:wait|synchronize)\s*\(|\bwait_tensor\s*\(")
WAIT_CALL = re.compile(r"\.wait\s*\(")
STORE = re.compile(
    r"(?:\bstore\w*|\w*_store)\.(?:wait|get|multi_get|check|compare_set|add)\s*\(|\b(?:TCP|File|Prefix)Store\s*\("
)
DEVICE = re.compile(
    r"\.(?:item|cpu|tolist|numpy|nonzero|synchronize)\s*\(|\.to\s*\(\s*['\"]cpu|\bcuda\.synchronize\s*\(|\.record_stream"
)
QUEUE = re.compile(r"\.(?:get|put)\s*\(")
JOIN = re.compile(r"\.join\s*\(\s*(?:timeout\s*=|[\d.]*\s*\))")
FILE_CALL = re.compile(
    r"\bopen\s*\(|\bos\.(?:open|stat|listdir|makedirs|rename|replace|remove|scandir)\s*\(|\.(?:read|readline|write|flush)\s*\("
)
"""A call that works on a file by its name: what it waits in tells the kernel, this only names the place."""


def is_joined(text: str | None) -> bool | None:
    """True on the line that waits for the issued operation, False on any other line, None without text.

    >>> is_joined("work.wait()"), is_joined("work = group.allreduce([tensor], opts)"), is_joined(None)
    (True, False, None)
    """
    return None if text is None else JOINED.search(text) is not None

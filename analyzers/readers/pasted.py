"""What a web page or a mail did to a text: quote marks, code fences, a common indentation.

>>> unwrapped(["> ```", ">     Thread 7", ">       f (a.py:1)", "> ```"])
['', 'Thread 7', '  f (a.py:1)', '']
"""

from __future__ import annotations

import re

_QUOTE = re.compile(r"(?:> ?){1,5}")
_FENCE = re.compile(r"\s{0,12}(?:```|~~~)[\w+-]{0,20}\s*$")
_LEAST_QUOTED = 2


def unwrapped(rows: list[str]) -> list[str]:
    """The same number of rows without what a page put around them."""
    if any(row.startswith(">") for row in rows):
        rows = _unquoted(rows)
    fences = [index for index, row in enumerate(rows) if _FENCE.match(row)]
    if not fences:
        return _dedented(rows)
    found: list[str] = []
    for start, end in zip([-1, *fences], [*fences, len(rows)], strict=True):
        found += _dedented(rows[start + 1 : end])
        if end < len(rows):
            found.append("")
    return found


def _unquoted(rows: list[str]) -> list[str]:
    """Without the quote marks, where several lines in a row have them: one alone may be a prompt."""
    found: list[str] = []
    run = 0
    for row in [*rows, ""]:
        if row.startswith(">"):
            run += 1
        elif run:
            if run >= _LEAST_QUOTED:
                found[-run:] = [_QUOTE.sub("", quoted, count=1) for quoted in found[-run:]]
            run = 0
        found.append(row)
    return found[:-1]


def _dedented(rows: list[str]) -> list[str]:
    """Without the indentation that all have, where all have one."""
    common: str | None = None
    for row in rows:
        body = row.lstrip(" \t")
        if not body.strip():
            continue
        indent = row[: len(row) - len(body)]
        if common is None or common.startswith(indent):
            common = indent
        while not indent.startswith(common):
            common = common[:-1]
        if not common:
            return rows
    return (
        [row[len(common) :] if row.startswith(common) else row.lstrip(" \t") for row in rows]
        if common
        else rows
    )

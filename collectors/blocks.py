"""The blocks around a line of source: its function, the ``with`` statements it is in, the loops it is in.

An enclosing ``with`` can be the only evidence of who holds a lock, so nothing is guessed: blocks follow from
the indentation of logical lines, as in Python itself. Python >= 3.8.
"""

import bisect
import re
from typing import Any, Dict, List, Optional, Sequence

from .logical_lines import LogicalLine

WIDEST = 300
"""Characters kept of a header."""

LONGEST = 400
"""Lines of a statement that is believed to be one: beyond, a bracket was probably misread."""

_KEYWORD = re.compile(r"(?:async\s+)?(def|class|with|for|while)(?![A-Za-z0-9_])")


def around(lines: Sequence[LogicalLine], line: int) -> Optional[Dict[str, Any]]:
    """``{"function": "def f(self)" | None, "withs": [[line, "items"]], "loops": [[line, "header"]]}``.

    Outermost first, within the innermost function or class body; None when no statement stands on ``line``.
    A header that ``line`` is itself a part of encloses nothing: what its expressions wait for is not held.
    """
    index = bisect.bisect_right([logical.first for logical in lines], line) - 1
    if index < 0 or line > lines[index].last or lines[index].last - lines[index].first > LONGEST:
        return None
    function: Optional[str] = None
    withs: List[List[Any]] = []
    loops: List[List[Any]] = []
    indent = lines[index].indent
    for header in (lines[before] for before in range(index - 1, -1, -1)):
        if header.indent >= indent:
            continue
        indent = header.indent
        found = _KEYWORD.match(header.text)
        if found is None or not header.text.endswith(":"):
            continue
        kind = found.group(1)
        if kind == "with":
            withs.insert(0, [header.first, shorten(header.text[found.end() : -1])])
        elif kind in ("for", "while"):
            loops.insert(0, [header.first, shorten(header.text[:-1])])
        else:
            function = shorten(header.text[:-1]) if kind == "def" else None
            break
    return {"function": function, "withs": withs, "loops": loops}


def shorten(text: str) -> str:
    """On one line, at most WIDEST characters."""
    text = " ".join(text.replace("\\\n", " ").split())
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"

"""Rows of text as a terminal takes them: folded at a width, coloured or not."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from .interface import Style


def paint(rows: Iterable[tuple[str, str]], style: Style) -> str:
    """(row, rich style) pairs as text, a line feed after each; never folded here."""
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=style.width,
        force_terminal=style.color,
        color_system="standard" if style.color else None,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )
    for row, look in rows:
        console.print(Text(row, style=look), soft_wrap=True)
    return buffer.getvalue()


def folded(text: str, width: int, most: int | None = None, indent: int = 4) -> list[str]:
    """Rows of the text, at most ``most``; the later ones ``indent`` columns further in, and what does not fit
    ends in ``…``."""
    further = " " * (len(text) - len(text.lstrip()) + indent)
    return textwrap.wrap(
        text,
        width,
        subsequent_indent=further,
        max_lines=most,
        placeholder=" …",
        break_on_hyphens=False,
    ) or [""]

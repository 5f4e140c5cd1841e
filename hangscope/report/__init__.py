"""Verdicts as text for people and programs. One file a format, one line in ``FORMATS``.

Reporters return strings and never print; evidence comes from strangers, so control characters are
replaced before a string leaves this package.
"""

from __future__ import annotations

from ..errors import UsageError
from ..model.verdict import Verdict
from . import json_format, markdown, text
from .interface import Reporter, Style

FORMATS: tuple[tuple[str, Reporter], ...] = (
    ("text", text.render),
    ("json", json_format.render),
    ("markdown", markdown.render),
)


def render(verdict: Verdict, format_name: str, style: Style | None = None) -> str:
    """Returns the verdict in the named format, with a line feed at its end. Raises UsageError."""
    for name, reporter in FORMATS:
        if name == format_name:
            return reporter(verdict, style or Style())
    known = ", ".join(name for name, _ in FORMATS)
    raise UsageError(f"no report format {format_name!r}", None, f"one of: {known}")

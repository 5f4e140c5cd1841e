"""The verdict as JSON: the public contract ``hangscope-verdict/1`` (``verdict.schema.json``)."""

from __future__ import annotations

import msgspec

from ..model.verdict import Verdict
from .interface import Style


def render(verdict: Verdict, style: Style) -> str:
    """One JSON object, indented, ASCII-safe for control characters (JSON escapes them)."""
    document = msgspec.to_builtins(verdict)
    if style.saved is not None:
        document["saved"] = style.saved
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"

"""Opens what people have: files, folders, archives, pasted text. Nothing else opens loose evidence."""

from __future__ import annotations

from .interface import Found, FoundBundle, Limits, Unread, Window
from .opened import opened, opened_stream

__all__ = ["Found", "FoundBundle", "Limits", "Unread", "Window", "opened", "opened_stream"]

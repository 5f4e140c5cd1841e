"""Writes ``fixtures/loose/FORMS.md``: ``python -m tests.forms``."""

from __future__ import annotations

from .table import TABLE, table

TABLE.write_text(table(), encoding="utf-8")
print(f"wrote {TABLE}")

"""Texts as the block forms of stack dumps get them."""

from __future__ import annotations

import textwrap

from hangscope.analyzers.readers.interface import BlockForm, Document, Line
from hangscope.model.loose import NOBODY, LogEvent, LooseFact, Origin, ProcessState, StackDump


def lines(text: str, origin: Origin = NOBODY) -> list[Line]:
    """The lines of a text, without the empty ones."""
    rows = textwrap.dedent(text).strip("\n").split("\n")
    return [Line(number, row, origin, "x.txt") for number, row in enumerate(rows, 1) if row.strip()]


def facts_of(form: BlockForm, text: str, origin: Origin = NOBODY) -> list[LooseFact]:
    """What the form alone makes of a text, block after block."""
    rows, found, index = lines(text, origin), [], 0
    while index < len(rows):
        end = index
        if any(opener in rows[index].text for opener in form.openers):
            facts, end = form.read(rows, index)
            assert index <= end <= len(rows) and (end > index or not facts)
            found += facts
        index = max(index + 1, end)
    return found


def dumps_of(form: BlockForm, text: str, origin: Origin = NOBODY) -> list[StackDump]:
    """The stack dumps among them."""
    return [fact for fact in facts_of(form, text, origin) if isinstance(fact, StackDump)]


def events_of(form: BlockForm, text: str) -> list[LogEvent]:
    """The events among them."""
    return [fact for fact in facts_of(form, text) if isinstance(fact, LogEvent)]


def states_of(form: BlockForm, text: str) -> list[ProcessState]:
    """The rows of ps among them."""
    return [fact for fact in facts_of(form, text) if isinstance(fact, ProcessState)]


def document(data: bytes | str, path: str = "x.json", origin: Origin = NOBODY) -> Document:
    return Document(path=path, data=data.encode() if isinstance(data, str) else data, origin=origin)

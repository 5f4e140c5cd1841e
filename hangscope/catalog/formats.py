"""Entries, search results and comparisons as Markdown, to paste into an issue, and as JSON, for programs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from ..report.interface import printable
from ..report.markdown import code, safe
from .compare import Comparison
from .entry import CATEGORIES, Entry
from .search import Hit


def prose(text: str) -> str:
    """A text of the catalogue as Markdown: what stands in back quotes stays code, the rest is escaped.

    >>> prose("`a_b` and c_d")
    '`a_b` and c\\\\_d'
    """
    parts = re.split(r"`([^`]{1,400})`", text)
    return "".join(code(part) if number % 2 else safe(part) for number, part in enumerate(parts))


def to_json(value: object) -> str:
    """The value as indented JSON with a line feed; structs as objects of their fields."""
    return msgspec.json.format(msgspec.json.encode(value)).decode() + "\n"


def summary(entry: Entry) -> dict[str, object]:
    """What the list says of an entry."""
    return {
        "id": entry.id,
        "title": entry.title,
        "category": entry.category,
        "severity": entry.severity,
        "tags": entry.tags,
        "executive": entry.executive,
    }


def found(query: str, hits: Sequence[Hit]) -> dict[str, object]:
    """A search and what it found."""
    results = [
        {**summary(hit.entry), "score": hit.score, "words": hit.words, "places": hit.places} for hit in hits
    ]
    return {"query": query, "results": results}


def entry_markdown(entry: Entry) -> str:
    """The whole entry, under one heading of the second level."""
    return "\n".join(_entry(entry)).rstrip() + "\n"


def list_markdown(entries: Sequence[Entry]) -> str:
    """A table a category."""
    lines = []
    for category, meaning in CATEGORIES.items():
        chosen = [entry for entry in entries if entry.category == category]
        if chosen:
            lines += [
                f"### {category}: {prose(meaning)}",
                "",
                "| id | what | severity |",
                "| --- | --- | --- |",
            ]
            lines += [f"| {code(e.id)} | {prose(e.title)} | {e.severity} |" for e in chosen]
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def hits_markdown(query: str, hits: Sequence[Hit]) -> str:
    """The entries found, as a numbered list."""
    lines = [f"For {code(query)}:", ""]
    for number, hit in enumerate(hits, 1):
        lines.append(f"{number}. {code(hit.entry.id)}: {prose(hit.entry.title)}")
        lines += [f"   - {place.field}: {prose(place.text)}" for place in hit.places]
    return "\n".join(lines) + "\n"


def comparison_markdown(comparison: Comparison) -> str:
    """What tells the two apart, then a table of both."""
    lines = [f"## {code(comparison.first)} or {code(comparison.second)}", "", "What tells them apart:", ""]
    lines += [f"- {prose(fact)}" for fact in comparison.tell_apart]
    lines += ["", f"| | {code(comparison.first)} | {code(comparison.second)} |", "| --- | --- | --- |"]
    for aspect in comparison.aspects:
        first, second = (_cell(answers) for answers in (aspect.first, aspect.second))
        lines.append(f"| {aspect.name} | {first} | {second} |")
    return "\n".join(lines) + "\n"


def _cell(answers: Sequence[str]) -> str:
    """The texts in one cell of a table."""
    return re.sub(r"(?<!\\)\|", r"\\|", "<br>".join(map(prose, answers)))


def _entry(entry: Entry) -> Iterator[str]:
    yield from (f"## {prose(entry.title)}", "")
    yield f"{code(entry.id)}, {entry.category} ({prose(CATEGORIES[entry.category])}), {entry.severity}"
    yield from ("", f"**In short:** {prose(entry.executive)}", "", prose(entry.answer.strip()))
    yield from _section("On call", [f"{n}. {prose(step)}" for n, step in enumerate(entry.oncall, 1)])
    yield from _section(
        "What one sees, and why", [f"- {prose(s.see)}  \n  {prose(s.why)}" for s in entry.symptoms]
    )
    yield from ("", "### How to confirm")
    for item in entry.confirm:
        yield from (*_block(item.command, "sh"), "", prose(item.shows))
    yield from _section(
        "Root causes", [f"- **{prose(c.name)}**: {prose(c.detail)}" for c in entry.root_causes]
    )
    yield from ("", "### Fix", "")
    for fix in entry.fix:
        yield f"- {prose(fix.text)}" + ("" if fix.safe else " **May lose work.**")
        yield from _block(fix.command, "sh")
    yield from ("", "### Prevention", "")
    for prevention in entry.prevention:
        yield f"- **{prevention.framework}**: {prose(prevention.text)}"
        yield from _block(prevention.code, "")
    yield from ("", "### Mechanism", "")
    yield from (line for part in entry.mechanism.strip().split("\n\n") for line in (prose(part), ""))
    alike = [f"- {code(other.id)}: {prose(other.tell_apart)}" for other in entry.look_alikes]
    yield from _section("How to tell it from what looks like it", alike)
    times = [("How long", entry.duration), ("Scale", entry.scale), ("Early sign", entry.fingerprint)]
    yield from _section("When", [f"- **{name}**: {prose(text.strip())}" for name, text in times])
    yield from _section("Affects", [f"- {prose(system)}" for system in entry.affects])
    yield from _section("Sources", [f"- {code(item.name)}: {prose(item.what)}" for item in entry.references])
    related = ", ".join(code(other) for other in entry.related)
    yield from ("", f"Related: {related or 'none'}. Tags: {prose(', '.join(entry.tags))}.")


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    yield from ("", f"### {title}", "", *lines)


def _block(text: str, language: str) -> Iterator[str]:
    """A fenced block of the lines; nothing for none."""
    if text.strip():
        lines = [printable(line).rstrip() for line in text.strip("\n").splitlines()]
        fence = "```" if "```" not in text else "````"
        yield from ("", fence + language, *lines, fence)

"""Entries, search results and comparisons as text for a terminal. Markdown and JSON stand beside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..report.interface import Style, printable
from ..report.terminal import folded, paint
from .compare import Comparison
from .entry import CATEGORIES, Entry
from .search import Hit

LOOKS = {"critical": "bold red", "high": "bold yellow", "medium": "bold", "low": "bold"}
SIDE_BY_SIDE = 80
"""Columns from which two entries fit beside one another."""

Row = tuple[str, str]
"""(row, rich style)."""


def entry_text(entry: Entry, style: Style) -> str:
    """The entry for its three readers: one line for a manager, steps for the person on call, then the
    mechanism and all that an engineer may ask. Folded at the width, except what people copy."""
    return paint(_entry(entry, style.width), style)


def list_text(entries: Sequence[Entry], style: Style) -> str:
    """All entries by category, one line each."""
    rows: list[Row] = []
    longest = max((len(entry.id) for entry in entries), default=0)
    for category, meaning in CATEGORIES.items():
        chosen = [entry for entry in entries if entry.category == category]
        if not chosen:
            continue
        rows += _paragraph(f"{category}: {meaning}", style.width, 0, "underline")
        for entry in chosen:
            row = f"  {entry.id:<{longest}}  {entry.title}"
            rows += [(part, "") for part in folded(row, style.width, indent=longest + 2)]
        rows.append(("", ""))
    rows.append((f"{len(entries)} entries; hangscope explain ID shows one", "dim"))
    return paint(rows, style)


def hits_text(query: str, hits: Sequence[Hit], style: Style) -> str:
    """The entries found, the best first, each with why it was found."""
    rows: list[Row] = [(part, "") for part in folded(f"for: {printable(query)}", style.width, 2)]
    for number, hit in enumerate(hits, 1):
        rows += [("", ""), (f"{number}. {hit.entry.id}", LOOKS[hit.entry.severity])]
        rows += _paragraph(hit.entry.title, style.width, 3)
        for place in hit.places:
            rows += [(part, "dim") for part in folded(f"   {place.field}: {place.text}", style.width, 2)]
        words = printable(", ".join(hit.words))
        rows += [(part, "dim") for part in folded(f"   matched: {words}", style.width, 2)]
    rows.append(("", ""))
    if hits:
        rows.append((f"next: hangscope explain {hits[0].entry.id}", ""))
    if len(hits) > 1:
        rows.append((f"      hangscope explain --compare {hits[0].entry.id} {hits[1].entry.id}", ""))
    return paint(rows, style)


def comparison_text(comparison: Comparison, style: Style) -> str:
    """What tells the two apart, then both in two columns; one below the other in a narrow terminal."""
    rows = _paragraph(f"{comparison.first} or {comparison.second}", style.width, 0, "bold")
    rows += _heading("what tells them apart")
    for fact in comparison.tell_apart:
        rows += _item(fact, style.width)
    if comparison.shared:
        rows += _paragraph(f"both: {', '.join(comparison.shared)}", style.width, 2)
    columns = _two_columns if style.width >= SIDE_BY_SIDE else _one_below_the_other
    return paint([*rows, *columns(comparison, style.width)], style)


def _two_columns(comparison: Comparison, width: int) -> Iterator[Row]:
    half = (width - 3) // 2
    yield "", ""
    yield f"{comparison.first:<{half}} | {comparison.second}", "bold"
    for aspect in comparison.aspects:
        yield f"{'-' * half}-+-{'-' * half}", "dim"
        yield aspect.name, "underline"
        left, right = _column(aspect.first, half), _column(aspect.second, half)
        for number in range(max(len(left), len(right))):
            one = left[number] if number < len(left) else ""
            two = right[number] if number < len(right) else ""
            yield f"{one:<{half}} | {two}".rstrip(), ""


def _one_below_the_other(comparison: Comparison, width: int) -> Iterator[Row]:
    for aspect in comparison.aspects:
        yield "", ""
        yield aspect.name, "underline"
        for name, answers in ((comparison.first, aspect.first), (comparison.second, aspect.second)):
            yield f"  {name}", "bold"
            for answer in answers:
                yield from _item(answer, width, 4)


def _column(answers: Sequence[str], width: int) -> list[str]:
    """The texts as rows of the column, never wider; several ones as a list."""
    mark = "- " if len(answers) > 1 else ""
    return [part for answer in answers for part in folded(mark + printable(answer), width, indent=len(mark))]


def _entry(entry: Entry, width: int) -> Iterator[Row]:
    yield from _paragraph(entry.title, width, 0, LOOKS[entry.severity])
    about = f"{entry.id} · {entry.category}: {CATEGORIES[entry.category]} · {entry.severity}"
    yield from ((part, "dim") for part in folded(about, width))
    yield "", ""
    yield from _paragraph(f"in short: {entry.executive}", width, 0)
    yield "", ""
    yield from _paragraph(entry.answer, width, 0)
    yield from _heading("on call")
    for number, step in enumerate(entry.oncall, 1):
        yield from ((part, "") for part in folded(f"  {number}. {printable(step)}", width, indent=3))
    yield from _heading("what one sees, and why")
    for symptom in entry.symptoms:
        yield from _item(symptom.see, width)
        yield from _paragraph(symptom.why, width, 4, "dim")
    yield from _heading("how to confirm")
    for item in entry.confirm:
        yield from _command(item.command)
        yield from _paragraph(item.shows, width, 6)
    yield from _heading("root causes")
    for cause in entry.root_causes:
        yield from _item(f"{cause.name}: {cause.detail}", width)
    yield from _remedies(entry, width)
    yield from _heading("mechanism")
    for part in entry.mechanism.strip().split("\n\n"):
        yield from _paragraph(part, width, 2)
    yield from _surroundings(entry, width)


def _remedies(entry: Entry, width: int) -> Iterator[Row]:
    yield from _heading("fix")
    for fix in entry.fix:
        yield from _item(fix.text if fix.safe else f"{fix.text} [may lose work]", width)
        yield from _command(fix.command)
    yield from _heading("prevention")
    for prevention in entry.prevention:
        yield from _item(f"{prevention.framework}: {prevention.text}", width)
        yield from _command(prevention.code)


def _surroundings(entry: Entry, width: int) -> Iterator[Row]:
    yield from _heading("how to tell it from what looks like it")
    for other in entry.look_alikes:
        yield from _item(f"{other.id}: {other.tell_apart}", width)
    for title, text in (
        ("how long", entry.duration),
        ("1 GPU, one node, many nodes", entry.scale),
        ("early sign", entry.fingerprint),
    ):
        yield from _heading(title)
        yield from _paragraph(text, width, 2)
    yield from _heading("affects")
    for system in entry.affects:
        yield from _item(system, width)
    yield from _heading("sources")
    for reference in entry.references:
        yield from _item(f"{reference.name}: {reference.what}", width)
    yield "", ""
    if entry.related:
        yield from _paragraph(f"related: {', '.join(entry.related)}", width, 0, "dim")
    yield from _paragraph(f"tags: {', '.join(entry.tags)}", width, 0, "dim")


def _heading(title: str) -> Iterator[Row]:
    yield "", ""
    yield title, "underline"


def _item(text: str, width: int, indent: int = 2) -> list[Row]:
    return [(part, "") for part in folded(" " * indent + "- " + printable(text.strip()), width, indent=2)]


def _paragraph(text: str, width: int, indent: int, look: str = "") -> list[Row]:
    return [(part, look) for part in folded(" " * indent + printable(text.strip()), width, indent=0)]


def _command(text: str) -> Iterator[Row]:
    """What people copy: each line whole."""
    for line in text.strip("\n").splitlines():
        yield printable(f"      {line}").rstrip(), "cyan"

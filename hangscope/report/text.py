"""The text report: three lines that say it all, then what they rest on, within one screen."""

from __future__ import annotations

from ..model.ranges import rank_ranges
from ..model.verdict import ChainLink, EvidenceLine, Verdict
from .headline import headline
from .interface import Style, printable
from .terminal import folded, paint

EVIDENCE_LINES = 6
CHAIN_LINES = 5
OTHER_LINES = 3
SCREEN = 45
"""Rows of a terminal that the report may fill."""


def render(verdict: Verdict, style: Style) -> str:
    """At most about 45 lines of ``style.width`` columns; what people copy (commands) is never cut."""
    return paint(_rows(_lines(verdict, style), style.width), style)


Line = tuple[str, str, bool]
"""(text, rich style, whether it is folded at the width). What people copy is never folded."""


def _rows(lines: list[Line], width: int) -> list[tuple[str, str]]:
    """(row, style) pairs: folded into two rows where that still fits a screen, else cut to one each."""
    for most in (2, 1):
        rows = [
            (row, look)
            for content, look, fold in lines
            for row in (folded(printable(content), width, most) if fold else [printable(content)])
        ]
        if len(rows) <= SCREEN:
            break
    return rows


def _lines(verdict: Verdict, style: Style) -> list[Line]:
    who, why, what = headline(verdict, style.saved)
    lines: list[Line] = [(who, "bold red" if verdict.initiators else "bold", False), (why, "bold", False)]
    lines.append((what, "", False))
    lines.extend(_chain(verdict))
    lines.extend(_section("evidence", verdict.evidence, EVIDENCE_LINES))
    lines.extend(_section("against", verdict.against, OTHER_LINES))
    lines.extend(_section("ruled out", verdict.ruled_out, OTHER_LINES))
    lines.extend(_missing(verdict))
    lines.extend(_independent(verdict))
    if verdict.why_not_higher:
        lines.append((f"confidence {verdict.confidence}: {verdict.why_not_higher}", "dim", False))
    lines.extend(_next(verdict))
    if verdict.cause:
        lines.append((f"more on it: hangscope explain {verdict.cause}", "", False))
    lines.append((_footer(verdict), "dim", True))
    return lines


def _chain(verdict: Verdict) -> list[Line]:
    if not verdict.chain:
        return []
    lines: list[Line] = [("", "", True), ("who waits for whom", "underline", True)]
    for link in verdict.chain[:CHAIN_LINES]:
        lines.append((f"  {_waiter(link)} → {link.waits_for}{_doubt(link)}", "", True))
        where = "  ".join(part for part in (link.at, link.source) if part)
        if where:
            lines.append((f"      {where}", "dim", True))
    return lines + _more(len(verdict.chain) - CHAIN_LINES)


def _waiter(link: ChainLink) -> str:
    if link.who:
        return link.who
    return f"rank{'s' if len(link.ranks) != 1 else ''} {rank_ranges(link.ranks)}"


def _doubt(link: ChainLink) -> str:
    return "" if link.certainty == "observed" else f" ({link.certainty})"


def _section(title: str, entries: tuple[EvidenceLine, ...], limit: int) -> list[Line]:
    if not entries:
        return []
    lines: list[Line] = [("", "", True), (title, "underline", True)]
    for entry in entries[:limit]:
        lines.append((f"  - {entry.text}{_cited(entry)}", "", True))
    return lines + _more(len(entries) - limit)


def _cited(entry: EvidenceLine) -> str:
    """`` (train.log:41)``, where the line of a file is known: what people can open themselves."""
    if entry.artifact is None or entry.line is None:
        return ""
    return f" ({entry.artifact.replace('!', '/').rpartition('/')[2]}:{entry.line})"


def _missing(verdict: Verdict) -> list[Line]:
    if not verdict.missing:
        return []
    lines: list[Line] = [("", "", True), ("not captured", "underline", True)]
    for fact in verdict.missing[:OTHER_LINES]:
        lines.append((f"  - {fact.what}: {fact.why}", "", True))
        if fact.command:
            lines.append((f"      {fact.command}", "cyan", False))
    return lines + _more(len(verdict.missing) - OTHER_LINES)


def _independent(verdict: Verdict) -> list[Line]:
    if not verdict.independent:
        return []
    lines: list[Line] = [("", "", True), ("also stuck, on its own", "underline", True)]
    for finding in verdict.independent[:OTHER_LINES]:
        lines.append((f"  - {finding.text}", "", True))
    return lines + _more(len(verdict.independent) - OTHER_LINES)


def _next(verdict: Verdict) -> list[Line]:
    lines: list[Line] = []
    commands = [(step.text, step.command) for step in verdict.next]
    commands += [
        ("what the last of the three lines above says", command) for command in verdict.action.commands
    ]
    for text, command in commands[:OTHER_LINES]:
        if text:
            lines.append((f"next: {text}", "", False))
        if command:
            lines.append((f"      {command}", "cyan", False))
    return [("", "", True), *lines] if lines else []


def _more(count: int) -> list[Line]:
    return [(f"  … {count} more (--format json)", "dim", True)] if count > 0 else []


def _footer(verdict: Verdict) -> str:
    taken = f"{verdict.samples} sample{'s' if verdict.samples != 1 else ''}"
    if verdict.observed_seconds:
        taken += f" over {verdict.observed_seconds:.0f} s"
    parts = [f"captured {verdict.coverage} ranks", taken]
    if verdict.job:
        parts.insert(0, f"job {verdict.job}")
    if verdict.unresolved:
        parts.append("unknown frames: " + ", ".join(verdict.unresolved[:3]))
    return " · ".join(parts)

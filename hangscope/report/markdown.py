"""The verdict as Markdown, to paste into an issue."""

from __future__ import annotations

from ..model.verdict import Verdict
from .headline import headline
from .interface import Style, printable


def render(verdict: Verdict, style: Style) -> str:
    """The whole verdict, nothing shortened; text from the evidence cannot become markup."""
    who, why, what = headline(verdict, style.saved)
    lines = [f"**{safe(who)}**  ", f"{safe(why)}  ", safe(what), ""]
    if verdict.chain:
        lines += ["### Who waits for whom", ""]
        for link in verdict.chain:
            waiter = link.who or ", ".join(str(rank) for rank in link.ranks)
            place = f" — {code(link.at)}" if link.at else ""
            source = f" {code(link.source)}" if link.source else ""
            lines.append(f"1. {safe(waiter)} → {safe(link.waits_for)}{place}{source}")
        lines.append("")
    for title, entries in (
        ("Evidence", verdict.evidence),
        ("Against", verdict.against),
        ("Ruled out", verdict.ruled_out),
    ):
        if entries:
            lines += [f"### {title}", ""]
            lines += [f"- {safe(e.text)}" + (f" ({code(e.artifact)})" if e.artifact else "") for e in entries]
            lines.append("")
    if verdict.missing:
        lines += ["### Not captured", ""]
        for fact in verdict.missing:
            command = f": {code(fact.command)}" if fact.command else ""
            lines.append(f"- {safe(fact.what)} ({safe(fact.why)}){command}")
        lines.append("")
    if verdict.why_not_higher:
        lines += [f"Confidence {verdict.confidence}: {safe(verdict.why_not_higher)}", ""]
    for step in verdict.next:
        lines.append(f"Next: {safe(step.text)}" + (f" {code(step.command)}" if step.command else ""))
    return "\n".join(lines).rstrip() + "\n"


def safe(text: str) -> str:
    """Escapes what Markdown or HTML would act on."""
    return "".join("\\" + c if c in "\\`*_[]#<>|~" else c for c in printable(text))


def code(text: str) -> str:
    """The text as a code span, whatever back quotes it has."""
    clean = printable(text)
    longest = run = 0
    for character in clean:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    fence = "`" * (longest + 1)
    return f"{fence} {clean} {fence}" if "`" in clean else f"{fence}{clean}{fence}"

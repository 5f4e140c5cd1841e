"""``hangscope explain``: the catalogue of what makes jobs hang; an entry, a search, two side by side."""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import TYPE_CHECKING

from ..errors import NoSuchTarget, UsageError
from . import options

if TYPE_CHECKING:
    from ..catalog import Entry
    from ..catalog.search import Hit
    from ..report.interface import Style

HELP = "explain a cause, or find it by a symptom or an error line"
EXAMPLE = """\
examples:
  hangscope explain                                      all entries, by category
  hangscope explain deepspeed-zero-stuck                 one of them
  hangscope explain "shows 0% GPU utilization on all ranks"
  hangscope explain 'failed (exitcode: -9) local_rank: 1 (pid: 23627)'
  hangscope explain --compare rank-killed rank-stopped   side by side"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``explain``."""
    parser.add_argument(
        "words",
        nargs="*",
        metavar="ID|TEXT",
        help="an entry's id (the cause in a verdict is one), or a symptom, an error line, a tag",
    )
    parser.add_argument(
        "--compare", nargs=2, metavar=("A", "B"), help="two entries side by side, and what tells them apart"
    )
    parser.add_argument("--list", action="store_true", help="all entries, by category (also without words)")
    parser.add_argument("--format", choices=options.FORMATS, default="text", help="default: text")
    parser.add_argument(
        "--json", dest="format", action="store_const", const="json", help="the same as --format json"
    )
    options.add_talk(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints the entry, what the search found, the comparison or the list.

    Raises UsageError and NoSuchTarget.
    """
    if (arguments.words and (arguments.compare or arguments.list)) or (arguments.compare and arguments.list):
        raise UsageError("explain: words, --compare and --list exclude one another")
    style = _style(arguments)
    if arguments.compare:
        text = _compared(_named(arguments.compare[0]), _named(arguments.compare[1]), arguments.format, style)
    elif arguments.list or not arguments.words:
        text = _listed(arguments.format, style)
    else:
        text = _explained(" ".join(arguments.words), arguments.format, style)
    sys.stdout.write(text)
    return 0


def _style(arguments: argparse.Namespace) -> Style:
    from ..report.interface import Style

    width = max(40, min(shutil.get_terminal_size((100, 24)).columns, 110))
    return Style(color=options.use_color(arguments.color, sys.stdout), width=width)


def _explained(words: str, form: str, style: Style) -> str:
    """The entry of that id, else the best of a search. Raises NoSuchTarget where there is none."""
    from .. import catalog
    from ..catalog import formats, render
    from ..catalog.search import search

    entry = catalog.find(words)
    if entry is not None:
        if form == "json":
            return formats.to_json(entry)
        return formats.entry_markdown(entry) if form == "markdown" else render.entry_text(entry, style)
    hits: list[Hit] = search(words)
    if not hits:
        raise NoSuchTarget(
            "nothing in the catalogue fits",
            "no entry has these words",
            "fewer or other words, or all entries by category: hangscope explain --list",
        )
    if form == "json":
        return formats.to_json(formats.found(words, hits))
    return formats.hits_markdown(words, hits) if form == "markdown" else render.hits_text(words, hits, style)


def _compared(first: Entry, second: Entry, form: str, style: Style) -> str:
    from ..catalog import formats, render
    from ..catalog.compare import compare

    comparison = compare(first, second)
    if form == "json":
        return formats.to_json(comparison)
    if form == "markdown":
        return formats.comparison_markdown(comparison)
    return render.comparison_text(comparison, style)


def _listed(form: str, style: Style) -> str:
    from .. import catalog
    from ..catalog import formats, render

    entries = catalog.entries()
    if form == "json":
        return formats.to_json([formats.summary(entry) for entry in entries])
    return formats.list_markdown(entries) if form == "markdown" else render.list_text(entries, style)


def _named(name: str) -> Entry:
    """The entry of that id. Raises UsageError with the ids that come near."""
    import difflib

    from .. import catalog

    entry = catalog.find(name)
    if entry is None:
        near = difflib.get_close_matches(name.lower(), catalog.ids(), n=3, cutoff=0.5)
        raise UsageError(
            f"no entry {name!r}", None, " or ".join(near) if near else "an id of hangscope explain --list"
        )
    return entry

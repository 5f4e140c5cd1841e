"""The options that several commands share, and what they mean."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from ..model.verdict import Verdict

FORMATS = ("text", "json", "markdown")
"""As ``hangscope.report.FORMATS`` (a test holds them equal): ``--help`` loads no report."""

NAMED, NONE_NAMED = 10, 11
"""Exit statuses under ``--exit-code``: initiators named, a hang with none named."""


class Help(argparse.RawDescriptionHelpFormatter):
    """Help with the examples as they are written, and the same text from every Python."""

    def __init__(self, prog: str) -> None:
        width = shutil.get_terminal_size((100, 24)).columns
        super().__init__(prog, max_help_position=26, width=max(60, min(width, 110) - 2))

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """``-o, --output FILE``, as argparse writes it from 3.13 on; before, each name had its ``FILE``."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


def add_talk(parser: argparse.ArgumentParser, command: bool = True) -> None:
    """How much is said, and whether in colour. A command leaves what was said before its name as it is."""
    unsaid = argparse.SUPPRESS if command else False
    talk = parser.add_mutually_exclusive_group()
    talk.add_argument("-q", "--quiet", action="store_true", default=unsaid, help="no progress and notes")
    talk.add_argument(
        "-v", "--verbose", action="store_true", default=unsaid, help="every gap in the evidence too"
    )
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default=argparse.SUPPRESS if command else "auto",
        help="default: on a terminal",
    )


def add_verdict(parser: argparse.ArgumentParser) -> None:
    """How the verdict is given."""
    parser.add_argument("--format", choices=FORMATS, default="text", help="of the verdict (default: text)")
    parser.add_argument(
        "--json", dest="format", action="store_const", const="json", help="the same as --format json"
    )
    parser.add_argument(
        "--exit-code",
        action="store_true",
        help=f"exit with {NAMED} when initiators are named, {NONE_NAMED} for a hang with none named, "
        "0 for slow or not stuck",
    )


def use_color(choice: str, stream: TextIO) -> bool:
    """Whether to colour what goes to ``stream`` (https://no-color.org counts unless ``always``)."""
    if choice != "auto":
        return choice == "always"
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def number(least: float, most: float) -> Callable[[str], float]:
    """An argparse type: a number within the bounds."""

    def convert(text: str) -> float:
        value = float(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not between {least:g} and {most:g}")
        return value

    convert.__name__ = "number"
    return convert


def whole(least: int, most: int) -> Callable[[str], int]:
    """An argparse type: a whole number within the bounds."""

    def convert(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not between {least} and {most}")
        return value

    convert.__name__ = "whole number"
    return convert


def names(text: str) -> tuple[str, ...]:
    """An argparse type: names separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def present(
    verdict: Verdict, arguments: argparse.Namespace, saved: str | None = None, stream: TextIO | None = None
) -> int:
    """Prints the verdict as the options say and returns the exit status that they ask for."""
    from ..report import render
    from ..report.interface import Style

    out = stream or sys.stdout
    style = Style(
        color=use_color(arguments.color, out),
        width=min(shutil.get_terminal_size((100, 24)).columns, 140),
        saved=saved,
    )
    out.write(render(verdict, arguments.format, style))
    return status_of(verdict, arguments)


def status_of(verdict: Verdict, arguments: argparse.Namespace) -> int:
    """The exit status that the options ask for."""
    if not arguments.exit_code or verdict.kind in ("slow", "not-stuck"):
        return 0
    return NAMED if verdict.initiators else NONE_NAMED

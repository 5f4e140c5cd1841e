"""``hangscope analyze``: the verdict from bundles, without the job and on any machine."""

from __future__ import annotations

import argparse
import sys

from ..errors import HangscopeError
from . import options

HELP = "say which rank started the hang, from what was captured before"
EXAMPLE = """\
examples:
  hangscope analyze hangscope-llama-20260101T120000Z.tar
  hangscope analyze --json bundle.tar | jq .initiators
  ssh node hangscope capture -p 4242 -q -o - | hangscope analyze -"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``analyze``."""
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="a bundle or its directory; - for standard input"
    )
    options.add_verdict(parser)
    options.add_talk(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints one verdict a bundle, also behind one that cannot be read. The exit status is the largest."""
    statuses = []
    for path in arguments.paths:
        try:
            statuses.append(_one(path, arguments))
        except HangscopeError as error:
            if len(arguments.paths) == 1:
                raise
            sys.stderr.write(f"hangscope: {error}\n")
            statuses.append(error.exit_status)
    return max(statuses)


def _one(path: str, arguments: argparse.Namespace) -> int:
    from ..analyzers.analysis import analyze
    from .bundles import damage, evidence_of

    evidence = evidence_of(path)
    if not arguments.quiet:
        sys.stderr.write("".join(f"hangscope: {path}: {line}\n" for line in damage(evidence)))
    if len(arguments.paths) > 1 and arguments.format == "text":
        sys.stdout.write(f"{path}:\n")
    return options.present(analyze(evidence), arguments, None if path == "-" else path)

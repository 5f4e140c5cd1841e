"""``hangscope show``: what a bundle holds, before anything is concluded from it."""

from __future__ import annotations

import argparse
import sys

from ..errors import NoSuchTarget
from . import options

HELP = "show what a bundle holds: merged stacks, one rank's threads, gaps"
EXAMPLE = """\
examples:
  hangscope show hangscope-llama-20260101T120000Z.tar
  hangscope show bundle.tar --rank 2      every thread of rank 2"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``show``."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a bundle or its directory; - for standard input")
    parser.add_argument("--rank", type=int, metavar="R", help="the threads of this rank only")
    options.add_talk(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints the merged stack tree and the collector matrix, or one rank's threads."""
    from . import matrix, stack_view
    from .bundles import evidence_of

    evidence = evidence_of(arguments.bundle)
    processes = stack_view.processes(evidence)
    if arguments.rank is not None:
        chosen = [process for process in processes if process.rank == arguments.rank]
        if not chosen:
            ranks = sorted({process.rank for process in processes if process.rank is not None})
            known = ", ".join(str(rank) for rank in ranks) or "none"
            raise NoSuchTarget(f"rank {arguments.rank} was not captured", f"ranks in it: {known}")
        sys.stdout.write("".join(stack_view.threads_of(process) for process in chosen))
        return 0
    sys.stdout.write(stack_view.merged(processes))
    sys.stdout.write("\n" + matrix.render(evidence))
    return 0

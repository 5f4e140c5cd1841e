"""``hangscope demo``: a small job that really hangs, captured and explained within a minute."""

from __future__ import annotations

import argparse
import sys

from . import options

HELP = "start a small job that really hangs, capture and explain it"
EXAMPLE = """\
examples:
  hangscope demo            four processes, one blocked in the kernel; needs neither torch nor root
  hangscope demo --torch    the same with torch and gloo, where torch can be imported
  hangscope demo --keep     leaves the bundle here, for hangscope show and analyze"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``demo``."""
    parser.add_argument("--torch", action="store_true", help="with real torch and gloo")
    parser.add_argument("--keep", action="store_true", help="keep the bundle in the working directory")
    options.add_verdict(parser)
    options.add_talk(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints the verdict on the demo's job, and afterwards what was really done to it."""
    from .. import demo
    from ..capture.progress import open_progress

    color = options.use_color(arguments.color, sys.stderr)
    progress = open_progress(sys.stderr, quiet=arguments.quiet, batch=False, color=color)
    try:
        result = demo.run(torch=arguments.torch, keep=arguments.keep, progress=progress.note)
    finally:
        progress.close()
    status = options.present(result.verdict, arguments, result.saved)
    sys.stdout.flush()
    if not arguments.quiet:
        sys.stderr.write(
            f"hangscope: the demo had blocked rank {result.blocked_rank} on purpose; "
            f"it took {result.seconds:.0f} s, and nothing of it is left running\n"
        )
    return status

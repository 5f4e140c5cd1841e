"""The command line: which command runs, and how an error becomes a text and an exit status.

Each command is a module with ``HELP``, ``add_arguments`` and ``run``; what a command works with is imported
when it runs, so that ``--help`` starts fast.
"""

from __future__ import annotations

import argparse
import errno
import shlex
import sys
from collections.abc import Sequence
from types import ModuleType

from .. import __version__
from ..errors import HangscopeError
from . import agent, analyze, capture, demo, doctor, explain, list_jobs, options, show, streams, times

COMMANDS: tuple[tuple[str, ModuleType], ...] = (
    ("capture", capture),
    ("analyze", analyze),
    ("show", show),
    ("explain", explain),
    ("doctor", doctor),
    ("demo", demo),
    ("agent", agent),
)

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

DESCRIPTION = """\
Says which rank started the hang of a distributed training job, why, and what to do next.
Without a command: lists the distributed jobs on this machine, with the command that captures each."""

EXAMPLES = """\
examples:
  hangscope                            the jobs seen here
  hangscope capture -p 4242            capture the stuck job of process 4242, print the verdict
  hangscope analyze hangscope-x.tar    the same verdict from the file, anywhere
  hangscope demo                       see it on a small job that really hangs

exit status: 0 the analysis was made, 1 it failed, 2 wrong use, 130 interrupted"""


def build_parser() -> argparse.ArgumentParser:
    """The whole command line as a parser; ``run`` of its result is the function to call."""
    parser = argparse.ArgumentParser(
        prog="hangscope", description=DESCRIPTION, epilog=EXAMPLES, formatter_class=options.Help
    )
    parser.add_argument("--version", action="version", version=f"hangscope {__version__}")
    options.add_talk(parser, command=False)
    parser.set_defaults(run=list_jobs.run)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, module in COMMANDS:
        command = commands.add_parser(
            name,
            help=module.HELP,
            description=module.HELP[0].upper() + module.HELP[1:] + ".",
            epilog=module.EXAMPLE,
            formatter_class=options.Help,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def _for_pid(pid: str) -> str:
    return f"hangscope capture -p {pid}"


def _meant(argv: Sequence[str]) -> str | None:
    """The command line of ``capture`` for one that has its options, or a pid, but not its name."""
    if argv and argv[0].isdigit():
        return _for_pid(argv[0])
    if argv and argv[0].split("=")[0] in ("-p", "--pid", "--job"):
        return "hangscope capture " + shlex.join(argv)
    return None


def main(argv: Sequence[str], own_process: bool = False) -> int:
    """Runs one command line (without the program's name) and returns the exit status.

    ``own_process``: this process exists for that alone, so that its out-of-memory score may be raised.
    """
    if own_process:
        streams.prepare()
    hint = _meant(argv)
    if hint is not None:
        sys.stderr.write(f"hangscope: {argv[0]!r} is no command\n  try: {hint}\n")
        return 2
    try:
        parser = build_parser()
        arguments, rest = parser.parse_known_args(times.with_times(argv))
        if rest and arguments.run is not agent.run:
            advice = f" (a pid goes behind -p: {_for_pid(rest[0])})" if rest[0].isdigit() else ""
            parser.error("unrecognized arguments: " + " ".join(rest) + advice)
    except SystemExit as wanted:  # argparse has printed the help, the version or what is wrong
        return wanted.code if isinstance(wanted.code, int) else 2
    arguments.own_process, arguments.rest = own_process, rest
    try:
        status = int(arguments.run(arguments))
        sys.stdout.flush()
        return status
    except HangscopeError as error:
        if own_process:
            streams.drop_unwritten()
        sys.stderr.write(f"hangscope: {error}\n")
        return error.exit_status
    except KeyboardInterrupt:
        sys.stderr.write("hangscope: interrupted\n")
        return 130
    except BrokenPipeError:
        # the reader of our output has had enough
        if own_process:
            streams.drop_unwritten()
        return 0
    except OSError as error:
        if error.errno not in FULL:
            raise
        if own_process:
            streams.drop_unwritten()
        sys.stderr.write(
            f"hangscope: cannot write the output: {error.strerror}\n  try: another place for it\n"
        )
        return 1

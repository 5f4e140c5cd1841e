"""``hangscope agent``: the half of a capture that runs on the node, alone."""

from __future__ import annotations

import argparse
import os
import sys

from ..errors import UsageError

HELP = "take evidence on this node, as capture does, to standard output"
EXAMPLE = """\
examples:
  hangscope agent --pid 4242 < /dev/null > node-a.tar.gz
  hangscope agent --help-agent            the agent's own options"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is not named here is handed to the agent (``rest``), which has its own parser."""
    parser.add_argument("--pid", type=int, help="a process of the job")
    parser.add_argument("--help-agent", action="store_true", help="show the agent's own options")


def run(arguments: argparse.Namespace) -> int:
    """Becomes the agent: a bare interpreter that loads nothing but the collectors. Does not return."""
    from ..capture.launch import agent_command

    if arguments.help_agent:
        command = agent_command(["--help"])
    elif arguments.pid is None:
        raise UsageError("the agent needs a process of the job", None, "hangscope agent --pid PID")
    else:
        if sys.stdout.isatty():
            raise UsageError("the shard is binary", None, "hangscope agent --pid PID > node.tar.gz")
        command = agent_command(["--pid", str(arguments.pid), *arguments.rest])
    sys.stdout.flush()
    os.execv(command[0], command)

"""The half of a capture that runs on the node: evidence goes out on standard output, as a shard.

Standard error carries one JSON object a line, its ``event`` one of node, found, sample-start, cell,
sample-end, finishing, ready, failed, abandoned and end. Standard input takes, once ``ready`` was said, lines
``sample GAP`` (seconds to wait first), ``native PID,PID``, ``finish`` (what is left for the end) and ``end``;
its end is a ``finish`` and an ``end``. The order of work is the order in which evidence perishes.
Python >= 3.8, standard library only.
"""

import argparse
import json
import os
import sys
import time
from typing import Any, Dict, List, Sequence, Set

from ...bundle.writer import ShardWriter
from ...errors import HangscopeError
from ..interface import Context, Target
from ..ranks import process_tree
from . import first_look, interruption
from .events import emit
from .sampling import Sampler, end_children


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The agent's options, as the capturing side passes them."""
    parser = argparse.ArgumentParser(prog="hangscope agent", description="Writes a shard to standard output.")
    parser.add_argument("--pid", type=int, required=True, help="a process of the job")
    parser.add_argument("--members", default="", help="other processes of the job, separated by commas")
    parser.add_argument("--only-this-process", action="store_true", help="not its whole job")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--interval", type=float, default=2.0, help="seconds between samples")
    parser.add_argument("--deadline", type=float, default=60.0, help="seconds for everything")
    parser.add_argument("--py-spy", help="the py-spy program")
    parser.add_argument("--pynvml", help="the file of nvidia-ml-py's module")
    parser.add_argument("--only", default="", help="collectors, separated by commas")
    parser.add_argument("--skip", default="", help="collectors, separated by commas")
    parser.add_argument("--proc", default="/proc", help=argparse.SUPPRESS)
    return parser.parse_args(list(argv))


def main(argv: Sequence[str]) -> int:
    """Runs the agent. Returns 0 when the shard was sealed, 1 for a failure, 130 when it was interrupted."""
    started = time.monotonic()
    problem = first_look.offer_itself()
    options = parse(argv)
    interruption.install()
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever else prints must not end up inside the shard
    try:
        return Agent(options, ShardWriter(out), started, [problem] if problem else []).run()
    except HangscopeError as error:
        emit("failed", text=str(error))
        return error.exit_status
    except BrokenPipeError:
        interruption.ignore()
        end_children()  # whoever wanted the shard is gone
        return 1


class Agent:
    """One capture on one node: what stands before the first child, and the seal.

    All else is in ``node_capture``, loaded after the first look: at the job's memory limit every page that
    the agent asks for may be its last.
    """

    def __init__(
        self, options: argparse.Namespace, writer: ShardWriter, started: float, notes: Sequence[str]
    ) -> None:
        self.options = options
        self.writer = writer
        self.notes = list(notes)
        self.only, self.skip = (
            tuple(name for name in text.split(",") if name) for text in (options.only, options.skip)
        )
        self.sampler = Sampler(writer, emit)
        self.deadline: float = started + options.deadline
        self.targets: List[Target] = []
        self.looked_at: Set[int] = set()
        self.samples = 0
        self._stacks = interruption.StackTable(writer)
        self._salt = os.urandom(16)
        self._carried: Dict[str, Any] = {}

    def run(self) -> int:
        """The whole capture. Returns the exit status; raises OSError when nobody takes the shard."""
        status = 0
        try:
            self.look_first()
            from .node_capture import NodeCapture

            NodeCapture(self).run()
        except interruption.Interrupted as stop:
            self.notes.append(f"interrupted by {stop}")
            status = 130
        interruption.ignore()
        self.seal()
        return status

    def context(self, sample: int) -> Context:
        """What the collectors get; ``shared`` is carried on from sample to sample."""
        ctx = Context(
            self.targets,
            sample,
            self.deadline,
            proc=self.options.proc,
            py_spy=self.options.py_spy,
            salt=self._salt,
            intern=self._stacks,
            options={"pynvml_path": self.options.pynvml, "asked_for": self.only},
        )
        ctx.shared = self._carried
        return ctx

    def look_first(self) -> None:
        """Before any child: the node, all threads of the process's tree, the memory of its cgroups."""
        proc, pid = self.options.proc, self.options.pid
        tree = [pid] if self.options.only_this_process else process_tree.cheap_tree(pid, proc)
        record = first_look.node_record([pid, *tree], self.notes, proc)
        self.put("node.json", record)
        emit("node", host=record["host"], pid=os.getpid(), ptrace=record["ptrace"])
        self.targets = first_look.targets_of(tree, proc)
        self.looked_at = set(tree)
        for collector in first_look.COLLECTORS:
            if collector.name not in self.skip and (not self.only or collector.name in self.only):
                self.sampler.run(self.context(0), collector)

    def put(self, name: str, record: Dict[str, Any]) -> None:
        """Writes a member that is no cell."""
        with interruption.undisturbed():
            self.writer.member(name, json.dumps(record).encode("ascii"))

    def seal(self) -> None:
        """The last member: how it ended. What cannot be killed is named."""
        left = end_children()
        if left:
            emit("abandoned", pids=left)
        self.writer.seal(self.samples, left, self.notes)
        emit("end", samples=self.samples, abandoned=left)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

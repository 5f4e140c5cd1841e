"""``hangscope capture``: takes the evidence of a stuck job, saves it, prints the verdict."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from types import FrameType
from typing import TYPE_CHECKING

from ..errors import CaptureFailed, UsageError
from . import options

if TYPE_CHECKING:
    from ..capture.session import Captured, Request
    from ..jobs.interface import Job

HELP = "capture a stuck job, save the evidence, print the verdict"
EXAMPLE = """\
examples:
  hangscope capture -p 4242                  the job of process 4242: launcher, ranks, workers
  hangscope capture --job local:llama        the same, by the name that bare hangscope shows
  hangscope capture -p 4242 -o /data/x.tar   saved there
  hangscope capture -p 4242 --json -q        for programs: only the verdict, as JSON"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``capture``."""
    what = parser.add_argument_group("what to capture").add_mutually_exclusive_group()
    what.add_argument("-p", "--pid", type=options.whole(1, (1 << 31) - 1), help="a process of the job")
    what.add_argument("--job", metavar="ID", help="a job: local:NAME, or NAME alone where it is the only one")
    parser.add_argument(
        "--only-this-process", action="store_true", help="with -p: this process, not its whole job"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE|DIR|-",
        help="where to save; - writes the bundle to standard output and, without -q, the verdict to "
        "standard error "
        "(default: the first that works of the working directory, $SLURM_TMPDIR, $TMPDIR, /tmp, /dev/shm)",
    )
    how = parser.add_argument_group("how")
    how.add_argument(
        "--samples", type=options.whole(1, 100), default=2, metavar="N", help="samples to take (default: 2)"
    )
    how.add_argument(
        "--interval",
        type=options.number(0, 600),
        default=2.0,
        metavar="SECONDS",
        help="between samples (default: 2)",
    )
    how.add_argument(
        "--deadline",
        type=options.number(1, 3600),
        default=90.0,
        metavar="SECONDS",
        help="for the whole capture (default: 90, less where the job's own watchdog leaves less)",
    )
    how.add_argument(
        "--patience",
        type=options.number(0, 3600),
        default=27.0,
        metavar="SECONDS",
        help="to wait for further samples while they could decide (default: 27, for 4, 8 and 15 s)",
    )
    how.add_argument("--only-collectors", type=options.names, default=(), metavar="A,B", help="only these")
    how.add_argument("--skip-collectors", type=options.names, default=(), metavar="A,B", help="not these")
    how.add_argument(
        "--list-collectors", action="store_true", help="say what each takes, and do nothing else"
    )
    parser.add_argument(
        "--batch", action="store_true", help="plain progress lines (implied without a terminal)"
    )
    options.add_verdict(parser)
    options.add_talk(parser)


def run(arguments: argparse.Namespace) -> int:
    """Captures and prints. The evidence is saved before anything is concluded from it."""
    if arguments.list_collectors:
        return list_collectors()
    from ..capture.progress import open_progress
    from ..capture.session import capture
    from ..collectors.agent import first_look

    if arguments.own_process:
        first_look.offer_itself()  # in the job's container, a full memory cgroup must take this, not a rank
        _stop_like_an_interrupt()
    request = _request(arguments)
    color = options.use_color(arguments.color, sys.stderr)
    progress = open_progress(sys.stderr, quiet=arguments.quiet, batch=arguments.batch, color=color)
    try:
        captured = capture(request, progress, verbose=arguments.verbose)
    finally:
        progress.close()
    return _report(captured, arguments)


def _request(arguments: argparse.Namespace) -> Request:
    from ..capture.session import Request

    if arguments.pid is None and arguments.job is None:
        raise UsageError("nothing to capture", None, "-p PID, or --job ID; hangscope alone lists the jobs")
    if arguments.only_this_process and arguments.pid is None:
        raise UsageError("--only-this-process needs the process", None, "-p PID")
    if arguments.only_collectors or arguments.skip_collectors:
        check_names(arguments.only_collectors, arguments.skip_collectors)
    _check_output(arguments.output)
    pid, job = _target(arguments)
    return Request(
        pid=pid,
        job=None if job is None else job.name,
        pids=(pid,) if job is None else tuple(process.pid for process in job.processes) or (pid,),
        only_this_process=arguments.only_this_process,
        samples=arguments.samples,
        interval=arguments.interval,
        deadline=arguments.deadline,
        patience=arguments.patience,
        only=arguments.only_collectors,
        skip=arguments.skip_collectors,
        output=arguments.output,
    )


def _check_output(output: str | None) -> None:
    """Raises UsageError for a bundle on a terminal, and for a name of what a bundle is not."""
    if output == "-" and sys.stdout.isatty():
        raise UsageError("a bundle is nothing for a terminal", None, "-o FILE.tar, or a pipe behind -o -")
    if output is not None and output.endswith((".gz", ".tgz", ".zip", ".zst", ".xz", ".bz2")):
        raise UsageError(f"{output}: a bundle is a plain tar", "what is in it is compressed", "-o FILE.tar")


def check_names(only: tuple[str, ...], skip: tuple[str, ...]) -> None:
    """Raises UsageError for a name that no collector has."""
    from ..collectors.registry import selected

    selected(only, skip)


def _target(arguments: argparse.Namespace) -> tuple[int, Job | None]:
    """A pid to start from, and the job around it (None: the process alone)."""
    from . import selection

    if arguments.pid is not None:
        job = selection.job_of_pid(arguments.pid)
        return arguments.pid, None if arguments.only_this_process else job
    job = selection.job_named(arguments.job)
    return _member(job), job


def _member(job: Job) -> int:
    """A process to start from: a living rank where there is one, since that is what the agent looks for."""
    ranks = [process.pid for process in job.processes if process.role == "rank" and process.state not in "ZX"]
    for pid in [*ranks, *(process.pid for process in job.processes), job.launcher_pid]:
        if pid is not None:
            return pid
    raise CaptureFailed(f"{job.selector} has no process left", None, "hangscope, which lists what there is")


def _report(captured: Captured, arguments: argparse.Namespace) -> int:
    """Standard output gets the data: the verdict, or the bundle under ``-o -``."""
    for note in captured.notes:
        if not arguments.quiet:
            sys.stderr.write(f"hangscope: {note}\n")
    if captured.bundle is not None:
        _send(captured.bundle, captured.evidence.job if captured.evidence else None, arguments)
    if captured.interrupted:
        where = captured.saved or ("standard output" if captured.bundle is not None else "nowhere")
        sys.stderr.write(f"hangscope: interrupted; what was gathered is saved in {where}\n")
        if captured.saved is not None:
            sys.stderr.write(f"  try: hangscope analyze {captured.saved}\n")
        return 130
    if captured.verdict is None:
        raise CaptureFailed("no evidence was captured", "; ".join(captured.notes) or None, captured.advice)
    stream = sys.stderr if captured.bundle is not None else sys.stdout
    if captured.bundle is not None and arguments.quiet:
        return options.status_of(captured.verdict, arguments)
    try:
        status = options.present(captured.verdict, arguments, captured.saved, stream)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        if captured.saved is None:
            raise
        raise CaptureFailed(
            "the verdict could not be printed",
            f"{error.strerror}; the evidence is saved in {captured.saved}",
            f"hangscope analyze {captured.saved}",
        ) from error
    return status


def _send(bundle: bytes, job: str | None, arguments: argparse.Namespace) -> None:
    """Writes the bundle to standard output; evidence that nobody takes there is saved like any other.

    Raises CaptureFailed when standard output did not take it, with where it is now.
    """
    from ..capture import destination

    try:
        sys.stdout.buffer.write(bundle)
        sys.stdout.buffer.flush()
    except OSError as error:
        saved = destination.rescue(bundle, destination.bundle_name(job, time.time()), os.environ)
        raise CaptureFailed(
            "standard output did not take the bundle",
            f"{error.strerror}; it is saved in {saved}" if saved else error.strerror,
            f"hangscope analyze {saved}" if saved else "-o FILE on a disk with room",
        ) from error


def list_collectors() -> int:
    """One line a collector: its name, what it is taken of, what it takes and needs."""
    from ..collectors.registry import COLLECTORS, ON_REQUEST

    for collector in COLLECTORS:
        when = "on request" if collector.name in ON_REQUEST else "once" if collector.once else "every sample"
        sys.stdout.write(f"{collector.name:<12} {collector.scope:<8} {when:<13} {collector.describes}\n")
    return 0


def _stop_like_an_interrupt() -> None:
    """TERM and HUP end a capture as Ctrl-C does: what was gathered is saved, no child is left."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)

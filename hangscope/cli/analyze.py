"""``hangscope analyze``: the verdict from bundles and from whatever else a job left, on any machine."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import HangscopeError, UnreadableEvidence, UsageError
from . import options, times

if TYPE_CHECKING:
    from ..loose.interface import Found, Heard
    from ..loose.reading import Gathered

HELP = "say which rank started the hang, from what was captured or left behind"
EXAMPLE = """\
examples:
  hangscope analyze hangscope-llama-20260101T120000Z.tar
  hangscope analyze logs/ /tmp/nccl_trace_rank_* dmesg.txt      all together: one verdict a job
  kubectl logs llama-worker-0 | hangscope analyze -             or a pasted text, ended by Ctrl-D
  hangscope analyze --since 2h slurm-4242.out pyspy.zip
  hangscope analyze --json bundle.tar | jq .initiators
  ssh node hangscope capture -p 4242 -q -o - | hangscope analyze -"""
STDIN = "standard input"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``analyze``."""
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="bundles, logs, flight recorder dumps, stack dumps, nvidia-smi, dmesg, …: files, folders, "
        "archives of them; - for standard input",
    )
    loose = parser.add_argument_group("of loose evidence")
    when = "2026-01-31T13:45, as the logs write it, or 2h for two hours ago"
    loose.add_argument("--since", type=times.moment, metavar="TIME", help=f"lines from then on ({when})")
    loose.add_argument("--until", type=times.moment, metavar="TIME", help="lines up to then")
    loose.add_argument("--job-key", metavar="KEY", help="the job that is meant, where there are several")
    options.add_verdict(parser)
    options.add_talk(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints one verdict a bundle, or one a job where there is anything but bundles. The exit status is the
    largest of all."""
    from ..loose.bundles import is_bundle

    with _standard_input(arguments.paths) as stdin:
        files = {path: stdin if path == "-" and stdin is not None else path for path in arguments.paths}
        strange = [path for path, file in files.items() if os.path.lexists(file) and not is_bundle(file)]
        if strange:
            return _loose(files, arguments)
        if arguments.since is not None or arguments.until is not None or arguments.job_key is not None:
            raise UsageError("--since, --until and --job-key are for loose evidence", "these are bundles")
        return _bundles(files, arguments)


@contextlib.contextmanager
def _standard_input(paths: list[str]) -> Iterator[str | None]:
    """A file with all of standard input, where ``-`` is asked for."""
    from .standard_input import as_file

    if "-" not in paths:
        yield None
        return
    with as_file(sys.stdin.buffer) as name:
        yield name


def _bundles(files: dict[str, str], arguments: argparse.Namespace) -> int:
    statuses = []
    for path in arguments.paths:
        try:
            statuses.append(_bundle(path, files[path], arguments))
        except HangscopeError as error:
            if len(arguments.paths) == 1:
                raise
            sys.stderr.write(f"hangscope: {error}\n")
            statuses.append(error.exit_status)
    return max(statuses)


def _bundle(path: str, file: str, arguments: argparse.Namespace) -> int:
    from ..analyzers.analysis import analyze
    from .bundles import damage, evidence_in

    evidence = evidence_in(file, path)
    if not arguments.quiet:
        sys.stderr.write("".join(f"hangscope: {path}: {line}\n" for line in damage(evidence)))
    if len(arguments.paths) > 1 and arguments.format == "text":
        sys.stdout.write(f"{path}:\n")
    return options.present(analyze(evidence), arguments, None if path == "-" else path)


def _loose(files: dict[str, str], arguments: argparse.Namespace) -> int:
    from ..analyzers.ledger.jobs import job_keys
    from ..analyzers.loose import analyze_facts
    from .what_was_read import said

    gathered = _gathered(files, arguments)
    facts = gathered.facts
    if not facts and not gathered.evidence:
        raise _not_understood(gathered, arguments.paths)
    _check_key(arguments.job_key, job_keys(facts))
    if not arguments.quiet:
        lines = said(gathered, getattr(arguments, "verbose", False))
        sys.stderr.write("".join(f"hangscope: {line}\n" for line in lines))
    verdicts = analyze_facts(facts, gathered.doubts, gathered.evidence, arguments.job_key)
    statuses = [0]
    for verdict in verdicts:
        if len(verdicts) > 1 and arguments.format == "text":
            sys.stdout.write(f"{verdict.job or 'a job without a name'}:\n")
        statuses.append(options.present(verdict, arguments))
    missing = [item for item in gathered.unread if item.path in arguments.paths and not item.partly]
    return max([*statuses, 1 if missing else 0])


def _check_key(key: str | None, known: tuple[str, ...]) -> None:
    """A key that nothing carries is a slip of the pen wherever others do."""
    if key is None or not known or any(key in (name, name.partition(":")[2]) for name in known):
        return
    names = ", ".join(known[:4]) + (", …" if len(known) > 4 else "")
    raise UsageError(f"nothing in it carries the job key {key}", None, f"--job-key {known[0]} ({names})")


def _not_understood(gathered: Gathered, paths: list[str]) -> UnreadableEvidence:
    from ..report.interface import printable

    what = ", ".join(STDIN if path == "-" else path for path in paths[:4]) + (", …" if len(paths) > 4 else "")
    return UnreadableEvidence(
        printable(f"nothing in {what} is understood"),
        printable("; ".join(gathered.notes[:3])) or "there is no file in it",
        "logs, flight recorder dumps, py-spy text, nvidia-smi, dmesg; hangscope capture -p PID takes all",
    )


def _gathered(files: dict[str, str], arguments: argparse.Namespace) -> Gathered:
    from ..capture.progress import open_progress
    from ..loose.reading import gather

    color = options.use_color(arguments.color, sys.stderr)
    quiet = arguments.quiet or not sys.stderr.isatty()  # a line a file is for eyes, not for logs
    progress = open_progress(sys.stderr, quiet=quiet, batch=False, color=color)
    try:
        return gather(_found(files, arguments, progress.working))
    finally:
        progress.close()


def _found(files: dict[str, str], arguments: argparse.Namespace, heard: Heard) -> Iterator[Found]:
    from ..loose import Window, opened, opened_stream

    window = Window(since=arguments.since, until=arguments.until)
    for path, file in files.items():
        if path != "-":
            continue
        with open(file, "rb") as stream:
            yield from opened_stream(stream, STDIN, window, heard)
    paths = [path for path in files if path != "-"]
    yield from opened(paths, window, heard=heard, records_apart=True)

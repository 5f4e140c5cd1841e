"""``hangscope doctor``: what to arm before the next run, and a look at this machine or a running job."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import UsageError
from . import options

if TYPE_CHECKING:
    from ..doctor.values import Diagnosis, Setting

HELP = "say what to arm before the next run, and check this machine or a running job"
EXAMPLE = """\
examples:
  hangscope doctor                   settings worth turning on, each with its cost; this machine
  hangscope doctor -p 4242           and what the running job has set, the dangerous first
  hangscope doctor --torch 2.8       for that version
  eval "$(hangscope doctor --torch 2.8 --export sh)"     before the launch, in the job's script"""
MARKS = {"ok": "ok  ", "note": "note", "warning": "WARN", "unknown": "?   "}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``doctor``."""
    parser.add_argument(
        "-p", "--pid", type=options.whole(1, 1 << 22), metavar="PID", help="a rank of a running job"
    )
    parser.add_argument(
        "--torch", metavar="VERSION", help="torch of the job, where it is not found by itself"
    )
    parser.add_argument("--nccl", metavar="VERSION", help="NCCL of the job, likewise")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument(
        "--json", dest="format", action="store_const", const="json", help="the same as --format json"
    )
    parser.add_argument("--export", choices=("sh",), help="only the settings, as lines for a shell")
    options.add_talk(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints the examination. What it finds does not change the exit status."""
    from .. import doctor
    from ..doctor.settings import exports
    from ..doctor.values import numbers

    for name in ("torch", "nccl"):
        given = getattr(arguments, name)
        if given is not None and len(numbers(given) or ()) < 2:
            raise UsageError(f"--{name} {given}: not a version", None, f"hangscope doctor --{name} 2.8")
    found = doctor.examine(arguments.pid, arguments.torch, arguments.nccl)
    if arguments.export:
        sys.stdout.write(exports(found.settings))
    elif arguments.format == "json":
        import msgspec

        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    else:
        sys.stdout.write("".join(line + "\n" for line in _lines(found, quiet=arguments.quiet)))
    return 0


def _lines(found: Diagnosis, quiet: bool) -> Iterator[str]:
    from ..report.interface import printable

    names = (("torch", found.versions.torch), ("NCCL", found.versions.nccl))
    known = ", ".join(f"{name} {version or 'not found'}" for name, version in names)
    yield from _wrapped(f"{known} ({found.versions.source}; --torch and --nccl overrule it)")
    if found.environment is not None:
        yield ""
        how = "now" if found.environment_source == "live" else "as it was at exec"
        yield f"the running job's environment, {how}"
        for variable in found.environment:
            what = f"{variable.name}={variable.value}" if variable.value else f"{variable.name} is not set"
            yield from _wrapped(f"  {MARKS[variable.level]}  {what}: {variable.text}")
        if not found.environment:
            yield "  nothing of it matters in a hang, and nothing is armed"
    yield ""
    yield "this machine"
    for check in found.checks:
        yield from _wrapped(f"  {MARKS[check.level]}  {check.name}: {check.text}")
        if check.command and check.level != "ok":
            yield printable(f"          {check.command}")
    yield ""
    yield "worth setting before the next run"
    yield from _settings([item for item in found.settings if item.recommended and not item.default], quiet)
    defaults = [item for item in found.settings if item.recommended and item.default]
    if defaults:
        yield ""
        yield "on already in these versions: leave it so"
        yield from _settings(defaults, quiet)
    yield ""
    yield "only while looking for a fault: slow, or dangerous"
    yield from _settings([item for item in found.settings if not item.recommended], quiet)
    yield ""
    yield "as shell lines: hangscope doctor --export sh"


def _settings(items: list[Setting], quiet: bool) -> Iterator[str]:
    for item in items:
        yield f"  {item.name}={item.value}" if item.value is not None else f"  {item.line}"
        yield from _wrapped(f"      gives: {item.gives}")
        yield from _wrapped(f"      costs: {item.cost}")
        if not quiet:
            yield from _wrapped(f"      source: {item.source}")


def _wrapped(text: str) -> list[str]:
    """Lines of at most 110 columns, the later ones further in."""
    from ..report.interface import printable

    indent = " " * (len(text) - len(text.lstrip()) + 6)
    return textwrap.wrap(printable(text), 110, subsequent_indent=indent, break_on_hyphens=False)

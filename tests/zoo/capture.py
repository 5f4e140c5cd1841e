"""The real command on a job that hangs, and the simplest answer that one could give instead."""

from __future__ import annotations

import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import time
from typing import Any, NamedTuple

from .launch import Job

LIMIT = 150.0
"""Seconds after which a capture has failed, whatever its own deadline says."""


class CaptureFailed(Exception):
    """The command did not give a verdict. The text says what it said."""


class Answer(NamedTuple):
    verdict: dict[str, Any]
    bundle: pathlib.Path
    seconds: float
    notes: str
    """Standard error of the command."""


def capture(job: Job, bundle: pathlib.Path, seed: int) -> Answer:
    """``hangscope capture -p PID`` from a process of the job that the seed picks (never one that is gone)."""
    usable = [
        pid
        for rank, pid in sorted(job.ranks.items())
        if rank != job.script.chosen or not job.scenario.truth.launch.gate
    ]
    pid = random.Random(f"target/{seed}").choice(usable)
    command = [sys.executable, "-m", "hangscope", "capture", "-p", str(pid), "-o", str(bundle)]
    start = time.monotonic()
    with subprocess.Popen(
        [*command, "--format", "json", "--batch"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            output, notes = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise CaptureFailed(f"no verdict within {LIMIT:.0f} s: {' '.join(command)}") from error
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise CaptureFailed(f"exit {process.returncode}: {' '.join(command)}\n{notes[-3000:]}")
    return Answer(json.loads(output), bundle, time.monotonic() - start, notes)


def analyze(bundle: pathlib.Path, form: str) -> str:
    """What ``hangscope analyze BUNDLE`` prints. Raises CaptureFailed."""
    command = [
        sys.executable,
        "-m",
        "hangscope",
        "analyze",
        bundle.name,
        "--format",
        form,
        "--color",
        "never",
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        cwd=bundle.parent,
        env={**os.environ, "COLUMNS": "100"},
    )
    if done.returncode != 0:
        raise CaptureFailed(f"exit {done.returncode}: {' '.join(command)}\n{done.stderr[-3000:]}")
    return done.stdout


def smallest_class(job: Job) -> list[int]:
    """What the rule "group the ranks by the stack of their main thread, the smallest did it" names."""
    groups: dict[str, list[int]] = collections.defaultdict(list)
    for rank in job.present:
        groups[_main_stack(job.ranks[rank])].append(rank)
    least = min(len(ranks) for ranks in groups.values())
    return (
        sorted(rank for ranks in groups.values() if len(ranks) == least for rank in ranks)
        if len(groups) > 1
        else []
    )


def _main_stack(pid: int) -> str:
    py_spy = pathlib.Path(sys.executable).with_name("py-spy")
    try:
        done = subprocess.run(
            [py_spy, "dump", "--nonblocking", "--json", "--pid", str(pid)], capture_output=True, timeout=15
        )
        threads = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return "unreadable"
    for thread in threads:
        if thread["os_thread_id"] == pid:
            return "\n".join(f"{f['name']} {f['filename']}:{f['line']}" for f in thread["frames"])
    return "no main thread"

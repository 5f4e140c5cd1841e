"""The same Flight Recorder dumps through hangscope, torch's own analyzer and NVRx: one row a case, one column
a tool.

``python -m tests.benchmarks.flight_recorder --compare`` prints the table that stands in the README. Every
case is read in several orders of its files. Exit status 1 when hangscope names a wrong rank, or none where it
should not."""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import msgspec

from hangscope.analyzers.loose import analyze_loose
from hangscope.analyzers.readers.flight_opcodes import PlainPickle
from hangscope.analyzers.readers.interface import Document
from hangscope.analyzers.readers.names import origin_of_name
from tests.analyzers.readers import flight_scenarios as jobs
from tests.analyzers.readers.flight_dumps import Dump

from .c10d_pickler import pickled, shared_frames

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures" / "loose" / "flight-recorder-pickle"
PREFIX = "nccl_trace_rank_"
ORDERS = 6

Files = dict[str, bytes]


class Case(msgspec.Struct, frozen=True):
    """``truth``: the ranks that began it; none where nobody did, or nothing in the dumps tells."""

    name: str
    files: Callable[[], Files]
    truth: tuple[int, ...] = ()
    cycle: bool = False
    extra: tuple[str, ...] = ()
    """Arguments for torch's analyzer."""


def real(name: str) -> Files:
    """Dumps of a real gloo job."""
    return {path.name: path.read_bytes() for path in sorted((FIXTURES / name).iterdir())}


def renamed(name: str) -> Files:
    """The same as NCCL would have them: its names, its states, a whole ``pg_config``."""
    files = {}
    for file, data in real(name).items():
        dump: dict[str, Any] = PlainPickle(data, file).run()[0]
        groups = {entry["process_group"] for entry in dump["entries"]}
        ranks = {
            "default_pg": range(4),
            "tp-0": range(2),
            "tp-1": range(2, 4),
            "ring-a": range(2),
            "ring-b": range(2),
        }
        dump["pg_config"] = {
            name: {"name": name, "desc": desc, "ranks": str(list(ranks[desc]))} for name, desc in groups
        }
        for entry in dump["entries"]:
            entry["profiling_name"] = entry["profiling_name"].replace("gloo:", "nccl:")
            entry["state"] = "completed" if entry["retired"] else "started"
            entry["time_discovered_started_ns"] = entry["time_created_ns"] + 1000
            entry["time_discovered_completed_ns"] = (
                entry["time_created_ns"] + 9000 if entry["retired"] else None
            )
        files[file] = pickled(shared_frames(dump))
    return files


def made(dumps: list[Dump]) -> Files:
    """Dumps of a made-up job."""
    return {f"{PREFIX}{dump.rank}": dump.pickle() for dump in dumps}


def _cut() -> Files:
    files = made(jobs.lagging())
    files[f"{PREFIX}2"] = files[f"{PREFIX}2"][: len(files[f"{PREFIX}2"]) * 2 // 3]
    return files


def _missing() -> Files:
    files = made(jobs.lagging())
    del files[f"{PREFIX}2"]
    return files


CASES = (
    Case("gloo, rank 2 leaves out an operation", lambda: real("gloo-skipped"), (2,)),
    Case("the same, renamed to NCCL", lambda: renamed("gloo-skipped"), (2,)),
    Case("odd rank 3, in any order", lambda: made(jobs.odd_rank_three()), (3,)),
    Case("two groups in opposite order", lambda: renamed("gloo-two-group-cycle"), (0, 1), cycle=True),
    Case("a ring that wrapped; rank 3 is behind", lambda: made(jobs.wrapped_ring()), (3,)),
    Case("dumps of different moments, nobody is behind", lambda: made(jobs.dump_skew())),
    Case("all stuck in one operation", lambda: made(jobs.all_stuck())),
    Case("one of the files is cut; rank 1 is behind", _cut, (1,)),
    Case("a rank's file is missing; rank 1 is behind", _missing, (1,), extra=("--allow-incomplete-ranks",)),
    Case("a rank is late, not stuck", lambda: renamed("gloo-straggler"), (1,)),
    Case("sends in a ring", lambda: made(jobs.send_ring()), (0, 1, 2), cycle=True),
    Case("all stuck, batches took numbers unevenly", lambda: made(jobs.uneven_batches())),
    Case("everything done", lambda: made(jobs.healthy())),
)


def orders(names: list[str]) -> list[list[str]]:
    """Some orders of the files, always the same ones; every file is first in one."""
    every = list(itertools.permutations(sorted(names)))
    firsts = [next(order for order in every if order[0] == name) for name in sorted(names)]
    return [list(order) for order in (*firsts, *random.Random(5).sample(every, min(len(every), ORDERS)))]


def hangscope(files: Files) -> set[tuple[str, tuple[int, ...]]]:
    """(kind, initiators) of the verdicts, over the orders."""
    found = set()
    for order in orders(list(files)):
        documents = [Document(path=name, data=files[name], origin=origin_of_name(name)) for name in order]
        found |= {(verdict.kind, verdict.initiators) for verdict in analyze_loose(documents)}
    return found


_TORCH = """\
import contextlib, io, json, logging, os, sys
from torch.distributed.flight_recorder import fr_trace
from torch.distributed.flight_recorder.components import utils
if not hasattr(utils, "tabulate"):  # an optional module that only draws: that it is absent is no fault
    utils.tabulate = lambda *_, **__: ""
stream = io.StringIO()
log = logging.getLogger("Flight Recorder")
log.handlers[:] = [logging.StreamHandler(stream)]
walk, answers = os.walk, []
for folder, order, extra in json.load(sys.stdin):
    stream.seek(0), stream.truncate()
    os.walk = lambda top: [(folder, [], order)]
    failed = None
    try:
        with contextlib.redirect_stdout(stream):
            fr_trace.main([folder, "-p", "nccl_trace_rank_", *extra])
    except BaseException as error:
        failed = type(error).__name__
    answers.append([failed, stream.getvalue()])
json.dump(answers, sys.stdout)
"""


def torch_analyzer(cases: list[tuple[Case, Files]]) -> list[str] | None:
    """A cell a case of what torch's analyzer says over the orders; None where torch is not installed."""
    with tempfile.TemporaryDirectory() as root:
        asked, owners = [], []
        for number, (case, files) in enumerate(cases):
            folder = pathlib.Path(root, str(number))
            folder.mkdir()
            for name, data in files.items():
                (folder / name).write_bytes(data)
            for order in orders(list(files)):
                asked.append((str(folder), order, case.extra))
                owners.append(number)
        ran = subprocess.run(
            [sys.executable, "-c", _TORCH], input=json.dumps(asked), capture_output=True, text=True, cwd=root
        )
        if ran.returncode:
            return None
        answers = json.loads(ran.stdout)
    cells = []
    for number, (case, _) in enumerate(cases):
        mine = [answer for owner, answer in zip(owners, answers, strict=True) if owner == number]
        cells.append(cell_of_torch(case, mine))
    return cells


def cell_of_torch(case: Case, answers: list[tuple[str | None, str]]) -> str:
    """What its output names, over the orders."""
    said = []
    for failed, text in answers:
        missing = list(re.findall(r"missing ranks: \{([\d, ]*)\}", text))
        culprits = re.findall(r"Culprit rank (\d+)", text)
        named = {int(rank) for group in missing for rank in group.split(",") if rank.strip()} | set(
            map(int, culprits)
        )
        reports = text.count("Not all ranks joining") + text.count("error msg")
        if failed:
            said.append(f"fails ({failed})")
        elif not named:
            said.append("undecided" if "cannot decide" in text.lower() else "nothing")
        else:
            verdict = "**wrong**" if named != set(case.truth) else "no cycle" if case.cycle else "right"
            ranks = ",".join(map(str, sorted(named)))
            said.append(f"{verdict}: {ranks}" + (f" ({reports} unrelated reports)" if reports > 1 else ""))
    return _joined(said)


def _joined(said: list[str]) -> str:
    """What all orders give, or each with how often."""
    distinct = sorted(set(said), key=lambda text: (-said.count(text), text))
    if len(distinct) == 1:
        return distinct[0]
    return "; ".join(f"{text} in {said.count(text)} of {len(said)} orders" for text in distinct)


def cell_of_hangscope(case: Case, found: set[tuple[str, tuple[int, ...]]]) -> tuple[str, bool]:
    """The cell, and whether it is right or undecided, and the same in all orders."""
    cells, good = [], True
    for kind, initiators in sorted(found):
        if initiators == case.truth and initiators and (kind == "cycle") == case.cycle:
            cells.append(f"right: {','.join(map(str, initiators))} ({kind})")
        elif not initiators and (
            kind in ("undecided", "all-joined") or (kind == "not-stuck" and not case.truth)
        ):
            cells.append(f"right: nobody ({kind})" if not case.truth else f"undecided ({kind})")
        else:
            ranks = ",".join(map(str, initiators)) or "nobody"
            cells.append(f"**wrong**: {ranks} ({kind})")
            good = False
    return "; ".join(cells), good and len(found) == 1


def _nvrx() -> str:
    """What can be said of NVRx here."""
    try:
        version = importlib.metadata.version("nvidia-resiliency-ext")
        distribution = importlib.metadata.distribution("nvidia-resiliency-ext")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
    has = any("attribution/" in str(file) for file in distribution.files or ())
    return f"{version}: not driven by this table" if has else f"{version} has no analysis of dumps"


def compare() -> int:
    """Prints the table; 1 when hangscope is wrong, or differs between orders."""
    cases = [(case, case.files()) for case in CASES]
    torch_cells = torch_analyzer(cases) or ["not installed"] * len(cases)
    nvrx = _nvrx()
    print("| case | hangscope | torchfrtrace | NVRx |\n| --- | --- | --- | --- |")
    worst = 0
    for (case, files), torch_cell in zip(cases, torch_cells, strict=True):
        own, good = cell_of_hangscope(case, hangscope(files))
        worst |= not good
        truth = f"rank {','.join(map(str, case.truth))}" if case.truth else "nobody"
        print(f"| {case.name} (truth: {truth}) | {own} | {torch_cell} | {nvrx} |")
    print("\nRight: exactly the ranks that began it. Every case is read in several orders of its files.")
    print("NVRx 0.4.1 (`pip install nvidia-resiliency-ext`), the newest on the index used, reads no dumps.")
    return int(worst)

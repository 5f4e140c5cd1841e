"""A job that was found, in the shapes of ScanRecord and ProcessRow (hangscope/model/evidence.py).

Python >= 3.8, standard library only.
"""

import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .. import redact
from . import roles
from .rank_claims import Claim
from .roles import ProcessInfo

Row = Dict[str, Any]
TITLE_LENGTH = 200
UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""What ``torchrun --standalone`` makes up as a run id."""


class FoundJob(NamedTuple):
    """A job on this node. ``rows`` are ProcessRows, ranks first; ``launcher`` says how it was started."""

    name: str
    world_size: Optional[int]
    rows: Tuple[Row, ...]
    launcher: str
    launcher_pid: Optional[int]
    uid: Optional[int]
    start_ticks: int
    """Of its first rank (clock ticks since boot)."""
    complete: bool = True
    denied: Tuple[int, ...] = ()
    single_node: Optional[bool] = None
    expected_local: Optional[Tuple[int, ...]] = None
    notes: Tuple[str, ...] = ()

    @property
    def ranks(self) -> Tuple[int, ...]:
        """The global ranks with a process here, dead ones included."""
        return tuple(row["rank"] for row in self.rows if row["role"] == "rank" and row["rank"] is not None)


def row(
    process: ProcessInfo, role: str, claim: Optional[Claim], why: str, parent: Optional[int] = None
) -> Row:
    """A ProcessRow."""
    identity = None if claim is None or role != "rank" else claim.identity
    return {
        "pid": process.pid,
        "ppid": process.ppid,
        "start_ticks": process.start_ticks,
        "comm": process.comm,
        "role": role,
        "rank": None if identity is None else identity.rank,
        "local_rank": None if identity is None else identity.local_rank,
        "world_size": None if identity is None else identity.world_size,
        "job": None,
        "parent_rank": parent,
        "uid": process.uid,
        "state": process.state,
        "nspid": list(process.nspid),
        "title": title(process),
        "why": why,
    }


def title(process: ProcessInfo) -> str:
    """The command line as shown to people: masked, one line, at most 200 characters."""
    words = redact.cmdline([word for word in process.cmdline or () if word], b"")
    text = re.sub(r"\s+", " ", " ".join(words)) or f"[{process.comm}]"
    return text if len(text) <= TITLE_LENGTH else text[: TITLE_LENGTH - 1] + "…"


def record(job: Optional[FoundJob], notes: Sequence[str] = ()) -> Dict[str, Any]:
    """``processes.json``. Without a job: an empty table, not complete."""
    if job is None:
        empty: Dict[str, Any] = {
            "job": None,
            "processes": [],
            "complete": False,
            "denied": [],
            "world_size": None,
        }
        return {**empty, "single_node": None, "expected_local": None, "launcher": None, "notes": list(notes)}
    return {
        "job": job.name,
        "processes": list(job.rows),
        "complete": job.complete,
        "denied": list(job.denied),
        "world_size": job.world_size,
        "single_node": job.single_node,
        "expected_local": None if job.expected_local is None else list(job.expected_local),
        "launcher": job.launcher,
        "notes": [*job.notes, *notes],
    }


def name_of(first: Claim, launcher: Optional[ProcessInfo]) -> str:
    """Short and typeable: the elastic run id that somebody chose, else the script and the port."""
    run = first.variable("TORCHELASTIC_RUN_ID")
    script = roles.script_name(first.process.cmdline)
    if script is None and launcher is not None:
        script = roles.script_name(launcher.cmdline)
    if run not in (None, "none") and not UUID.fullmatch(str(run)):
        text = str(run)
    else:
        text = f"{script or first.process.comm}-{first.variable('MASTER_PORT') or f'p{first.process.pid}'}"
    return re.sub("[^A-Za-z0-9._]+", "-", text).strip("-.")[:48] or f"job-p{first.process.pid}"


def name_apart(jobs: List[FoundJob]) -> List[FoundJob]:
    """The same jobs; those of equal names get the pid of their launcher or first rank behind them."""
    names = [job.name for job in jobs]
    found = []
    for job in jobs:
        if names.count(job.name) > 1:
            name = f"{job.name}-p{job.launcher_pid or job.rows[0]['pid']}"
            job = job._replace(name=name, rows=tuple({**one, "job": name} for one in job.rows))
        found.append(job)
    return found

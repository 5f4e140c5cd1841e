"""What the name of a file tells about who wrote it: a rank only where the name says *rank*.

Used where the content tells nothing. Numbers that may be a date, a job, a node or a rotation are no rank.

>>> origin_of_name("/tmp/nccl_trace_rank_node-a_3").rank, origin_of_name("nccl.node-b.4711.log").pid
(3, 4711)
>>> origin_of_name("run/attempt_1/5/stderr.log").local_rank
5
>>> origin_of_name("train-20250302.log") == origin_of_name("run.log.3") == NOBODY
True
"""

from __future__ import annotations

import re
from typing import Any

from hangscope.model.loose import NOBODY, Origin

_PACKED = r"(?:\.(?:gz|zst|bz2|xz))?"
_HOST = r"[A-Za-z][A-Za-z0-9.-]{0,252}"
_TRACE = re.compile(
    r"(?:^|[._-])(?:nccl_trace|comm_lib_trace|fr_trace|flight_recorder|trace)_?rank[_-]?"
    rf"(?:(?P<node>{_HOST})_)?(?P<rank>\d{{1,6}})(?:\.(?:pkl|pickle|json|txt|bin))?{_PACKED}$"
)
_RANK = re.compile(
    r"(?:^|(?P<of>[A-Za-z0-9]{1,20})?[^A-Za-z0-9])[Rr]ank[._-]?(?P<rank>\d{1,6})(?=[^0-9A-Za-z]|$)"
)
_RANGE = re.compile(r"[Rr]anks?[._-]?\d{1,6}(?:-\d{1,6}(?:\D|$)|_to_|\.\.\d)")
_FOLDER = re.compile(r"(?:global[._-]?)?[Rr]ank[._-]?\d{1,6}")
_OF_A_GROUP = re.compile(
    r"(?:node|group|machine|replica|stage|model|data|tensor|pipeline|expert|intra|inter|[tpdecsm]p|vpp|e[td]p)\d*"
)
"""``mp_rank_00`` and the like: ranks in something smaller than the job."""
_OUTPUT = re.compile(rf"^(?:stdout|stderr)[._-](?P<rank>\d{{1,6}})(?:\.(?:log|txt))?{_PACKED}$")
_ATTEMPT = re.compile(r"attempt_(\d{1,4})")
_NCCL = re.compile(
    rf"^nccl[^.]{{0,40}}[._-](?P<node>{_HOST}?)[._-](?P<pid>\d{{2,7}})(?:\.(?:log|txt))?{_PACKED}$"
)
_DUMP = re.compile(
    r"^(?:(?:py-?spy|pystack|gdb)[._-](?:pid[._-]?)?|\w{1,20}[._-]pid[._-]?)(?P<pid>\d{2,7})\.\w{2,6}$"
)
_POD = re.compile(r"(?P<node>(?:[a-z0-9]+-)+(?:worker|master|launcher)-\d{1,5})(?:\.(?:log|txt|out))?$")


def origin_of_name(path: str) -> Origin:
    """Who wrote the file of that path (an archive's members too: ``a.zip!b/c``), as far as its name tells.

    torchrun's ``attempt_N/M/stderr.log`` (torch/distributed/elastic/multiprocessing/api.py) tells the *local*
    rank. A pod's name tells a node: worker 0 of a PyTorchJob is not rank 0.
    """
    parts = [part for part in re.split(r"[/\\\\!]", path[-1000:]) if part]
    if not parts:
        return NOBODY
    found: dict[str, Any] = {}
    trace = _TRACE.search(parts[-1])
    if trace is not None:
        found = {"rank": int(trace["rank"]), "node": trace["node"]}
    else:
        found = _of_process(parts[-1]) | _of_rank(parts)
    found |= _of_attempt(parts)
    if found.get("rank") is not None:
        found["source"] = "name"
    return Origin(**found) if found else NOBODY


def _of_rank(parts: list[str]) -> dict[str, Any]:
    """The rank in the file's name, else of the innermost folder that is called so; two ranks are none."""
    for part in [parts[-1], *(name for name in reversed(parts[-4:-1]) if _FOLDER.fullmatch(name))]:
        if _RANGE.search(part):
            return {}
        ranks: dict[str, set[int]] = {"rank": set(), "local_rank": set()}
        for match in _RANK.finditer(part):
            of = (match["of"] or "").lower()
            if not _OF_A_GROUP.fullmatch(of):
                ranks["local_rank" if of.endswith("local") else "rank"].add(int(match["rank"]))
        if any(len(numbers) > 1 for numbers in ranks.values()):
            return {}
        said = {key: numbers.pop() for key, numbers in ranks.items() if numbers}
        if said:
            return dict(said)
    output = _OUTPUT.match(parts[-1])
    return {} if output is None else {"rank": int(output["rank"])}


def _of_process(name: str) -> dict[str, Any]:
    match = _NCCL.match(name) or _DUMP.match(name)
    if match is not None:
        node = match.groupdict().get("node")
        return {"pid": int(match["pid"])} | ({"node": node} if node else {})
    pod = _POD.search(name)
    return {} if pod is None else {"node": pod["node"]}


def _of_attempt(parts: list[str]) -> dict[str, Any]:
    for index, part in enumerate(parts[:-1]):
        match = _ATTEMPT.fullmatch(part)
        if match is not None:
            found = {"attempt": int(match[1])}
            follower = parts[index + 1]
            if index + 2 < len(parts) and follower.isdecimal() and len(follower) < 6:
                found["local_rank"] = int(follower)
            return found
    return {}

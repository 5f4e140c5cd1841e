"""How a capture ended, as the manifest and the person are told."""

from __future__ import annotations

import signal
import time
from typing import Any

from ..collectors import cgroups, procfs
from ..model.evidence import Evidence
from .launch import AgentProcess

OWN_EXITS = (0, 130)
"""The agent's exit statuses after which its shard is sealed (see ``collectors/agent/run.py``)."""


def memory_cgroup(pid: int, proc: str = "/proc") -> str | None:
    """The memory cgroup that a process is charged to, as its kernel names it; None when it has none."""
    text, _ = procfs.read_text(f"{proc}/{pid}/cgroup", 1 << 16)
    rows = cgroups.memberships(text or "")
    for version, controllers, path in rows:
        if version == 1 and "memory" in controllers:
            return path
    return next((path for version, _, path in rows if version == 2), None)


def agent_problem(
    agent: AgentProcess, failure: str | None, cgroup: str | None, interrupted: bool
) -> str | None:
    """What went wrong with the agent, in one line for people; None when it ended as it should."""
    status = agent.process.returncode
    seconds = time.monotonic() - agent.started
    where = f"; it is charged to memory cgroup {cgroup}" if cgroup else ""
    if failure is not None:
        return failure
    if agent.killed:
        doing = f" ({agent.stuck})" if agent.stuck else ""
        return f"the agent did not end in time and was killed after {seconds:.0f} s{doing}{where}"
    if status is not None and status < 0:
        name = signal.Signals(-status).name
        cause = ", most likely by the out-of-memory killer" if -status == signal.SIGKILL else ""
        return f"the agent was ended by {name} after {seconds:.0f} s{cause}{where}"
    if status in OWN_EXITS or interrupted:
        return None
    said = next((line for line in reversed(agent.other_output) if line.strip()), "it said nothing")
    return f"the agent failed with status {status}: {said}"


def manifest(
    evidence: Evidence, job: str | None, node: str, problem: str | None, tool: str
) -> dict[str, Any]:
    """``manifest.json`` of a capture of one node (see FORMAT.md); ``problem`` is the node's reason."""
    rows = [row for shard in evidence.shards if shard.scan is not None for row in shard.scan.processes]
    ranks = [
        {"rank": row.rank, "node": node, "pid": row.pid}
        for row in sorted(rows, key=lambda row: (row.rank is None, row.rank or 0))
        if row.role == "rank" and row.rank is not None
    ]
    masked = sum(
        artifact.data.count(b"<redacted") for shard in evidence.shards for artifact in shard.artifacts
    )
    status = "ok" if problem is None else "partial"
    return {
        "tool": tool,
        "created": time.time(),
        "scheduler": "local",
        "job": job or evidence.job,
        "ranks": ranks,
        "nodes": [{"name": node, "status": status, "reason": problem, "clock_offset_s": 0.0}],
        "redaction": {"masked": masked},
    }

"""The first three lines of every report: who, why, what to do."""

from __future__ import annotations

import datetime

from ..model.ranges import ranks_phrase
from ..model.verdict import RootEntry, Verdict
from .interface import duration


def headline(verdict: Verdict, saved: str | None = None) -> tuple[str, str, str]:
    """Returns (who, why, what to do), one line each, uncoloured."""
    who = _who(verdict)
    if verdict.provisional:
        who = f"provisional: {who}"
    return who, _why(verdict), _what(verdict, saved)


def _who(verdict: Verdict) -> str:
    if verdict.kind in ("slow", "not-stuck"):
        return _calm(verdict)
    tail = _tail(verdict)
    if verdict.kind == "undecided":
        return "undecided: nobody can be named" + tail
    if verdict.kind == "all-joined":
        return "all ranks joined and none finished: no rank is to blame" + tail
    if not verdict.initiators:
        ends = ", ".join(root_phrase(root) for root in verdict.roots[:3]) or "no rank can be named"
        return ends + tail
    if verdict.kind == "cycle" and len(verdict.initiators) > 1:
        return f"{ranks_phrase(verdict.initiators)} wait for one another" + tail
    named = [root for root in verdict.roots if root.rank in verdict.initiators]
    if len(verdict.initiators) == 1 and named:
        return f"{root_phrase(named[0])} started it" + tail
    return f"{ranks_phrase(verdict.initiators)} started it" + tail


def root_phrase(root: RootEntry) -> str:
    """``rank 2 · node-a · pid 4711 · GPU 2``: how a root is found on the machines."""
    if root.type == "rank" or (root.type == "gpu" and root.rank is not None):
        head = f"rank {root.rank}"
    elif root.type == "process":
        head = f"rank {root.rank}" if root.rank is not None else (root.label or "a process")
    else:
        head = f"{root.type} {root.label or ''}".strip()
    parts = [head]
    if root.node:
        parts.append(root.node)
    if root.pid is not None:
        parts.append(
            f"{root.role} pid {root.pid}" if root.type == "process" and root.role else f"pid {root.pid}"
        )
    if root.gpu:
        parts.append(f"GPU {root.gpu}")
    return " · ".join(parts)


def _tail(verdict: Verdict) -> str:
    parts = []
    if verdict.waiting:
        verb = "waits" if len(verdict.waiting) == 1 else "wait"
        parts.append(f"{ranks_phrase(verdict.waiting)} {verb}")
    if verdict.unknown:
        parts.append(f"{ranks_phrase(verdict.unknown)} unknown")
    since = stuck_for(verdict)
    if since:
        parts.append(since)
    return "".join(f"; {part}" for part in parts)


def stuck_for(verdict: Verdict) -> str | None:
    """``stuck 14 min``; ``stuck since …`` where nobody knows until when; None where nothing tells the age."""
    if not verdict.stuck_since:
        return None
    try:
        since = datetime.datetime.fromisoformat(verdict.stuck_since.replace("Z", "+00:00"))
    except ValueError:
        return None
    if since.tzinfo is None:
        since = since.replace(tzinfo=datetime.timezone.utc)
    moment = _captured_at(verdict)
    if moment is None:
        return f"stuck since {since.astimezone(datetime.timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    age = (moment - since).total_seconds()
    return f"stuck {duration(age)}" if age >= 1 else None  # else nothing tells when it was looked at


def _captured_at(verdict: Verdict) -> datetime.datetime | None:
    if verdict.captured_wall is None:
        return None
    return datetime.datetime.fromtimestamp(verdict.captured_wall, datetime.timezone.utc)


def _calm(verdict: Verdict) -> str:
    if verdict.kind == "slow":
        late = ""
        if verdict.stragglers:
            verb = "comes" if len(verdict.stragglers) == 1 else "come"
            late = f"; {ranks_phrase(verdict.stragglers)} {verb} last"
        return f"slow, not stuck: the job moves{late}"
    return "not stuck: nothing waits for something that cannot come"


def _why(verdict: Verdict) -> str:
    fact = verdict.deciding_fact
    if not fact and verdict.missing and verdict.kind == "undecided":
        fact = f"missing: {verdict.missing[0].what} ({verdict.missing[0].why})"
    cause = f"{verdict.cause}: " if verdict.cause else ""
    return f"{cause}{fact or verdict.kind} [{verdict.confidence}]"


def _what(verdict: Verdict, saved: str | None) -> str:
    parts = []
    if saved:
        parts.append(f"evidence saved to {saved}")
    if verdict.kind not in ("slow", "not-stuck"):
        parts.append("safe to kill" if verdict.action.safe_to_kill else "do not kill it yet")
    head = ", ".join(parts)
    if verdict.action.text:
        return f"{head}; {verdict.action.text}" if head else verdict.action.text
    return head or "nothing to do"

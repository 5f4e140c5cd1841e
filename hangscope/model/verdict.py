"""The answer. As JSON this is a public contract (``hangscope-verdict/1``): fields may be added, never
renamed or removed. The schema stands beside it in ``hangscope/report/verdict.schema.json``."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal[
    "rank-absent",
    "rank-blocked",
    "cycle",
    "mismatch",
    "rank-diverged",
    "all-joined",
    "slow",
    "not-stuck",
    "undecided",
]
Confidence = Literal["high", "medium", "low"]
RootType = Literal["rank", "process", "launcher", "gpu", "node", "mount", "link", "lock"]
ActionKind = Literal["restart", "drain-node", "fix-code", "fix-config", "collect-more", "wait"]


class RootEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One end of the waiting, as a person must find it. ``impact`` counts the ranks that wait for it."""

    type: RootType
    rank: int | None = None
    node: str | None = None
    pid: int | None = None
    tid: int | None = None
    thread: str | None = None
    role: str | None = None
    state: str | None = None
    wait: str | None = None
    at: str | None = None
    source: str | None = None
    gpu: str | None = None
    impact: int = 0
    label: str | None = None


class ChainLink(msgspec.Struct, frozen=True, kw_only=True):
    """One step from the victims to the root. ``ranks`` is empty where the waiter is no rank."""

    ranks: tuple[int, ...]
    waits_for: str
    at: str | None = None
    source: str | None = None
    who: str | None = None
    certainty: str = "observed"


class EvidenceLine(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    artifact: str | None = None
    line: int | None = None


class MissingFact(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that was not captured: what, why not, and the command that gets it."""

    what: str
    why: str
    command: str | None = None


class Action(msgspec.Struct, frozen=True, kw_only=True):
    kind: ActionKind
    safe_to_kill: bool
    text: str
    commands: tuple[str, ...] = ()


class NextStep(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    command: str | None = None


class IndependentFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A second root with its own victims, or a second world in the same capture."""

    kind: Kind
    initiators: tuple[int, ...]
    cause: str | None
    roots: tuple[RootEntry, ...]
    text: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for one job. ``initiators`` are the sorted global ranks among ``roots``."""

    format: str = "hangscope-verdict/1"
    job: str | None
    kind: Kind
    initiators: tuple[int, ...]
    cause: str | None
    confidence: Confidence
    why_not_higher: str | None
    coverage: str
    """captured/expected ranks, ``?`` when the world size is unknown."""
    world_size: int | None
    waiting: tuple[int, ...]
    unknown: tuple[int, ...] = ()
    stragglers: tuple[int, ...] = ()
    stuck_since: str | None = None
    """ISO 8601, UTC."""
    stuck_since_source: str | None = None
    roots: tuple[RootEntry, ...] = ()
    chain: tuple[ChainLink, ...] = ()
    evidence: tuple[EvidenceLine, ...] = ()
    against: tuple[EvidenceLine, ...] = ()
    ruled_out: tuple[EvidenceLine, ...] = ()
    missing: tuple[MissingFact, ...] = ()
    action: Action
    next: tuple[NextStep, ...] = ()
    independent: tuple[IndependentFinding, ...] = ()
    # beyond the contract's first fields: what the text report shows
    captured: tuple[tuple[int, str, int, str | None], ...] = ()
    """(rank, node, pid, gpu) of every captured rank."""
    deciding_fact: str | None = None
    """The one fact in the second line of the report."""
    samples: int = 0
    observed_seconds: float = 0.0
    captured_wall: float | None = None
    """Wall time of the last sample, seconds since the epoch: ages are reckoned from it."""
    provisional: bool = False
    more_samples_would_decide: bool = False
    """The capture should take further samples before this verdict is final."""
    unresolved: tuple[str, ...] = ()
    """Frames on wait paths that the dictionary does not know."""

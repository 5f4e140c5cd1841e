"""Which job a fact is of: the scheduler's or the launcher's id in a path or a line, else the folder of dumps
whose ranks another folder has too. A fact without a key belongs to the only job, and to none of several.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median

import msgspec

from hangscope.model.facts import Ref
from hangscope.model.loose import FlightRecord, LogEvent, LooseFact

_SLURM_FILE = re.compile(r"(?:^|[/!])slurm-(\d{1,12})(?:_\d{1,9})?\.(?:out|err|log)$")
_RUN_FOLDER = re.compile(r"([^/!]{1,200})_[a-z0-9_]{8}/attempt_\d{1,6}/")
_SLURM_TEXT = re.compile(r"(?:StepId=|\*\*\* (?:JOB|STEP) |[Jj]ob[ =])(\d{1,12})\b")
_ENCODER = msgspec.msgpack.Encoder()
_NO_RUN_ID = frozenset({"none", "default"})

APART = 60.0
"""Seconds between two sets of dumps that make them two attempts rather than two jobs of one time."""


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one job. ``keyed``: its key came from the evidence itself."""

    key: str | None
    facts: tuple[LooseFact, ...]
    notes: tuple[str, ...] = ()


def without_copies(facts: Sequence[LooseFact]) -> list[LooseFact]:
    """The facts, each flight record once: people bring the folder, and the archive of it."""
    seen: set[bytes] = set()
    kept: list[LooseFact] = []
    for fact in facts:
        if isinstance(fact, FlightRecord):
            bare = msgspec.structs.replace(fact, ref=Ref(""), written=None)
            content = hashlib.blake2b(_ENCODER.encode(bare), digest_size=16).digest()
            if content in seen:
                continue
            seen.add(content)
        kept.append(fact)
    return kept


def job_keys(facts: Sequence[LooseFact]) -> tuple[str, ...]:
    """The keys of the jobs that the facts speak of, sorted; empty where there is no key."""
    return tuple(sorted(set(_keys(facts).values())))


def jobs_of(facts: Sequence[LooseFact], job_key: str | None = None) -> list[JobFacts]:
    """Returns the jobs in the order of their keys. With ``job_key``, that job and what has no key."""
    told = _keys(facts)
    by_key: dict[str | None, list[LooseFact]] = {}
    for fact in facts:
        by_key.setdefault(told.get(fact.ref.artifact), []).append(fact)
    keys = sorted(key for key in by_key if key is not None)
    loose = by_key.get(None, [])
    if job_key is not None:
        chosen = next((key for key in keys if job_key in (key, key.partition(":")[2])), None)
        own = by_key[chosen] if chosen is not None else []
        notes = () if chosen is not None or not keys else (f"nothing in it carries the job key {job_key}",)
        return [JobFacts(key=chosen or job_key, facts=_in_order(facts, own, loose), notes=notes)]
    if len(keys) < 2:
        return [JobFacts(key=keys[0] if keys else None, facts=tuple(facts))]
    notes = ()
    if loose:
        names = ", ".join(keys[:4])
        notes = (f"{len(loose)} facts carry no job key: --job-key (one of {names}) counts them to that job",)
    return [JobFacts(key=key, facts=tuple(by_key[key]), notes=notes) for key in keys]


def _in_order(
    facts: Sequence[LooseFact], own: Iterable[LooseFact], loose: Iterable[LooseFact]
) -> tuple[LooseFact, ...]:
    kept = {id(fact) for fact in (*own, *loose)}
    return tuple(fact for fact in facts if id(fact) in kept)


def _keys(facts: Sequence[LooseFact]) -> dict[str, str]:
    """artifact → key. An artifact that speaks of two jobs has none."""
    found: dict[str, set[str]] = {}
    for fact in facts:
        path = fact.ref.artifact
        keys = found.get(path)
        if keys is None:
            keys = found[path] = _of_path(path)
        if isinstance(fact, LogEvent) and fact.kind in ("job-oom", "job-ended"):
            keys.update(f"slurm:{match[1]}" for match in _SLURM_TEXT.finditer(fact.text))
    told = {path: next(iter(keys)) for path, keys in found.items() if len(keys) == 1}
    return told if len(set(told.values())) > 1 else told | _folders(facts, told)


def _of_path(path: str) -> set[str]:
    keys = set()
    if match := _SLURM_FILE.search(path):
        keys.add(f"slurm:{match[1]}")
    if (match := _RUN_FOLDER.search(path)) and match[1] not in _NO_RUN_ID:
        keys.add(f"run:{match[1]}")
    return keys


def _folders(facts: Sequence[LooseFact], told: dict[str, str]) -> dict[str, str]:
    """Folders whose dumps claim the same ranks at the same time are two jobs, named by the folders. Where one
    set is older, it is an earlier attempt, and no job of its own."""
    owners: dict[int, set[str]] = {}
    times: dict[str, list[float]] = {}
    for fact in facts:
        if isinstance(fact, FlightRecord) and fact.origin.rank is not None:
            folder = _folder(fact.ref.artifact)
            owners.setdefault(fact.origin.rank, set()).add(folder)
            if fact.newest_ns:
                times.setdefault(folder, []).append(fact.newest_ns / 1e9)
    rivals = {folder for folders in owners.values() if len(folders) > 1 for folder in folders}
    if len(rivals) < 2 or not all(folder in times for folder in rivals):
        return {}
    middles = sorted(median(times[folder]) for folder in rivals)
    if any(later - earlier > APART for earlier, later in pairwise(middles)):
        return {}
    return {
        fact.ref.artifact: f"folder:{folder}"
        for fact in facts
        if fact.ref.artifact not in told and (folder := _folder(fact.ref.artifact)) in rivals
    }


def _folder(path: str) -> str:
    return path.rpartition("/")[0] or "."

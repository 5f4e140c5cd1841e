"""A verdict against the truth."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from .scenario import Root, Truth

Grade = Literal["right", "undecided", "wrong"]


class Judgement(NamedTuple):
    """``right``; ``undecided``: nobody named though somebody should be, which misses without misleading;
    ``wrong``: everything else. ``why`` lists what did not fit."""

    grade: Grade
    why: tuple[str, ...]


def judge(
    verdict: Mapping[str, Any], truth: Truth, meaning: Callable[[str], list[int]], words: Mapping[str, str]
) -> Judgement:
    """``meaning`` turns a rank expression into ranks; ``words`` says what ``@1`` became."""
    faults = [*_forbidden(verdict, truth, meaning), *_name(verdict, truth, meaning)]
    if not faults:
        faults = [*_details(verdict, truth, meaning, words)]
        return Judgement("wrong" if faults else "right", tuple(faults))
    missed = verdict["kind"] == "undecided" and not verdict["initiators"] and not verdict["cause"]
    return Judgement("undecided" if missed else "wrong", tuple(faults))


def _forbidden(verdict: Mapping[str, Any], truth: Truth, meaning: Callable[[str], list[int]]) -> list[str]:
    faults = []
    named = set(verdict["initiators"]) & set(meaning(truth.never.initiators))
    if named:
        faults.append(f"names rank {sorted(named)}, which must never be named")
    if verdict["cause"] in truth.never.cause:
        faults.append(f"cause {verdict['cause']} must never be named")
    if verdict["kind"] in truth.never.kind:
        faults.append(f"kind {verdict['kind']} must never be given")
    return faults


def _name(verdict: Mapping[str, Any], truth: Truth, meaning: Callable[[str], list[int]]) -> list[str]:
    faults = []
    if verdict["kind"] not in truth.kind:
        faults.append(f"kind {verdict['kind']}, truth {' or '.join(truth.kind)}")
    expected = meaning(truth.initiators)
    if list(verdict["initiators"]) != expected:
        faults.append(f"initiators {list(verdict['initiators'])}, truth {expected}")
    return faults


def _details(
    verdict: Mapping[str, Any], truth: Truth, meaning: Callable[[str], list[int]], words: Mapping[str, str]
) -> list[str]:
    faults = []
    if (verdict["cause"] or "none") not in truth.cause:
        faults.append(f"cause {verdict['cause']}, truth {' or '.join(truth.cause)}")
    if truth.root is not None and not any(_fits(root, truth.root, words) for root in verdict["roots"]):
        shown = [
            {key: root.get(key) for key in ("type", "thread", "role", "state", "wait")}
            for root in verdict["roots"]
        ]
        faults.append(f"no root fits: {shown}")
    if truth.stragglers is not None and list(verdict["stragglers"]) != meaning(truth.stragglers):
        faults.append(f"stragglers {verdict['stragglers']}, truth {meaning(truth.stragglers)}")
    evidence = [str(verdict.get("deciding_fact")), *(line["text"] for line in verdict["evidence"])]
    faults += [f"no evidence like {wanted}" for wanted in truth.evidence if not _found(wanted, evidence)]
    steps = [
        str(value) for part in ("missing", "next") for entry in verdict[part] for value in entry.values()
    ]
    faults += [f"does not ask for {wanted}" for wanted in truth.asks_for if not _found(wanted, steps)]
    return faults


def _fits(root: Mapping[str, Any], wanted: Root, words: Mapping[str, str]) -> bool:
    thread = words.get(wanted.thread, wanted.thread) if wanted.thread is not None else None
    if thread is not None and root.get("thread") != thread:
        return False
    lists = (("type", wanted.type), ("role", wanted.role), ("state", wanted.state), ("wait", wanted.wait))
    return all(not accepted or root.get(key) in accepted for key, accepted in lists)


def _found(pattern: str, texts: list[str]) -> bool:
    return any(re.search(pattern, text, re.IGNORECASE) for text in texts)

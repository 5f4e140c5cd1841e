"""Two entries side by side: what tells them apart first, then each aspect of both."""

from __future__ import annotations

import msgspec

from .entry import Entry


class Aspect(msgspec.Struct, frozen=True):
    """One row: the same question to both entries; each answer is a list of texts."""

    name: str
    first: tuple[str, ...]
    second: tuple[str, ...]


class Comparison(msgspec.Struct, frozen=True):
    """``tell_apart``: the deciding facts; ``shared``: tags of both."""

    first: str
    second: str
    tell_apart: tuple[str, ...]
    shared: tuple[str, ...]
    aspects: tuple[Aspect, ...]


def compare(first: Entry, second: Entry) -> Comparison:
    """Returns the comparison. Where neither entry names the other as its look-alike, what confirms each
    stands for the deciding facts."""
    facts = [item.tell_apart for item in first.look_alikes if item.id == second.id]
    facts += [item.tell_apart for item in second.look_alikes if item.id == first.id]
    if not facts:
        facts = [f"{entry.id}: {entry.confirm[0].shows}" for entry in (first, second)]
    return Comparison(
        first=first.id,
        second=second.id,
        tell_apart=tuple(facts),
        shared=tuple(tag for tag in first.tags if tag in second.tags),
        aspects=tuple(
            Aspect(name, a, b) for (name, a), (_, b) in zip(_aspects(first), _aspects(second), strict=True)
        ),
    )


def _aspects(entry: Entry) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return (
        ("title", (entry.title,)),
        ("category", (f"{entry.category}, {entry.severity}",)),
        ("what one sees", tuple(symptom.see for symptom in entry.symptoms)),
        ("how to confirm", tuple(f"{item.command}: {item.shows}" for item in entry.confirm)),
        ("root causes", tuple(cause.name for cause in entry.root_causes)),
        ("fix", tuple(fix.text for fix in entry.fix)),
        ("how long", (entry.duration,)),
        ("1 GPU, one node, many", (entry.scale,)),
        ("early sign", (entry.fingerprint,)),
    )

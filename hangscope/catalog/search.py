"""Which entries fit a symptom, an error line, a tag or free text: a small ranked search."""

from __future__ import annotations

import collections
import functools
import math
import re
from collections.abc import Iterator, Sequence

import msgspec

from .entry import Entry, entries
from .words import terms

BEST = 5

WEIGHTS = {
    "title": 5.0,
    "id": 4.0,
    "tag": 4.0,
    "symptom": 3.0,
    "log or metric": 2.5,
    "in short": 2.0,
    "root cause": 1.5,
    "confirmed by": 1.5,
    "why so": 1.0,
    "mechanism": 0.7,
    "affects": 0.7,
    "category": 0.7,
}
"""How much a word counts by where it stands."""

SATURATION = 6.0
"""A word that stands often counts little more than one that stands well (as in BM25)."""

PAIR = 0.6
"""What two neighbouring words of the query that are neighbours in an entry too add, of their own weights."""

NAMED = 2.0
"""What a query adds that consists of the words of the entry's id, and of these alone."""

LEAST_COVER = 0.22
"""The share of the query, by weight of its known words, that an entry must cover to be shown."""

SHOWN_WORDS, SHOWN_PLACES = 8, 2


class Place(msgspec.Struct, frozen=True):
    """Where in the entry the query was found: the field's name, and its text."""

    field: str
    text: str


class Hit(msgspec.Struct, frozen=True):
    """``words``: those of the query that matched, as they were written; ``places``: the best of the entry."""

    entry: Entry
    score: float
    words: tuple[str, ...]
    places: tuple[Place, ...]


class _Indexed(msgspec.Struct, frozen=True):
    entry: Entry
    weights: dict[str, float]
    pairs: frozenset[tuple[str, str]]
    named: frozenset[str]
    places: tuple[tuple[Place, frozenset[str]], ...]


def search(text: str, best: int = BEST) -> list[Hit]:
    """The entries that fit best, the best first; empty where nothing does. Raises BrokenEntry."""
    query: dict[str, str] = {}
    order = []
    for term, word in terms(text):
        query.setdefault(term, word)
        order.append(term)
    index, rarity = _index()
    known = {term: rarity[term] for term in query if term in rarity}
    whole = sum(known.values())
    if not whole:
        return []
    wanted = _pairs(order)
    hits = []
    for item in index:
        matched = [term for term in known if term in item.weights]
        cover = sum(known[term] for term in matched) / whole
        if cover < LEAST_COVER:
            continue
        score = sum(known[t] * item.weights[t] / (item.weights[t] + SATURATION) for t in matched)
        score += PAIR * sum((known[a] + known[b]) / 2 for a, b in wanted & item.pairs)
        score += NAMED * len(query.keys() & item.named) / len(query.keys() | item.named)
        hits.append((score * (0.4 + 0.6 * cover), item, matched))
    hits.sort(key=lambda hit: (-hit[0], hit[1].entry.id))
    return [
        Hit(
            entry=item.entry,
            score=round(score, 3),
            words=_shown([query[term] for term in matched]),
            places=_best_places(item, {term: known[term] for term in matched}),
        )
        for score, item, matched in hits[:best]
    ]


def _shown(words: Sequence[str]) -> tuple[str, ...]:
    """The words once each, as people write them."""
    return tuple(dict.fromkeys(re.sub(r"^(\d+)pct$", r"\1 %", word) for word in words))[:SHOWN_WORDS]


def _best_places(item: _Indexed, weight: dict[str, float]) -> tuple[Place, ...]:
    """The texts of the entry that hold most of the matched words, and such that add to them."""
    chosen: list[Place] = []
    left = dict(weight)
    while left and len(chosen) < SHOWN_PLACES:
        gain, _, place, stems = max(
            (
                (
                    sum(left.get(term, 0.0) for term in stems) * (1 + WEIGHTS[place.field] / 10),
                    -number,
                    place,
                    stems,
                )
                for number, (place, stems) in enumerate(item.places)
            ),
            key=lambda found: found[:2],
        )
        if not gain:
            break
        chosen.append(place)
        left = {term: value for term, value in left.items() if term not in stems}
    return tuple(chosen)


def texts(entry: Entry) -> Iterator[Place]:
    """Every text of an entry that is searched, with its field. Fixes and preventions are left out: they name
    what helps, not what is seen."""
    yield Place("title", entry.title)
    yield Place("id", entry.id.replace("-", " "))
    for tag in entry.tags:
        yield Place("tag", tag.replace("-", " "))
    for symptom in entry.symptoms:
        yield Place("symptom", symptom.see)
    yield Place("log or metric", entry.fingerprint)
    yield Place("in short", entry.executive)
    yield Place("in short", entry.answer)
    for cause in entry.root_causes:
        yield Place("root cause", f"{cause.name}: {cause.detail}")
    for confirmation in entry.confirm:
        yield Place("confirmed by", confirmation.shows)
    for symptom in entry.symptoms:
        yield Place("why so", symptom.why)
    yield Place("mechanism", entry.mechanism)
    for system in entry.affects:
        yield Place("affects", system)
    yield Place("category", entry.category.replace("-", " "))


def _pairs(stems: Sequence[str]) -> frozenset[tuple[str, str]]:
    """Words that stand next to one another or one apart, in whatever order."""
    return frozenset(
        (min(one, other), max(one, other))
        for distance in (1, 2)
        for one, other in zip(stems, stems[distance:], strict=False)
        if one != other
    )


@functools.cache
def _index() -> tuple[tuple[_Indexed, ...], dict[str, float]]:
    """All entries as weighted words, and how rare each word is among them."""
    index = tuple(_indexed(entry) for entry in entries())
    seen = collections.Counter(term for item in index for term in item.weights)
    count = len(index)
    rarity = {term: math.log(1 + (count - n + 0.5) / (n + 0.5)) + 0.1 for term, n in seen.items()}
    return index, rarity


def _indexed(entry: Entry) -> _Indexed:
    weights: dict[str, float] = collections.defaultdict(float)
    pairs: set[tuple[str, str]] = set()
    places = []
    for place in texts(entry):
        stems = [term for term, _ in terms(place.text)]
        for term in dict.fromkeys(stems):
            weights[term] += WEIGHTS[place.field]
        pairs |= _pairs(stems)
        places.append((place, frozenset(stems)))
    named = frozenset(term for term, _ in terms(entry.id.replace("-", " ")))
    return _Indexed(entry, dict(weights), frozenset(pairs), named, tuple(places))

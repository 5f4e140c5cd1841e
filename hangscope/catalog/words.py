"""Text as search terms: log lines stripped of what differs from run to run, words cut to their stems."""

from __future__ import annotations

import functools
import re

CLEAN: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]"), " "),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T_ ]?"), " "),
    (re.compile(r"\b\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\b"), " "),
    (re.compile(r"\[(?:rank|default)\d{0,6}\]:?", re.IGNORECASE), " "),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b"), " "),
    (re.compile(r"\b0x[0-9a-f]{1,16}\b", re.IGNORECASE), " "),
    (re.compile(r"\b[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-9a-f])?\b", re.IGNORECASE), " "),
    (re.compile(r"(?<![\w.])(?:/[\w.+@-]{1,80}){1,40}/"), " "),
    (re.compile(r"(?<=\.(?:py|cc|so))(?::\d{1,7})\b|(?<=\.cpp)(?::\d{1,7})\b"), " "),
)
"""Colours, dates, times, rank prefixes, addresses, pointers, PCI places, folders, line numbers."""

TELLING = re.compile(
    r"\b(xid|signal|exit ?code|exitcode|status|sig)\b[\s:=(#-]{0,4}(?:code[\s:=]{0,3})?(\d{1,3})\b",
    re.IGNORECASE,
)
"""Numbers that are names: they stay, joined to their word."""

PERCENT = re.compile(r"\b(\d{1,3})\s{0,2}(?:%|percent\b|per cent\b)", re.IGNORECASE)

SAME: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), f" {word} ")
    for pattern, word in (
        (r"\bout[ -]of[ -](?:host |cpu |gpu |system )?memory\b", "oom out of memory"),
        (r"\btim(?:e|ed)[ -]?outs?\b", "timeout"),
        (r"\bdata[ -]loaders?\b", "dataloader"),
        (r"\bfile[ -]systems?\b", "filesystem"),
        (r"\bstart[ -]?ing? up\b|\bstart[ -]up\b", "startup"),
        (r"\bdead[ -]?lock(?:ed|s)?\b", "deadlock"),
        (r"\ball[ -](reduce|gather|to[ -]all)\b", r"all_\1"),
        (r"\bping[ -]?pong\b", "pingpong"),
        (r"\bcheck[ -]points?\b", "checkpoint"),
        (r"\btime steps?\b", "step"),
    )
)

SYNONYMS = {
    "hung": "hang",
    "stuck": "hang",
    "stall": "hang",
    "freeze": "frozen",
    "froze": "frozen",
    "utilisation": "util",
    "utilization": "util",
    "usage": "util",
    "ckpt": "checkpoint",
    "died": "die",
    "dead": "die",
    "dies": "die",
    "death": "die",
    "killer": "kill",
    "ram": "memory",
    "cards": "gpu",
    "device": "gpu",
    "devices": "gpu",
    "forever": "endless",
    "indefinitely": "endless",
    "endlessly": "endless",
    "infinite": "endless",
    "ever": "endless",
    "proc": "process",
    "processes": "process",
    "ib": "infiniband",
    "hca": "infiniband",
    "fs": "filesystem",
    "params": "parameter",
    "param": "parameter",
    "grads": "gradient",
    "grad": "gradient",
    "every": "all",
    "each": "all",
    "whole": "all",
    "sleeping": "sleep",
    "zombies": "zombie",
    "defunct": "zombie",
    "sigstop": "stop",
    "paused": "stop",
    "suspended": "stop",
    "livelock": "spin",
    "spins": "spin",
    "busy": "spin",
    "mutex": "lock",
    "mutexes": "lock",
    "locks": "lock",
    "came": "come",
    "waits": "wait",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "reducescatter": "reduce_scatter",
    "crashed": "crash",
    "crashes": "crash",
}
"""Words that people use for one another; the values are stems themselves."""

EVERYWHERE = """
a an and any are as at be been but by can cannot could did do does doing for from get gets had has have
he how i if in into is it its just like me my no not now of on or our so some such than that the their
them then there they this to too us very was we were what when where which while who why will with would
you your after before only still also about error info warn warning line shows show see seen says message
job training train run running problem issue please help py"""
STOP = frozenset(EVERYWHERE.split())
"""Words that tell nothing, in a sentence or in a log of a training job."""

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,80}|\d{1,3}pct")
PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
SUFFIXES = ("ization", "isation", "ations", "ation", "ments", "ment", "ings", "ing", "ers", "ies", "ied")
SHORT_SUFFIXES = ("ed", "es", "er", "ly", "s")
LONGEST = 20_000
"""Characters of a text that are looked at: a pasted log is searched by its beginning."""


def terms(text: str) -> list[tuple[str, str]]:
    """(term, word as it was written) pairs in the order of the text; identifiers also by their parts.

    >>> [term for term, _ in terms("2026-12-01 03:11:09 /opt/torch/file_baton.py:50 waits, Xid 79")]
    ['file_baton', 'fil', 'baton', 'wait', 'xid79']
    """
    cleaned = text[:LONGEST]
    for pattern, instead in (*CLEAN, *SAME):
        cleaned = pattern.sub(instead, cleaned)
    cleaned = PERCENT.sub(lambda match: f" {int(match.group(1))}pct ", cleaned)
    cleaned = TELLING.sub(lambda match: f" {match.group(1).replace(' ', '')}{match.group(2)} ", cleaned)
    found = []
    for word in WORD.findall(cleaned):
        bare = word.strip("_")
        for part in dict.fromkeys((bare, *_parts(bare))):
            if len(part) > 1 and part.lower() not in STOP:
                found.append((stem(part), word))
    return found


def _parts(word: str) -> list[str]:
    """The words of ``snake_case`` and ``CamelCase``; none for a plain word."""
    if word.isalpha() and (word.islower() or word.isupper() or word[1:].islower()):
        return []
    if re.fullmatch(r"(?:xid|signal|exitcode|status|sig)\d+|\d+pct", word, re.IGNORECASE):
        return []
    return [part for part in PARTS.findall(word) if not part.isdigit() and len(part) > 2]


@functools.lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """The word in small letters without its ending, the same for its forms and near synonyms.

    >>> {stem("hanging"), stem("hangs"), stem("stuck"), stem("hung")}
    {'hang'}
    """
    low = word.lower()
    if low in SYNONYMS:
        return SYNONYMS[low]
    if "_" in low or any(character.isdigit() for character in low):
        return low
    cut = low
    for suffix in SUFFIXES + SHORT_SUFFIXES:
        if low.endswith(suffix) and len(low) - len(suffix) >= 3 and not low.endswith("ss"):
            cut = low[: -len(suffix)] + ("y" if suffix in ("ies", "ied") else "")
            break
    if len(cut) > 3 and cut[-1] == cut[-2] and cut[-1] not in "lsz":
        cut = cut[:-1]
    if len(cut) > 3 and cut.endswith("e"):
        cut = cut[:-1]
    return SYNONYMS.get(cut, cut)

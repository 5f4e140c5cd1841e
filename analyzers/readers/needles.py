"""Which of many literals are in a line: one search for the lines with none, which are nearly all.

>>> needles = Needles({"watchdog": ("Watchdog caught", "last enqueued"), "elastic": ("exitcode",)})
>>> needles.owners("[rank1]: Watchdog caught collective timeout"), needles.owners("step 41")
(('watchdog',), ())
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_COMMON = " e0ta1ionr2sl3d4c56:m7p89u.-_h/[]gTINCPRSLADEfbk=,()wMUyvOFBG><KHWVxX'\"j#*+z%@YQq;ZJ|&`{}~?!$^\\"
"""Characters as often as logs have them, the most frequent first."""
_PLACES = {character: place for place, character in enumerate(_COMMON)}


class Needles:
    """Literals and the names of those that look for them."""

    def __init__(self, wanted: Mapping[str, tuple[str, ...]]) -> None:
        self._order = {owner: index for index, owner in enumerate(wanted)}
        self._groups: dict[str, dict[str, list[str]]] = {}
        for owner, literals in wanted.items():
            for literal in literals:
                group = self._groups.setdefault(rarest(literal), {})
                group.setdefault(literal, []).append(owner)
        self._search = re.compile(
            any_of(literal for group in self._groups.values() for literal in group)
        ).search

    def owners(self, text: str) -> tuple[str, ...]:
        """Who looks for something that is in ``text``, in the order of ``wanted``."""
        match = self._search(text)
        if match is None:
            return ()
        found: set[str] = set()
        seen: set[str] = set()
        while match is not None:
            place = match.start()
            rare = text[place]
            if rare not in seen:
                seen.add(rare)
                for literal, owners in self._groups[rare].items():
                    if literal in text:
                        found.update(owners)
            match = self._search(text, place + 1)
        return tuple(sorted(found, key=self._order.__getitem__)) if len(found) > 1 else tuple(found)


def rarest(literal: str) -> str:
    """The character of a literal that logs have least."""
    return max(literal, key=lambda character: _PLACES.get(character, len(_COMMON)))


def any_of(literals: Iterable[str]) -> str:
    r"""A pattern that finds the rarest character of any of the literals, where the literal stands around it:
    the engine stops at few places of a text.

    >>> any_of(("exit 1", "exit 2"))
    '(?:xit\\ (?:1(?<=exit\\ 1)|2(?<=exit\\ 2)))'
    """
    groups: dict[str, dict[str, set[str]]] = {}
    for literal in literals:
        rare = rarest(literal)
        groups.setdefault(rare, {}).setdefault(literal.partition(rare)[2], set()).add(literal)
    if not groups:
        return r"(?!)"
    return f"(?:{'|'.join(re.escape(rare) + _behind(tails) for rare, tails in sorted(groups.items()))})"


def _behind(tails: Mapping[str, set[str]]) -> str:
    """What stands behind the rarest character, common beginnings once; at an end, the literal is checked."""
    branches = []
    for first in sorted({tail[:1] for tail in tails}):
        if first:
            deeper = {tail[1:]: literals for tail, literals in tails.items() if tail[:1] == first}
            branches.append(re.escape(first) + _behind(deeper))
        else:
            branches += [f"(?<={re.escape(literal)})" for literal in sorted(tails[""])]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"

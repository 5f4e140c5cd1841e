"""The search for many literals finds exactly those that are there."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from hangscope.analyzers.readers.needles import Needles, any_of

few = st.text(alphabet="ab[x]. é", min_size=1, max_size=6)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.dictionaries(few, st.lists(few, min_size=1, max_size=5).map(tuple), max_size=6), few, few, few)
def test_owners_are_those_whose_literals_are_in_the_text(
    wanted: dict[str, tuple[str, ...]], left: str, middle: str, right: str
) -> None:
    needles = Needles(wanted)
    texts = [left + middle + right, *(left + literal + right for some in wanted.values() for literal in some)]
    for text in texts:
        expected = tuple(owner for owner, some in wanted.items() if any(item in text for item in some))
        assert needles.owners(text) == expected


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(few, max_size=8), few, few)
def test_the_pattern_matches_where_a_literal_is(literals: list[str], left: str, right: str) -> None:
    found = re.search(any_of(literals), left + right) is not None
    assert found == any(literal in left + right for literal in literals)

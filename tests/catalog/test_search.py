"""Symptoms in other words than the entries' own, and lines of logs, find the right entry."""

import pathlib
import time

import pytest

from hangscope.catalog.search import BEST, search
from hangscope.catalog.words import terms

QUERIES = [
    (query, wanted)
    for line in pathlib.Path(__file__).with_name("queries.txt").read_text().splitlines()
    if line and not line.startswith("#")
    for wanted, _, query in [line.partition(": ")]
]


def ids(query: str) -> list[str]:
    return [hit.entry.id for hit in search(query)]


@pytest.mark.parametrize(("query", "wanted"), QUERIES, ids=[query[:40] for query, _ in QUERIES])
def test_a_symptom_in_other_words_finds_its_entry(query: str, wanted: str) -> None:
    assert wanted in ids(query)[:3]


def test_most_of_them_stand_first() -> None:
    first = sum(ids(query)[0] == wanted for query, wanted in QUERIES)
    assert first >= 0.8 * len(QUERIES)


def test_an_id_or_a_tag_finds_its_own_entry_first() -> None:
    assert ids("rank killed")[0] == "rank-killed"
    assert ids("lock order inversion")[0] == "lock-order-inversion"
    assert "rank-stopped" in ids("sigstop")[:2]


def test_what_differs_from_run_to_run_does_not_matter() -> None:
    one = (
        "2026-01-31 13:45:01,123 [rank3]: DistStoreError at /opt/a/b/c.py:12 0x7f00dead 10.0.0.1:295 3 joined"
    )
    two = "2027-11-02T01:02:03.5 [rank17]: DistStoreError at /home/u/c.py:99 0x1 192.168.7.2:1 44 joined"
    assert [term for term, _ in terms(one)] == [term for term, _ in terms(two)]
    assert ids(one) == ids(two)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("GPU utilisation at 0 percent", "gpu utilization 0%"),
        ("exit code -9", "exitcode: -9"),
        ("Xid 79", "XID: 79"),
        ("hangs", "stuck"),
        ("time-out", "timed out"),
        ("file system", "filesystems"),
        ("all reduce", "all_reduce"),
    ],
)
def test_forms_of_one_word_are_one(one: str, other: str) -> None:
    assert {term for term, _ in terms(one)} & {term for term, _ in terms(other)} == {
        term for term, _ in terms(other)
    }


def test_numbers_that_name_something_are_kept_and_others_are_not() -> None:
    assert [term for term, _ in terms("Xid 79 pid 4711 signal 9 99 %")] == [
        "xid79",
        "pid",
        "signal9",
        "99pct",
    ]


def test_nothing_is_found_for_what_no_entry_says() -> None:
    assert search("") == search("the of and") == search("quetzalcoatl") == search("\x00\xff 12345") == []


def test_hits_say_why() -> None:
    hits = search("worker_count 7 world_size 8 store barrier")
    assert 0 < len(hits) <= BEST
    for hit in hits:
        assert hit.words and hit.places and hit.score > 0
        assert all(place.text and place.field for place in hit.places)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_a_pasted_log_is_searched_in_linear_time() -> None:
    start = time.process_time()
    for junk in ("a/" * 500_000, "0:" * 500_000, "_" * 1_000_000, "x" * 1_000_000, "1 % " * 200_000):
        search(junk)
    assert time.process_time() - start < 5

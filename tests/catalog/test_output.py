"""``hangscope explain``: entry, search, comparison and list, as text, Markdown and JSON."""

import json
import re

import pytest

from hangscope import catalog
from hangscope.catalog import formats, render
from hangscope.catalog.compare import compare
from hangscope.catalog.entry import Entry
from hangscope.catalog.search import search
from hangscope.cli.main import main
from hangscope.report.interface import Style

IDS = catalog.ids()


def explain(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    """What ``hangscope explain`` prints with these arguments; standard error where it fails."""
    assert main(["explain", *arguments]) == status
    out, err = capsys.readouterr()
    assert (out == "") == (status != 0)
    return out if status == 0 else err


def known(id: str) -> Entry:
    entry = catalog.find(id)
    assert entry is not None
    return entry


@pytest.mark.parametrize("width", [40, 80, 110])
@pytest.mark.parametrize("id", IDS)
def test_an_entry_keeps_to_the_width_except_for_what_people_copy(id: str, width: int) -> None:
    entry = known(id)
    copied = [item.command for item in entry.confirm] + [item.command for item in entry.fix]
    copied += [item.code for item in entry.prevention]
    whole = {f"      {line}".rstrip() for text in copied for line in text.strip("\n").splitlines()}
    lines = render.entry_text(entry, Style(width=width)).splitlines()
    wide = [line for line in lines if len(line) > width and line not in whole and " " in line.strip()]
    assert wide == []
    assert whole <= set(lines)


@pytest.mark.parametrize("id", IDS)
def test_an_entry_serves_the_manager_then_the_person_on_call_then_the_engineer(id: str) -> None:
    entry = known(id)
    text = " ".join(render.entry_text(entry, Style(width=100)).split())
    places = [
        text.index(f"in short: {' '.join(entry.executive.split())}"),
        text.index("on call 1. "),
        text.index("what one sees, and why"),
        text.index("mechanism"),
    ]
    assert places == sorted(places)
    for item in entry.look_alikes:
        assert f"{item.id}: {' '.join(item.tell_apart.split())}" in text


@pytest.mark.parametrize("id", IDS)
def test_markdown_of_an_entry_is_whole_and_its_fences_close(id: str) -> None:
    entry = known(id)
    text = formats.entry_markdown(entry)
    assert text.startswith("## ") and text.endswith("\n")
    assert len(re.findall(r"^`{3,4}\w*$", text, re.MULTILINE)) % 2 == 0
    for item in entry.confirm:
        assert f"```sh\n{item.command.strip()}\n```" in text
    assert "<" not in re.sub(r"`[^`]*`|```.*?```|\\<", "", text, flags=re.DOTALL)


def test_an_id_shows_its_entry(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(capsys, "rank-killed").startswith(known("rank-killed").title)
    assert explain(capsys, "RANK_KILLED") == explain(capsys, "rank-killed")


def test_json_of_an_entry_is_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(explain(capsys, "rank-killed", "--json"))
    assert found["id"] == "rank-killed"
    assert list(found) == list(Entry.__struct_fields__)
    assert found["fix"][0].keys() == {"text", "command", "safe"}


def test_bare_and_list_show_all_entries_by_category(capsys: pytest.CaptureFixture[str]) -> None:
    bare = explain(capsys)
    assert bare == explain(capsys, "--list")
    assert [id for id in IDS if f"  {id} " not in bare] == []
    assert f"{len(IDS)} entries" in bare
    listed = json.loads(explain(capsys, "--list", "--json"))
    assert {item["id"] for item in listed} == set(IDS)
    assert listed[0].keys() == {"id", "title", "category", "severity", "tags", "executive"}
    table = explain(capsys, "--format", "markdown")
    assert [id for id in IDS if f"| `{id}` |" not in table] == []


def test_text_is_searched_and_the_answer_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    query = "shows 0% GPU utilization on all ranks"
    text = explain(capsys, query)
    assert text.startswith(f"for: {query}\n")
    numbers = re.findall(r"^(\d)\. (\S+)$", text, re.MULTILINE)
    assert [number for number, _ in numbers] == ["1", "2", "3", "4", "5"]
    assert text.count("matched: ") == 5 and "0 %, GPU, utilization" in text
    assert f"next: hangscope explain {numbers[0][1]}\n" in text
    found = json.loads(explain(capsys, *query.split(), "--json"))
    assert found["query"] == query
    assert [item["id"] for item in found["results"]] == [id for _, id in numbers]
    scores = [item["score"] for item in found["results"]]
    assert scores == sorted(scores, reverse=True) and scores[-1] > 0
    assert all(item["words"] and item["places"] for item in found["results"])
    assert f"1. `{numbers[0][1]}`: " in explain(capsys, query, "--format", "markdown")


def test_an_unknown_id_is_searched(capsys: pytest.CaptureFixture[str]) -> None:
    assert "1. rank-killed\n" in explain(capsys, "the-rank-was-killed")


def test_nothing_found_is_a_failure_with_the_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("quetzalcoatl", "the and of", "0x7f 12345 !!!"):
        text = explain(capsys, words, status=1)
        assert "nothing in the catalogue fits" in text and "hangscope explain --list" in text


@pytest.mark.parametrize("columns", ["60", "100"])
def test_compare_begins_with_what_tells_them_apart(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    text = explain(capsys, "--compare", "rank-killed", "rank-stopped")
    assert text.startswith("rank-killed or rank-stopped\n\nwhat tells them apart\n")
    fact = next(item.tell_apart for item in known("rank-killed").look_alikes if item.id == "rank-stopped")
    assert " ".join(fact.split()) in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= int(columns)
    assert ("-+-" in text) == (columns == "100")


def test_compare_of_any_two_has_a_deciding_fact() -> None:
    for other in IDS:
        if other != "rank-killed":
            comparison = compare(known("rank-killed"), known(other))
            assert comparison.tell_apart
            assert render.comparison_text(comparison, Style(width=90))


def test_compare_in_markdown_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    pair = ("--compare", "deepspeed-zero-stuck", "deepspeed-zero-offload-memory")
    found = json.loads(explain(capsys, *pair, "--json"))
    assert (found["first"], found["second"]) == pair[1:]
    assert "deepspeed" in found["shared"]
    assert {aspect["name"] for aspect in found["aspects"]} >= {"what one sees", "how to confirm", "fix"}
    rows = [
        row for row in explain(capsys, *pair, "--format", "markdown").splitlines() if row.startswith("| ")
    ]
    assert {len(re.split(r"(?<!\\)\|", row)) for row in rows} == {5}


def test_wrong_use_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    text = explain(capsys, "--compare", "rank-kiled", "rank-stopped", status=2)
    assert "no entry 'rank-kiled'" in text and "try: rank-killed" in text
    assert "hangscope explain --list" in explain(capsys, "--compare", "qqqq", "rank-stopped", status=2)
    for arguments in (("x", "--list"), ("x", "--compare", "a", "b"), ("--list", "--compare", "a", "b")):
        assert "exclude one another" in explain(capsys, *arguments, status=2)


def test_a_query_cannot_move_the_cursor() -> None:
    query = "rank killed \x1b[2J\x1b[31m `|<script>"
    hits = search(query)
    assert "\x1b" not in render.hits_text(query, hits, Style(width=80))
    assert "\x1b" not in formats.hits_markdown(query, hits)


def test_colour_is_given_only_where_it_is_wanted() -> None:
    entry = known("rank-killed")
    plain = render.entry_text(entry, Style(width=80))
    coloured = render.entry_text(entry, Style(width=80, color=True))
    assert "\x1b" not in plain and "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain

"""Every entry of the catalogue: whole, true to its name, leading to others that exist, with safe commands."""

import collections
import json
import pathlib
import re
import subprocess

import pytest

from hangscope import catalog
from hangscope.analyzers.causes import RULES
from hangscope.catalog.entry import CATEGORIES, FOLDER, Entry, read
from hangscope.errors import HangscopeError

ROOT = pathlib.Path(__file__).parents[2]
FILES = sorted(FOLDER.iterdir())
IDS = [path.stem for path in FILES]

UNFINISHED = re.compile(
    r"\b(TODO|TBD|FIXME|XXX|lorem|ipsum|placeholder)\b|\?\?\?|example\.(com|org)", re.IGNORECASE
)
DANGEROUS = re.compile(
    r"\bpkill\b|\bkillall\b|\bskill\b|rm\s+(-\w+\s+)*-?\w*r\w*\s+(-\w+\s+)*/(\s|$|\*)|\brm\s+-rf\b|kill\s+-9\s+-1"
    r"|\bmkfs|\bof=/dev/|>\s*/dev/sd|\breboot\b|\bshutdown\b|:\(\)\s*\{"
)
ATTACHING = re.compile(r"py-spy dump(?!.*--nonblocking)|\bpystack remote\b|\bgdb\b.*-p\b|\bstrace\b.*-p\b")
BOUNDED = re.compile(r"\btimeout -s KILL \d+ py-spy ")
"""An attach may wait for ever, and hold the job meanwhile. py-spy may be killed in it without harm."""

WARNED = re.compile(r"\bstates? D\b|\bin D\b|given up")
"""Else the text beside the command says on what process it must not be used."""


def commands(entry: Entry) -> list[str]:
    """Everything in the entry that is meant to be typed into a shell."""
    return [item.command for item in entry.confirm] + [fix.command for fix in entry.fix if fix.command]


@pytest.fixture(params=FILES, ids=IDS)
def entry(request: pytest.FixtureRequest) -> Entry:
    return read(request.param)


def test_the_folder_holds_entries_only_and_enough_of_them() -> None:
    assert [path.name for path in FILES if path.suffix != ".toml"] == []
    assert len(FILES) >= 60
    assert catalog.ids() == tuple(IDS)
    assert {entry.id for entry in catalog.entries()} == set(IDS)


def test_every_category_is_used_and_the_list_goes_by_it() -> None:
    used = [entry.category for entry in catalog.entries()]
    assert set(used) == set(CATEGORIES)
    assert used == sorted(used, key=list(CATEGORIES).index)


def test_an_entry_points_at_others_that_exist(entry: Entry) -> None:
    others = [*entry.related, *(item.id for item in entry.look_alikes)]
    assert [other for other in others if other not in IDS or other == entry.id] == []
    for named in (entry.related, [item.id for item in entry.look_alikes], entry.tags):
        assert [one for one, count in collections.Counter(named).items() if count > 1] == []


def test_an_entry_is_finished(entry: Entry) -> None:
    text = read_text(entry)
    found = UNFINISHED.search(text)
    assert found is None, text[max(0, found.start() - 40) : found.end() + 40]
    assert not any("http" in item.name + item.what for item in entry.references)
    assert [item for item in entry.symptoms if len(item.see) < 9 or len(item.why) < 14] == []
    assert "\n" not in entry.executive and len(entry.executive) <= 260
    assert len(entry.mechanism) > 250


def read_text(entry: Entry) -> str:
    return (FOLDER / f"{entry.id}.toml").read_text(encoding="utf-8")


def test_no_command_of_an_entry_does_harm(entry: Entry) -> None:
    for command in [*commands(entry), *(item.code for item in entry.prevention)]:
        assert not DANGEROUS.search(command), command
    for command in commands(entry):
        for target in re.findall(r"\bkill\s+(?:-\w+\s+)*([^\s;&|)]+)", command):
            assert re.fullmatch(r"-?(?:[A-Z_]+|\"?\$[\w({$].*)", target), f"{target} is no pid: {command}"


def test_a_command_that_may_hold_the_job_is_bounded_or_warns(entry: Entry) -> None:
    told = [(item.command, item.shows) for item in entry.confirm]
    told += [(fix.command, fix.text) for fix in entry.fix]
    for command, text in told:
        for part in re.split(r"[;&|]+", command):
            assert BOUNDED.search(part) or WARNED.search(text) or not ATTACHING.search(part), command


def test_the_shell_can_read_every_command(entry: Entry) -> None:
    script = "\n".join(f"(\n{command}\n)" for command in commands(entry))
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr


def test_every_cause_that_a_verdict_can_give_has_an_entry() -> None:
    causes = {rule.id for rule in RULES}
    for path in (ROOT / "analyzers").rglob("*.py"):
        causes |= set(re.findall(r"\bcause\s*=\s*\(?\s*\"([a-z0-9-]+)\"", path.read_text()))
    for verdict in (ROOT / "fixtures").rglob("truth.toml"):
        causes |= set(re.findall(r"^cause\s*=\s*\"([a-z0-9-]+)\"", verdict.read_text(), re.MULTILINE))
    assert causes - set(IDS) == set()


@pytest.mark.parametrize(
    ("id", "names"),
    [
        ("deepspeed-zero-stuck", ("memory", "accumulation", "not ready", "bucket")),
        ("training-restart-stuck", ("process", "CUDA context", "process group", "file handles")),
    ],
)
def test_the_two_origin_entries_tell_their_four_root_causes_apart(id: str, names: tuple[str, ...]) -> None:
    entry = catalog.find(id)
    assert entry is not None
    assert len(entry.root_causes) == 4
    for cause, name in zip(entry.root_causes, names, strict=True):
        assert name in cause.name
        assert "Decided by:" in cause.detail
    assert len({item.framework for item in entry.prevention}) >= 3


GOOD = """
id = "x"
title = "t"
category = "host"
severity = "low"
tags = ["t"]
executive = "e"
answer = "a"
mechanism = "m"
oncall = ["1", "2"]
affects = ["a"]
duration = "d"
scale = "s"
fingerprint = "f"
related = []
symptoms = [{see = "s", why = "w"}, {see = "s", why = "w"}, {see = "s", why = "w"}]
confirm = [{command = "c", shows = "s"}, {command = "c", shows = "s"}]
root_causes = [{name = "n", detail = "d"}]
fix = [{text = "t", command = "", safe = true}, {text = "t", command = "", safe = false}]
prevention = [{framework = "any", text = "t", code = ""}, {framework = "vLLM", text = "t", code = ""}]
look_alikes = [{id = "y", tell_apart = "t"}]
references = [{name = "n", what = "w"}]
"""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (('id = "x"', 'id = "z"'), "its id is z"),
        (('category = "host"', 'category = "hosts"'), "category"),
        (('severity = "low"', 'severity = "LOW"'), "severity"),
        (('framework = "any"', 'framework = "Keras"'), "framework"),
        (('title = "t"', 'title = ""'), "title"),
        (('title = "t"', 'titel = "t"'), "titel"),
        (('title = "t"', ""), "title"),
        (('title = "t"', "title = t"), "not TOML"),
        (('title = "t"', 'title = "t"\ncolour = "red"'), "colour"),
        (('{command = "c", shows = "s"}, ', ""), "length >= 2"),
        (("safe = true", 'safe = "yes"'), "safe"),
        (('id = "y"', 'id = "../y"'), "look_alikes"),
    ],
)
def test_a_broken_entry_is_told_with_its_file_and_key(
    change: tuple[str, str], why: str, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "x.toml"
    path.write_text(GOOD)
    assert read(path).id == "x"
    assert change[0] in GOOD
    path.write_text(GOOD.replace(*change, 1))
    with pytest.raises(HangscopeError) as caught:
        read(path)
    assert "x.toml" in str(caught.value) and why in str(caught.value)


def test_an_unreadable_file_is_told(tmp_path: pathlib.Path) -> None:
    with pytest.raises(HangscopeError, match=r"absent\.toml: cannot be read"):
        read(tmp_path / "absent.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(HangscopeError, match=r"bytes\.toml: cannot be read"):
        read(tmp_path / "bytes.toml")


def test_an_id_is_found_however_it_is_written_and_nothing_outside_the_folder_is() -> None:
    for name in ("rank-killed", "Rank-Killed", "rank_killed", " rank killed "):
        found = catalog.find(name)
        assert found is not None and found.id == "rank-killed"
    for name in ("", "rank", "../entry", "/etc/passwd", "rank-killed.toml", "\x00"):
        assert catalog.find(name) is None


def test_an_installed_hangscope_carries_the_entries() -> None:
    """They are package data: the pattern in pyproject.toml reaches them, and nothing else is needed."""
    import msgspec

    from hangscope.catalog.entry import tomllib

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = declared["tool"]["setuptools"]["package-data"]["hangscope"]
    package = ROOT / "hangscope"
    carried = {path for pattern in patterns for path in package.glob(pattern)}
    assert set(FILES) <= carried
    assert json.loads(msgspec.json.encode(catalog.entries()[0]))["id"] in IDS

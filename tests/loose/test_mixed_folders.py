"""Folders as people bring them, of jobs that hung for real, through the command: one joined verdict each."""

from __future__ import annotations

import json
import pathlib
import sys
import zipfile
from typing import Any

import msgspec
import pytest

from hangscope.cli.main import main

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MIXED = pathlib.Path(__file__).parents[2] / "fixtures" / "mixed"
LEVELS = ("low", "medium", "high")

Capsys = pytest.CaptureFixture[str]


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ``[[case]]``. ``sources``: files that the verdict cites; ``asks``: what it says that it misses."""

    folder: str
    what: str
    kind: str
    initiators: list[int]
    wrong: list[int]
    cause: str | None = None
    confidence: str = "medium"
    sources: list[str] = []
    asks: list[str] = []


CASES = [
    msgspec.convert(case, Case) for case in tomllib.loads((MIXED / "truth.toml").read_text("utf-8"))["case"]
]
each_case = pytest.mark.parametrize("case", CASES, ids=[case.folder for case in CASES])


def verdict(capsys: Capsys, *paths: pathlib.Path) -> dict[str, Any]:
    """The only verdict of ``hangscope analyze`` on the paths."""
    assert main(["analyze", "-q", "--json", *map(str, paths)]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def check(found: dict[str, Any], case: Case) -> None:
    assert not set(found["initiators"]) & set(case.wrong)
    assert (found["kind"], found["initiators"]) == (case.kind, case.initiators), found["deciding_fact"]
    assert case.cause is None or found["cause"] == case.cause
    assert LEVELS.index(found["confidence"]) <= LEVELS.index(case.confidence)


@each_case
def test_a_folder_gives_its_verdict(case: Case, capsys: Capsys) -> None:
    found = verdict(capsys, MIXED / case.folder)
    check(found, case)
    cited = [line["artifact"] for line in (*found["evidence"], *found["against"]) if line["artifact"]]
    assert [name for name in case.sources if not any(path.endswith(name) for path in cited)] == []
    missing = [fact["what"] for fact in found["missing"]]
    assert [what for what in case.asks if not any(what in told for told in missing)] == [], missing
    assert all(fact["command"] for fact in found["missing"])


@each_case
def test_zipped_and_in_any_order_it_is_the_same(case: Case, tmp_path: pathlib.Path, capsys: Capsys) -> None:
    files = sorted((path for path in (MIXED / case.folder).rglob("*") if path.is_file()), reverse=True)
    check(verdict(capsys, *files), case)
    with zipfile.ZipFile(tmp_path / "upload.zip", "w") as archive:
        for file in files:
            archive.write(file, str(file.relative_to(MIXED)))
    check(verdict(capsys, tmp_path / "upload.zip"), case)


@each_case
def test_without_any_one_file_nobody_else_is_named(case: Case, capsys: Capsys) -> None:
    files = sorted(path for path in (MIXED / case.folder).rglob("*") if path.is_file())
    for file in files if len(files) > 1 else []:
        rest = [str(other) for other in files if other != file]
        if main(["analyze", "-q", "--json", *rest]) == 0:
            assert set(json.loads(capsys.readouterr().out)["initiators"]) <= set(case.initiators), file
        else:  # what is left says nothing at all
            capsys.readouterr()


def test_every_folder_is_a_case() -> None:
    assert {path.name for path in MIXED.iterdir() if path.is_dir()} == {case.folder for case in CASES}

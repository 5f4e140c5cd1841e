"""``analyze`` on what people have: logs, folders, pasted text, beside bundles."""

from __future__ import annotations

import gzip
import io
import json
import pathlib
import time
import zipfile

import pytest

from hangscope.cli.main import main
from hangscope.cli.times import moment, with_times
from hangscope.loose import Unread, opened
from hangscope.loose.reading import Gathered, gather

ROOT = pathlib.Path(__file__).parents[2]
BUNDLE = ROOT / "fixtures" / "bundles" / "01c-kernel-wait" / "bundle.tar"
WATCHDOG = (
    "[rank{0}]:[E814 13:15:55.540449524 ProcessGroupNCCL.cpp:683] [Rank {0}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran "
    "for 600007 milliseconds before timing out.\n"
)

Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Two logs, one of them packed, a file that is no evidence, and one that cannot be read."""
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "rank_0.log").write_text("step 1\n" + WATCHDOG.format(0))
    (logs / "rank_1.log.gz").write_bytes(gzip.compress(WATCHDOG.format(1).encode()))
    (logs / "notes.md").write_text("nothing to see\n")
    (logs / "link").symlink_to(tmp_path)
    return logs


def test_a_folder_gives_one_verdict_and_says_what_was_read(folder: pathlib.Path, capsys: Capsys) -> None:
    assert main(["analyze", "--json", str(folder)]) == 0
    streams = capsys.readouterr()
    verdict = json.loads(streams.out)
    assert (verdict["kind"], verdict["initiators"]) == ("undecided", [])
    assert "hangscope: read 2 logs (" in streams.err and "nothing told by: " in streams.err
    assert "notes.md" in streams.err and "link was not read: a link" in streams.err
    assert main(["analyze", "-q", str(folder)]) == 0
    assert capsys.readouterr().err == ""
    assert main(["analyze", "-v", str(folder)]) == 0
    assert "notes.md is not understood: none of its 1 lines has a known form" in capsys.readouterr().err


def test_several_paths_are_one_analysis(folder: pathlib.Path, capsys: Capsys) -> None:
    names = [str(folder / "rank_0.log"), str(folder / "rank_1.log.gz"), str(folder / "rank_0.log")]
    assert main(["analyze", "--json", *names]) == 0
    streams = capsys.readouterr()
    assert json.loads(streams.out)["waiting"] == [0, 1] and "read 2 logs (" in streams.err
    assert main(["analyze", *names, str(folder / "gone.log")]) == 1
    streams = capsys.readouterr()
    assert "gone.log was not read: No such file" in streams.err and "ranks" in streams.out


def test_pasted_text(monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> None:
    class Stdin:
        buffer = io.BytesIO(("> " + WATCHDOG.format(0) + "> " + WATCHDOG.format(1)).encode())

    monkeypatch.setattr("sys.stdin", Stdin)
    assert main(["analyze", "--json", "-"]) == 0
    streams = capsys.readouterr()
    assert json.loads(streams.out)["waiting"] == [0, 1]
    assert "read 1 log (" in streams.err


def test_a_bundle_beside_loose_evidence(folder: pathlib.Path, capsys: Capsys) -> None:
    with zipfile.ZipFile(folder / "x.zip", "w") as archive:
        archive.write(BUNDLE, "bundle.tar")
    assert main(["analyze", str(BUNDLE)]) == 0
    alone = capsys.readouterr().out
    assert main(["analyze", str(folder / "x.zip")]) == 0
    zipped = capsys.readouterr()
    assert zipped.out.splitlines()[:2] == alone.splitlines()[:2] and "read 1 bundle" in zipped.err
    assert main(["analyze", str(BUNDLE), str(folder)]) == 0
    assert "read 2 bundles, 2 logs" in capsys.readouterr().err


def test_what_holds_nothing_is_an_error(tmp_path: pathlib.Path, capsys: Capsys) -> None:
    (tmp_path / "x\x1b[31m.log").write_text("step 1\n")
    for path in (tmp_path, tmp_path / "x\x1b[31m.log"):
        assert main(["analyze", str(path)]) == 1
        streams = capsys.readouterr()
        assert streams.out == "" and "is understood" in streams.err and "try: " in streams.err
        assert "\x1b" not in streams.err
    empty = tmp_path / "empty"
    empty.mkdir()
    assert main(["analyze", str(empty)]) == 1
    assert "there is no file in it" in capsys.readouterr().err


def test_lines_of_a_time_only(tmp_path: pathlib.Path, capsys: Capsys) -> None:
    log = tmp_path / "x.log"
    log.write_text("2026-01-02 10:00:00 " + WATCHDOG.format(0) + "2026-01-02 12:00:00 " + WATCHDOG.format(1))
    for options, ranks in (
        (["--since", "2026-01-02T11:00"], [1]),
        (["--until=2026-01-02 11:00:00"], [0]),
        (["--since", "-9999999d"], [0, 1]),
    ):
        assert main(["analyze", "--json", "-q", *options, str(log)]) == 0
        assert json.loads(capsys.readouterr().out)["waiting"] == ranks
    assert main(["analyze", "--since", "2h", str(log)]) == 1
    assert main(["analyze", "--since", "yesterday", str(log)]) == 2
    assert "is no time" in capsys.readouterr().err


def test_options_of_loose_evidence_are_refused_for_bundles(capsys: Capsys) -> None:
    for options in (["--since", "2h"], ["--until", "2h"], ["--job-key", "x"]):
        assert main(["analyze", *options, str(BUNDLE)]) == 2
        assert "are for loose evidence" in capsys.readouterr().err


def test_times_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_767_312_000.0)
    offset = time.localtime(1_767_312_000.0).tm_gmtoff
    for text in ("2h", "-2h", "120min", "7200s", "2h ago"):
        assert moment(text) == 1_767_312_000.0 + offset - 7200
    assert moment("2026-01-02") == moment("2026-01-02 00:00") == 1_767_312_000.0
    assert moment("2026-01-02T02:00:00+02:00") == 1_767_312_000.0
    assert with_times(["analyze", "--since", "-2h", "-q"]) == ["analyze", "--since=-2h", "-q"]


def test_damaged_bundles_are_told_and_the_rest_is_read(tmp_path: pathlib.Path) -> None:
    data = BUNDLE.read_bytes()
    (tmp_path / "a.tar").write_bytes(data[:600])
    (tmp_path / "b.tar").write_bytes(data.replace(b"hangscope-bundle/1", b"hangscope-bundle/9"))
    (tmp_path / "c.tar").write_bytes(data)
    gathered = gather(opened([str(tmp_path)]))
    assert len(gathered.evidence) == 1
    assert [pathlib.Path(item.path).name for item in gathered.unread] == ["a.tar", "b.tar"]
    assert "no evidence" in gathered.unread[0].why and "newer format" in gathered.unread[1].why


def test_many_notes_are_cut(capsys: Capsys) -> None:
    from hangscope.cli.what_was_read import said

    gathered = Gathered(unread=[Unread(f"{number}.log", "denied") for number in range(9)])
    assert said(gathered, verbose=False)[0] == "read nothing"
    assert said(gathered, verbose=False)[-1] == "4 more could not be read (-v shows all)"
    assert len(said(gathered, verbose=True)) == 10

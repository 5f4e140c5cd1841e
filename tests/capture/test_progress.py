"""What is said while the capture works; a target's names never steer the terminal."""

import io
from typing import Any

import pytest

from hangscope.capture.progress import Live, Plain, Quiet, open_progress, show_event


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def said(event: dict[str, Any], verbose: bool = False) -> str:
    stream = io.StringIO()
    show_event(Plain(stream), event, verbose)
    return stream.getvalue()


def test_the_kind_of_display_follows_the_stream() -> None:
    def chosen(stream: io.StringIO, quiet: bool = False, batch: bool = False) -> type:
        progress = open_progress(stream, quiet=quiet, batch=batch, color=False)
        progress.close()
        return type(progress)

    assert chosen(Terminal()) is Live
    assert chosen(Terminal(), batch=True) is Plain
    assert chosen(io.StringIO()) is Plain
    assert chosen(Terminal(), quiet=True) is Quiet


def test_quiet_says_nothing() -> None:
    quiet = Quiet()
    quiet.note("x")
    quiet.working("x")
    quiet.close()


def test_plain_lines_carry_the_time() -> None:
    assert said({"event": "sample-end", "sample": 0, "seconds": 1.25}).endswith("sample 1 taken in 1.2 s\n")


def test_a_live_line_is_replaced_and_notes_stay() -> None:
    stream = Terminal()
    live = Live(stream, color=False)
    live.working("at [bold]it[/bold]")
    live.note("found [red]rank[/red] 2")
    live.close()
    assert "found [red]rank[/red] 2" in stream.getvalue()


def test_what_was_found() -> None:
    text = said({"event": "found", "job": "llama", "ranks": [0, 1, 3], "processes": 9, "denied": [7, 8]})
    assert "found llama: ranks 0-1,3, 9 processes" in text
    assert "2 processes could not be told apart" in text
    assert "no rank, 1 process\n" in said({"event": "found", "job": None, "ranks": [], "processes": 1})
    assert "1 process could not be told apart from ranks (other user, or stuck: pid 7)" in said(
        {"event": "found", "job": "a", "ranks": [0], "processes": 1, "denied": [7]}
    )


@pytest.mark.parametrize(("status", "verbose", "shown"), [("timeout", False, True), ("absent", False, False)])
def test_gaps_that_matter_are_said(status: str, verbose: bool, shown: bool) -> None:
    cell = {"event": "cell", "collector": "gpus", "pid": 12, "status": status, "reason": "why"}
    assert ("gpus of pid 12" in said(cell, verbose)) is shown
    assert f"{status} (why)" in said(cell, verbose=True)


def test_the_end_of_a_job_and_a_missing_right_are_said_at_once() -> None:
    assert "it has ended" in said({"event": "found", "job": None, "ranks": [], "processes": 0})
    refused = {"event": "node", "ptrace": "pid 7 may not be traced (EPERM): run as root"}
    assert "no Python stacks without the right to trace: pid 7 may not be traced" in said(refused)
    assert said({"event": "node", "ptrace": None}) == ""


def test_the_rest() -> None:
    assert "1234, 5678" in said({"event": "abandoned", "pids": [1234, 5678]})
    assert "sample 3" in said({"event": "sample-start", "sample": 2})
    assert "hello" in said({"event": "note", "text": "hello"})
    assert said({"event": "of the future"}) == ""


def test_control_characters_do_not_reach_the_terminal() -> None:
    text = said({"event": "found", "job": "\x1b]0;owned\x07\u202e", "ranks": [], "processes": 1})
    assert "\x1b" not in text and "\x07" not in text and "\u202e" not in text

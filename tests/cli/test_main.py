"""The command line as a whole: help, errors, exit statuses, start-up."""

import argparse
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

import hangscope
from hangscope.cli import demo, list_jobs, options
from hangscope.cli.main import COMMANDS, main
from hangscope.errors import BundleError, NoSuchTarget

ROOT = pathlib.Path(hangscope.__file__).parents[1]
PYENV = pathlib.Path.home() / ".pyenv" / "versions"

Capsys = pytest.CaptureFixture[str]


def run(*arguments: str, **more: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "hangscope", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, **more)  # type: ignore[call-overload,no-any-return]


def test_version(capsys: Capsys) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"hangscope {hangscope.__version__}\n"


@pytest.mark.parametrize("name", ["", *(name for name, _ in COMMANDS)])
def test_each_help_has_an_example(name: str, capsys: Capsys) -> None:
    assert main([name, "--help"] if name else ["--help"]) == 0
    out = capsys.readouterr().out
    assert "examples:\n  hangscope" in out
    assert max(map(len, out.splitlines())) <= 110


def test_an_option_with_a_value_stands_with_both_names(capsys: Capsys) -> None:
    assert main(["capture", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  -o, --output FILE|DIR|-" in lines
    assert any(line.startswith("  -p, --pid PID  ") for line in lines)
    assert any(line.startswith("  -h, --help  ") for line in lines)


def test_the_help_is_the_same_text_on_every_python() -> None:
    texts: dict[str, set[str]] = {}
    pythons = [path for minor in range(10, 16) for path in sorted(PYENV.glob(f"3.{minor}.*/bin/python"))]
    if not pythons:
        pytest.skip("no other Python on this machine")
    script = "import sys; from hangscope.cli.main import main; sys.exit(main(sys.argv[1:]))"
    for python in [sys.executable, *map(str, pythons)]:
        for name in ("", *(name for name, _ in COMMANDS)):
            done = subprocess.run(
                [python, "-c", script, *([name] if name else []), "--help"],
                capture_output=True, text=True, cwd=ROOT, timeout=60, env={**os.environ, "COLUMNS": "100"},
            )  # fmt: skip
            assert done.returncode == 0, (python, done.stderr)
            texts.setdefault(name, set()).add(done.stdout)
    assert {name: len(found) for name, found in texts.items()} == dict.fromkeys(texts, 1)


@pytest.mark.parametrize(
    "arguments", [["no-such-command"], ["capture", "-p", "x"], ["capture", "--samples", "0"]]
)
def test_wrong_use_is_2(arguments: list[str], capsys: Capsys) -> None:
    assert main(arguments) == 2
    assert "hangscope" in capsys.readouterr().err


def raising(error: BaseException) -> Callable[[object], int]:
    def fail(arguments: object) -> int:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (
            NoSuchTarget("no process 7", "it has ended", "hangscope"),
            1,
            "no process 7: it has ended\n  try: hangscope",
        ),
        (BundleError("damaged"), 1, "hangscope: damaged"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (BrokenPipeError(), 0, ""),
    ],
)
def test_errors_become_texts_and_statuses(
    error: BaseException, status: int, text: str, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    monkeypatch.setattr(list_jobs, "run", raising(error))
    assert main([]) == status
    err = capsys.readouterr().err
    assert text in err and "Traceback" not in err


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from hangscope.__main__ import main; main(['capture', '--help'])\n"
        "heavy = {'msgspec', 'networkx', 'rich', 'pynvml', 'asyncio'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_reader_that_has_had_enough_is_no_error() -> None:
    """``hangscope … | head -1``: no traceback, not even from the flush at exit."""
    done = subprocess.run(
        [
            "bash",
            "-c",
            f"{sys.executable} -m hangscope capture --list-collectors | true; echo ${{PIPESTATUS[0]}}",
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )
    assert done.stdout.strip() == "0" and done.stderr == ""


@pytest.mark.parametrize("version", ["2.7.18", "3.6.15", "3.8.18", "3.9.18"])
def test_a_python_that_is_too_old_gets_one_line(version: str) -> None:
    python = PYENV / version / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no Python {version} here")
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [python, "-m", "hangscope", "--help"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        timeout=60,
    )
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "needs Python 3.10 or newer" in done.stderr and version[:3] in done.stderr


def test_the_same_within_this_python(monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> None:
    from hangscope import __main__ as way_in

    assert way_in.main(["--version"]) == 0
    monkeypatch.setattr(way_in, "OLDEST", (99, 0))
    assert way_in.main(["--version"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_the_formats_of_the_command_line_are_those_of_the_report() -> None:
    from hangscope.report import FORMATS

    assert tuple(name for name, _ in FORMATS) == options.FORMATS


def test_color(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert options.use_color("auto", terminal)  # type: ignore[arg-type]
    assert not options.use_color("never", terminal)  # type: ignore[arg-type]
    monkeypatch.setenv("NO_COLOR", "1")
    assert not options.use_color("auto", terminal)  # type: ignore[arg-type]
    assert options.use_color("always", terminal)  # type: ignore[arg-type]
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not options.use_color("auto", terminal)  # type: ignore[arg-type]


def test_list_collectors(capsys: Capsys) -> None:
    from hangscope.collectors.registry import COLLECTORS

    assert main(["capture", "--list-collectors"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [collector.name for collector in COLLECTORS]
    assert any("on request" in line for line in lines)


def test_nothing_to_capture(capsys: Capsys) -> None:
    assert main(["capture"]) == 2
    assert "-p PID" in capsys.readouterr().err
    assert main(["capture", "--job", "local:x", "--only-this-process"]) == 2
    assert main(["capture", "-p", "1", "--only-collectors", "magic"]) == 2
    assert "no collector 'magic'" in capsys.readouterr().err


def test_the_agent_command_checks_what_it_is_given(monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> None:
    assert main(["agent"]) == 2
    assert "hangscope agent --pid PID" in capsys.readouterr().err
    became: list[list[str]] = []

    def become(program: str, command: list[str]) -> None:
        became.append(command)
        raise SystemExit(0)

    monkeypatch.setattr(os, "execv", become)
    monkeypatch.setattr("sys.stdout.isatty", lambda: False)
    with pytest.raises(SystemExit):
        main(["agent", "--pid", "7", "--samples", "3"])
    assert became[0][5:9] == ["--pid", "7", "--samples", "3"]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["agent", "--pid", "7"]) == 2
    assert "the shard is binary" in capsys.readouterr().err
    done = run("agent", "--help-agent")
    assert done.returncode == 0 and "--interval" in done.stdout


def test_what_is_said_before_the_command_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, bool, str]] = []

    def note(arguments: argparse.Namespace) -> int:
        seen.append((arguments.quiet, arguments.verbose, arguments.color))
        return 0

    monkeypatch.setattr(demo, "run", note)
    for argv in (["-q", "demo"], ["--color", "never", "demo"], ["-v", "demo"], ["demo", "-q"], ["demo"]):
        assert main(argv) == 0
    assert seen == [
        (True, False, "auto"),
        (False, False, "never"),
        (False, True, "auto"),
        (True, False, "auto"),
        (False, False, "auto"),
    ]


@pytest.mark.parametrize("argv", [["-p", "1234"], ["1234"], ["--pid=1234"], ["capture", "1234"]])
def test_a_pid_without_its_command_is_told_the_command(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    assert "hangscope capture -" in capsys.readouterr().err


def test_one_bundle_that_cannot_be_read_leaves_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    good = pathlib.Path(__file__).parents[2] / "fixtures" / "bundles" / "05-stopped" / "bundle.tar"
    assert main(["analyze", "/nowhere/missing.tar", str(good)]) == 1
    streams = capsys.readouterr()
    assert "/nowhere/missing.tar" in streams.err
    assert "rank-stopped" in streams.out


def test_a_bundle_is_neither_for_a_terminal_nor_compressed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["capture", "-p", str(os.getpid()), "-o", "x.tar.gz"]) == 2
    assert "plain tar" in capsys.readouterr().err
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["capture", "-p", str(os.getpid()), "-o", "-"]) == 2
    assert "-o FILE.tar" in capsys.readouterr().err

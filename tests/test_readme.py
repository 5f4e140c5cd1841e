"""The README shows what the program says, and the commands that it tells people to type."""

import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
HELP_BLOCKS = re.findall(r"```console\n\$ (hangscope[^\n]*--help)\n(.*?)```", README, re.DOTALL)


def output_of(command: str) -> str:
    """What the program prints for a command line of the README, in the README's width."""
    arguments = shlex.split(command)[1:]
    environment = {**os.environ, "COLUMNS": "110", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "hangscope", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_shows_the_help_of_the_program_and_of_its_main_commands() -> None:
    shown = {command for command, _ in HELP_BLOCKS}
    assert {"hangscope --help", "hangscope capture --help", "hangscope analyze --help"} <= shown


@pytest.mark.parametrize(("command", "text"), HELP_BLOCKS, ids=[command for command, _ in HELP_BLOCKS])
def test_help_in_the_readme_is_the_help_of_the_program(command: str, text: str) -> None:
    assert text.rstrip() == output_of(command).rstrip()


def test_the_test_command_of_the_readme_is_the_one_that_ci_calls() -> None:
    match = re.search(r"<!-- test command -->\n```\n(.+)\n```", README)
    assert match is not None
    assert match.group(1) in (ROOT / ".ci" / "run").read_text()


def test_the_verdict_in_the_readme_is_the_recorded_one() -> None:
    recorded = ROOT / "fixtures" / "bundles" / "01a-deepspeed-offload" / "verdict.txt"
    assert f"```text\n{recorded.read_text()}```" in README


def test_every_exit_status_is_documented() -> None:
    from hangscope import errors

    section = README.split("## Exit status")[1].split("\n## ")[0]
    statuses = {"0", "1", "2", "10", "11", "130"}
    statuses |= {str(value.exit_status) for value in vars(errors).values() if hasattr(value, "exit_status")}
    assert {status for status in statuses if f"| {status} |" not in section} == set()


def test_files_and_folders_that_the_readme_names_exist() -> None:
    for name in re.findall(r"`((?:hangscope|collectors|analyzers|tests|fixtures|\.ci)/[\w./-]+)`", README):
        assert (ROOT / name).exists(), name

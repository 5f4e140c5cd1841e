"""Commands whose standard streams are closed, full, deaf or not UTF-8."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hangscope.bundle.reader import read_bundle
from tests.benchmarks.plain_job import plain_job

ROOT = pathlib.Path(__file__).parents[2]
HANGSCOPE = f'"{sys.executable}" -m hangscope'


@pytest.fixture(scope="module")
def rank() -> Iterator[int]:
    with plain_job(1, 2, "streams") as pids:
        yield pids[0]


def shell(line: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, **variables}
    return subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, cwd=ROOT, env=environment, timeout=60
    )


@pytest.mark.parametrize("streams", ["2>&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_a_capture_does_not_need_them(streams: str, rank: int, tmp_path: pathlib.Path) -> None:
    options = f"--patience 0 --samples 1 --only-collectors threads,process -o {tmp_path}/b.tar"
    done = shell(f"{HANGSCOPE} capture -p {rank} {options} {streams}")
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert ("undecided" in done.stdout) == (">&- " not in streams)
    assert read_bundle(f"{tmp_path}/b.tar").shards[0].sealed
    assert [path.name for path in tmp_path.iterdir()] == ["b.tar"]


def test_a_verdict_that_cannot_be_printed_is_not_lost(rank: int, tmp_path: pathlib.Path) -> None:
    options = f"--patience 0 --samples 1 --only-collectors threads -q -o {tmp_path}/b.tar"
    done = shell(f"{HANGSCOPE} capture -p {rank} {options} >/dev/full")
    assert done.returncode == 1 and "the verdict could not be printed: No space left on device" in done.stderr
    assert f"try: hangscope analyze {tmp_path}/b.tar" in done.stderr


def test_a_terminal_that_is_not_utf_8(rank: int, tmp_path: pathlib.Path) -> None:
    options = f"--patience 0 --samples 1 -o {tmp_path}/b.tar"
    done = shell(f"{HANGSCOPE} capture -p {rank} {options}", PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and "? captured 1/1 ranks" in done.stdout, done.stderr


def test_standard_input_that_is_no_bundle_is_called_that() -> None:
    for line in (f"echo x | {HANGSCOPE} analyze -", f"{HANGSCOPE} analyze - <&-"):
        done = shell(line)
        assert done.returncode == 1 and done.stderr.startswith("hangscope: nothing in standard input is")

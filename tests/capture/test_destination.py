"""Where a capture goes: the first place that takes it, and never one that may block."""

import os
import pathlib
import subprocess
import sys
import time

import pytest

from hangscope.capture import destination
from hangscope.capture.destination import Place, asked_for, bundle_name, by_default, mount_of, refusal
from hangscope.errors import UsageError


def test_the_name_says_job_and_time() -> None:
    assert bundle_name("llama", 0.0) == "hangscope-llama-19700101T000000Z.tar"


@pytest.mark.parametrize("job", ["../../etc/passwd", "a b\n\x1b[31m", "-rf", "x" * 500, "", None])
def test_a_hostile_job_name_stays_one_plain_file_name(job: str | None) -> None:
    name = bundle_name(job, 0.0)
    assert name.startswith("hangscope-") and name.endswith(".tar") and len(name) < 120
    assert "/" not in name and name.isprintable() and " " not in name and ".." not in name


def test_a_bundle_that_standard_output_did_not_take_is_saved(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saved = destination.rescue(b"bundle", "b.tar", {})
    assert saved == str(tmp_path / "b.tar") and pathlib.Path(saved).read_bytes() == b"bundle"
    assert pathlib.Path(saved).stat().st_mode & 0o777 == 0o600
    again = destination.rescue(b"other", "b.tar", {"TMPDIR": str(tmp_path)})
    assert again is not None and again != saved and (tmp_path / "b.tar").read_bytes() == b"bundle"
    os.unlink(again)
    monkeypatch.setattr(destination, "_candidates", lambda environment: iter([str(tmp_path)]))
    assert destination.rescue(b"third", "b.tar", {}) is None


def test_a_new_file(tmp_path: pathlib.Path) -> None:
    assert asked_for(str(tmp_path / "x.tar"), "name.tar") == Place(directory=str(tmp_path), file="x.tar")


def test_an_existing_directory_takes_the_default_name(tmp_path: pathlib.Path) -> None:
    assert asked_for(str(tmp_path), "name.tar").path == str(tmp_path / "name.tar")


def test_a_file_that_exists_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "x.tar").write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        asked_for(str(tmp_path / "x.tar"), "name.tar")
    assert (tmp_path / "x.tar").read_text() == "mine"


def test_a_directory_that_is_not_there_is_refused_with_the_reason(tmp_path: pathlib.Path) -> None:
    with pytest.raises(UsageError, match="No such file or directory") as caught:
        asked_for(str(tmp_path / "no" / "x.tar"), "name.tar")
    assert "try: -o FILE" in str(caught.value)


def test_an_unwritable_directory_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot write to /proc"):
        asked_for("/proc/x.tar", "name.tar")


def test_a_place_that_never_answers_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """Emulates a dead mount: the child that tries it blocks."""
    monkeypatch.setattr(destination, "_try_directory", lambda directory: time.sleep(60))
    monkeypatch.setattr(destination, "ANSWER_SECONDS", 0.2)
    start = time.monotonic()
    assert "a dead mount?" in (refusal(str(tmp_path)) or "")
    assert time.monotonic() - start < 5.0


def test_a_dead_working_directory_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """Emulated as above, for the working directory only: the next place is taken, and a line says why."""
    genuine = destination._try_directory

    def blocks_here(directory: str) -> str | None:
        if directory == str(tmp_path):
            time.sleep(60)
        return genuine(directory)

    other = tmp_path / "scratch"
    other.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(destination, "_try_directory", blocks_here)
    monkeypatch.setattr(destination, "ANSWER_SECONDS", 0.2)
    places = by_default("n.tar", (), {"SLURM_TMPDIR": str(other)})
    note = next(places)
    assert isinstance(note, str) and str(tmp_path) in note and "dead mount" in note
    assert next(places) == Place(directory=str(other), file="n.tar")


def test_a_mount_that_a_rank_is_blocked_on_is_never_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(destination, "mount_table", lambda: [("/", "ext4"), (str(tmp_path), "nfs4")])
    tried: list[str] = []
    monkeypatch.setattr(destination, "refusal", lambda directory: tried.append(directory))
    found = list(by_default("n.tar", [str(tmp_path)], {}))
    assert f"blocked on {tmp_path}" in str(found[0])
    assert str(tmp_path) not in tried


def test_a_working_directory_that_was_removed_is_no_candidate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    first = next(by_default("n.tar", (), {}))
    assert isinstance(first, Place) and first.directory == "/tmp"


def test_shared_memory_is_the_last_resort_and_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(destination, "refusal", lambda directory: None if directory == "/dev/shm" else "full")
    *notes, last = by_default("n.tar", (), {})
    assert all(isinstance(note, str) and note.endswith("full") for note in notes)
    assert isinstance(last, Place) and last.cap == destination.SHM_CAP


def test_a_file_system_with_no_room_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setattr(destination, "LEAST_FREE", 1 << 60)
    assert "bytes free" in (refusal(str(tmp_path)) or "")


def test_trying_leaves_nothing_behind(tmp_path: pathlib.Path) -> None:
    assert refusal(str(tmp_path)) is None
    assert list(tmp_path.iterdir()) == []


def test_the_mount_of_a_path_is_the_longest_above_it() -> None:
    mounts = [("/", "ext4"), ("/data", "nfs4"), ("/data/fast", "xfs")]
    assert mount_of("/data/fast/x", mounts) == ("/data/fast", "xfs")
    assert mount_of("/database/x", mounts) == ("/", "ext4")
    assert mount_of("/data", mounts) == ("/data", "nfs4")


def test_blocked_mounts_of_a_process_in_uninterruptible_sleep(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """A vfork parent whose child waits on a FIFO sleeps in D, without root and without a dead mount."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    parent = subprocess.Popen(
        [sys.executable, "-c", VFORK, str(fifo)], cwd=tmp_path, stdout=subprocess.PIPE, start_new_session=True
    )
    assert parent.stdout is not None
    try:
        until = time.monotonic() + 10
        while _state(parent.pid) != "D" and time.monotonic() < until:
            time.sleep(0.02)
        if _state(parent.pid) != "D":
            pytest.skip("no uninterruptible sleep could be made here")
        table = [("/", "ext4"), (str(tmp_path), "fuse.sshfs")]
        monkeypatch.setattr(destination, "mount_table", lambda proc="/proc": table)
        assert destination.blocked_mounts([parent.pid, os.getpid()]) == (str(tmp_path),)
        monkeypatch.setattr(destination, "mount_table", lambda proc="/proc": [("/", "ext4")])
        assert destination.blocked_mounts([parent.pid]) == ()
    finally:
        os.killpg(parent.pid, 9)
        parent.stdout.close()
        parent.wait()


VFORK = """
import ctypes, sys
libc = ctypes.CDLL(None)
fifo = sys.argv[1].encode()
if libc.vfork() == 0:
    libc.open(fifo, 0)
    libc._exit(0)
"""


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0]

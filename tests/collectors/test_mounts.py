"""Mounts that the targets use: found by their paths alone, asked in a child, dead ones included."""

import json
import os
import time

import pytest

from hangscope.collectors import guarded, mounts, procfs

from .victims import become_nobody, context, exited_leader, needs_root, target, victim

IDLE = "print('ready')\nimport sys; sys.stdin.read()"
WRITER = """
import os, sys
kept = [open(sys.argv[1] + "/global_step100_mp_rank_00.pt", "wb"), open(sys.argv[1] + "/notes.txt", "w")]
directory = os.open(sys.argv[2], os.O_RDONLY | os.O_DIRECTORY)
print("ready")
sys.stdin.read()
"""


def take(ctx):
    result = mounts.COLLECTOR.collect(ctx, None)
    rows = json.loads(result.artifacts[0][1])["mounts"]
    return result, {(row["why"], row["path"]): row for row in rows}


def test_working_output_and_checkpoint_directories(tmp_path):
    for name in ("out", "held"):
        (tmp_path / name).mkdir()
    with (
        victim(WRITER, str(tmp_path / "out"), str(tmp_path / "held"), cwd=tmp_path) as pid,
        victim(IDLE, cwd=tmp_path, stderr=(tmp_path / "err").open("w")) as other,
    ):
        found = [entry for entry in mounts.used_paths(pid, "/proc", []) if entry[1] != "output"]
        result, rows = take(context(pid, other))
    assert found == [
        (str(tmp_path), "cwd"),
        (str(tmp_path / "out/global_step100_mp_rank_00.pt"), "checkpoint"),
        (str(tmp_path / "held"), "checkpoint"),
    ]
    assert result.status == "ok", result.reason
    cwd = next(row for (why, _), row in rows.items() if why == "cwd")
    assert cwd["pids"] == [pid, other] and cwd["responsive"] is True and cwd["error"] is None
    assert (
        str(tmp_path).startswith(cwd["path"]) and cwd["statvfs"]["total"] >= cwd["statvfs"]["available"] > 0
    )
    checkpoint = next(row for (why, _), row in rows.items() if why == "checkpoint")
    assert checkpoint["pids"] == [pid]
    assert other in next(row for (why, _), row in rows.items() if why == "output")["pids"]


def dead_at(path):
    """An ``os.statvfs`` that never returns for one path."""
    plain = os.statvfs

    def statvfs(asked):
        if asked == path:
            time.sleep(60)
        return plain(asked)

    return statvfs


def test_emulated_dead_mount_does_not_hide_the_others(monkeypatch):
    monkeypatch.setattr(os, "statvfs", dead_at("/proc"))
    monkeypatch.setattr(mounts, "WAIT", 0.5)
    answers = mounts.ask(["/", "/proc", "/dev", "/nowhere"], time.monotonic() + 5)
    assert answers[0][0]["total"] > 0 and answers[2][1] is None
    assert answers[1] == (None, "timeout") and answers[3] == (None, "ENOENT")


def test_each_file_system_is_answered_for():
    _, (kind, space, error), _, (_, nothing, why) = mounts.statvfs_each(["/", "/nowhere"])
    assert kind == "answer"
    assert space["total"] >= space["free"] >= space["available"] >= 0 and error is None
    assert (nothing, why) == (None, "ENOENT")


def test_emulated_dead_working_directory(monkeypatch):
    ctx = context(os.getpid())
    point = mounts.covering(os.getcwd(), procfs.mountinfo()).point
    monkeypatch.setattr(os, "statvfs", dead_at(point))
    monkeypatch.setattr(mounts, "WAIT", 0.5)
    result, rows = take(ctx)
    row = rows["cwd", point]
    assert (row["statvfs"], row["error"], row["responsive"]) == (None, "timeout", False)
    assert result.status == "ok"


def test_when_the_time_is_over_the_rest_is_not_asked(monkeypatch):
    assert mounts.ask(["/", "/dev"], time.monotonic() - 1) == [(None, "not asked")] * 2
    ctx = context(os.getpid(), deadline=time.monotonic() - 1)
    result, rows = take(ctx)
    assert result.status == "partial" and result.reason.endswith("not asked: no time left")
    assert {row["responsive"] for row in rows.values()} == {None}


def test_a_reader_that_fails_is_an_error_not_a_loop(monkeypatch):
    monkeypatch.setattr(mounts, "statvfs_each", lambda paths: 1 / 0)
    assert mounts.ask(["/"], time.monotonic() + 5) == [(None, "ZeroDivisionError: division by zero")]


def test_silence_is_no_evidence_when_the_time_was_cut_short_or_the_child_never_ran(monkeypatch):
    monkeypatch.setattr(os, "statvfs", dead_at("/proc"))
    assert mounts.ask(["/proc"], time.monotonic() + 0.2) == [(None, "not asked")]
    monkeypatch.setattr(mounts, "statvfs_each", lambda paths: time.sleep(60))
    monkeypatch.setattr(mounts, "WAIT", 0.2)
    assert mounts.ask(["/"], time.monotonic() + 1) == [(None, "not asked")]


LINES = [
    procfs.MountLine("/", point, fstype, "x", "rw")
    for point, fstype in (
        ("/", "overlay"),
        ("/data", "nfs4"),
        ("/data/fast", "lustre"),
        ("/data", "fuse"),
        ("/datax", "xfs"),
    )
]


@pytest.mark.parametrize(
    ("path", "fstype"),
    [
        ("/", "overlay"),
        ("/home/x", "overlay"),
        ("/data", "fuse"),
        ("/data/a", "fuse"),
        ("/data/fast/a", "lustre"),
        ("/datax/a", "xfs"),
    ],
)
def test_the_mount_above_a_path(path, fstype):
    assert mounts.covering(path, LINES).fstype == fstype


def test_no_mount_above_a_path():
    assert mounts.covering("/x", []) is None


@pytest.mark.parametrize(
    ("path", "matches"),
    [
        ("/s/checkpoint-500/model.safetensors", True),
        ("/s/epoch3/__0_0.distcp", True),
        ("/s/model.pt.tmp", True),
        ("/s/ckpts/x", True),
        ("/s/step_100/a", True),
        ("/s/model.bin (deleted)", True),
        ("/s/train.log", False),
        ("/s/script.py", False),
        ("/s/stepfather/a.txt", False),
    ],
)
def test_names_of_checkpoints(path, matches):
    assert (mounts.CHECKPOINT.search(path) is not None) is matches


@needs_root
def test_a_target_in_its_own_mount_namespace():
    code = (
        "import ctypes\nassert ctypes.CDLL(None).unshare(0x20000) == 0\nimport os; os.chdir('/dev')\n" + IDLE
    )
    with victim(code) as pid:
        (use,) = [use for use in mounts.mounts_in_use(context(pid).targets, "/proc", []) if use.why == "cwd"]
        result, rows = take(context(pid))
    assert use.view == f"/proc/{pid}/root/dev"
    assert (
        rows["cwd", "/dev"]["responsive"] is True and rows["cwd", "/dev"]["statvfs"] and result.status == "ok"
    )


def collect_as_nobody(pid):
    become_nobody()
    result, rows = take(context(pid))
    return [result.status, result.reason, len(rows)]


@needs_root
def test_another_users_paths_are_refused_and_said():
    with victim(IDLE) as pid:
        outcome = guarded.call(collect_as_nobody, pid, timeout=10)
    assert outcome.value == ["partial", f"working directory and files of pid {pid}: EACCES", 0]


def test_a_process_that_is_gone():
    ctx = context()
    ctx.targets.append(target(os.getpid())._replace(pid=2**22 + 1))
    result, rows = take(ctx)
    assert (result.status, rows) == ("ok", {})


def test_a_leader_that_has_exited_is_looked_at_through_its_thread(tmp_path):
    with exited_leader(tmp_path / "model.pt") as pid:
        _, rows = take(context(pid))
    assert {why for why, _ in rows} >= {"cwd", "checkpoint"}
    assert all(row["pids"] == [pid] for row in rows.values())

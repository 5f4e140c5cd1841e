"""Memory groups and all their ancestors: v1, v2, hybrid, namespaces; v1 also against the live kernel."""

import json
import os
from pathlib import Path

import pytest

from hangscope.collectors import cgroups, memory, procfs

from .victims import context, needs_root, target, victim, wait_until

V1 = "31 1 0:29 {root} {point} rw - cgroup cgroup rw,memory\n"
V2 = "41 1 0:38 {root} {point} rw - cgroup2 cgroup2 rw\n"
FREEZER = "37 1 0:34 {root} {point} rw - cgroup cgroup rw,freezer\n"


class Node:
    """A /proc and cgroup mounts in a directory, for kernels and containers that are not at hand."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.proc = root / "proc"
        (self.proc / "self").mkdir(parents=True)
        self.mounts = ""

    def mount(self, line: str, name: str, root: str = "/") -> Path:
        point = self.root / name
        point.mkdir()
        self.mounts += line.format(root=root, point=point)
        (self.proc / "self" / "mountinfo").write_text(self.mounts)
        return point

    def process(self, pid: int, text: str) -> None:
        (self.proc / str(pid)).mkdir()
        (self.proc / str(pid) / "cgroup").write_text(text)

    def group(self, directory: Path, **files: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (directory / name.replace("__", ".")).write_text(text)

    def take(self, *pids: int):
        ctx = context(proc=str(self.proc))
        ctx.targets.extend(target(os.getpid())._replace(pid=pid) for pid in pids)
        result = memory.COLLECTOR.collect(ctx, None)
        value = json.loads(result.artifacts[0][1])
        return (
            result,
            value,
            [(row["version"], row["path"], row["level"], row["pids"]) for row in value["cgroups"]],
        )


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_this_machine_as_it_is():
    ctx = context(os.getpid())
    result = memory.COLLECTOR.collect(ctx, None)
    value = json.loads(result.artifacts[0][1])
    assert "MemAvailable" in value["meminfo"] and "pgmajfault" in value["vmstat"]
    assert 5 < len(value["vmstat"].splitlines()) < 80
    assert value["shm"] is None or 0 <= value["shm"]["used"] <= value["shm"]["total"]
    assert result.status == "ok" or value["errors"], result.reason
    assert all(row["pids"] == [os.getpid()] for row in value["cgroups"])


def test_v1_group_and_every_ancestor(node):
    point = node.mount(V1, "memory")
    node.group(
        point / "slurm/job_1/step_0", memory__limit_in_bytes="9223372036854771712\n", memory__failcnt="0\n"
    )
    node.group(point / "slurm/job_1", memory__limit_in_bytes="4096\n", memory__oom_control="under_oom 1\n")
    node.process(7, "4:memory:/slurm/job_1/step_0\n3:cpu:/x\n0::/\n")
    node.process(8, "4:memory:/slurm/job_1\n")
    result, value, groups = node.take(7, 8)
    assert groups == [
        (1, "/slurm/job_1", 0, [7, 8]),
        (1, "/slurm/job_1/step_0", 0, [7]),
        (1, "/slurm", 1, [7, 8]),
        (1, "/", 2, [7, 8]),
    ]
    assert value["cgroups"][0]["files"] == {
        "memory.limit_in_bytes": "4096\n",
        "memory.oom_control": "under_oom 1\n",
    }
    assert result.status == "ok", result.reason


def test_v2_group_and_every_ancestor(node):
    point = node.mount(V2, "unified")
    node.group(
        point / "kubepods/pod1/ctr",
        memory__max="max\n",
        memory__high="1000\n",
        memory__events="high 7\n",
        memory__pressure="some avg10=20.00\n",
    )
    node.group(point / "kubepods/pod1", memory__max="2000\n", memory__current="1999\n")
    node.process(7, "0::/kubepods/pod1/ctr\n")
    _, value, groups = node.take(7)
    assert groups == [
        (2, f"/{path}", level, [7])
        for level, path in enumerate(("kubepods/pod1/ctr", "kubepods/pod1", "kubepods", ""))
    ]
    assert value["cgroups"][1]["files"] == {"memory.max": "2000\n", "memory.current": "1999\n"}
    assert value["cgroups"][0]["files"]["memory.events"] == "high 7\n"


def test_hybrid_gives_both_hierarchies(node):
    node.group(node.mount(V1, "memory") / "a", memory__failcnt="3\n")
    node.group(node.mount(V2, "unified") / "b", memory__pressure="full avg10=1.00\n")
    node.process(7, "4:memory:/a\n0::/b\n")
    assert node.take(7)[2] == [(1, "/a", 0, [7]), (1, "/", 1, [7]), (2, "/b", 0, [7]), (2, "/", 1, [7])]


def test_in_a_container_without_a_cgroup_namespace_the_mount_shows_only_a_part(node):
    point = node.mount(V1, "memory", root="/docker/abc")
    node.group(point / "inner", memory__failcnt="1\n")
    node.process(7, "4:memory:/docker/abc\n")
    node.process(8, "4:memory:/docker/abc/inner\n")
    node.process(9, "4:memory:/docker/other\n")
    result, _, groups = node.take(7, 8, 9)
    assert groups == [(1, "/", 0, [7, 8]), (1, "/inner", 0, [8])]
    assert result.status == "partial" and result.reason.startswith(
        "cgroup of pid 9: not below a cgroup mount"
    )


def test_a_mount_made_outside_of_the_cgroup_namespace(node):
    """The mount's root is the parent of the namespace's: its own name there is found by its processes."""
    point = node.mount(V2, "unified", root="/..")
    node.group(point / "mine/sub", cgroup__procs="8\n", memory__max="5\n")
    node.group(point / "mine", cgroup__procs="7\n")
    node.group(point / "sister", cgroup__procs="9\n")
    node.process(7, "0::/\n")
    node.process(8, "0::/sub\n")
    node.process(9, "0::/../sister\n")
    assert node.take(7, 8, 9)[2] == [
        (2, "/mine", 0, [7, 8]),
        (2, "/mine/sub", 0, [8]),
        (2, "/sister", 0, [9]),
        (2, "/", 1, [7, 8, 9]),
    ]


def test_a_process_outside_of_what_the_namespace_shows(node):
    point = node.mount(V2, "unified")
    node.group(point / "sister", cgroup__procs="1\n", memory__max="5\n")
    node.process(9, "0::/../sister\n")
    result, value, groups = node.take(9)
    assert groups == [] and value["errors"]["cgroup of pid 9"] and result.status == "partial"


def test_of_two_mounts_the_one_that_shows_more_is_taken(node):
    node.group(node.mount(V2, "part", root="/pod") / "ctr")
    node.group(node.mount(V2, "whole") / "pod/ctr")
    node.process(7, "0::/pod/ctr\n")
    assert [path for _, path, _, _ in node.take(7)[2]] == ["/pod/ctr", "/pod", "/"]


def test_a_search_has_its_limits(node, monkeypatch):
    node.group(node.mount(V2, "unified", root="/..") / "a", cgroup__procs="7\n")
    node.process(7, "0::/\n")
    monkeypatch.setattr(cgroups, "SEARCH_SECONDS", -1)
    assert node.take(7)[2] == []
    monkeypatch.setattr(cgroups, "SEARCH_SECONDS", 1)
    monkeypatch.setattr(cgroups, "SEARCH_MOST", 1)
    assert node.take(7)[2] == []


def test_a_process_that_is_gone_and_a_file_that_fails(node):
    point = node.mount(V1, "memory")
    node.group(point / "a")
    (point / "a" / "memory.stat").mkdir()
    node.process(7, "4:memory:/a\n")
    _, value, _ = node.take(7, 8)
    assert value["errors"]["cgroup of pid 8"] == "ENOENT"
    assert value["cgroups"][0]["errors"] == {"memory.stat": "EISDIR"}
    assert value["meminfo"] is None and value["vmstat"] is None and value["pressure"]["io"] is None


@pytest.mark.parametrize("text", ["", "nonsense", "x:y", "4:memory"])
def test_membership_lines_that_are_none(text):
    assert cgroups.memberships(text) == []


def freezer(node, text: str):
    node.process(7, text)
    return cgroups.freezer_state(7, text, cgroups.hierarchies(str(node.proc)))


@pytest.mark.parametrize("state", ["THAWED", "FREEZING", "FROZEN"])
def test_v1_freezer(node, state):
    node.group(node.mount(FREEZER, "freezer") / "f", freezer__state=state + "\n")
    assert freezer(node, "6:freezer:/f\n") == state


@pytest.mark.parametrize(
    ("events", "asked", "state"),
    [
        ("populated 1\nfrozen 0\n", "0", "THAWED"),
        ("frozen 1\n", "1", "FROZEN"),
        ("frozen 0\n", "1", "FREEZING"),
        ("", "0", None),
    ],
)
def test_v2_freezer(node, events, asked, state):
    point = node.mount(V2, "unified")
    node.group(point / "job", cgroup__freeze=asked + "\n")
    node.group(point / "job/step", cgroup__events=events, cgroup__freeze="0\n")
    assert freezer(node, "0::/job/step\n") == state


def test_shared_memory_that_is_no_tmpfs_is_asked_in_a_child(node, monkeypatch):
    ctx = context(proc=str(node.proc))
    monkeypatch.setattr(memory, "SHM", str(node.root))
    assert memory.shared_memory(ctx, {})["total"] > 0
    errors = {}
    monkeypatch.setattr(memory, "SHM", str(node.root / "gone"))
    assert memory.shared_memory(ctx, errors) is None and errors["shm"].startswith("FileNotFoundError")


@needs_root
def test_shared_memory_of_targets_in_another_mount_namespace():
    code = (
        "import ctypes\nassert ctypes.CDLL(None).unshare(0x20000) == 0\n"  # CLONE_NEWNS
        "print('ready')\nimport time; time.sleep(60)"
    )
    with victim(code) as pid:
        found = memory.shared_memory(context(pid), {})
    assert found["pid"] == pid and found["path"] == "/dev/shm" and found["total"] > 0


@pytest.mark.realjob
@needs_root
def test_a_real_v1_group_at_its_limit():
    text = procfs.read_text("/proc/self/cgroup")[0]
    own = cgroups.locate(os.getpid(), text, cgroups.hierarchies(), "memory", 1)
    if own is None:
        pytest.skip("no v1 memory hierarchy is mounted")
    directory = f"{own.directory}/hangscope-test-{os.getpid()}"
    os.mkdir(directory)
    try:
        write(f"{directory}/memory.limit_in_bytes", str(48 << 20))
        write(f"{directory}/memory.oom_control", "1")
        code = "print('ready')\nimport threading\nx = bytearray(96 << 20)"
        with victim(code, prepare=lambda: write(f"{directory}/cgroup.procs", str(os.getpid()))) as pid:
            wait_until(
                lambda: "under_oom 1" in (procfs.read_text(f"{directory}/memory.oom_control")[0] or "")
            )
            result = memory.COLLECTOR.collect(context(pid), None)
        rows = [row for row in json.loads(result.artifacts[0][1])["cgroups"] if row["version"] == 1]
        assert [row["level"] for row in rows] == list(range(len(rows))) and rows[-1]["path"] == "/"
        assert rows[0]["path"] == f"{own.path.rstrip('/')}/hangscope-test-{os.getpid()}"
        files = rows[0]["files"]
        assert int(files["memory.limit_in_bytes"]) == 48 << 20 == int(files["memory.usage_in_bytes"])
        assert int(files["memory.failcnt"]) > 0
        assert (
            "oom_kill_disable 1" in files["memory.oom_control"]
            and "under_oom 1" in files["memory.oom_control"]
        )
        assert "memory.limit_in_bytes" in rows[1]["files"]
        assert result.status == "ok", result.reason
    finally:
        wait_until(lambda: not procfs.read_text(f"{directory}/cgroup.procs")[0])
        os.rmdir(directory)


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)

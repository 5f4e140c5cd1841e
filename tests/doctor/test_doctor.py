"""What the doctor says: for which versions, on which machines, about which environments."""

from __future__ import annotations

import json
import os
import pathlib
import resource
import subprocess
import sys
from types import SimpleNamespace

import jsonschema
import msgspec
import pytest

from hangscope import doctor
from hangscope.cli.main import main
from hangscope.collectors import guarded
from hangscope.collectors.interface import ABSENT, ERROR, OK, Result
from hangscope.doctor import machine, running, settings, versions
from hangscope.doctor.values import Check, Diagnosis, Setting, numbers
from hangscope.errors import NoSuchTarget, PermissionRefused
from tests.collectors import victims
from tests.collectors.test_ras import library

Capsys = pytest.CaptureFixture[str]


def named(torch: str | None, nccl: str | None = None) -> dict[str, Setting]:
    return {item.name: item for item in settings.settings_for(numbers(torch), numbers(nccl))}


def test_the_recorder_has_the_name_that_the_version_reads() -> None:
    old, new = named("2.6.0"), named("2.13.0+cpu")
    assert not old["TORCH_NCCL_TRACE_BUFFER_SIZE"].default and "TORCH_FR_BUFFER_SIZE" not in old
    assert new["TORCH_FR_BUFFER_SIZE"].default and "TORCH_NCCL_TRACE_BUFFER_SIZE" not in new
    assert "TORCH_NCCL_DEBUG_INFO_TEMP_FILE" in old and "TORCH_FR_DUMP_TEMP_FILE" in new


def test_what_is_on_already_is_not_asked_for_again() -> None:
    assert not named("2.6.0")["TORCH_NCCL_DUMP_ON_TIMEOUT"].default
    assert named("2.8")["TORCH_NCCL_DUMP_ON_TIMEOUT"].default
    text = settings.exports(settings.settings_for((2, 8), (2, 27, 5)))
    assert "TORCH_NCCL_DUMP_ON_TIMEOUT" not in text and "NCCL_RAS_ENABLE" not in text
    assert 'export TORCH_NCCL_TRACE_BUFFER_SIZE="2000"' in text


def test_versions_before_a_thing_existed_are_not_told_to_set_it() -> None:
    assert "TORCH_NCCL_DEBUG_INFO_PIPE_FILE" not in named("2.4.1")
    assert "worker server" not in named("2.3.1") and "worker server" in named("2.4.0")
    assert "NCCL_RAS_ENABLE" not in named("2.4.1", "2.20.5")


def test_an_unknown_version_gets_the_names_that_work_in_most() -> None:
    found = named(None)
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE" in found and "TORCH_FR_BUFFER_SIZE" not in found
    assert found["NCCL_RAS_ENABLE"].default


def test_every_row_says_what_it_gives_what_it_costs_and_on_what_it_rests() -> None:
    for row in settings.ROWS:
        setting = row.setting
        assert setting.gives and setting.cost and setting.source
        assert (setting.value is None) != (setting.line is None)
        assert row.of in ("torch", "nccl", "python") and row.since < row.until


def test_slow_and_dangerous_settings_are_never_exported() -> None:
    text = settings.exports(settings.settings_for(None, None))
    for name in ("TORCH_DISTRIBUTED_DEBUG", "TORCH_NCCL_ENABLE_TIMING", "NCCL_DEBUG_SUBSYS"):
        assert name not in text


def test_the_exported_lines_are_a_shell_script(tmp_path: pathlib.Path) -> None:
    text = settings.exports(settings.settings_for((2, 6), None)) + 'echo "$NCCL_DEBUG_FILE"\n'
    done = subprocess.run(["sh", "-eu", "-c", text], capture_output=True, text=True, cwd=tmp_path, timeout=10)
    assert done.stdout == f"{tmp_path}/nccl.%h.%p.log\n"


@pytest.mark.parametrize(
    ("name", "value", "level"),
    [
        ("CUDA_LAUNCH_BLOCKING", "1", "warning"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", "warning"),
        ("TORCH_NCCL_BLOCKING_WAIT", "1", "warning"),
        ("TORCH_NCCL_ENABLE_TIMING", "1", "warning"),
        ("TORCH_NCCL_ENABLE_MONITORING", "0", "warning"),
        ("TORCH_FR_BUFFER_SIZE", "0", "warning"),
        ("TORCH_DISTRIBUTED_DEBUG", "detail", "warning"),
        ("NCCL_IB_TIMEOUT", "0", "warning"),
        ("NCCL_IB_TIMEOUT", "32", "warning"),
        ("NCCL_IB_RETURN_ASYNC_EVENTS", "0", "warning"),
        ("NCCL_RAS_ENABLE", "0", "warning"),
        ("NCCL_DEBUG", "TRACE", "warning"),
        ("NCCL_DEBUG_FILE", "/tmp/nccl.log", "warning"),
        ("NCCL_DEBUG_SUBSYS", "INIT,COLL", "note"),
        ("NCCL_P2P_DISABLE", "1", "note"),
        ("NCCL_DEBUG", "INFO", "ok"),
        ("NCCL_DEBUG_FILE", "/tmp/nccl.%p", "ok"),
        ("TORCH_FR_BUFFER_SIZE", "2000", "ok"),
    ],
)
def test_variables_of_a_running_job(name: str, value: str, level: str) -> None:
    (found,) = running.examined({name: value, "HOME": "/root"}, (2, 13))
    assert (found.name, found.value, found.level) == (name, value, level)


@pytest.mark.parametrize(
    ("name", "value"),
    [("CUDA_LAUNCH_BLOCKING", "0"), ("NCCL_IB_TIMEOUT", "22"), ("NCCL_IB_TIMEOUT", "x"), ("NCCL_ALGO", "")],
)
def test_harmless_values_are_not_reported(name: str, value: str) -> None:
    assert running.examined({name: value}, (2, 13)) == ()


def test_warnings_come_first_and_an_unarmed_recorder_is_one() -> None:
    found = running.examined({"NCCL_DEBUG": "INFO", "CUDA_LAUNCH_BLOCKING": "1"}, (2, 8, 0))
    assert [item.level for item in found] == ["warning", "warning", "ok"]
    assert found[1].name == "TORCH_NCCL_TRACE_BUFFER_SIZE" and found[1].value == ""
    assert len(running.examined({"TORCH_FR_BUFFER_SIZE": "9"}, (2, 8, 0))) == 1


def a_proc(tmp_path: pathlib.Path, **files: str) -> str:
    """A /proc of a few files; ``__`` in a name stands for a slash."""
    for name, text in {"self__status": "CapEff:\t0000000000000000\n", **files}.items():
        path = tmp_path / name.replace("__", "/").replace("self", str(os.getpid()))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(tmp_path)


@pytest.mark.parametrize(
    ("scope", "capable", "level", "part"),
    [
        (None, False, "ok", "your own"),
        ("0", False, "ok", "your own"),
        ("1", False, "warning", "ptrace_scope is 1"),
        ("1", True, "ok", "CAP_SYS_PTRACE"),
        ("3", True, "warning", "until a reboot"),
    ],
)
def test_ptrace(scope: str | None, capable: bool, level: str, part: str, tmp_path: pathlib.Path) -> None:
    files = {"self__status": f"CapEff:\t{int(capable) << machine.CAP_SYS_PTRACE:016x}\n"}
    if scope is not None:
        files["sys__kernel__yama__ptrace_scope"] = scope + "\n"
    found = machine.ptrace(None, a_proc(tmp_path, **files))
    assert found.level == level and part in found.text


def test_ptrace_of_a_process() -> None:
    with victims.victim("print('ready', flush=True); import time; time.sleep(60)") as pid:
        assert machine.ptrace(pid, "/proc").level == "ok"
    assert machine.ptrace(2**22 + 1, "/proc").level == "ok"  # gone: nothing refuses


def test_py_spy_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.py_spy_there().level == "ok"
    monkeypatch.setattr(machine.py_spy, "find", lambda: None)
    assert machine.py_spy_there().command == "pip install py-spy"


@pytest.mark.parametrize(
    ("result", "level"),
    [
        (Result(OK), "ok"),
        (Result(ABSENT, "no NVIDIA driver here"), "note"),
        (Result(ERROR, "nvmlInit: Unknown"), "warning"),
        (Result("timeout", "nvmlDeviceGetCount: no answer in 4.0 s"), "warning"),
    ],
)
def test_nvml(result: Result, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = SimpleNamespace(COLLECTOR=SimpleNamespace(collect=lambda ctx, target: result))
    monkeypatch.setattr(machine, "gpus", stub)
    assert machine.nvml("/proc").level == level


@pytest.mark.parametrize(
    ("total", "free", "level"),
    [(64 << 20, 60 << 20, "warning"), (8 << 30, 1 << 20, "warning"), (8 << 30, 4 << 30, "ok")],
)
def test_shared_memory(total: int, free: int, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_space", lambda path: [total, free])
    assert machine.shared_memory("/proc", None).level == level


def test_shared_memory_that_does_not_answer_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    late = guarded.Outcome("timeout", [], "no answer in 5.0 s")
    monkeypatch.setattr(machine.guarded, "call", lambda *args, **limits: late)
    assert machine.shared_memory("/proc", 1).level == "unknown"


def test_core_files(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = "Max core file size        {:<21}unlimited            bytes     \n"
    files = {
        "sys__kernel__core_pattern": "core.%p\n",
        "7__limits": row.format("0"),
        "8__limits": row.format("unlimited"),
    }
    proc = a_proc(tmp_path, **files)
    assert machine.cores(proc, 7).command == "ulimit -c unlimited"
    assert (machine.cores(proc, 8).level, machine.cores(proc, 8).text) == ("ok", "no limit, to core.%p")
    monkeypatch.setattr(machine.resource, "getrlimit", lambda kind: (4096, resource.RLIM_INFINITY))
    assert machine.cores(proc, None).text.startswith("limit 4096 bytes")
    (tmp_path / "sys/kernel/core_pattern").write_text("|/usr/lib/systemd/systemd-coredump %P\n")
    assert machine.cores(proc, 7).level == "ok"


@pytest.mark.parametrize(
    ("seconds", "left", "level"),
    [(None, None, "note"), ("0", "10", "warning"), ("120", "0", "warning"), ("120", "-1", "ok")],
)
def test_hung_tasks(seconds: str | None, left: str | None, level: str, tmp_path: pathlib.Path) -> None:
    names = {"sys__kernel__hung_task_timeout_secs": seconds, "sys__kernel__hung_task_warnings": left}
    proc = a_proc(tmp_path, **{name: value for name, value in names.items() if value is not None})
    assert machine.hung_tasks(proc).level == level


def test_the_kernel_log_may_be_for_root_only(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = a_proc(tmp_path, sys__kernel__dmesg_restrict="1\n")
    monkeypatch.setattr(machine.os, "geteuid", lambda: 1000)
    assert machine.kernel_log(proc).level == "warning"
    monkeypatch.setattr(machine.os, "geteuid", lambda: 0)
    assert machine.kernel_log(proc).level == "ok"


def test_a_group_whose_oom_killer_is_off_is_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    above = machine.cgroups.Group(1, "/site", str(tmp_path))
    own = machine.cgroups.Group(1, "/site/job", str(tmp_path / "job"))
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\n")
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 1\nunder_oom 0\n")
    monkeypatch.setattr(
        machine.cgroups.Group, "ancestry", lambda self: [own, above] if self == own else [above]
    )
    monkeypatch.setattr(machine.cgroups, "locate", lambda *args: own)
    found = machine.memory_limit("/proc", None)
    assert found.level == "warning" and "/site is off" in found.text
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\n")
    assert machine.memory_limit("/proc", None).level == "ok"


MAPPED = """
import mmap, sys
files = [open(path, "rb") for path in sys.argv[1:]]
held = [mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) for file in files]
print("ready", flush=True)
import time
time.sleep(60)
"""


def test_versions_of_a_process_are_those_of_the_files_that_it_has_mapped(tmp_path: pathlib.Path) -> None:
    nccl = library(tmp_path, "wheel", "2.27.5")
    torch = tmp_path / "site-packages" / "torch" / "lib" / "libtorch_cpu.so"
    torch.parent.mkdir(parents=True)
    torch.write_bytes(b"x")
    (tmp_path / "site-packages" / "torch-2.8.0+cu128.dist-info").mkdir()
    env = {**os.environ, "CUDA_LAUNCH_BLOCKING": "1", "HF_TOKEN": "hf_notarealtokenatall"}
    with victims.victim(MAPPED, str(nccl), str(torch), env=env) as pid:
        found = doctor.examine(pid)
    assert (found.versions.torch, found.versions.nccl) == ("2.8.0+cu128", "2.27.5")
    assert found.environment is not None and found.environment_source == "live"
    assert [item.name for item in found.environment][:2] == [
        "CUDA_LAUNCH_BLOCKING",
        "TORCH_NCCL_TRACE_BUFFER_SIZE",
    ]
    assert b"hf_nota" not in msgspec.json.encode(found)


def test_a_process_without_torch_and_one_that_is_not_there() -> None:
    with victims.victim(MAPPED) as pid:
        found = doctor.examine(pid, torch="2.6")
    assert (found.versions.torch, found.versions.nccl) == ("2.6", None)
    with pytest.raises(NoSuchTarget):
        doctor.examine(2**22 + 1)


def test_an_environment_that_may_not_be_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = doctor.live_environment.Environment(None, None, "EACCES")
    monkeypatch.setattr(doctor.live_environment, "of_process", lambda pid, timeout: refused)
    with pytest.raises(PermissionRefused, match="cannot be read"):
        doctor.examine(os.getpid())


def test_versions_installed_here() -> None:
    assert versions.installed().source.startswith("what is installed")
    assert versions._distribution("no-such-distribution-at-all") is None


def test_the_text_fits_and_says_all(capsys: Capsys) -> None:
    assert main(["doctor", "--torch", "2.8", "--nccl", "2.27.5"]) == 0
    out = capsys.readouterr().out
    assert "torch 2.8, NCCL 2.27.5" in out
    for part in (
        "this machine",
        "worth setting",
        "on already",
        "only while looking",
        "gives:",
        "costs:",
        "source:",
    ):
        assert part in out
    assert max(map(len, out.splitlines())) <= 110
    assert main(["doctor", "--torch", "2.8", "-q"]) == 0
    assert "source:" not in capsys.readouterr().out


def test_the_text_on_a_running_job(capsys: Capsys) -> None:
    with victims.victim(MAPPED, env={"PATH": os.environ["PATH"]}) as pid:
        assert main(["doctor", "-p", str(pid)]) == 0
        assert "nothing is armed" in capsys.readouterr().out
        assert main(["doctor", "-p", str(pid), "--torch", "2.6"]) == 0
        assert "TORCH_NCCL_TRACE_BUFFER_SIZE is not set" in capsys.readouterr().out


def test_json_is_the_same_value() -> None:
    command = [sys.executable, "-m", "hangscope", "doctor", "--json", "--torch", "2.8"]
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    document = json.loads(done.stdout)
    assert document["format"] == "hangscope-doctor/1" and document["environment"] is None
    jsonschema.validate(document, msgspec.json.schema(Diagnosis))
    assert msgspec.convert(document, Diagnosis).versions.torch == "2.8"


def test_export_prints_only_the_lines(capsys: Capsys) -> None:
    assert main(["doctor", "--torch", "2.6", "--export", "sh"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(("# ", "export ")) for line in lines)
    assert 'export TORCH_NCCL_DUMP_ON_TIMEOUT="1"' in lines


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--torch", "newest"], 2),
        (["--nccl", "2"], 2),
        (["-p", "0"], 2),
        (["-p", "4194304"], 1),
        (["--format", "xml"], 2),
    ],
)
def test_wrong_use_and_missing_processes(arguments: list[str], status: int, capsys: Capsys) -> None:
    assert main(["doctor", *arguments]) == status
    assert capsys.readouterr().err


def test_hostile_variables_do_not_reach_the_terminal(capsys: Capsys) -> None:
    env = {"PATH": os.environ["PATH"], "NCCL_ALGO": "\x1b[31mred\r\n"}
    with victims.victim(MAPPED, env=env) as pid:
        assert main(["doctor", "-p", str(pid)]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_check_is_a_value() -> None:
    assert Check(name="x", level="ok", text="y").command is None

"""The GPU collector against a stub of NVIDIA's library (``stub_nvml/``): no GPU and no driver is needed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest

import hangscope
from hangscope.collectors import gpus, interface, nvml
from hangscope.collectors.guarded import Outcome

ROOT = str(Path(hangscope.__path__[0]).parent)
SOURCE = Path(__file__).parent / "stub_nvml" / "stub_libnvidia_ml.c"
PYNVML = pynvml.__file__

PROGRAM = """
import json, sys
sys.path.insert(0, {root!r})
from hangscope.collectors import gpus, interface
gpus.PATIENCE = 1.5
ctx = interface.Context([], proc={proc!r}, options={options!r})
result = gpus.COLLECTOR.collect(ctx, None)
print(json.dumps([result.status, result.reason, [[n, d.decode()] for n, d in result.artifacts]]))
"""


@pytest.fixture(scope="session")
def stub_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the stub as ``libnvidia-ml.so.1``."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here to build the stub library")
    folder = tmp_path_factory.mktemp("stub_nvml")
    target = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", target, SOURCE], check=True)
    return folder


class Node:
    """A machine with the stub driver: runs the collector in an interpreter of its own."""

    def __init__(self, folder: Path, library: Path | None) -> None:
        self.folder = folder
        self.library = library
        self.options: dict[str, Any] = {"pynvml_path": PYNVML, "nvidia_smi": str(folder / "no-nvidia-smi")}
        (folder / "proc" / "driver" / "nvidia").mkdir(parents=True)

    def collect(
        self, state: str = "", python: str = sys.executable
    ) -> tuple[str, str | None, dict[str, str]]:
        (self.folder / "state").write_text(state)
        env = {**os.environ, "STUB_NVML": str(self.folder / "state")}
        if self.library is not None:
            env["LD_LIBRARY_PATH"] = str(self.library)
        program = PROGRAM.format(root=ROOT, proc=str(self.folder / "proc"), options=self.options)
        done = subprocess.run([python, "-c", program], env=env, capture_output=True, timeout=60, text=True)
        assert done.returncode == 0, done.stderr
        status, reason, artifacts = json.loads(done.stdout)
        return status, reason, dict(artifacts)

    def smi(self, body: str) -> None:
        """Puts a stub of ``nvidia-smi`` on this node."""
        program = self.folder / "stub_nvidia_smi"
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        self.options["nvidia_smi"] = str(program)


@pytest.fixture
def node(tmp_path: Path, stub_library: Path) -> Node:
    return Node(tmp_path, stub_library)


FOUR = """
count 4
0.utilization 100
0.power 129000
0.memory_used 78000000000
0.processes 4711:77000000000,4712:-
2.error 15
3.power.error 3
3.links 4
3.link2 0
3.field230 1
3.remap_pending 1
3.field52 17
"""


def test_four_gpus_healthy_idle_lost_and_not_supported(node: Node) -> None:
    status, reason, artifacts = node.collect(FOUR)
    assert (status, reason, list(artifacts)) == ("ok", None, ["nvml.json"])
    record = json.loads(artifacts["nvml.json"])
    assert (record["driver"], record["cuda"], record["nvml"], record["count"]) == (
        "570.86.15",
        12080,
        "12.570.86.15",
        4,
    )
    busy, idle, lost, odd = record["gpus"]
    assert [gpu["index"] for gpu in record["gpus"]] == [0, 1, 2, 3]
    assert (busy["utilization"], busy["power_watts"], busy["memory_used"]) == (100, 129.0, 78000000000)
    assert busy["processes"] == [
        {"pid": 4711, "kind": "compute", "memory": 77000000000},
        {"pid": 4712, "kind": "compute", "memory": None},
    ]
    assert busy["pci"] == "00000000:19:00.0" and busy["minor"] == 0 and busy["uuid"].startswith("GPU-5a5a")
    assert busy["fabric"] == {"state": 3, "status": 0, "health_mask": 0x6A}
    assert busy["nvlinks"] == {"error": "NotSupported"} and busy["recovery_action"] == {
        "error": "NotSupported"
    }
    assert (idle["utilization"], idle["power_watts"], idle["processes"], idle["clock_reasons"]) == (
        0,
        82.0,
        [],
        1,
    )
    assert lost["lost"] and lost["uuid"] != busy["uuid"] and lost["utilization"] == {"error": "GpuIsLost"}
    assert "power_watts" not in lost and not busy["lost"]
    assert odd["power_watts"] == {"error": "NotSupported"} and odd["power_limit_watts"] == 700.0
    assert odd["nvlinks"] == [1, 1, 0, 1] and odd["nvlink_replays"] == 17
    assert odd["recovery_action"] == 1 and odd["remapped_rows"]["pending"] == 1


def test_a_gpu_without_a_handle_does_not_stop_the_others(node: Node) -> None:
    status, _, artifacts = node.collect("count 3\n0.handle.error 15\n1.handle.error 4\n")
    first, second, third = json.loads(artifacts["nvml.json"])["gpus"]
    assert status == "ok"
    assert (first["error"], first["lost"]) == ("GpuIsLost", True)
    assert (second["error"], second["lost"]) == ("NoPermission", False)
    assert third["name"] == "Stub H200"


def test_a_call_that_never_returns_is_named_and_the_rest_is_kept(node: Node) -> None:
    status, reason, artifacts = node.collect("count 3\n1.hang temperature\n")
    assert status == "timeout"
    assert reason is not None and reason.startswith("nvmlDeviceGetTemperature on GPU 1: no answer in 1.5 s")
    first, second, third = json.loads(artifacts["nvml.json"])["gpus"]
    assert "mig" in first and "mig" in third
    assert second["no_answer"] == "nvmlDeviceGetTemperature"
    assert second["power_watts"] == 82.0 and "temperature_c" not in second


def test_an_initialisation_that_never_returns(node: Node) -> None:
    status, reason, artifacts = node.collect("hang init\n")
    assert status == "timeout" and reason is not None and reason.startswith("nvmlInit_v2: no answer")
    assert json.loads(artifacts["nvml.json"]) == {"no_answer": "nvmlInit_v2", "count": None, "gpus": []}


def test_a_driver_that_shows_no_gpu_or_cannot_count(node: Node) -> None:
    status, reason, _ = node.collect("count 0\n")
    assert (status, reason) == ("absent", "the driver is here, but it shows no GPU")
    status, reason, _ = node.collect("count.error 999\n")
    assert status == "error" and reason is not None and "Unknown" in reason


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        (9, "absent", "DriverNotLoaded"),
        (18, "error", "LibRmVersionMismatch"),
        (999, "error", "Unknown"),
        (77, "error", "code 77"),
    ],
)
def test_an_initialisation_that_fails_without_nvidia_smi(
    node: Node, code: int, status: str, said: str
) -> None:
    found, reason, artifacts = node.collect(f"init {code}\n")
    assert found == status and artifacts == {}
    assert reason is not None and reason.startswith(f"NVML: {said}") and reason.endswith("no nvidia-smi")


XML = """<?xml version="1.0" ?>
<nvidia_smi_log><gpu id="00000000:19:00.0"><uuid>GPU-5a</uuid><processes><process_info><pid>7</pid>
<process_name>python --api-key hunter2</process_name></process_info></processes></gpu></nvidia_smi_log>"""


def test_nvidia_smi_answers_where_the_library_does_not_fit(node: Node) -> None:
    node.smi(f"[ \"$*\" = '-q -x' ] && cat <<'END'\n{XML}\nEND")
    status, reason, artifacts = node.collect("init 18\n")
    assert status == "ok" and list(artifacts) == ["nvidia-smi.xml"]
    assert (
        reason is not None
        and reason.startswith("NVML: LibRmVersionMismatch")
        and "nvidia-smi -q -x" in reason
    )
    assert "GPU-5a" in artifacts["nvidia-smi.xml"] and "hunter2" not in artifacts["nvidia-smi.xml"]
    node.smi(f"cat <<'END'\n{XML}\nEND\nexit 15")
    status, _, artifacts = node.collect("init 18\n")
    assert status == "partial" and list(artifacts) == ["nvidia-smi.xml"]


def test_nvidia_smi_that_fails_too_is_quoted(node: Node) -> None:
    node.smi("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    status, reason, artifacts = node.collect("init 18\n")
    assert status == "error" and artifacts == {}
    assert reason is not None and reason.endswith(
        "exit 18, Failed to initialize NVML: Driver/library version mismatch"
    )


def test_nvidia_smi_that_never_returns(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.smi("exec sleep 600")
    ctx = interface.Context([], proc=str(node.folder / "proc"), options=node.options)
    collector = gpus.Gpus()
    monkeypatch.setattr(collector, "budget", 0.4, raising=False)
    result = collector._by_command(ctx, "NVML: LibRmVersionMismatch x")
    assert result.status == "timeout" and result.reason is not None and "killed after" in result.reason


def test_a_missing_library_is_absent_and_nvidia_smi_is_tried(tmp_path: Path) -> None:
    node = Node(tmp_path, library=None)
    status, reason, _ = node.collect()
    if status == "ok":
        pytest.skip("this machine has NVIDIA's own library")
    assert status == "absent"
    assert reason == "NVML: LibraryNotFound NVML Shared Library Not Found; no nvidia-smi"
    node.smi(f"cat <<'END'\n{XML}\nEND")
    assert node.collect()[0] == "ok"


def test_a_missing_module_says_so(node: Node) -> None:
    node.options["pynvml_path"] = str(node.folder)
    status, reason, _ = node.collect("count 1\n")
    assert status == "absent" and reason == f"NVML: NoModule no pynvml at {node.folder}; no nvidia-smi"


def test_the_module_is_found_by_folder_and_by_name(node: Node) -> None:
    for path in (str(Path(PYNVML).parent), None):
        node.options["pynvml_path"] = path
        assert node.collect("count 1\n")[0] == "ok"


def test_a_machine_without_a_driver_is_told_at_once(tmp_path: Path) -> None:
    if os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg"):
        pytest.skip("this machine has an NVIDIA driver")
    result = gpus.COLLECTOR.collect(interface.Context([], proc=str(tmp_path)), None)
    assert result.status == "absent" and result.reason is not None and "no NVIDIA driver" in result.reason


def test_the_oldest_python_of_a_node_can_do_it_too(node: Node) -> None:
    from tests.bundle.test_writer import python38

    python = python38()
    if python is None:
        pytest.skip("no Python 3.8 here")
    assert node.collect(FOUR, python) == node.collect(FOUR)


def test_every_function_that_is_asked_exists_in_the_module() -> None:
    asked = (
        {question.function for question in nvml.IDENTITY + nvml.STATE}
        | set(nvml.OLDER.values())
        | set(nvml.OLDER)
    )
    asked |= {"nvmlDeviceGetFieldValues", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetGpuFabricInfoV"}
    assert [name for name in sorted(asked) if not hasattr(pynvml, name)] == []
    assert nvml.VALUES["recovery_action"] == pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
    assert nvml.VALUES["nvlink_replays"] == pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL


def test_readings_of_children_that_end_early_are_put_together() -> None:
    reading = gpus.Reading()
    reading.add(
        [["system", "driver", "1"], ["count", 3], ["gpu", 0], ["ask", "f"], ["field", 0, "uuid", "u"]]
    )
    assert (
        reading.interrupted(Outcome("error", None, "the reading process died"))
        == "f on GPU 0: the reading process died"
    )
    assert reading.next_gpu() == 1
    result = gpus._result(reading, ["f on GPU 0: the reading process died"])
    assert (
        result.status == "partial"
        and result.reason is not None
        and result.reason.endswith("2 of 3 GPUs not asked")
    )
    reading.add([["count", 3], ["gpu", 2]])
    assert reading.next_gpu() == -1
    empty = gpus.Reading()
    empty.add([])
    assert empty.interrupted(Outcome("abandoned", None, "stuck")) == "loading NVML: stuck"
    assert gpus._result(empty, ["loading NVML: stuck"]).status == "timeout"

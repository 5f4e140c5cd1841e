"""nvidia-smi in all its shapes, gpustat, and the lines that say that a GPU cannot be reached."""

from __future__ import annotations

import pytest

from hangscope.analyzers.readers import (
    gpu_lines,
    gpustat_text,
    nvidia_smi,
    nvidia_smi_q,
    nvidia_smi_table,
    nvidia_smi_xml,
)
from hangscope.analyzers.readers.documents import read_document
from hangscope.analyzers.readers.interface import Document, Line
from hangscope.errors import UnreadableEvidence
from hangscope.model.facts import Gpu
from hangscope.model.loose import NOBODY, Origin
from tests.forms.cases import FIXTURES


def gpus(path: str) -> list[Gpu]:
    data = (FIXTURES / path).read_bytes()
    facts = read_document(Document(path=path, data=data)).facts
    return [fact for fact in facts if isinstance(fact, Gpu)]


def lines(text: str, node: str | None = None) -> list[Line]:
    origin = Origin(node=node) if node else NOBODY
    return [Line(at, row, origin, "x") for at, row in enumerate(text.splitlines(), 1)]


def test_the_oldest_table_has_two_rows_a_gpu_and_megabytes() -> None:
    first, second = gpus("nvidia-smi-table/driver-325.txt")
    assert (first.index, first.pci, first.name, first.utilization) == (0, "0000:06:00", "Tesla K20m", 99)
    assert (first.power_watts, first.temperature, first.memory_used) == (49.0, 41, 2210 << 20)
    assert (first.pids, second.pids, second.utilization) == ((20417,), (), 0)


def test_a_process_without_a_name_is_a_pid_and_no_lost_gpu() -> None:
    first, second = gpus("nvidia-smi-table/driver-387.txt")
    assert first.pids == (30611,) and not first.lost and first.error is None
    assert second.memory_used == 0


def test_a_pasted_table_is_read_without_its_separators() -> None:
    first, second = gpus("nvidia-smi-table/driver-535-pasted.txt")
    assert (first.pci, first.name, first.utilization, first.pids) == (
        "0000:53:00",
        "NVIDIA H800",
        100,
        (9120,),
    )
    assert (second.pci, second.utilization, second.power_watts, second.pids) == (
        "0000:64:00",
        0,
        74.0,
        (9121,),
    )


def test_rows_of_mig_devices_are_no_rows_of_gpus_or_processes() -> None:
    first, second = gpus("nvidia-smi-table/driver-570-mig.txt")
    assert (first.utilization, first.memory_used, first.pids) == (None, 9983 << 20, (51230,))
    assert (second.utilization, second.pids) == (100, (51231,))


def test_errors_are_no_values() -> None:
    well, errors, lost = gpus("nvidia-smi-table/driver-470-errors.txt")
    assert (well.error, well.lost) == (None, False)
    assert (errors.error, errors.lost) == ("ERR!", False)
    assert (errors.utilization, errors.memory_used, errors.power_watts, errors.temperature) == (None,) * 4
    assert (lost.lost, lost.utilization, lost.memory_used) == (True, None, None)


def test_a_table_ends_where_the_log_goes_on_and_keeps_its_node() -> None:
    text = (FIXTURES / "nvidia-smi-table" / "driver-387.txt").read_text()
    rows = lines(text + "step 41 of | 90 |\n", node="node-c")
    facts, after = nvidia_smi_table.read(rows, 1)
    assert after == len(rows) - 1
    assert {fact.node for fact in facts if isinstance(fact, Gpu)} == {"node-c"}
    assert nvidia_smi_table.read(lines("the NVIDIA-SMI of this node"), 0) == ((), 0)


def test_two_tables_in_one_log_are_two() -> None:
    text = (FIXTURES / "nvidia-smi-table" / "driver-387.txt").read_text()
    facts, after = nvidia_smi_table.read(lines(text + text), 1)
    assert len(facts) == 2 and after < len(text.splitlines()) + 3


@pytest.mark.parametrize(("name", "watts", "lost"), [("535", 122.41, True), ("570", 119.8, False)])
def test_the_long_text(name: str, watts: float, lost: bool) -> None:
    first, second = gpus(f"nvidia-smi-q/driver-{name}.txt")
    assert (first.pci, first.uuid, first.utilization) == (
        "0000:44:00", "GPU-7c1f0000-0000-0000-0000-000000000044", 100,
    )  # fmt: skip
    assert (first.memory_used, first.memory_total, first.temperature) == (61022 << 20, 81559 << 20, 35)
    assert (first.power_watts, first.pids) == (watts, (40022,))
    assert (second.lost, second.uuid, second.utilization, second.memory_used) == (lost, None, None, None)
    assert second.error == (None if lost else "Unknown Error")


def test_the_long_text_without_its_head_and_with_lines_behind() -> None:
    text = "GPU 00000000:44:00.0\n    Utilization\n        Gpu : N/A\nstep 41\n"
    facts, after = nvidia_smi_q.read(lines(text), 0)
    assert after == 3
    assert [fact.utilization for fact in facts if isinstance(fact, Gpu)] == [None]
    assert nvidia_smi_q.read(lines("NVRM: GPU 0000:29:00.0: GPU has fallen off the bus."), 0) == ((), 0)


def test_xml_of_two_schemas() -> None:
    first, lost = gpus("nvidia_smi_xml/dtd-v12.xml")
    assert (first.pci, first.power_watts, first.temperature, first.pids) == ("0000:44:00", 71.2, 33, (40022,))
    assert (lost.lost, lost.pci, lost.utilization) == (True, "0000:53:00", None)
    older, silent = gpus("nvidia_smi_xml/dtd-v11.xml")
    assert (older.power_watts, silent.lost, silent.utilization, silent.memory_used) == (
        70.11,
        False,
        None,
        None,
    )


BOMB = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><nvidia_smi_log>&b;</nvidia_smi_log>'


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(BOMB.encode(), id="entities"),
        pytest.param(BOMB.encode("utf-16"), id="entities in another encoding"),
        pytest.param(
            b"<?xml version='1.0' encoding='cp037'?>" + BOMB.encode("cp037"), id="an encoding that hides them"
        ),
        pytest.param(b"<nvidia_smi_log><gpu>", id="torn"),
        pytest.param(b"<nvidia_smi_log>" + b"<a>" * 100_000, id="deep and torn"),
    ],
)
def test_hostile_xml_is_refused(data: bytes) -> None:
    with pytest.raises(UnreadableEvidence):
        nvidia_smi.read(data, "x")


def test_xml_with_other_text_around_it() -> None:
    text = b"$ nvidia-smi -q -x\n<nvidia_smi_log><gpu id='00000000:44:00.0'></gpu></nvidia_smi_log>\n$ exit\n"
    assert nvidia_smi_xml.recognise(text)
    (gpu,) = nvidia_smi_xml.read(Document(path="x", data=text, origin=Origin(node="node-a")))
    assert isinstance(gpu, Gpu) and (gpu.node, gpu.pci) == ("node-a", "0000:44:00")
    big = Document(path="x", data=b"<nvidia_smi_log>" + b" " * nvidia_smi_xml.LARGEST)
    with pytest.raises(UnreadableEvidence):
        nvidia_smi_xml.read(big)


def test_gpustat_with_power_pids_and_unknown_values() -> None:
    first, second = gpus("gpustat/power-and-pids.txt")
    assert (first.utilization, first.power_watts, first.pids) == (100, 74.0, (40022,))
    assert (second.utilization, second.temperature, second.memory_used) == (None, None, None)
    assert [gpu.node for gpu in gpus("gpustat/plain.txt")] == ["node-b"] * 3
    assert gpustat_text.read(lines("it's 40'C, warm"), 0) == ([], 0)


@pytest.mark.parametrize(
    ("text", "pci"),
    [
        ("Unable to determine the device handle for gpu 0000:02:00.0: GPU is lost.  Reboot", "0000:02:00"),
        ("Unable to determine the device handle for GPU2: 0000:02:00.0: Unknown Error", "0000:02:00"),
        ("slurmstepd: error: NVML: Failed to get usage(15): GPU is lost", None),
        ("Failed to initialize NVML: Unknown Error", None),
    ],
)
def test_one_line_on_a_lost_gpu(text: str, pci: str | None) -> None:
    events = gpu_lines.read(lines(text)[0])
    expected = 0 if "initialize" in text else 1
    assert [getattr(event, "pci", "") for event in events] == [pci] * expected

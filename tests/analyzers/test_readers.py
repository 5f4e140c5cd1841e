"""Each reader understands its sample, and raises nothing but its own error on anything else."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hangscope.analyzers.readers import READERS, Reader, reader_for
from hangscope.errors import UnreadableEvidence


def sample_of(reader: Reader) -> bytes:
    """The raw sample in the docstring of the reader, else of its module (readers may share one)."""
    module = importlib.import_module(reader.read.__module__)
    found: dict[str, Any] = {}
    own = inspect.getdoc(reader.read) or ""
    text = own if ">>> sample = " in own else inspect.getdoc(module) or ""
    lines = [line[4:] for line in text.splitlines() if line.startswith((">>> ", "... "))]
    for node in ast.parse("\n".join(lines)).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in ("row", "sample") and "sample" not in found:
                code = compile(ast.Expression(node.value), "sample", "eval")
                found[name] = eval(code, {"__builtins__": {}}, found)
        elif isinstance(node, ast.Expr) and not found:
            call = next(item for item in ast.walk(node) if isinstance(item, ast.Call))
            found["sample"] = ast.literal_eval(call.args[0])
    data = found["sample"]
    assert isinstance(data, bytes)
    return data


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: f"{reader.collector}/{reader.name}")
def test_every_reader_shows_a_sample_that_it_reads(reader: Reader) -> None:
    assert reader.read(sample_of(reader), "shard!member") is not None


def test_a_reader_is_found_by_collector_and_name() -> None:
    found = reader_for("threads", "threads.json")
    assert found is not None and found in READERS
    assert reader_for("threads", "other.json") is None
    assert len({(reader.collector, reader.name) for reader in READERS}) == len(READERS)


JUNK: list[Any] = [
    None,
    True,
    -1,
    1 << 70,
    1e308,
    "",
    "x",
    "\x00",
    "9" * 5000,
    "5:0x",
    [],
    {},
    [[]],
    {"a": {}},
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to every value inside of a JSON document."""
    found = [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found.extend(places(item, (*path, key)))
    return found


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(copy[path[0]], path[1:], new)
    return copy


def must_not_break(reader: Reader, data: bytes) -> None:
    try:
        reader.read(data, "shard!member")
    except UnreadableEvidence as error:
        assert "shard!member" in str(error)


@pytest.mark.parametrize(
    "reader",
    [reader for reader in READERS if reader.name.endswith(".json")],
    ids=lambda reader: f"{reader.collector}/{reader.name}",
)
def test_any_value_of_a_wrong_kind_is_refused_or_ignored(reader: Reader) -> None:
    document = json.loads(sample_of(reader))
    for path in places(document):
        for junk in JUNK:
            must_not_break(reader, json.dumps(replaced(document, path, junk)).encode())


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: f"{reader.collector}/{reader.name}")
def test_torn_and_mutated_bytes_raise_only_the_readers_error(reader: Reader, data: st.DataObject) -> None:
    raw = bytearray(sample_of(reader))
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    for _ in range(data.draw(st.integers(0, 4))):
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    must_not_break(reader, bytes(raw))


def test_deep_nesting_is_refused() -> None:
    reader = reader_for("memory", "memory.json")
    assert reader is not None
    must_not_break(reader, b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")


def test_entities_in_nvidia_smi_output_are_refused() -> None:
    reader = reader_for("gpus", "nvidia-smi.xml")
    assert reader is not None
    bomb = b'<!DOCTYPE a [<!ENTITY b "xx">]><nvidia_smi_log><gpu id="&b;"/></nvidia_smi_log>'
    with pytest.raises(UnreadableEvidence, match="entities"):
        reader.read(bomb, "x")


def test_a_gpu_that_is_lost_has_no_values_but_is_listed() -> None:
    reader = reader_for("gpus", "nvml.json")
    assert reader is not None
    table: Any = reader.read(
        b'{"gpus": [{"index": 3, "lost": true, "uuid": {"error": "GpuIsLost"}, "error": "GpuIsLost"}]}', "x"
    )
    gpu = table.gpus[0].gpu
    assert (gpu.index, gpu.lost, gpu.uuid, gpu.utilization, gpu.error) == (3, True, None, None, "GpuIsLost")


def test_version_two_cgroups_without_limits() -> None:
    reader = reader_for("memory", "memory.json")
    assert reader is not None
    files = {
        "memory.max": "max\n",
        "memory.high": "62914560\n",
        "memory.current": "64499712\n",
        "memory.events": "low 0\nhigh 13342\nmax 3\noom 0\noom_kill 1\n",
        "memory.pressure": "some avg10=20.72 avg60=1.00 avg300=0.00 total=9\n",
    }
    body = {"cgroups": [{"path": "/job", "version": 2, "level": 1, "pids": [1], "files": files}]}
    table: Any = reader.read(json.dumps(body).encode(), "x")
    group = table.cgroups[0]
    assert (group.limit, group.high, group.usage) == (None, 62914560, 64499712)
    assert (group.high_events, group.max_events, group.oom_kills) == (13342, 3, 1)
    assert (group.failcnt, group.under_oom, group.pressure_some_avg10) == (None, None, 20.72)


KERNEL_LINES = {
    "[1.5] NVRM: Xid (PCI:0000:3b:00): 31, pid='<unknown>', name=<unknown>, MMU Fault": ("xid-31", None),
    "[1.5] NVRM: GPU 0000:29:00.0: GPU has fallen off the bus.": ("gpu-lost", None),
    "Aug 29 16:58:38 host kernel: [14.25] python invoked oom-killer: gfp_mask=0x1": ("oom-invoked", None),
    "<3>[ 10.5] watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python3:77]": ("soft-lockup", 77),
    "INFO: task nvc:[driver]:5403 blocked for more than 120 seconds.": ("hung-task", 5403),
    "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal": ("sxid-12028", None),
    "[5.0] nfs: server srv not responding, still trying": ("nfs-not-responding", None),
    "[5.0] usb 1-1: new device": None,
}


@pytest.mark.parametrize(("line", "expected"), KERNEL_LINES.items())
def test_kernel_lines(line: str, expected: tuple[str, int | None] | None) -> None:
    reader = reader_for("kernel_log", "kernel.txt")
    assert reader is not None
    table: Any = reader.read(line.encode(), "x")
    assert [(event.kind, event.pid) for event in table.events] == ([expected] if expected else [])


def test_recorder_counts_point_to_point_apart_and_nccl_by_state() -> None:
    reader = reader_for("recorder", "fr_trace.json")
    assert reader is not None

    def entry(sequence: int, name: str, state: str, retired: bool, p2p: bool = False) -> dict[str, Any]:
        return {
            "process_group": ["7", "tp"],
            "collective_seq_id": sequence,
            "p2p_seq_id": sequence,
            "profiling_name": name,
            "state": state,
            "retired": retired,
            "is_p2p": p2p,
            "time_created_ns": 100 - sequence,
        }

    entries = [
        entry(1, "nccl:all_reduce", "completed", True),
        entry(2, "nccl:all_gather", "started", True),
        entry(3, "nccl:all_gather", "scheduled", False),
        entry(4, "nccl:send 1->2", "started", False, p2p=True),
    ]
    found: Any = reader.read(json.dumps({"entries": entries}).encode(), "x")
    assert found.groups == ("7", "7/p2p")
    assert found.last_enqueued == (("7", 3), ("7/p2p", 4))
    assert found.last_completed == (("7", 1),)
    assert [item.sequence for item in found.pending] == [4, 3, 2]

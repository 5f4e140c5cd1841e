"""One pass over NVML: what to ask each GPU, and how an answer is written down.

``read`` runs in a child that may be killed (see ``gpus``): it yields each answer as it comes. It needs
nvidia-ml-py's module ``pynvml``; functions that the module or the driver does not have are recorded, like
every other error, in the place of the value. Python >= 3.8, standard library only.
"""

import ctypes
import importlib
import importlib.util
import os
import sys
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

MOST_GPUS = 64
MOST_LINKS = 36

Message = List[Any]
"""What the child sends: ``["system", field, value]``, ``["count", n]``, ``["gpu", index]``, before each call
``["ask", function]``, ``["field", index, name, value]``, or ``["init", error
name, text]`` when NVML cannot be used."""


class Question(NamedTuple):
    """One call. ``fields`` are the names that ``convert`` gives values for."""

    fields: Tuple[str, ...]
    function: str
    arguments: Tuple[Any, ...]
    convert: Callable[[Any], Tuple[Any, ...]]


def _one(value: Any) -> Tuple[Any, ...]:
    return (value,)


def _text(value: Any) -> Tuple[Any, ...]:
    return (value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value),)


def _watts(value: Any) -> Tuple[Any, ...]:
    return (value / 1000.0,)


IDENTITY = (
    Question(("uuid",), "nvmlDeviceGetUUID", (), _text),
    Question(("pci",), "nvmlDeviceGetPciInfo", (), lambda info: _text(info.busId)),
    Question(("minor",), "nvmlDeviceGetMinorNumber", (), _one),
    Question(("name",), "nvmlDeviceGetName", (), _text),
)
"""Asked even of a GPU that is lost: the driver answers from memory."""

STATE = (
    Question(
        ("utilization", "memory_utilization"),
        "nvmlDeviceGetUtilizationRates",
        (),
        lambda rates: (rates.gpu, rates.memory),
    ),
    Question(("power_watts",), "nvmlDeviceGetPowerUsage", (), _watts),
    Question(("power_limit_watts",), "nvmlDeviceGetEnforcedPowerLimit", (), _watts),
    Question(
        ("memory_total", "memory_used"),
        "nvmlDeviceGetMemoryInfo",
        (),
        lambda memory: (memory.total, memory.used),
    ),
    Question(("performance_state",), "nvmlDeviceGetPerformanceState", (), _one),
    Question(("clock_sm_mhz",), "nvmlDeviceGetClockInfo", (1,), _one),
    Question(("clock_reasons",), "nvmlDeviceGetCurrentClocksEventReasons", (), _one),
    Question(("temperature_c",), "nvmlDeviceGetTemperature", (0,), _one),
    Question(("ecc_uncorrected_volatile",), "nvmlDeviceGetTotalEccErrors", (1, 0), _one),
    Question(("ecc_uncorrected_aggregate",), "nvmlDeviceGetTotalEccErrors", (1, 1), _one),
    Question(
        ("remapped_rows",),
        "nvmlDeviceGetRemappedRows",
        (),
        lambda rows: (dict(zip(("correctable", "uncorrectable", "pending", "failure"), rows)),),
    ),
    Question(("pcie_generation",), "nvmlDeviceGetCurrPcieLinkGeneration", (), _one),
    Question(("pcie_generation_max",), "nvmlDeviceGetMaxPcieLinkGeneration", (), _one),
    Question(("pcie_width",), "nvmlDeviceGetCurrPcieLinkWidth", (), _one),
    Question(("pcie_width_max",), "nvmlDeviceGetMaxPcieLinkWidth", (), _one),
    Question(("pcie_replays",), "nvmlDeviceGetPcieReplayCounter", (), _one),
    Question(("compute_mode",), "nvmlDeviceGetComputeMode", (), _one),
    Question(("persistence",), "nvmlDeviceGetPersistenceMode", (), _one),
    Question(("mig",), "nvmlDeviceGetMigMode", (), lambda modes: (modes[0],)),
)

VALUES = {
    # NVML_FI_DEV_* of nvml.h; 230 came with driver 570, 226 stands for it before
    "recovery_action": 230,
    "reset_required": 226,
    "nvlink_crc_errors": 38,
    "nvlink_replays": 52,
    "nvlink_recoveries": 59,
}
_VALUE_TYPES = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
"""nvmlValueType_t to the member of the union that holds the value."""

OLDER = {
    "nvmlDeviceGetCurrentClocksEventReasons": "nvmlDeviceGetCurrentClocksThrottleReasons",  # up to 530
    "nvmlDeviceGetComputeRunningProcesses": "nvmlDeviceGetComputeRunningProcesses_v2",  # up to 505
    "nvmlDeviceGetGraphicsRunningProcesses": "nvmlDeviceGetGraphicsRunningProcesses_v2",
}
"""What to call where the driver's library does not have the newer function."""


def load(path: Optional[str]) -> Any:
    """The module ``pynvml``: from ``path`` (its file, or the folder it lies in), else by name.

    Raises ImportError. Nothing is written beside it.
    """
    sys.dont_write_bytecode = True
    if path is None:
        return importlib.import_module("pynvml")
    file = os.path.join(path, "pynvml.py") if os.path.isdir(path) else path
    spec = importlib.util.spec_from_file_location("pynvml", file)
    if spec is None or spec.loader is None or not os.path.isfile(file):
        raise ImportError(f"no pynvml at {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules["pynvml"] = module
    spec.loader.exec_module(module)
    return module


def error_name(error: Exception, nvml: Any) -> str:
    """``GpuIsLost`` for NVMLError_GpuIsLost; the code for errors that the module has no name for."""
    kind = type(error).__name__
    if kind.startswith("NVMLError_"):
        return kind[len("NVMLError_") :]
    if isinstance(error, nvml.NVMLError):
        return "code {}".format(getattr(error, "value", "?"))
    return "FunctionNotFound" if isinstance(error, AttributeError) else "LibraryMismatch"


def read(path: Optional[str], first: int) -> Iterator[Message]:
    """Asks everything of the GPUs from index ``first`` on. Yields messages; NVML's errors are among them."""
    try:
        nvml = load(path)
    except ImportError as error:
        yield ["init", "NoModule", str(error)]
        return
    yield ["ask", "nvmlInit_v2"]
    try:
        nvml.nvmlInit()
    except (nvml.NVMLError, nvml.NVMLLibraryMismatchError) as error:
        yield ["init", error_name(error, nvml), str(error)]
        return
    yield from _system(nvml)
    yield ["ask", "nvmlDeviceGetCount_v2"]
    count = _ask(nvml, "nvmlDeviceGetCount")
    yield ["count", count]
    for index in range(first, min(count, MOST_GPUS) if isinstance(count, int) else 0):
        yield from _gpu(nvml, index)


def _ask(nvml: Any, function: str, *arguments: Any) -> Any:
    """The answer of one call, or of its older form, or ``{"error": name}``."""
    try:
        return getattr(nvml, function)(*arguments)
    except (nvml.NVMLError, nvml.NVMLLibraryMismatchError, AttributeError) as error:
        name = error_name(error, nvml)
    if name in ("FunctionNotFound", "LibraryMismatch") and function in OLDER:
        return _ask(nvml, OLDER[function], *arguments)
    return {"error": name}


def _failed(answer: Any) -> bool:
    return isinstance(answer, dict) and "error" in answer


def _system(nvml: Any) -> Iterator[Message]:
    for field, function in (
        ("driver", "nvmlSystemGetDriverVersion"),
        ("cuda", "nvmlSystemGetCudaDriverVersion_v2"),
        ("nvml", "nvmlSystemGetNVMLVersion"),
    ):
        yield ["ask", function]
        answer = _ask(nvml, function)
        yield ["system", field, answer if _failed(answer) or isinstance(answer, int) else _text(answer)[0]]


def _gpu(nvml: Any, index: int) -> Iterator[Message]:
    yield ["gpu", index]
    yield ["ask", "nvmlDeviceGetHandleByIndex_v2"]
    handle = _ask(nvml, "nvmlDeviceGetHandleByIndex", index)
    if _failed(handle):
        yield ["field", index, "error", handle["error"]]
        if handle["error"] == "GpuIsLost":
            yield ["field", index, "lost", True]
        return
    lost = False
    for questions in (IDENTITY, STATE):
        for question in questions:
            yield ["ask", question.function]
            answer = _ask(nvml, question.function, handle, *question.arguments)
            failed = _failed(answer)
            values = [answer] * len(question.fields) if failed else question.convert(answer)
            yield from (["field", index, name, value] for name, value in zip(question.fields, values))
            if failed and answer["error"] == "GpuIsLost":
                lost = True
                yield ["field", index, "lost", True]
            if lost and questions is STATE:
                return
    for part in (_processes, _values, _links, _fabric):
        yield from part(nvml, index, handle)


def _processes(nvml: Any, index: int, handle: Any) -> Iterator[Message]:
    """Both lists as one. ``usedGpuMemory`` None (MIG, some permissions) stays null."""
    rows: List[Dict[str, Any]] = []
    for kind in ("Compute", "Graphics"):
        function = f"nvmlDeviceGet{kind}RunningProcesses"
        yield ["ask", function]
        answer = _ask(nvml, function, handle)
        if _failed(answer):
            if kind == "Compute":
                yield ["field", index, "processes", answer]
                return
            continue
        rows += [{"pid": row.pid, "kind": kind.lower(), "memory": row.usedGpuMemory} for row in answer]
    yield ["field", index, "processes", rows]


def _values(nvml: Any, index: int, handle: Any) -> Iterator[Message]:
    """Field values. Each has its own return code."""
    yield ["ask", "nvmlDeviceGetFieldValues"]
    answer = _ask(nvml, "nvmlDeviceGetFieldValues", handle, list(VALUES.values()))
    for place, name in enumerate(VALUES):
        value = answer
        if not _failed(answer):
            entry = answer[place]
            if entry.nvmlReturn != 0:
                value = {"error": error_name(nvml.NVMLError(entry.nvmlReturn), nvml)}
            else:
                value = getattr(entry.value, _VALUE_TYPES.get(entry.valueType, "ullVal"))
        yield ["field", index, name, value]


def _links(nvml: Any, index: int, handle: Any) -> Iterator[Message]:
    """The state of each NVLink, up to the first that the GPU does not have."""
    links: List[Any] = []
    for link in range(MOST_LINKS):
        yield ["ask", "nvmlDeviceGetNvLinkState"]
        answer = _ask(nvml, "nvmlDeviceGetNvLinkState", handle, link)
        if _failed(answer) and answer["error"] in ("InvalidArgument", "NotSupported", "FunctionNotFound"):
            if not links:
                yield ["field", index, "nvlinks", answer]
                return
            break
        links.append(answer)
    yield ["field", index, "nvlinks", links]


def _fabric(nvml: Any, index: int, handle: Any) -> Iterator[Message]:
    """Registration with the NVSwitch fabric (Hopper and later)."""
    structure = getattr(nvml, "c_nvmlGpuFabricInfo_v2_t", None)
    if structure is None:
        yield ["field", index, "fabric", {"error": "FunctionNotFound"}]
        return
    info = structure()
    yield ["ask", "nvmlDeviceGetGpuFabricInfoV"]
    answer = _ask(nvml, "nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(info))
    if not _failed(answer):
        answer = {"state": info.state, "status": info.status, "health_mask": info.healthMask}
    yield ["field", index, "fabric", answer]

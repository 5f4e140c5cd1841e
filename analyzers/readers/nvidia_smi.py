"""``gpus/node/nvidia-smi.xml``: ``nvidia-smi -q -x``, taken where NVML's library cannot be used.

Paths of nvsmi_device_v11 to v13; units stand in the values; ``N/A``, ``ERR!`` and the like are no values.

>>> sample = b'''<?xml version="1.0" ?><!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
... <nvidia_smi_log><gpu id="00000000:53:00.0"><uuid>GPU-aa</uuid><minor_number>1</minor_number>
... <fb_memory_usage><total>81920 MiB</total><used>5 MiB</used></fb_memory_usage>
... <utilization><gpu_util>N/A</gpu_util></utilization>
... <gpu_power_readings><power_draw>67.03 W</power_draw></gpu_power_readings>
... <processes><process_info><pid>41</pid></process_info></processes></gpu></nvidia_smi_log>'''
>>> row = read(sample, "x").gpus[0]
>>> row.gpu.uuid, row.minor, row.gpu.utilization, row.gpu.power_watts, row.gpu.memory_used
('GPU-aa', 1, None, 67.03, 5242880)
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from hangscope.errors import UnreadableEvidence
from hangscope.model.facts import Gpu, Ref

from .gpus import GpuRow, GpuTable
from .raw import number, real

NO_VALUE = ("n/a", "[n/a]", "none", "err!")
LOST = re.compile(r"GPU is lost|fallen off", re.IGNORECASE)


def read(data: bytes, path: str) -> GpuTable:
    """The GPUs in the log's order. Raises UnreadableEvidence for torn XML and for any entity declaration.

    Decoded here: a declared encoding could hide the entities.
    """
    text = data.decode("utf-8", "replace")
    if "<!ENTITY" in text:
        raise UnreadableEvidence(path, "declares XML entities, which nvidia-smi never does")
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise UnreadableEvidence(path, str(error)) from error
    return GpuTable(tuple(_row(index, item, path) for index, item in enumerate(root.iter("gpu"))))


def _row(index: int, item: ElementTree.Element, path: str) -> GpuRow:
    power = _first(
        item,
        "gpu_power_readings/power_draw",
        "gpu_power_readings/instant_power_draw",
        "gpu_power_readings/average_power_draw",
        "power_readings/power_draw",
    )
    pids = [number(found.text) for found in item.iter("pid")]
    gpu = Gpu(
        node="",
        sample=0,
        index=index,
        uuid=_first(item, "uuid"),
        pci=_first(item, "pci/pci_bus_id") or item.get("id"),
        name=_first(item, "product_name"),
        utilization=number(_first(item, "utilization/gpu_util")),
        power_watts=real((power or "").split(" ")[0]),
        memory_used=_mebibytes(_first(item, "fb_memory_usage/used")),
        memory_total=_mebibytes(_first(item, "fb_memory_usage/total")),
        pids=tuple(sorted({pid for pid in pids if pid is not None})),
        temperature=number(_first(item, "temperature/gpu_temp")),
        lost=any(LOST.search(found.text or "") is not None for found in item.iter()),
        ref=Ref(path),
    )
    return GpuRow(gpu, number(_first(item, "minor_number")))


def _first(item: ElementTree.Element, *paths: str) -> str | None:
    """The text at the first of the paths that has a value."""
    for path in paths:
        text = (item.findtext(path) or "").strip()
        if text and text.lower() not in NO_VALUE:
            return text
    return None


def _mebibytes(text: str | None) -> int | None:
    value = number(text)
    return None if value is None else value << 20

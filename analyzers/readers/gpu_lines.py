"""Single lines of nvidia-smi, NVML and CUDA programs that say that a GPU cannot be reached.

*Failed to initialize NVML: Unknown Error* is none of them: a container that lost the permission for its
devices prints it, with healthy GPUs.

>>> from .interface import Line
>>> from hangscope.model.loose import NOBODY
>>> text = "Unable to determine the device handle for GPU0000:03:00.0: Unknown Error"
>>> [(fact.kind, fact.pci) for fact in read(Line(1, text, NOBODY, "x"))]
[('gpu-lost', '0000:03:00')]
"""

from __future__ import annotations

import re

from hangscope.model.loose import LogEvent

from . import pci
from .interface import Facts, Line, LineForm

_HANDLE = re.compile(
    rf"Unable to determine the device handle for (?:GPU|gpu) ?(?:\d{{1,3}}: )?(?P<pci>{pci.ADDRESS}): "
    r"(?P<why>Unknown Error|GPU is lost|No data|Not Found)"
)
_NVML = re.compile(r"NVML: Failed to get usage\((?P<code>\d{1,4})\): GPU is lost")
_QUERY = re.compile(rf"(?P<pci>{pci.ADDRESS}).{{0,80}}\[GPU is lost\]|\[GPU is lost\]")


def read(line: Line) -> Facts:
    """*gpu-lost*, with the PCI address where the line has one."""
    text = line.text[:2000]
    found = _HANDLE.search(text) or _NVML.search(text) or _QUERY.search(text)
    if found is None:
        return ()
    event = LogEvent(
        kind="gpu-lost",
        origin=line.origin,
        pci=pci.normal(found.groupdict().get("pci")),
        text=text.strip()[:400],
        ref=line.ref,
    )
    return (event,)


FORM = LineForm(
    name="gpu-line",
    title="one line that says that a GPU cannot be reached",
    needles=("Unable to determine the device handle", "GPU is lost"),
    read=read,
)

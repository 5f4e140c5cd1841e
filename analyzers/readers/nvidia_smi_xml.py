"""A file with the output of ``nvidia-smi -q -x``; ``nvidia_smi`` reads it, as it does for a bundle.

>>> from .interface import Document
>>> text = b'<nvidia_smi_log><gpu id="00000000:53:00.0"><uuid>GPU-aa</uuid></gpu></nvidia_smi_log>'
>>> recognise(text), [(gpu.pci, gpu.utilization) for gpu in read(Document(path="x", data=text))]
(True, [('0000:53:00', None)])
"""

from __future__ import annotations

import msgspec

from hangscope.errors import UnreadableEvidence

from . import nvidia_smi, pci
from .interface import Document, Facts, FileForm

ENDING = b"</nvidia_smi_log>"
LARGEST = 64 << 20
"""Bytes. Eight GPUs with their processes are about 200 kB."""


def recognise(head: bytes) -> bool:
    """True for the beginning of such a file, also behind a prompt or a warning."""
    return b"<nvidia_smi_log>" in head[:4096]


def read(document: Document) -> Facts:
    """The GPUs in the log's order. Raises UnreadableEvidence for torn, hostile and overlong XML."""
    if len(document.data) > LARGEST:
        raise UnreadableEvidence(document.path, f"more than {LARGEST >> 20} MiB of XML")
    data = document.data
    begin, end = data.find(b"<"), data.find(ENDING)
    table = nvidia_smi.read(data[max(begin, 0) : end + len(ENDING) if end >= 0 else None], document.path)
    node = document.origin.node or ""
    return [
        msgspec.structs.replace(row.gpu, node=node, pci=pci.normal(row.gpu.pci) or row.gpu.pci)
        for row in table.gpus
    ]


FORM = FileForm(name="nvidia_smi_xml", title="nvidia-smi -q -x: XML", recognise=recognise, read=read)

"""``ras/node/ras.json`` and ``ras.txt``: the answer of NCCL's RAS, as the collector took it."""

from __future__ import annotations

from hangscope.errors import UnreadableEvidence
from hangscope.model.loose import NOBODY, RasReport

from . import ras_json, ras_text
from .interface import MOST_LINE, Document, Line


def read_json(data: bytes, path: str) -> RasReport:
    """The report of NCCL 2.28.7 on. Raises UnreadableEvidence for anything else.

    >>> sample = b'''{"nccl_version": "2.29.7", "communicators_count": 1, "communicators": [{"hash": "0xbead",
    ...  "size": 1, "ranks": [{"rank": 0, "host": "192.0.2.7", "pid": 31, "cuda_dev": 0,
    ...  "status": {"init_state": 0}, "collective_counts": {"AllReduce": 12}}], "missing_ranks": []}]}'''
    >>> read_json(sample, "x").communicators[0].ranks[0].counts
    {'AllReduce': 12}
    """
    found = ras_json.read(Document(path=path, data=data))
    if not found:
        raise UnreadableEvidence(path, "it holds no RAS report")
    return found[0]


def read_text(data: bytes, path: str) -> RasReport:
    """The report of the versions before. Raises UnreadableEvidence for anything else.

    >>> sample = b"NCCL version 2.27.7 compiled with CUDA 12.9\\nJob summary\\n"
    >>> read_text(sample, "x").nccl_version
    '2.27.7'
    """
    rows = data.decode("utf-8", "replace").splitlines()
    lines = [Line(number, row[:MOST_LINE].rstrip(), NOBODY, path) for number, row in enumerate(rows, 1)]
    for index, line in enumerate(lines):
        if any(opener in line.text for opener in ras_text.FORM.openers):
            facts, _ = ras_text.read(lines, index)
            reports = [fact for fact in facts if isinstance(fact, RasReport)]
            if reports:
                return reports[0]
    raise UnreadableEvidence(path, "it holds no RAS report")

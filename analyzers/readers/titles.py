r"""What the title or command line of a process, and the lines in front of a dump, tell of its identity.

A title says little: ``--local_rank`` counts within a node, ``TP0_EP1`` within a group, and ``--rank`` is the
node's number in some scripts (PyTorch's ImageNet example). Only ``RANK=3`` is a global rank.

>>> title_origin("/v/bin/python train.py --local_rank=5").local_rank
5
>>> title_origin("VLLM::Worker_TP0_EP0").rank, title_origin("train.py --rank 3").rank
(None, None)
>>> title_origin("env RANK=3 LOCAL_RANK=1 python train.py").rank
3
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from hangscope.model.loose import NOBODY, Origin

from .interface import Line

LONGEST = 1000
"""Characters of a title that are kept."""
BEFORE = 3
"""Lines in front of a dump that may speak of it."""

_LOCAL = re.compile(r"--local[_-]rank[= ]{1,2}(\d{1,5})(?!\d)")
_GLOBAL = re.compile(r"(?<![\w-])RANK=[\"']?(\d{1,6})(?!\d)")
_ALONE = re.compile(r"\W{0,40}rank[ _:=#]{0,3}(\d{1,6})\W{0,40}", re.IGNORECASE)
_NODE = re.compile(r"(?<![\w-])(?:HOSTNAME|SLURMD_NODENAME)=[\"']?([\w.-]{1,253})")


def title_origin(title: str, known: Origin = NOBODY, pid: int | None = None) -> Origin:
    """``known`` completed by what the title tells; the content beats a prefix and a file's name."""
    found = _GLOBAL.search(title[:4000])
    local = _LOCAL.search(title[:4000])
    changed: dict[str, object] = {}
    if found is not None:
        changed.update(rank=int(found[1]), source="content")
    if local is not None and known.local_rank is None:
        changed["local_rank"] = int(local[1])
    if pid is not None:
        changed["pid"] = pid
    return msgspec.structs.replace(known, **changed) if changed else known


def introduced(lines: Sequence[Line], start: int, known: Origin) -> Origin:
    """``known`` completed by the few lines in front of ``start``: ``RANK=3``, or a line that is nothing but
    ``=== rank 3 ===``. A line with anything else in it says nothing."""
    for index in range(start - 1, max(-1, start - 1 - BEFORE), -1):
        text = lines[index].text[:400]
        found = _GLOBAL.search(text) or _ALONE.fullmatch(text.strip())
        if found is not None:
            node = _NODE.search(text)
            known = msgspec.structs.replace(known, rank=int(found[1]), source="content")
            return msgspec.structs.replace(known, node=node[1]) if node is not None else known
        if text[:1].isspace() or text.startswith("Thread "):
            break
    return known

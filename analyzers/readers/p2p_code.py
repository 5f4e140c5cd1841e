"""Code that is known to send to, or receive from, one peer, and the integers in it that name the peer.

>>> is_p2p("recv", "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py")
True
>>> is_p2p("all_reduce", "torch/distributed/distributed_c10d.py"), is_p2p("recv", "my/p2p.py")
(False, False)
>>> kept({"src": "3", "tag": "0", "tensor": "<Tensor at 0x7f>", "dst": "None"})
(('src', 3), ('tag', 0))
"""

from __future__ import annotations

import re
from collections.abc import Mapping

KEPT = ("src", "dst", "group_src", "group_dst", "tag")

_ANY: tuple[str, ...] = ()
_CODE: dict[str, tuple[str, ...]] = {
    "torch/distributed/distributed_c10d.py": (
        "send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list",
    ),
    "deepspeed/runtime/pipe/p2p.py": _ANY,
    "deepspeed/comm/comm.py": ("send", "recv", "isend", "irecv"),
    "deepspeed/comm/torch.py": ("send", "recv", "isend", "irecv"),
    "megatron/core/pipeline_parallel/p2p_communication.py": _ANY,
    "torch/distributed/pipelining/stage.py": _ANY,
    "torch/distributed/pipelining/schedules.py": _ANY,
}  # fmt: skip
"""End of the file's path → functions, or any. torch 2.13, DeepSpeed 0.19, Megatron-core 0.16."""

_INTEGER = re.compile(r"-?\d{1,9}")


def is_p2p(function: str, file: str) -> bool:
    """True for a frame whose locals name a peer."""
    for suffix, functions in _CODE.items():
        if file == suffix or file.endswith("/" + suffix):
            return functions is _ANY or function.rpartition(".")[2] in functions
    return False


def kept(values: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """The integers among printed locals (name → repr) that name a peer."""
    found = ((name, values[name].strip()) for name in KEPT if name in values)
    return tuple((name, int(text)) for name, text in found if _INTEGER.fullmatch(text))

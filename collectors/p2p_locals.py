"""The few integers that are kept from the locals of point-to-point code: who sends to whom, with which tag.

No recorder knows gloo's point-to-point operations (torch 2.13), and a stack does not name the peer. All
other locals are dropped here, before anything is stored. Python >= 3.8.
"""

import re
from typing import Any, Dict, List, Optional

KEPT = ("src", "dst", "group_src", "group_dst", "tag")

ANY = None
CODE = {
    # file suffix: functions (last part of the name), or any
    "torch/distributed/distributed_c10d.py": (
        "send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list",
    ),
    "deepspeed/runtime/pipe/p2p.py": ANY,
    "deepspeed/comm/comm.py": ("send", "recv", "isend", "irecv"),
    "deepspeed/comm/torch.py": ("send", "recv", "isend", "irecv"),
    "megatron/core/pipeline_parallel/p2p_communication.py": ANY,
    "torch/distributed/pipelining/stage.py": ANY,
    "torch/distributed/pipelining/schedules.py": ANY,
}  # fmt: skip
"""torch 2.13, DeepSpeed 0.19, Megatron-core 0.16."""

_BY_NAME: Dict[str, List[str]] = {}
for _suffix in CODE:
    _BY_NAME.setdefault(_suffix.rsplit("/", 1)[1], []).append(_suffix)

_INTEGER = re.compile(r"-?\d{1,18}")


def is_p2p(frame: Dict[str, Any]) -> bool:
    """True for a frame of code known to send to, or receive from, one peer."""
    filename: str = frame["filename"]
    for suffix in _BY_NAME.get(filename.rsplit("/", 1)[-1], ()):
        if filename.endswith("/" + suffix) or filename == suffix:
            functions = CODE[suffix]
            return functions is ANY or frame["name"].rsplit(".", 1)[-1] in functions
    return False


def kept(frame: Dict[str, Any]) -> Optional[List[Dict[str, Any]]]:
    """py-spy's records of the integers to keep from a frame taken with ``--locals``; None for none."""
    records = frame["locals"]
    if not isinstance(records, list) or not is_p2p(frame):
        return None
    found = [
        {
            "name": record["name"],
            "addr": record.get("addr"),
            "arg": record.get("arg") is True,
            "repr": record["repr"],
        }
        for record in records
        if isinstance(record, dict) and record.get("name") in KEPT and _is_integer(record.get("repr"))
    ]
    return found or None


def _is_integer(text: Any) -> bool:
    return isinstance(text, str) and _INTEGER.fullmatch(text) is not None


def add(frames: List[Dict[str, Any]], detailed: List[Dict[str, Any]]) -> bool:
    """Gives ``frames`` the integers of the same stack dumped again with locals. False, and nothing is
    changed, when the two are not the same stack."""
    if [_place(frame) for frame in frames] != [_place(frame) for frame in detailed]:
        return False
    for index, other in enumerate(detailed):
        integers = kept(other)
        if integers is not None:
            frames[index] = {**frames[index], "locals": integers}  # the frame itself is shared
    return True


def _place(frame: Dict[str, Any]) -> Any:
    return frame["filename"], frame["line"], frame["name"]

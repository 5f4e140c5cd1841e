"""What NVIDIA's Xid numbers mean for a hang: which are first causes, and which only follow another fault.

Meanings and actions: NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors, 2025-10) and ``nverror.h`` of
the open kernel modules 595. Which number follows which: reports of stuck jobs.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

Part = Literal["cause", "app", "follower", "symptom", "note"]


class Significance(msgspec.Struct, frozen=True):
    """One Xid number. ``part``: *cause*: the GPU or its links broke; *app*: the program on this GPU broke it;
    *follower*: comes after another fault, or after a killed process; *symptom*: also comes of a hang that
    began elsewhere; *note*: nothing stops because of it."""

    code: int
    name: str
    part: Part
    action: str

    @property
    def follower(self) -> bool:
        """Never the first event: something else, or somebody's kill, came before it."""
        return self.part == "follower"

    @property
    def app(self) -> bool:
        """The program's own fault, as long as no hardware fault of the GPU stands before it."""
        return self.part == "app"

    @property
    def fatal(self) -> bool:
        """The GPU, or what runs on it, does not go on after it, and nothing else need have come before."""
        return self.part in ("cause", "app")


RESTART = "restart the job"
DEBUG = "look for an illegal access in the program (compute-sanitizer); drain the GPU if it comes back there"
RESET = "reset the GPU before the next run"
REBOOT = "drain the node and reboot it"
LINK = "drain the node; look at both ends of the NVLink and at the switch's SXid lines"
FIRST = "look for the event before it"
NOTHING = "nothing now"

_TABLE: tuple[tuple[int, str, Part, str], ...] = (
    (8, "the GPU stopped processing", "cause", RESTART),
    (13, "exception in a kernel of the program", "app", DEBUG),
    (31, "GPU page fault", "app", DEBUG),
    (32, "corrupted push buffer", "cause", RESTART),
    (38, "firmware watchdog", "note", NOTHING),
    (43, "channel reset after a fault of the program", "follower", FIRST),
    (45, "channels torn down", "follower", FIRST),
    (46, "the GPU stopped processing", "cause", RESET),
    (48, "double-bit ECC error", "cause", RESET),
    (61, "internal microcontroller breakpoint", "note", NOTHING),
    (62, "internal microcontroller halt", "cause", RESET),
    (63, "row marked for remapping", "note", RESET),
    (64, "row remapping failed", "cause", RESET),
    (69, "graphics engine class error", "app", DEBUG),
    (74, "NVLink error", "cause", LINK),
    (79, "the GPU fell off the bus", "cause", REBOOT),
    (92, "many single-bit ECC errors", "note", NOTHING),
    (94, "contained memory error", "cause", RESTART),
    (95, "uncontained memory error", "cause", RESET),
    (109, "context switch time-out", "symptom", FIRST),
    (110, "security fault", "cause", RESET),
    (119, "GSP firmware does not answer", "cause", RESET),
    (120, "GSP firmware error", "cause", RESET),
    (121, "corrected error of the CPU link", "note", NOTHING),
    (136, "NVLink training failed", "cause", RESET),
    (137, "NVLink fault of a remote GPU", "follower", "look at the GPUs at the other ends"),
    (140, "unrecoverable ECC error", "cause", RESET),
    (143, "the GPU could not be initialised", "cause", RESET),
    (144, "NVLink SAW error", "cause", LINK),
    (145, "NVLink RLW error", "cause", LINK),
    (146, "NVLink TLW error", "cause", LINK),
    (147, "NVLink TREX error", "cause", LINK),
    (148, "NVLink power control error", "cause", LINK),
    (149, "NVLink NETIR error", "cause", LINK),
    (150, "NVLink MSE error", "cause", LINK),
    (151, "key rotation", "note", RESTART),
    (154, "recovery action changed", "follower", "do what the line says"),
    (155, "NVLink software error", "cause", RESET),
    (156, "resource retired", "note", RESET),
    (157, "resource could not be retired", "note", NOTHING),
    (158, "the GPU timed out fatally", "cause", RESET),
    (160, "channel retired", "note", NOTHING),
    (161, "channel could not be retired", "note", NOTHING),
    (167, "fatal PCIe time-out", "cause", REBOOT),
    (171, "detail of a double-bit error in memory", "follower", FIRST),
    (172, "detail of a double-bit error in a cache", "follower", FIRST),
    (173, "fatal error of the CPU link", "cause", REBOOT),
)

XIDS: dict[int, Significance] = {row[0]: Significance(*row) for row in _TABLE}
NVLINK = frozenset({74, 136, 137, *range(144, 151), 155})
"""Errors of the links between GPUs: the fault may be at either end."""
NONFATAL = re.compile(r"\bnon-?fatal\b", re.IGNORECASE)


def significance(code: int, text: str = "") -> Significance:
    """What Xid ``code`` means; ``text`` (the line) tells fatal from non-fatal link errors, and followers.

    >>> significance(79).name, significance(45).follower, significance(31).app
    ('the GPU fell off the bus', True, True)
    >>> significance(149, "149, NETIR_LINK_EVT Nonfatal XC0 i0 Link 08").part
    'note'
    >>> significance(999).part
    'symptom'

    A number that is not in the table is taken for a symptom: it is shown, and nobody is named for it.
    """
    known = XIDS.get(code) or Significance(code, f"Xid {code}", "symptom", "look it up in NVIDIA's catalogue")
    if "caused by previous Xid" in text:
        return msgspec.structs.replace(known, part="follower", action=FIRST)
    if 144 <= code <= 150 and NONFATAL.search(text):
        return msgspec.structs.replace(known, part="note", action=NOTHING)
    return known


def code_of(kind: str) -> int | None:
    """The number in a kernel event's kind.

    >>> code_of("xid-79"), code_of("oom-kill")
    (79, None)
    """
    name, _, number = kind.partition("-")
    return int(number) if name == "xid" and number.isascii() and number.isdigit() else None

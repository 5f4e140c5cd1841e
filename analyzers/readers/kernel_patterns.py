"""The lines of the kernel that mean something for a hang: what is in them, and what they tell.

Upstream: NVIDIA's open kernel modules 595, Linux 4 to 6.19 (mm/oom_kill.c, kernel/hung_task.c,
kernel/watchdog.c, kernel/rcu/tree_stall.h, net/sunrpc, drivers/pci/pcie/aer.c), Lustre 2.15, mlx5_core.
"""

from __future__ import annotations

import re

import msgspec

from .needles import any_of


class Pattern(msgspec.Struct, frozen=True):
    """``literals``: one of them is in every such line. ``regex``: groups code (appended to the kind), pid and
    task. ``device``: the first PCI address of the line is what it speaks of."""

    kind: str
    literals: tuple[str, ...]
    regex: re.Pattern[str]
    device: bool = False


def _row(kind: str, literals: str, regex: str, device: bool = False) -> Pattern:
    return Pattern(kind, tuple(literals.split("|")), re.compile(regex), device)


_TASK = r"(?P<task>\S.{0,63}?)"
_COMM = r"(?P<task>[^\s\[\]][^\[\]]{0,15}?)"
"""The kernel's name of a task has at most 15 characters; worker threads print longer ones."""
_PID = r"(?P<pid>\d{1,9})"

GPU = (
    _row(
        "xid",
        "NVRM: Xid (",
        r"NVRM: Xid \([^)]{4,80}\): (?P<code>\d{1,4})\b"
        rf"(?:, pid='?(?:{_PID}|<unknown>)'?)?(?:, name=(?P<task>[^,<]{{1,64}}))?",
        device=True,
    ),
    _row("sxid", ": SXid (", r"nvidia-nvswitch\d*: SXid \([^)]{4,80}\): (?P<code>\d{1,6})", device=True),
    _row(
        "gpu-lost",
        "fallen off the bus|not responding to commands",
        r"NVRM.{0,200}(?:fallen off the bus|not responding to commands)",
        device=True,
    ),
    _row(
        "nvlink",
        "NVLink|nvlink|Nvlink",
        r"NVRM:.{0,120}\b(?:NVL|nvl|Nvl)ink.{0,120}(?:rror|ailed|down)",
        device=True,
    ),
    _row("driver-mismatch", "NVRM: API mismatch", r"NVRM: API mismatch"),
)
TASKS = (
    _row("oom-kill", "Killed process ", rf"Killed process {_PID} \((?P<task>[^)]{{1,64}})\)"),
    _row("oom-invoked", " invoked oom-killer", rf"{_COMM} invoked oom-killer\b"),
    _row(
        "hung-task",
        "blocked for more than|blocked in I/O wait for more than",
        rf"INFO: task {_TASK}:{_PID} (?:<writer> )?blocked (?:in I/O wait )?for more than \d{{1,9}} s",
    ),
    _row(
        "soft-lockup",
        "soft lockup - CPU#",
        rf"soft lockup - CPU#\d{{1,5}} stuck for \d{{1,9}}s! \[{_TASK}:{_PID}\]",
    ),
    _row("hard-lockup", "hard LOCKUP", r"hard LOCKUP"),
    _row(
        "rcu-stall",
        "detected stall|detected expedited stall",
        r"\brcu.{0,40}(?:self-)?detected (?:expedited )?stalls?\b",
    ),
    _row(
        "segfault",
        "]: segfault at | general protection",
        rf"{_COMM}\[{_PID}\]:? (?:segfault at |general protection)",
    ),
)
STORAGE = (
    _row("nfs-not-responding", "nfs: server ", r"nfs: server \S{1,200} (?:not responding|timed out)"),
    _row("nfs-ok", "nfs: server ", r"nfs: server \S{1,200} OK$"),
    _row(
        "lustre-evicted",
        "This client was evicted by",
        r"LustreError:.{0,80}This client was evicted by",
    ),
    _row(
        "lustre-lost",
        " was lost",
        r"Lustre:.{0,120}Connection to \S{1,100}(?: \(at [^)]{1,80}\))? was lost",
    ),
    _row("lustre-ok", "Connection restored to", r"Lustre:.{0,120}Connection restored to"),
    _row("lustre-error", "LustreError: ", r"LustreError:.{0,300}rc = -"),
    _row(
        "ceph-stuck", "ceph: mds|libceph: ", r"\bceph: mds\d{1,4} hung|libceph: \S{1,20}.{0,80}socket closed"
    ),
    _row(
        "storage-error",
        "I/O error|: I/O ",
        r"metadata I/O error|blk_update_request: (?:critical )?\S{0,20} ?I/O error|\bI/O error, dev "
        r"|nvme\d{1,4}: I/O \d{1,6} .{0,60}timeout",
    ),
)
DEVICES = (
    _row(
        "link-down",
        ": Link down|Link is Down|link becomes not ready",
        r"mlx5_core .{0,80}: Link down|NIC Link is Down|Link is Down|link becomes not ready",
        device=True,
    ),
    _row(
        "nic-error",
        "Cable unplugged|health compromised|Fatal error|Health issue observed|Will cause a leak|_out_err"
        "|NETDEV WATCHDOG",
        r"mlx5_core .{0,160}(?:Cable unplugged|health compromised|Fatal error|Health issue observed"
        r"|timeout\. Will cause a leak|_out_err.{0,60}failed)|NETDEV WATCHDOG: \S{1,40}",
        device=True,
    ),
    _row(
        "aer-fatal",
        "AER: |PCIe Bus Error: |DPC: ",
        r"AER: (?:Multiple )?Uncorrect(?:ed|able) \(Fatal\)"
        r"|PCIe Bus Error: severity=Uncorrect(?:ed|able) \(Fatal\)|DPC: containment event",
        device=True,
    ),
    _row(
        "aer-nonfatal",
        "AER: |PCIe Bus Error: ",
        r"AER: (?:Multiple )?Uncorrect(?:ed|able) \(Non-Fatal\)|PCIe Bus Error: severity=Uncorrect",
        device=True,
    ),
    _row(
        "aer-corrected",
        "AER: |PCIe Bus Error: ",
        r"AER: (?:Multiple )?Correct(?:ed|able) error|PCIe Bus Error: severity=Correct",
        device=True,
    ),
    _row(
        "machine-check",
        "[Hardware Error]: |EDAC ",
        r"\[Hardware Error\]: (?:Machine check events logged|.{0,80}severity: (?:fatal|recoverable))"
        r"|EDAC \S{1,20} \d{1,6} UE ",
    ),
    _row(
        "thermal",
        "temperature above threshold|critical temperature reached",
        r"temperature above threshold|critical temperature reached",
    ),
)
PATTERNS = (*GPU, *TASKS, *STORAGE, *DEVICES)
"""The first match wins."""

_ANY = re.compile(any_of(tuple({literal for pattern in PATTERNS for literal in pattern.literals})))


def literals_of(patterns: tuple[Pattern, ...]) -> tuple[str, ...]:
    """What one of is in every line of those kinds."""
    return tuple(sorted({literal for pattern in patterns for literal in pattern.literals}))


def may_mean_something(text: str) -> bool:
    """False for nearly all lines, at the cost of one search."""
    return _ANY.search(text) is not None


def match(text: str) -> tuple[Pattern, re.Match[str]] | None:
    """The first pattern that fits the line."""
    for pattern in PATTERNS:
        if any(literal in text for literal in pattern.literals):
            found = pattern.regex.search(text)
            if found is not None:
                return pattern, found
    return None

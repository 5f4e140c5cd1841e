"""NCCL: warnings, failed connections and error codes on their way up (2.4 → 2.32).

>>> from hangscope.model.loose import NOBODY
>>> from .interface import Line
>>> text = ("node-a:411:502 [0] transport/net_ib.cc:1400 NCCL WARN NET/IB: Got completion from peer "
...   "10.0.0.7<44206> with status=12 opcode=129 len=65536 vendor err 129 (Recv) hca mlx5_0")
>>> event = read(Line(9, text, NOBODY, "x.log"))[0]
>>> event.kind, event.code, event.key, event.operation
('nccl-network', 12, '10.0.0.7:44206', 'hca mlx5_0 opcode 129 vendor 129')
>>> text = "node-a:411:502 [0] NCCL INFO proxy.cc:874 -> 6 [Progress Thread]"
>>> event = read(Line(9, text, NOBODY, "x.log"))[0]
>>> event.kind, event.code, event.key
('nccl-error', 6, 'Progress Thread')

What another fault leads to is told apart: ``nccl-closed`` for a peer that closed its connection and for
requests that were flushed (ibv_wc_status 5). Some warnings stand in healthy logs; they are no events.
Who prints is mostly a victim; the peer that is named is one step nearer to the cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hangscope.model.loose import LogEvent

from .interface import Line, LineForm
from .nccl_line import NcclLine, messages

_FLUSHED = 5
_PEER = r"(?P<peer>\[?[\w.:%-]{1,80}\]?(?:<\d{1,5}>)?)"
_COMPLETION = re.compile(
    rf"NET/IB ?(?:/GIN)? ?: ?Got completion from peer {_PEER} with (?:error |status=)"
    r"(?:[A-Z_]{1,40}\()?(?P<code>\d{1,4})\)?,? opcode[= ](?:[A-Z_]{1,40}\()?(?P<opcode>-?\d{1,9})"
)
_VENDOR = re.compile(r"vendor[_ ]err[= ](\d{1,10})")
_HCA = re.compile(r"\bhca (\S{1,40})")
_CHAIN = re.compile(
    r"(?P<place>[\w./+-]{1,160}:\d{1,7})(?: \([^()\n]{1,120}\))? -> (?P<code>\d{1,3})"
    r"(?: \((?P<why>[^()\n]{1,80})\))?(?: \[(?P<thread>[^\]\n]{1,40})\])?\s*$"
)
_SIZES = re.compile(
    r"(?:receiv(?:ing|ed) (?P<got>\d{1,20})(?:,\d{1,20})? bytes instead of (?P<want>\d{1,20})|"
    r"local size (?P<local>\d{1,20}) remote(?: size)? (?P<remote>\d{1,20}))"
)
_AROUND = re.compile(r"mismatch around rank (\d{1,7})")
_CLAIMED = re.compile(r"rank (?P<rank>\d{1,7}) of (?P<nranks>\d{1,7}) ranks has already checked in")
_NAMED_PEER = re.compile(r"(?<![\w.:%\[-])(?P<peer>\[?[\w.:%-]{1,80}\]?<\d{1,5}>)")
_LOCAL_RANK = re.compile(r"closed by localRank (\d{1,5})")

_Rule = tuple[str, re.Pattern[str]]
_RULES: tuple[_Rule, ...] = (
    (
        "nccl-duplicate-rank",
        re.compile(r"has already checked in|^Duplicate GPU detected|^Multiple Ranks are using"),
    ),
    (
        "nccl-mismatch",
        re.compile(
            r"[Mm]essage truncated :|collective mismatch|posted incorrect receive info|"
            r"^Mismatched NCCL version|^Bootstrap Root : mismatch in|may be hanging, this may be caused by"
        ),
    ),
    (
        "nccl-shared-memory",
        re.compile(
            r"failed to (?:extend|create shared memory file)|posix_fallocate|shared memory segment /dev/shm|"
            r"^Error: Could not map"
        ),
    ),
    ("cuda-error", re.compile(r"^(?:\S{1,160}:\d{1,7} )?Cuda failure ")),
    (
        "nccl-closed",
        re.compile(
            r"Connection closed by |Connection reset by peer|Broken pipe|closing connection$|^Accept failed|"
            r"in abort state|closed by peer on (?:send|receive)"
        ),
    ),
    (
        "nccl-network",
        re.compile(
            r"Got completion from peer|Got async event : (?:port error|device fatal)|async fatal event|"
            r"Got async error event|communicator encountered a fatal error|No transport found|"
            r"connect(?: to \S{1,90})? (?:returned|failed)|Call to (?:connect|recv|send|bind|listen)\b|"
            r"Connect to \S{1,90} (?:returned|failed)|exceeded (?:error )?(?:retry|retries|timeouts)|"
            r"No (?:usable listening )?interface found|no socket interface found|no interface found|"
            r"socket (?:progress error|magic mismatch)|wrong (?:socket )?(?:type|magic)|Got CQE with error|"
            r"MNNVL .{0,40}not (?:working|supported)|declaring peer \S{1,90} as DEAD|"
            r"(?:keep-alive|send stuck|init) timeout error|Failed to execute operation|"
            r"poll(?:\(\))? failed with|failed with error"
        ),
    ),
)
"""The first pattern found in a message gives its kind."""

_BENIGN = re.compile(
    r"Cannot initialize CollNet|Could not find real path|NSOCKS_PERTHREAD|NCCL_SOCKET_NTHREADS|"
    r"Ignoring SHM locality|Got async event : (?:port active|client reregistration|GID|SM |LID|P_Key)|"
    r"GID table changed|non-fatal async event|speed change|Could not find: |plugin|Plugin|"
    r"remote FLID configured as zero|Failed to open libnvidia-ml|Unable to create thread context due to old|"
    r"Resiliency requires pre-posted|"
    r"ibv_modify_qp_timed|unknown event type|Cuda Host Register is not supported|"
    r"fails to share parent comms|NCCL_IB_MERGE_NICS|Retrieve \S{1,60} (?:version|failed)"
)
_TOLD = re.compile(
    r"retrying|Connection closed by|Cuda failure|discarding|Call to |declaring peer|timeout error|"
    r"closed by peer on|Failed to execute"
)
"""Of INFO lines, those that are looked at."""


def read(line: Line) -> list[LogEvent]:
    """The faults in one line."""
    found = []
    for said in messages(line):
        event = _event(said)
        if event is not None:
            found.append(event)
    return found


def _event(said: NcclLine) -> LogEvent | None:
    if said.level == "INFO":
        chain = _CHAIN.match(said.text)
        if chain is not None:
            return _chain(said, chain)
        if _TOLD.search(said.text) is None:
            return None
    elif said.level not in ("WARN", "ATTN") or not said.text or _BENIGN.search(said.text) is not None:
        return None
    kind = next((kind for kind, pattern in _RULES if pattern.search(said.text)), None)
    if kind is None:
        return None if said.level == "INFO" else _plain(said, "nccl-warning")
    return _READERS.get(kind, _plain)(said, kind)


def _plain(said: NcclLine, kind: str) -> LogEvent:
    return LogEvent(kind=kind, origin=said.origin, key=_peer(said.text), text=said.shown, ref=said.line.ref)


def _chain(said: NcclLine, match: re.Match[str]) -> LogEvent | None:
    """One step of an error code upwards; 0 is success, 7 still under way (ncclResult_t)."""
    code = int(match["code"])
    if code in (0, 7):
        return None
    return LogEvent(
        kind="nccl-error",
        origin=said.origin,
        code=code,
        key=match["thread"],
        operation=match["place"],
        text=said.shown,
        ref=said.line.ref,
    )


def _network(said: NcclLine, kind: str) -> LogEvent:
    match = _COMPLETION.search(said.text)
    if match is None:
        return _plain(said, kind)
    code = int(match["code"])
    vendor, hca = _VENDOR.search(said.text), _HCA.search(said.text)
    told = [
        f"hca {hca[1]}" if hca else "",
        f"opcode {match['opcode']}",
        f"vendor {vendor[1]}" if vendor else "",
    ]
    return LogEvent(
        kind="nccl-closed" if code == _FLUSHED else kind,
        origin=said.origin,
        code=code,
        key=_address(match["peer"]),
        operation=" ".join(part for part in told if part),
        text=said.shown,
        ref=said.line.ref,
    )


def _closed(said: NcclLine, kind: str) -> LogEvent:
    local = _LOCAL_RANK.search(said.text)
    key = f"localRank {local[1]}" if local is not None else _peer(said.text)
    return LogEvent(kind=kind, origin=said.origin, key=key, text=said.shown, ref=said.line.ref)


def _mismatch(said: NcclLine, kind: str) -> LogEvent:
    """``sizes``: what came or is here, and what was expected or is there, in bytes."""
    sizes, around = _SIZES.search(said.text), _AROUND.search(said.text)
    pair = None
    if sizes is not None:
        here, there = sizes["got"] or sizes["local"], sizes["want"] or sizes["remote"]
        pair = f"{here}/{there}"
    return LogEvent(
        kind=kind,
        origin=said.origin,
        about=(int(around[1]),) if around is not None else (),
        about_group_ranks=around is not None,
        sizes=pair,
        key=_peer(said.text),
        text=said.shown,
        ref=said.line.ref,
    )


def _duplicate(said: NcclLine, kind: str) -> LogEvent:
    """``about``: the rank that is claimed twice, in a communicator that the line does not name."""
    claimed = _CLAIMED.search(said.text)
    return LogEvent(
        kind=kind,
        origin=said.origin,
        about=(int(claimed["rank"]),) if claimed is not None else (),
        about_group_ranks=claimed is not None,
        key=f"nranks {claimed['nranks']}" if claimed is not None else None,
        text=said.shown,
        ref=said.line.ref,
    )


_READERS: dict[str, Callable[[NcclLine, str], LogEvent]] = {
    "nccl-network": _network,
    "nccl-closed": _closed,
    "nccl-mismatch": _mismatch,
    "nccl-duplicate-rank": _duplicate,
}


def _peer(text: str) -> str | None:
    """The address that a message names."""
    match = _NAMED_PEER.search(text)
    return _address(match["peer"]) if match is not None else None


def _address(text: str) -> str:
    """``10.0.0.7<44206>`` as ``10.0.0.7:44206``."""
    host, _, port = text.rstrip(">").partition("<")
    return f"{host}:{port}" if port else host


FORM = LineForm(
    name="nccl-warning",
    title="NCCL log: warnings, connections and error codes",
    needles=(
        *("NCCL WARN", "NCCL ATTN", "retrying", "Connection closed by", "Cuda failure", "discarding peer"),
        *(".cc:", ".h:", ".cu:", "declaring peer", "timeout error", "closed by peer on", "Failed to execute"),
    ),
    read=read,
)

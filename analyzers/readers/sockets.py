"""``sockets/node/sockets.json``: the socket tables of every network namespace, and who owns which inode.

>>> row = "0: 0100007F:6B74 0100007F:9C40 01 00000030:00000000 01:00000014 00000005 0 0 77 1 0000"
>>> sample = (b'{"namespaces": [{"net": "net:[1]", "pids": [41], "unix": "", "tcp6": "",'
...   b'"tcp": "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\\\\n'
...   + row.encode() + b'"}], "tcp_info": [{"inode": 77, "unacked": 1}],'
...   b'"owners": [{"pid": 41, "fd": 9, "inode": 77}]}')
>>> table = read(sample, "x")
>>> line = table.lines[0]
>>> line.local, line.remote, line.state, line.tx_queue, line.timer, line.retransmits
('127.0.0.1:27508', '127.0.0.1:40000', 'ESTABLISHED', 48, 'retrans', 5)
"""

from __future__ import annotations

import ipaddress
import struct

import msgspec

from .raw import decode, number

STATES = (
    "UNKNOWN",
    "ESTABLISHED",
    "SYN_SENT",
    "SYN_RECV",
    "FIN_WAIT1",
    "FIN_WAIT2",
    "TIME_WAIT",
    "CLOSE",
    "CLOSE_WAIT",
    "LAST_ACK",
    "LISTEN",
    "CLOSING",
)
"""By number, from the kernel's include/net/tcp_states.h."""

TIMERS = (None, "retrans", "keepalive", "timewait", "probe")
"""The two digits before the timer's time in /proc/net/tcp (Documentation/networking/proc_net_tcp.rst)."""

UNIX_STATES = {1: "UNCONNECTED", 2: "CONNECTING", 3: "ESTABLISHED", 4: "DISCONNECTING"}


class TcpInfo(msgspec.Struct, frozen=True, kw_only=True):
    """tcp_info of one socket by netlink; ``_ms`` are ages in milliseconds at capture time."""

    inode: int
    unacked: int | None = None
    notsent: int | None = None
    retransmits: int | None = None
    last_data_sent_ms: int | None = None
    last_data_recv_ms: int | None = None
    bytes_acked: int | None = None
    bytes_received: int | None = None


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    fd: int
    inode: int


class SocketLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a table. Addresses ``ip:port``, IPv4-mapped IPv6 as IPv4; a path or '' for Unix sockets."""

    net: str
    family: str
    inode: int
    state: str
    local: str
    remote: str | None = None
    tx_queue: int = 0
    rx_queue: int = 0
    timer: str | None = None
    retransmits: int = 0


class SocketTable(msgspec.Struct, frozen=True):
    lines: tuple[SocketLine, ...]
    info: dict[int, TcpInfo]
    owners: tuple[Owner, ...]


class _RawNamespace(msgspec.Struct):
    net: str | None = None
    tcp: str | None = None
    tcp6: str | None = None
    unix: str | None = None


class _RawSockets(msgspec.Struct):
    namespaces: list[_RawNamespace]
    tcp_info: list[TcpInfo] | None = None
    owners: list[Owner] | None = None


def read(data: bytes, path: str) -> SocketTable:
    """All sockets with a known inode; lines that are not understood are left out."""
    raw = decode(data, _RawSockets, path)
    lines: list[SocketLine] = []
    for space in raw.namespaces:
        name = space.net or ""
        for text, family in ((space.tcp, "tcp"), (space.tcp6, "tcp")):
            lines.extend(found for row in (text or "").splitlines() if (found := _tcp(row, name, family)))
        lines.extend(found for row in (space.unix or "").splitlines() if (found := _unix(row, name)))
    return SocketTable(
        tuple(lines), {item.inode: item for item in raw.tcp_info or ()}, tuple(raw.owners or ())
    )


def _tcp(row: str, net: str, family: str) -> SocketLine | None:
    words = row.split()
    if len(words) < 10 or not words[0].endswith(":"):
        return None
    local, remote = address(words[1]), address(words[2])
    state, inode = number(words[3], 16), number(words[9])
    queues, timer = words[4].split(":"), number(words[5][:2], 16)
    if local is None or remote is None or not inode or state is None or len(queues) != 2:
        return None
    return SocketLine(
        net=net,
        family=family,
        inode=inode,
        state=STATES[state] if state < len(STATES) else "UNKNOWN",
        local=local,
        remote=None if remote.endswith(":0") else remote,
        tx_queue=number(queues[0], 16) or 0,
        rx_queue=number(queues[1], 16) or 0,
        timer=TIMERS[timer] if timer is not None and timer < len(TIMERS) else None,
        retransmits=number(words[6], 16) or 0,
    )


def _unix(row: str, net: str) -> SocketLine | None:
    """``Num RefCount Protocol Flags Type St Inode Path``."""
    words = row.split(maxsplit=7)
    if len(words) < 7 or not words[0].endswith(":"):
        return None
    inode, flags, state = number(words[6]), number(words[3], 16), number(words[5], 16)
    if not inode:
        return None
    listening = bool((flags or 0) & 0x10000)
    name = "LISTEN" if listening else UNIX_STATES.get(state or 0, "UNKNOWN")
    return SocketLine(
        net=net, family="unix", inode=inode, state=name, local=words[7] if len(words) > 7 else ""
    )


def address(text: str) -> str | None:
    """``HEXADDRESS:HEXPORT`` (32-bit words in the machine's little-endian order) as ``ip:port``.

    >>> address("0100007F:6B74"), address("0000000000000000FFFF00000100007F:6B74")
    ('127.0.0.1:27508', '127.0.0.1:27508')
    >>> address("00000000000000000000000001000000:0050")
    '[::1]:80'
    """
    host, found, port_text = text.partition(":")
    port = number(port_text, 16)
    try:
        packed = bytes.fromhex(host)
    except ValueError:
        return None
    if not found or port is None or len(packed) not in (4, 16):
        return None
    words = struct.unpack(f"<{len(packed) // 4}I", packed)
    whole = struct.pack(f">{len(words)}I", *words)
    if len(whole) == 4:
        return f"{ipaddress.IPv4Address(whole)}:{port}"
    six = ipaddress.IPv6Address(whole)
    return f"{six.ipv4_mapped}:{port}" if six.ipv4_mapped else f"[{six}]:{port}"

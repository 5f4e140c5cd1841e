"""The kernel's ``tcp_info`` of every TCP socket of a network namespace, by netlink, without ``ss``.

Layouts from ``include/uapi/linux/{netlink,inet_diag,tcp}.h`` (Linux 3.3; later kernels only append fields).
"""

import os
import socket
import struct
from typing import Any, Dict, Iterator, List, Tuple

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST_DUMP = 0x1 | 0x300
NLMSG_ERROR = 2
NLMSG_DONE = 3
INET_DIAG_INFO = 2
STATES = 0xFFF & ~(1 << 6 | 1 << 10 | 1)
"""Every TCP state but TIME_WAIT (6) and LISTEN (10), which carry no tcp_info that tells anything."""
INODE = struct.Struct("=I")
INODE_AT = 68
"""Offset of ``idiag_inode`` in struct inet_diag_msg, which is 72 bytes long."""
HEADER = struct.Struct("=IHHII")
FIELDS: Tuple[Tuple[str, str, int], ...] = (
    ("retransmits", "=B", 2),
    ("probes", "=B", 3),
    ("backoff", "=B", 4),
    ("rto_us", "=I", 8),
    ("unacked", "=I", 24),
    ("lost", "=I", 32),
    ("last_data_sent_ms", "=I", 44),
    ("last_data_recv_ms", "=I", 52),
    ("last_ack_recv_ms", "=I", 56),
    ("rtt_us", "=I", 68),
    ("bytes_acked", "=Q", 120),
    ("bytes_received", "=Q", 128),
    ("notsent", "=I", 144),
)
"""(name in FORMAT.md, type, offset in struct tcp_info). The last three came with Linux 4.1, 4.1 and 4.6."""
PATIENCE = 1.0
"""Seconds that the kernel gets for each part of its answer."""


def request(family: int) -> bytes:
    """A dump request for all TCP sockets of an address family, with tcp_info."""
    body = struct.pack("=BBBBI48x", family, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0, STATES)
    return HEADER.pack(HEADER.size + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, 1, 0) + body


def messages(data: bytes) -> Iterator[Tuple[int, bytes]]:
    """(type, payload) of each netlink message in a datagram; stops at one that does not fit."""
    at = 0
    while at + HEADER.size <= len(data):
        length, kind, _, _, _ = HEADER.unpack_from(data, at)
        if length < HEADER.size or at + length > len(data):
            return
        yield kind, data[at + HEADER.size : at + length]
        at += (length + 3) & ~3


def parse(payload: bytes) -> Dict[str, Any]:
    """``{"inode", …}`` of one inet_diag message; a field that the kernel does not have yet is left out."""
    row: Dict[str, Any] = {"inode": INODE.unpack_from(payload, INODE_AT)[0]}
    at = INODE_AT + INODE.size
    while at + 4 <= len(payload):
        length, kind = struct.unpack_from("=HH", payload, at)
        if length < 4 or at + length > len(payload):
            break
        if kind == INET_DIAG_INFO:
            info = payload[at + 4 : at + length]
            for name, form, offset in FIELDS:
                if offset + struct.calcsize(form) <= len(info):
                    row[name] = struct.unpack_from(form, info, offset)[0]
        at += (length + 3) & ~3
    return row


def dump(family: int) -> List[Dict[str, Any]]:
    """The rows of all TCP sockets of one family in the namespace of this process. Raises OSError."""
    rows: List[Dict[str, Any]] = []
    with socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG
    ) as channel:
        channel.settimeout(PATIENCE)
        channel.sendto(request(family), (0, 0))
        while True:
            for kind, payload in messages(channel.recv(1 << 17)):
                if kind == NLMSG_DONE:
                    return rows
                if kind == NLMSG_ERROR:
                    number = -struct.unpack_from("=i", payload)[0]
                    raise OSError(number, os.strerror(number))
                if kind == SOCK_DIAG_BY_FAMILY and len(payload) >= INODE_AT + INODE.size:
                    rows.append(parse(payload))


def of_namespaces(places: List[Tuple[str, str]], wanted: List[int]) -> Iterator[Tuple[str, Any, Any]]:
    """Runs in a child: (key, rows, error) for each (key, path of a ``ns/net`` file; "" for the own one).

    Only sockets whose inode is in ``wanted`` are returned. Entering a foreign namespace needs CAP_SYS_ADMIN;
    the paths are opened before the first is entered, so that their order does not matter.
    """
    keep = set(wanted)
    opened: List[Tuple[str, int, str]] = []
    for key, path in places:
        try:
            opened.append((key, os.open(path, os.O_RDONLY | os.O_CLOEXEC) if path else -1, ""))
        except OSError as error:
            opened.append((key, -1, f"{path}: {error.strerror}"))
    for key, descriptor, problem in sorted(opened, key=lambda entry: entry[1]):
        if problem:
            yield key, [], problem
            continue
        try:
            if descriptor >= 0:
                _enter(descriptor)
            rows = [row for family in (socket.AF_INET, socket.AF_INET6) for row in dump(family)]
        except OSError as error:
            yield key, [], error.strerror or str(error)
            continue
        yield key, [row for row in rows if row["inode"] in keep], None


def _enter(descriptor: int) -> None:
    """setns(2) into a network namespace (``os.setns`` came with Python 3.12). Raises OSError."""
    import ctypes  # only in the child: it costs memory that the agent shall not take

    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(descriptor, 0x40000000) != 0:
        number = ctypes.get_errno()
        raise OSError(number, "setns: " + os.strerror(number))

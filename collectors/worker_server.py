"""Finds the port of a torch worker server, and asks it. No other port is ever connected to.

``torch._C._distributed_c10d._WorkerServer`` (torch 2.13, cpp-httplib) names its threads
``pt_workerserver``; one of them sleeps in accept on the listening socket, whose descriptor is therefore
the first argument of its system call. That is the proof: gloo, the store and user code listen too, but
not in a thread of that name. It answers without the GIL, and only to POST. Python >= 3.8.
"""

import base64
import os
import platform
import re
import socket
import struct
import time
from typing import Dict, List, NamedTuple, Optional, Tuple

from . import procfs

COMM = "pt_workerserver"

ACCEPT: Dict[str, Tuple[int, ...]] = {"x86_64": (43, 288), "aarch64": (202, 242)}
"""Numbers of accept and accept4."""

CAP = 32 << 20
"""Bytes of one answer."""

LOOKS = 3

CLONE_NEWNET = 0x40000000


class Address(NamedTuple):
    """Where the server listens: ``family`` inet, inet6 or unix; ``host`` is the path for unix."""

    family: str
    host: str
    port: int = 0


class NotThere(Exception):
    """No worker server that can be reached; the text says why. ``denied``: for want of permission."""

    def __init__(self, why: str, denied: bool = False) -> None:
        super().__init__(why)
        self.denied = denied


def find(pid: int, proc: str = "/proc", machine: Optional[str] = None) -> Address:
    """The address that the worker server of ``pid`` listens on. Raises NotThere."""
    tids = [tid for tid in procfs.tasks(pid, proc) if _comm(pid, tid, proc) == COMM]
    if not tids:
        raise NotThere("no torch worker server runs in it (a line in the job's script starts one)")
    numbers = ACCEPT.get(machine or platform.machine())
    if numbers is None:
        raise NotThere(f"its listening thread cannot be told on {machine or platform.machine()}")
    why = NotThere("none of its worker server's threads waits for a connection")
    for look in range(LOOKS):
        if look:
            time.sleep(0.005)
        for tid in tids:
            try:
                inode = _accepting_socket(pid, tid, numbers, proc)
            except NotThere as refused:
                why = refused
                continue
            if inode is not None:
                return _address(pid, inode, proc)
    raise why


def _comm(pid: int, tid: int, proc: str) -> str:
    return (procfs.read_text(f"{proc}/{pid}/task/{tid}/comm", 64)[0] or "").rstrip("\n")


def _accepting_socket(pid: int, tid: int, numbers: Tuple[int, ...], proc: str) -> Optional[int]:
    """The inode of the socket on which a thread sleeps in accept; None when it does something else."""
    text, error = procfs.read_text(f"{proc}/{pid}/task/{tid}/syscall", 4096)
    if error in procfs.REFUSED:
        raise NotThere(f"its system calls may not be read ({error})", denied=True)
    words = (text or "").split()
    if len(words) < 2 or not words[0].isdigit() or int(words[0]) not in numbers:
        return None
    # a C int in a 64-bit register: the upper half is not part of it
    link, error = procfs.read_link(f"{proc}/{pid}/fd/{int(words[1], 16) & 0xFFFFFFFF}")
    if error in procfs.REFUSED:
        raise NotThere(f"its open files may not be read ({error})", denied=True)
    found = re.fullmatch(r"socket:\[(\d+)\]", link or "")
    return int(found.group(1)) if found else None


def _address(pid: int, inode: int, proc: str) -> Address:
    for family, name in (("inet", "tcp"), ("inet6", "tcp6")):
        text, _ = procfs.read_text(f"{proc}/{pid}/net/{name}", 16 << 20)
        for line in (text or "").splitlines():
            words = line.split()
            if len(words) > 9 and words[9] == str(inode) and words[3] == "0A":  # TCP_LISTEN
                host, _, port = words[1].partition(":")
                return Address(family, _reachable(family, host), int(port, 16))
    text, _ = procfs.read_text(f"{proc}/{pid}/net/unix", 16 << 20)
    for line in (text or "").splitlines():
        words = line.split(None, 7)
        # flags 00010000 = SO_ACCEPTCON: it listens
        if len(words) == 8 and words[6] == str(inode) and words[3] == "00010000":
            return Address("unix", words[7])
    raise NotThere("its listening socket is in no table of its network namespace")


def _reachable(family: str, text: str) -> str:
    """The address as this machine connects to it. The kernel prints words of the host's byte order."""
    packed = b"".join(bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8))
    if not any(packed):
        return "127.0.0.1" if family == "inet" else "::1"
    return socket.inet_ntop(socket.AF_INET if family == "inet" else socket.AF_INET6, packed)


def post(pid: int, address: Address, handler: str, timeout: float, proc: str = "/proc") -> List[str]:
    """Asks ``/handler/<handler>``: [status code, body in base64]. Raises OSError, also for no HTTP.

    Only for ``guarded.call``: it enters the target's network namespace and a directory, for good.
    """
    until = time.monotonic() + timeout
    enter_network(pid, proc)
    with _connect(pid, address, timeout, proc) as stream:
        stream.sendall(
            f"POST /handler/{handler} HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n"
            "Connection: close\r\n\r\n".encode("ascii")
        )
        data = _read_all(stream, until)
    head, _, body = data.partition(b"\r\n\r\n")
    found = re.match(rb"HTTP/1\.[01] (\d{3})", head)
    if found is None:
        raise OSError("what answers is no HTTP server")
    length = re.search(rb"(?im)^content-length:\s*(\d+)\s*$", head.replace(b"\r", b""))
    if length is not None and len(body) != int(length.group(1)):
        raise OSError(f"the answer was cut: {len(body)} of {length.group(1).decode()} bytes")
    return [found.group(1).decode("ascii"), base64.b64encode(body).decode("ascii")]


def enter_network(pid: int, proc: str) -> None:
    """The same address means another socket in another network namespace."""
    own, theirs = procfs.read_link("/proc/self/ns/net")[0], procfs.namespace(pid, "net", proc)
    if own is not None and own == theirs:
        return
    import ctypes

    descriptor = os.open(f"{proc}/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET) != 0:
        raise PermissionError(ctypes.get_errno(), "its network namespace may not be entered")


def _connect(pid: int, address: Address, timeout: float, proc: str) -> socket.socket:
    families = {"inet": socket.AF_INET, "inet6": socket.AF_INET6, "unix": socket.AF_UNIX}
    stream = socket.socket(families[address.family])
    stream.settimeout(timeout)
    try:
        if address.family == "unix":
            stream.connect(_enter_directory(pid, address.host, proc))
            _check_peer(stream, pid)
        else:
            stream.connect((address.host, address.port))
    except OSError:
        stream.close()
        raise
    return stream


def _enter_directory(pid: int, path: str, proc: str) -> bytes:
    """The name of a Unix socket as seen from the directory entered: a whole path may be too long for one."""
    if path.startswith("@"):
        return b"\0" + os.fsencode(path[1:])
    root = f"{proc}/{pid}/root" if path.startswith("/") else f"{proc}/{pid}/cwd/"
    folder, name = os.path.split(root + path)
    os.chdir(folder)
    return os.fsencode(name)


def _check_peer(stream: socket.socket, pid: int) -> None:
    """A path can be given to another socket: what answers must be the process itself."""
    credentials = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    listener: int = struct.unpack("3i", credentials)[0]
    if listener != pid:
        raise OSError(f"process {listener} listens there now")


def _read_all(stream: socket.socket, until: float) -> bytes:
    chunks: List[bytes] = []
    size = 0
    while size <= CAP:
        stream.settimeout(max(0.001, until - time.monotonic()))
        chunk = stream.recv(1 << 18)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
        size += len(chunk)
    raise OSError(f"the answer is larger than {CAP >> 20} MB")

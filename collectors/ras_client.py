"""The client's half of NCCL's RAS protocol (2.24 on): text lines, then one report that ends the connection.

All processes of one user share the port of a node (SO_REUSEPORT): whichever the kernel chose answers for the
whole job, and one that is stopped accepts and never answers. So the handshake is short, and another
connection is tried. One report at a time, and one a connection. Python >= 3.8, standard library only.
"""

import base64
import re
import socket
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from . import worker_server

HANDSHAKE = 1.0
"""Seconds for connecting and each line of the handshake."""
TRIES = 4
COLLECTING = 5
"""Seconds that RAS itself may wait for its peers (``TIMEOUT``)."""
REPORT = 1.0 + COLLECTING + 5.0
"""Seconds for the report: NCCL's own client waits as long."""
CAP = 16 << 20
LINE_CAP = 4096

JSON, TEXT = "json", "text"


class Where(NamedTuple):
    """One address that processes of the job listen on, in the network namespace of ``pid``."""

    pid: int
    addresses: List[Tuple[str, int]]
    """(host, port): 127.0.0.1 and ::1 can both be ``localhost``."""
    pids: List[int]
    """Processes of the job as they know themselves: in their own pid namespace."""
    shared: bool
    """Somebody who is not of the job listens there too: the answer must name one of ``pids``."""
    text_too: bool
    """A server that knows no JSON may be asked for text: it is older than 2.28.7."""


def ask(where: Where, seconds: float, proc: str = "/proc") -> Iterator[Dict[str, Any]]:
    """Yields one ``{"format", "body" (base64), "problem", "tries"}``, or nothing but problems without a body.

    Only for a guarded child: it enters the target's network namespace for good.
    """
    until = time.monotonic() + seconds
    worker_server.enter_network(where.pid, proc)
    problem = "no time left"
    for number in range(TRIES):
        if time.monotonic() + HANDSHAKE > until:
            break
        host, port = where.addresses[number % len(where.addresses)]
        try:
            kind, body, cut = _report(host, port, until, where.text_too)
        except (OSError, NotRas) as error:
            problem = str(error) or type(error).__name__
            continue
        if where.shared and not names_any(body, where.pids):
            problem = "the answer is of another job that uses the same port"
            continue
        yield {
            "format": kind,
            "body": base64.b64encode(body).decode("ascii"),
            "problem": cut,
            "tries": number + 1,
        }
        return
    yield {"problem": problem}


class NotRas(Exception):
    """What answers does not speak RAS's protocol."""


def _report(host: str, port: int, until: float, text_too: bool) -> Tuple[str, bytes, Optional[str]]:
    """(format, report, why it is not whole). Raises OSError and NotRas."""
    with socket.create_connection((host, port), timeout=HANDSHAKE) as stream:
        lines = _Lines(stream, until)
        if not lines.ask("CLIENT PROTOCOL 2").upper().startswith("SERVER PROTOCOL "):
            raise NotRas("what answers is not RAS")
        lines.ask(f"TIMEOUT {COLLECTING}")
        kind = JSON if lines.ask("SET FORMAT json") == "OK" else TEXT  # 2.28.7 on
        if kind == TEXT and not text_too:
            raise NotRas("it knows no JSON, so it is older than the library that was found: not asked")
        stream.sendall(b"VERBOSE STATUS\n")
        body, cut = lines.rest(min(REPORT, max(0.1, until - time.monotonic())))
    if not body:
        raise NotRas(cut or "it closed the connection without a report")
    return kind, body, cut or unfinished(kind, body)


class _Lines:
    """Lines of a connection, each within the handshake's time; then everything up to its end."""

    def __init__(self, stream: socket.socket, until: float) -> None:
        self._stream = stream
        self._until = until
        self._buffer = b""

    def ask(self, command: str) -> str:
        """The answer to one command. Raises OSError (also when none comes), NotRas for an endless one."""
        deadline = min(self._until, time.monotonic() + HANDSHAKE)
        self._stream.sendall(command.encode("ascii") + b"\n")
        while b"\n" not in self._buffer:
            if len(self._buffer) > LINE_CAP:
                raise NotRas("what answers is not RAS")
            self._receive(deadline, 1024)
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace").strip()

    def rest(self, seconds: float) -> Tuple[bytes, Optional[str]]:
        """(all up to the end, None), or what had come with why there is no more."""
        deadline = time.monotonic() + seconds
        chunks, size = [self._buffer], len(self._buffer)
        while size <= CAP:
            self._stream.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                chunk = self._stream.recv(1 << 16)
            except OSError as error:
                return b"".join(chunks), f"its report stopped: {error}"
            if not chunk:
                return b"".join(chunks), None
            chunks.append(chunk)
            size += len(chunk)
        return b"".join(chunks), f"its report is longer than {CAP >> 20} MB"

    def _receive(self, deadline: float, most: int) -> None:
        self._stream.settimeout(max(0.001, deadline - time.monotonic()))
        chunk = self._stream.recv(most)
        if not chunk:
            raise NotRas("it closed the connection in the handshake")
        self._buffer += chunk


def unfinished(kind: str, body: bytes) -> Optional[str]:
    """Why a report that ended by itself is not whole; None when its last section is there.

    >>> unfinished("json", b'{"communicators": []}'), unfinished("text", b"Job summary")
    (None, 'the report ends before its last section')
    """
    whole = body.rstrip().endswith(b"}") if kind == JSON else b"\nWarnings\n" in body
    return None if whole else "the report ends before its last section"


def names_any(body: bytes, pids: List[int]) -> bool:
    """Whether a report names one of these processes.

    >>> names_any(b'{"pid": 41, "rank": 0}', [41]), names_any(b"managed by process 410 on node n", [41])
    (True, False)
    """
    named = re.findall(rb'"pid"\s{0,9}:\s{0,9}(\d{1,10})|[Pp]rocess (\d{1,10}) on node', body)
    return not {int(json or text) for json, text in named}.isdisjoint(pids)

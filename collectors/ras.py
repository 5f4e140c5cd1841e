"""NCCL's own view of all communicators of the job, from the RAS service of one of its processes.

Asking for a report has crashed jobs: while a communicator forms (before NCCL 2.27.3, issues 1669 and 1718; up
to 2.29.7 at least in the text form, issue 2346), and, exactly in a hang, when ranks are missing (before
2.29.2, issue 1762). So only a process whose NCCL is known to be newer is asked, and for JSON; with ``ras``
named among ``--only-collectors``, any. Counts mean something when they are compared with themselves later: a
node asks once a sample, and not within ten seconds of the last time. Only an address that a rank listens on
is connected to. Python >= 3.8, standard library only.
"""

import base64
import socket
import time
from typing import Any, Dict, List, Optional, Set, Tuple

from . import guarded, nccl_library, procfs, rank_settings, ras_client
from .interface import ABSENT, DENIED, ERROR, NODE, OK, PARTIAL, TIMEOUT, Context, Result, Target
from .nccl_library import Version
from .ras_client import Where

PORT = 28028
"""Of ``NCCL_RAS_ADDR``'s default, localhost:28028."""
APART = 10.0
"""Seconds between two reports."""
FIRST: Version = (2, 24, 0)
SAFE: Version = (2, 29, 2)
"""The first release with the fixes of issues 1669, 1718 and 1762."""
LAST = "ras.last"
"""Key in ``ctx.shared``: monotonic seconds at which a report was last asked for."""
VERSIONS = "ras.versions"
"""Key in ``ctx.shared``: {pid: version or None}."""
ALL_THE_SAME = "--only-collectors with ras in it asks all the same"
MOST_FILES = 65536
NAMES = {ras_client.JSON: "ras.json", ras_client.TEXT: "ras.txt"}


class Ras:
    """Takes ``ras.json`` (NCCL 2.28.7 on) or ``ras.txt``; see FORMAT.md.

    Option ``asked_for``: the collectors that were named one by one.
    """

    name = "ras"
    scope = NODE
    once = False
    budget = 20.0
    describes = "NCCL's RAS report, twice 10 s apart (NCCL 2.29.2 on; before, asking can crash the job)"

    def collect(self, ctx: Context, target: Optional[Target]) -> Result:
        """*Absent*, with the reason, where no rank offers it or its NCCL must not be asked."""
        wait = due_in(ctx)
        if wait > 0:
            return Result(ABSENT, f"asked {APART - wait:.0f} s ago: once in {APART:.0f} s is enough")
        found = self._find(ctx)
        if isinstance(found, Result):
            return found
        refusal = self._refusal(ctx, found)
        if refusal is not None:
            return refusal
        ctx.shared[LAST] = time.monotonic()
        seconds = ctx.remaining(self.budget - 3.0)
        outcome = guarded.call(
            ras_client.ask, found, seconds, ctx.proc, timeout=seconds + 0.5, cap=2 * ras_client.CAP
        )
        return _result(outcome)

    def _find(self, ctx: Context) -> "Where | Result":
        """Where ranks of the job listen for RAS's clients."""
        ranks = [target for target in ctx.targets if target.role == "rank"]
        for target in ranks:
            listening = listeners(target.pid, ctx.proc)
            if not listening:
                continue
            port, failure = _port(ctx, target)
            if port is None:
                return failure or Result(ERROR, "a rank's environment is not known")
            if any(at == port for _, at, _ in listening):
                return _where(ctx, target, ranks, port, self._is_explicit(ctx))
        return Result(ABSENT, f"no rank listens for RAS clients (NCCL before 2.24, or none; port {PORT})")

    def _is_explicit(self, ctx: Context) -> bool:
        """Whether the collector was named one by one: then risks are taken."""
        return self.name in ctx.options.get("asked_for", ())

    def _refusal(self, ctx: Context, where: Where) -> Optional[Result]:
        """Why the processes there must not be asked; None when they may."""
        if self._is_explicit(ctx):
            return None
        if where.shared:
            why = "another job, of unknown NCCL, listens on the same port and may get the question"
            return Result(ABSENT, f"not asked: {why}; {ALL_THE_SAME}")
        known: Dict[int, Optional[Version]] = ctx.shared.setdefault(VERSIONS, {})
        if where.pid not in known:
            outcome = guarded.call(nccl_library.version, where.pid, ctx.proc, timeout=ctx.remaining(2.0))
            known[where.pid] = tuple(outcome.value) if outcome.status == "ok" and outcome.value else None
        version = known[where.pid]
        if version is not None and version >= SAFE:
            return None
        said = "of unknown version" if version is None else ".".join(str(part) for part in version)
        why = f"NCCL {said}: before 2.29.2 a RAS report can crash the job (nccl issues 1669, 1718, 1762)"
        return Result(ABSENT, f"not asked: {why}; {ALL_THE_SAME}")


def due_in(ctx: Context) -> float:
    """Seconds until a report may be asked for (again); 0 when it may now."""
    last: Optional[float] = ctx.shared.get(LAST)
    return 0.0 if last is None else max(0.0, last + APART - time.monotonic())


def was_asked(ctx: Context) -> bool:
    """Whether there was a report to ask for in this capture: then a second one is worth waiting for."""
    return LAST in ctx.shared


def listeners(pid: int, proc: str = "/proc") -> List[Tuple[str, int, int]]:
    """(address as in net/tcp, port, inode) of the TCP sockets that a process listens on."""
    place = f"{proc}/{procfs.live_id(pid, proc)}"
    inodes: Set[int] = set()
    for number in procfs.list_names(f"{place}/fd")[0][:MOST_FILES]:
        link = procfs.read_link(f"{place}/fd/{number}")[0] or ""
        if link.startswith("socket:["):
            inodes.add(int(link[8:-1]))
    return [row for row in all_listeners(place) if row[2] in inodes] if inodes else []


def all_listeners(place: str) -> List[Tuple[str, int, int]]:
    """The same of every process in the network namespace of ``place`` (a directory of /proc)."""
    rows: List[Tuple[str, int, int]] = []
    for table in ("tcp", "tcp6"):
        for line in (procfs.read_text(f"{place}/net/{table}", 32 << 20)[0] or "").splitlines():
            words = line.split(None, 10)
            if len(words) > 9 and words[3] == "0A" and words[9].isdigit():  # TCP_LISTEN
                host, _, port = words[1].partition(":")
                rows.append((host, int(port, 16), int(words[9])))
    return rows


def _port(ctx: Context, target: Target) -> Tuple[Optional[int], Optional[Result]]:
    """The port that the rank's NCCL_RAS_ADDR names, or the default; None with the cell's result."""
    settings, failure = rank_settings.of(ctx, target, 2.0)
    if settings is None:
        return None, failure
    if settings.get("NCCL_RAS_ENABLE", "1").strip() == "0":
        return None, Result(ABSENT, "NCCL_RAS_ENABLE is 0")
    named = settings.get("NCCL_RAS_ADDR", "").strip()
    port = named.rpartition(":")[2] if named else str(PORT)
    if not port.isdigit() or int(port) > 65535:
        return None, Result(ABSENT, "NCCL_RAS_ADDR names no port")
    return int(port), None


def _where(ctx: Context, target: Target, ranks: List[Target], port: int, explicit: bool) -> Where:
    """The addresses of that port on which ranks listen, in the network namespace of ``target``."""
    place = f"{ctx.proc}/{procfs.live_id(target.pid, ctx.proc)}"
    own: Set[int] = set()
    pids: List[int] = []
    families: Set[str] = set()
    for rank in ranks:
        mine = [row for row in listeners(rank.pid, ctx.proc) if row[1] == port]
        own |= {inode for _, _, inode in mine}
        families |= {address for address, _, _ in mine}
        pids.append((procfs.nspid(rank.pid, ctx.proc) or (rank.pid,))[-1])
    foreign = [row for row in all_listeners(place) if row[1] == port and row[2] not in own]
    hosts = [_readable(address) for address in sorted(families)]
    return Where(target.pid, [(name, port) for name in hosts], pids, bool(foreign), explicit)


def _readable(text: str) -> str:
    """The address that a listening socket's entry stands for, as this side connects to it."""
    packed = b"".join(bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8))
    if not any(packed):
        return "127.0.0.1" if len(packed) == 4 else "::1"
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


def _result(outcome: guarded.Outcome) -> Result:
    answer: Dict[str, Any] = (outcome.value or [{}])[0] if isinstance(outcome.value, list) else {}
    if answer.get("body") is not None:
        data = base64.b64decode(answer["body"])
        artifacts = ((NAMES[answer["format"]], data),)
        problem = answer.get("problem")
        return Result(OK if problem is None else PARTIAL, problem, artifacts)
    reason = str(answer.get("problem") or outcome.reason or outcome.status)
    slow = outcome.status in ("timeout", "abandoned") or "timed out" in reason
    denied = (outcome.reason or "").startswith("PermissionError")
    return Result(TIMEOUT if slow else DENIED if denied else ERROR, f"RAS: {reason}")


COLLECTOR = Ras()

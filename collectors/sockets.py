"""The sockets of the targets: the kernel's tables, who owns which, and TCP's own account of each.

In a network fault the stacks of all ranks are equal and only here is a difference: unacknowledged or unsent
bytes, retransmissions, the age of the last data. Of the tables only the lines of the targets' sockets and of
their other ends are kept: what else the node talks to is nobody's business.
"""

import json
import os
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from . import guarded, procfs, tcp_info
from .interface import NODE, OK, PARTIAL, Context, Result, Target

TABLES = ("tcp", "tcp6", "unix")
TABLE_CAP = 32 << 20
MOST_FILES = 65536
WAIT = 2.0


class Namespace(NamedTuple):
    """One network namespace. ``net`` is its name (``net:[…]``), None when the link may not be read."""

    key: str
    net: Optional[str]
    pids: List[int]
    places: List[str]
    """The directories of those processes, ``/proc/PID``."""


class Sockets:
    """Takes ``sockets.json``; see FORMAT.md."""

    name = "sockets"
    scope = NODE
    once = False
    budget = 5.0
    describes = "TCP and Unix sockets of the job with owners, and tcp_info by netlink"

    def collect(self, ctx: Context, target: Optional[Target]) -> Result:
        """Other network namespaces than the own one give no tcp_info without CAP_SYS_ADMIN."""
        gaps: List[str] = []
        owners, blind = socket_owners(ctx.targets, ctx.proc, gaps)
        inodes = {owner["inode"] for owner in owners}
        uids = {uid for uid in (procfs.owner(pid, ctx.proc) for pid in blind) if uid is not None}
        spaces = namespaces([entry.pid for entry in ctx.targets], ctx.proc)
        rows: List[Dict[str, Any]] = []
        wanted: Set[int] = set()
        for space in spaces:
            tables, seen = keep(read_tables(space, gaps), inodes, uids)
            rows.append({"net": space.net, "pids": space.pids, **tables})
            wanted |= seen
        info = _tcp_info(spaces, sorted(wanted), ctx, gaps)
        value = {"namespaces": rows, "tcp_info": info, "owners": owners}
        data = json.dumps(value, separators=(",", ":")).encode("ascii")
        return Result(PARTIAL if gaps else OK, "; ".join(gaps) or None, (("sockets.json", data),))


def socket_owners(
    targets: List[Target], proc: str, gaps: List[str]
) -> Tuple[List[Dict[str, int]], List[int]]:
    """``{"pid", "fd", "inode"}`` of each socket, and the pids whose open files may not be read."""
    owners: List[Dict[str, int]] = []
    blind: List[int] = []
    for target in targets:
        place = f"{proc}/{procfs.live_id(target.pid, proc)}"
        names, error = procfs.list_names(f"{place}/fd")
        if error is not None and error not in procfs.GONE:
            gaps.append(f"open files of pid {target.pid}: {error}")
            blind.append(target.pid)
        for name in names[:MOST_FILES]:
            link = procfs.read_link(f"{place}/fd/{name}")[0] or ""
            if link.startswith("socket:["):
                owners.append({"pid": target.pid, "fd": int(name), "inode": int(link[8:-1])})
    return owners, blind


def namespaces(pids: List[int], proc: str) -> List[Namespace]:
    """The network namespaces of some processes, each with its pids.

    Where ``ns/net`` may not be read (another user's process) the inode of ``net/tcp`` tells namespaces apart:
    the kernel makes that file anew for each.
    """
    found: Dict[str, Namespace] = {}
    inodes: Dict[int, str] = {}
    for pid in pids:
        live = procfs.live_id(pid, proc)
        net = procfs.namespace(live, "net", proc)
        try:
            inode = os.stat(f"{proc}/{live}/net/tcp").st_ino
        except OSError:
            continue
        key = net or inodes.get(inode) or f"table {inode}"
        inodes[inode] = key
        space = found.setdefault(key, Namespace(key, net, [], []))
        space.pids.append(pid)
        space.places.append(f"{proc}/{live}")
    return list(found.values())


def read_tables(space: Namespace, gaps: List[str]) -> Dict[str, Optional[str]]:
    """The whole tables of a namespace, read through any of its processes; None for what does not exist."""
    texts: Dict[str, Optional[str]] = {}
    for table in TABLES:
        text, error = None, None
        for place in space.places:
            text, error = procfs.read_text(f"{place}/net/{table}", TABLE_CAP)
            if text is not None:
                break
        if text is None and error not in procfs.GONE:
            gaps.append(f"net/{table} of pid {space.pids[0]}: {error}")
        if text is not None and len(text) >= TABLE_CAP:
            gaps.append(f"net/{table} is longer than {TABLE_CAP} bytes")
        texts[table] = text
    return texts


def keep(
    texts: Dict[str, Optional[str]], inodes: Set[int], uids: Set[int]
) -> Tuple[Dict[str, Optional[str]], Set[int]]:
    """Cuts the tables down to what concerns the targets. Returns (tables, inodes of the TCP sockets in them).

    Kept are the heading, the lines of ``inodes`` (and TCP sockets of ``uids``, the owners of processes whose
    open files may not be read), and the other ends of those connections.
    """
    split = {table: [line.split() for line in (text or "").splitlines()] for table, text in texts.items()}
    ends: Set[Tuple[str, str]] = set()
    owned: Set[str] = set()
    for table in ("tcp", "tcp6"):
        for words in split[table][1:]:
            if len(words) > 9 and (int(words[9]) in inodes or int(words[7]) in uids):
                owned.add(words[9])
                ends.add((_short(words[2]), _short(words[1])))
    kept: Dict[str, Optional[str]] = {}
    seen: Set[int] = set()
    for table, text in texts.items():
        lines: Dict[Tuple[str, ...], str] = {}
        for number, (line, words) in enumerate(zip((text or "").splitlines(), split[table])):
            if table == "unix":
                mine = len(words) > 6 and words[6].isdigit() and int(words[6]) in inodes
            else:
                mine = len(words) > 9 and (words[9] in owned or (_short(words[1]), _short(words[2])) in ends)
                seen |= {int(words[9])} if mine and number else set()
            if mine or number == 0:  # a table that changes while it is read may show a socket twice
                lines[tuple(words[6:7] if table == "unix" else words[1:3] + words[9:10])] = line + "\n"
        kept[table] = None if text is None else "".join(lines.values())
    return kept, seen - {0}


def _short(address: str) -> str:
    """An IPv4-mapped IPv6 address (as in net/tcp6) as its IPv4 form (as in net/tcp): the ends may differ."""
    mapped = "0000000000000000FFFF0000"
    return address[len(mapped) :] if address.startswith(mapped) else address


def _tcp_info(
    spaces: List[Namespace], wanted: List[int], ctx: Context, gaps: List[str]
) -> List[Dict[str, Any]]:
    """The tcp_info rows of ``wanted`` sockets, from a child: the kernel may load a module to answer."""
    own = procfs.namespace(os.getpid(), "net", ctx.proc)
    places = []
    for space in spaces:
        if space.net is None:
            gaps.append(f"tcp_info of pid {space.pids[0]}: its network namespace may not be read")
        else:
            places.append((space.key, "" if space.net == own else f"{space.places[0]}/ns/net"))
    if not places or not wanted:
        return []
    answer = guarded.call(tcp_info.of_namespaces, places, wanted, timeout=ctx.remaining(WAIT))
    rows: List[Dict[str, Any]] = []
    for _, found, problem in answer.value or []:
        rows += found
        if problem is not None:
            gaps.append(f"tcp_info: {problem}")
    if answer.status != "ok":
        gaps.append(f"tcp_info: {answer.reason}")
    return rows


COLLECTOR = Sockets()

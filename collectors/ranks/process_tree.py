"""The processes around a pid, from ``/proc/*/stat`` alone: for the first look, before anything may block.

Python >= 3.8, standard library only.
"""

import os
from typing import Dict, List

from .. import procfs
from . import known_programs

CHEAP_MOST = 4096
"""Processes that ``cheap_tree`` returns at most."""


def cheap_tree(pid: int, proc: str = "/proc") -> List[int]:
    """``pid``, its launcher, and what both have started, from ``/proc/*/stat`` alone: nothing here can block.

    Also its siblings of the same name (ranks that one script started). The target stands first; [] when it is
    gone. A first guess: ``scan_record`` gives the true list.
    """
    lines = {
        number: line
        for number in procfs.list_pids(proc)
        for line in [procfs.stat_fields(number, proc)]
        if line
    }
    if pid not in lines:
        return []
    children: Dict[int, List[int]] = {}
    for line in lines.values():
        children.setdefault(line.ppid, []).append(line.pid)
    own = {os.getpid(), *_ancestors(os.getpid(), lines)}
    top = pid
    for ancestor in _ancestors(pid, lines):
        name = lines[ancestor].comm
        if ancestor in own or ancestor == 1 or name in known_programs.INIT:
            break
        if _starts_ranks(name):
            top = ancestor
        elif name not in known_programs.WRAPPERS:
            break
    siblings = children[lines[pid].ppid] if lines[pid].ppid > 1 else []
    peers = [peer for peer in siblings if lines[peer].comm == lines[pid].comm]
    found: Dict[int, None] = {pid: None}
    for start in (top, *peers):
        for member in _below(start, children, lines):
            if member not in own or member == pid:
                found.setdefault(member)
    return list(found)[:CHEAP_MOST]


def _starts_ranks(comm: str) -> bool:
    kind = known_programs.LAUNCHER_PROGRAMS.get(comm.split(".")[0])
    known = comm in ("pt_elastic", "pt_main_thread") or comm.startswith(("python", "pypy"))
    return known or (kind is not None and kind not in known_programs.SHARED_LAUNCHERS)


def _ancestors(pid: int, lines: Dict[int, procfs.StatLine]) -> List[int]:
    found: List[int] = []
    while pid in lines and lines[pid].ppid in lines and lines[pid].ppid not in found:
        pid = lines[pid].ppid
        found.append(pid)
    return found


def _below(top: int, children: Dict[int, List[int]], lines: Dict[int, procfs.StatLine]) -> List[int]:
    found, waiting = [], [top]
    while waiting:
        pid = waiting.pop()
        if pid in lines:
            found.append(pid)
            waiting += [child for child in children.get(pid, []) if child not in found]
    return found

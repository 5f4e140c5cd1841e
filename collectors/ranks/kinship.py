"""Who started whom, among the processes of one scan. Python >= 3.8, standard library only."""

import os
from typing import Dict, Iterable, List, Optional, Set

from . import known_programs, roles
from .roles import ProcessInfo


class Family:
    """The process tree of a scan. ``own``: this process and its ancestors, who capture and are no ranks."""

    def __init__(self, processes: Iterable[ProcessInfo], self_pid: Optional[int] = None) -> None:
        self.table: Dict[int, ProcessInfo] = {process.pid: process for process in processes}
        self.children: Dict[int, List[int]] = {}
        for process in self.table.values():
            self.children.setdefault(process.ppid, []).append(process.pid)
        self.here = os.getpid() if self_pid is None else self_pid
        self.own: Set[int] = {self.here, *self.ancestors(self.here)}

    def ancestors(self, pid: int) -> List[int]:
        """Parent, grandparent, …, as far as the scan shows them."""
        found: List[int] = []
        while pid in self.table:
            pid = self.table[pid].ppid
            if pid not in self.table or pid in found:
                break
            found.append(pid)
        return found

    def descendants(self, pid: int) -> List[int]:
        """Children first, then their children, …; without ``pid``."""
        found: List[int] = []
        waiting = list(self.children.get(pid, []))
        seen = {pid}
        while waiting:
            member = waiting.pop(0)
            if member not in seen:
                seen.add(member)
                found.append(member)
                waiting += self.children.get(member, [])
        return found

    def launcher(self, pid: int, ranks: Iterable[int] = ()) -> Optional[int]:
        """The process that started a rank as one of several, or None for a rank started by hand.

        That is the nearest launcher known by name, or a Python program whose multiprocessing child this is.
        Shells, ``timeout`` and other ranks (one that started its siblings itself) are looked through.
        """
        passable, child = set(ranks), self.table[pid]
        for ancestor in self.ancestors(pid):
            process = self.table[ancestor]
            if roles.launcher_kind(process) is not None:
                return ancestor
            if ancestor not in passable and not roles.is_wrapper(process):
                started = roles.is_spawned(child) or child.forked
                return ancestor if started and roles.is_python(process) else None
            child = process
        return None

    def reparented(self, pid: int) -> bool:
        """Whether its parent is one that only adopts: what started it is gone.

        A process inherits its session from the parent that forks it. So one that leads no session, below a
        parent of another session, was adopted (by a subreaper, prctl(2), whatever its name).
        """
        process = self.table[pid]
        parent = self.table.get(process.ppid)
        if parent is None:
            return True
        if parent.pid == self.here or roles.launcher_kind(parent) is not None:
            return False
        adopted = process.session != parent.session and process.session != pid
        return adopted or parent.pid == 1 or parent.comm in known_programs.INIT

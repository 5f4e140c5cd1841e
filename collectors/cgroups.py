"""Where a process's control groups are found as directories, v1 and v2, in and out of containers.

``/proc/PID/cgroup`` names a group relative to the root of the *reader's* cgroup namespace (``/../x`` when it
lies outside), and the same holds for the root that mountinfo gives for a cgroup mount (cgroup_namespaces(7)).
Only the difference of the two is a path below the mount point.
"""

import os
import time
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Tuple

from . import procfs

SEARCH_MOST = 4096
"""Directories looked into for a pid whose path does not tell."""
SEARCH_SECONDS = 0.3


class Hierarchy(NamedTuple):
    """A mounted cgroup hierarchy. ``controllers`` is empty for v2."""

    version: int
    controllers: FrozenSet[str]
    root: str
    point: str


class Group(NamedTuple):
    """A cgroup that can be looked into. ``path`` is as the mount shows it: ``/`` at its top."""

    version: int
    path: str
    directory: str

    def ancestry(self) -> List["Group"]:
        """The group, its parent, and so on up to the top of the mount."""
        parts = [part for part in self.path.split("/") if part]
        top = self.directory[: len(self.directory) - len(self.path.rstrip("/"))]
        groups = []
        for count in range(len(parts), -1, -1):
            path = "/" + "/".join(parts[:count])
            groups.append(Group(self.version, path, top + path.rstrip("/")))
        return groups


def hierarchies(proc: str = "/proc") -> List[Hierarchy]:
    """The cgroup mounts that this process sees; of several of one hierarchy the one that shows most first."""
    found = []
    for line in procfs.mountinfo("self", proc):
        if line.fstype == "cgroup2":
            found.append(Hierarchy(2, frozenset(), line.root, line.point))
        elif line.fstype == "cgroup":
            found.append(Hierarchy(1, frozenset(line.options.split(",")), line.root, line.point))
    return sorted(found, key=lambda hierarchy: len(_parts(hierarchy.root)) - 2 * _ups(hierarchy.root))


def memberships(text: str) -> List[Tuple[int, FrozenSet[str], str]]:
    """(version, controllers, path) for each line of ``/proc/PID/cgroup``."""
    found = []
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        names, colon, path = rest.partition(":")
        if colon and number.isdigit():
            version = 2 if number == "0" and not names else 1
            found.append((version, frozenset(names.split(",")) - {""}, path))
    return found


def locate(pid: int, text: str, mounts: List[Hierarchy], controller: str, version: int) -> Optional[Group]:
    """The group of ``pid`` in the v1 hierarchy of ``controller``, or in the v2 one; None when not visible.

    ``text`` is the content of its ``/proc/PID/cgroup``. Where the path leads outside of what the mount
    shows by names (it holds ``..``), the mount is searched for the pid, within limits.
    """
    for kind, controllers, path in memberships(text):
        if kind != version or (version == 1 and controller not in controllers):
            continue
        candidates = [
            m for m in mounts if m.version == version and (version == 2 or controller in m.controllers)
        ]
        for mount in candidates:
            below = _below(path, mount.root)
            if below is not None and os.path.isdir(mount.point + below.rstrip("/")):
                return Group(version, below, mount.point + below.rstrip("/"))
        for mount in candidates:
            group = _search(pid, mount)
            if group is not None:
                return group
    return None


def _parts(path: str) -> List[str]:
    return [part for part in path.replace(" (deleted)", "").split("/") if part]


def _ups(path: str) -> int:
    return _parts(path).count("..")


def _below(path: str, root: str) -> Optional[str]:
    """``path`` as seen from ``root``, both relative to one namespace root; None when a name is missing."""
    own, top = _parts(path), _parts(root)
    if own[: len(top)] != top or ".." in own[len(top) :]:
        return None
    return "/" + "/".join(own[len(top) :])


def _search(pid: int, mount: Hierarchy) -> Optional[Group]:
    """Looks for the directory whose ``cgroup.procs`` lists ``pid``."""
    until = time.monotonic() + SEARCH_SECONDS
    waiting = [mount.point]
    for _ in range(SEARCH_MOST):
        if not waiting or time.monotonic() > until:
            return None
        directory = waiting.pop()
        text, _ = procfs.read_text(f"{directory}/cgroup.procs", 4 << 20)
        if str(pid) in (text or "").split():
            path = directory[len(mount.point) :] or "/"
            return Group(mount.version, path, directory)
        try:
            with os.scandir(directory) as entries:
                waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
    return None


def freezer_state(pid: int, text: str, mounts: List[Hierarchy]) -> Optional[str]:
    """``THAWED``, ``FREEZING`` or ``FROZEN``; None when no freezer covers the process.

    From ``freezer.state`` (v1), or ``cgroup.events`` and ``cgroup.freeze`` (v2, Linux 5.2). Both states count
    what an ancestor imposes.
    """
    states: List[Optional[str]] = []
    group = locate(pid, text, mounts, "freezer", 1)
    if group is not None:
        states.append((procfs.read_text(f"{group.directory}/freezer.state", 64)[0] or "").strip())
    group = locate(pid, text, mounts, "", 2)
    if group is not None:
        states.append(_frozen_v2(group))
    for state in ("FROZEN", "FREEZING", "THAWED"):
        if state in states:
            return state
    return None


def _frozen_v2(group: Group) -> Optional[str]:
    events: Dict[str, str] = {}
    for line in (procfs.read_text(f"{group.directory}/cgroup.events", 4096)[0] or "").splitlines():
        name, _, value = line.partition(" ")
        events[name] = value.strip()
    if events.get("frozen") == "1":
        return "FROZEN"
    asked = any(
        (procfs.read_text(f"{above.directory}/cgroup.freeze", 16)[0] or "").strip() == "1"
        for above in group.ancestry()
    )
    if asked:
        return "FREEZING"
    return "THAWED" if "frozen" in events else None

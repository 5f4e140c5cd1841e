"""Opens files that a target names: its logs, and what its output goes to.

A hostile or unlucky target may name a FIFO, a device, a link, a file of somebody else or a dead mount. So
this runs in a guarded child, with the target's ids, inside the target's root; a path is walked one component
at a time, and what it ends in is looked at before it is opened. Regular files of the target's own user are
read, the last 64 kB of them. Python >= 3.8, standard library only.
"""

import os
import re
import stat
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from . import procfs

TAIL = 64 << 10
"""Bytes of a file's end that are read."""
MOST_LINKS = 40
MOST_NAMES = 10000
"""Names of a directory that are compared with a pattern."""
ENTRY = Dict[str, Any]
"""``{"fd", "path", "size", "mtime", "position", "tail", "error"}``, plus ``"file": [device, inode]``."""

KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISDIR, "a directory"),
)


class Ids(NamedTuple):
    """With what the target's own accesses to files are checked (``status``: the last column of Uid and
    Gid)."""

    uid: int
    gid: int
    groups: Tuple[int, ...]


class Refused(Exception):
    """The file is not opened; the text says why."""


def ids_of(pid: int, proc: str = "/proc") -> Optional[Ids]:
    """The file system ids of a process; None when it is gone."""
    status = procfs.status_fields(pid, proc)
    uid, gid = status.get("Uid", "").split(), status.get("Gid", "").split()
    if len(uid) != 4 or len(gid) != 4:
        return None
    return Ids(int(uid[3]), int(gid[3]), tuple(int(word) for word in status.get("Groups", "").split()))


def is_own(pid: int, proc: str = "/proc") -> bool:
    """Whether this process has the target's user id already: ``become`` then changes nothing, and the child
    that reads its files may go on to another such target."""
    ids = ids_of(pid, proc)
    return ids is not None and ids.uid == os.geteuid()


def become(ids: Ids) -> None:
    """Takes the target's ids for good (in a child). Raises Refused where this user may not."""
    if ids.uid == os.geteuid():
        return
    try:
        os.setgroups(list(ids.groups))
        os.setresgid(ids.gid, ids.gid, ids.gid)
        os.setresuid(ids.uid, ids.uid, ids.uid)
    except PermissionError:
        raise Refused(f"it belongs to uid {ids.uid}, whose ids this user cannot take") from None


class TargetRoot:
    """The file system as the target sees it. Opened before ``become``; ``close`` closes all that it opened,
    what it has found included."""

    def __init__(self, place: str) -> None:
        self._opened: List[int] = []
        self.root = self._open(f"{place}/root", os.O_PATH | os.O_DIRECTORY)
        self.cwd = self._open(f"{place}/cwd", os.O_PATH | os.O_DIRECTORY)

    def close(self) -> None:
        while self._opened:
            os.close(self._opened.pop())

    def release(self) -> None:
        """Closes what was found so far, and only that: for who looks again and again."""
        while len(self._opened) > 2:
            os.close(self._opened.pop())

    def _open(self, path: str, flags: int, within: Optional[int] = None) -> int:
        descriptor = os.open(path, flags, dir_fd=within)
        self._opened.append(descriptor)
        return descriptor

    def find(self, path: str) -> int:
        """An O_PATH descriptor of what the path ends in, a link there not followed.

        Absolute links on the way lead into the target's root, and ``..`` never out of it. Raises OSError, or
        Refused for a path that leaves the working directory upwards.
        """
        trail = [self.root if path.startswith("/") else self.cwd]
        parts, links = _parts(path), 0
        while parts:
            part = parts.pop(0)
            if part == "..":
                if len(trail) == 1 and trail[0] != self.root:
                    raise Refused("its path leaves the working directory upwards")
                trail = trail[: max(1, len(trail) - 1)]
                continue
            found = self._open(part, os.O_PATH | os.O_NOFOLLOW, trail[-1])
            if parts and stat.S_ISLNK(os.fstat(found).st_mode):
                links += 1
                if links > MOST_LINKS:
                    raise Refused("its path has too many links")
                there = os.readlink("", dir_fd=found)
                trail = [self.root] if there.startswith("/") else trail
                parts = _parts(there) + parts
            else:
                trail.append(found)
        return trail[-1]

    def matching(self, directory: str, name: "re.Pattern[str]") -> List[str]:
        """Names in a directory that match, sorted; [] when it cannot be listed."""
        try:
            descriptor = self._open(".", os.O_RDONLY | os.O_DIRECTORY, self.find(directory + "/."))
            with os.scandir(descriptor) as entries:
                names = [entry.name for _, entry in zip(range(MOST_NAMES), entries)]
        except (OSError, Refused):
            return []
        return sorted(found for found in names if name.fullmatch(found))


def _parts(path: str) -> List[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def entry(found: int, path: str, owner: int, known: Optional[int], limit: int = TAIL) -> ENTRY:
    """One file by its O_PATH descriptor. ``known``: its size at the last look, whose tail then was taken."""
    about = os.fstat(found)
    row: ENTRY = {"fd": None, "path": path, "size": None, "mtime": None, "position": None, "tail": None}
    row["error"] = refusal(about, owner)
    if not stat.S_ISREG(about.st_mode):
        return row
    row.update(size=about.st_size, mtime=about.st_mtime, file=[about.st_dev, about.st_ino])
    if row["error"] is None and (known is None or about.st_size > known):
        try:
            row["tail"] = read_tail(found, about.st_size, limit).decode("utf-8", "replace")
        except OSError as error:
            row["error"] = procfs.errno_name(error)
    return row


def refusal(about: os.stat_result, owner: int) -> Optional[str]:
    """Why a file is not read, or None."""
    for is_kind, name in KINDS:
        if is_kind(about.st_mode):
            return f"{name}: not opened"
    if about.st_uid != owner:
        return f"a file of uid {about.st_uid}, not of the process's user: not read"
    for pseudo in ("/proc", "/sys"):
        if os.path.isdir(pseudo) and os.stat(pseudo).st_dev == about.st_dev:
            return "a file of the kernel: not read"
    return None


def read_tail(found: int, size: int, limit: int = TAIL) -> bytes:
    """The last ``limit`` of ``size`` bytes, from a line's beginning. The O_PATH descriptor is opened for
    reading through /proc/self/fd: it is the very file that was looked at."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(f"/proc/self/fd/{found}", flags)
    try:
        start = max(0, size - limit)
        data = os.pread(descriptor, min(size, limit), start)
    finally:
        os.close(descriptor)
    return data[data.find(b"\n") + 1 :] if start else data


def entries(pid: int, proc: str, numbers: Iterable[int], sizes: Dict[str, int]) -> Iterator[ENTRY]:
    """Runs in a guarded child: the files behind descriptors of the target, where they are regular files."""
    ids = ids_of(pid, proc)
    if ids is None:
        return
    held = []
    try:
        for number in numbers:
            try:
                held.append((number, os.open(f"{proc}/{pid}/fd/{number}", os.O_PATH)))
            except OSError as error:
                yield {"fd": number, "path": "", "error": procfs.errno_name(error)}
        become(ids)
        for number, found in held:
            path = procfs.read_link(f"/proc/self/fd/{found}")[0] or ""
            yield {**entry(found, path, ids.uid, sizes.get(path)), "fd": number}
    finally:
        for _, found in held:
            os.close(found)

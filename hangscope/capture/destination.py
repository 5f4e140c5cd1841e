"""Where a capture is saved: the first place that takes it, tried in a child that may be abandoned.

A working directory on a dead mount blocks whoever touches it, for ever; so does a mount that a rank of the
job is blocked on. Nothing here touches a candidate outside a killable child.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from ..collectors import guarded, procfs
from ..errors import UsageError

ANSWER_SECONDS = 2.0
"""How long a directory may take to accept a small file before it counts as dead."""
SHM_CAP = 64 << 20
"""Bytes that may go to /dev/shm: it is memory, charged to the job's own limit in a container."""
LEAST_FREE = 1 << 20
"""Bytes that a file system must have left to be tried at all."""
REMOTE = re.compile(r"nfs|cifs|smb|fuse|lustre|ceph|gpfs|beegfs|afs|9p|glusterfs|orangefs|wekafs|panfs")
"""File system types that wait for another machine, or for a user's process."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A directory to write into. ``cap`` is the most bytes that may go there, None for no limit."""

    directory: str
    file: str
    cap: int | None = None

    @property
    def path(self) -> str:
        return os.path.join(self.directory, self.file)


def bundle_name(job: str | None, wall: float) -> str:
    """``hangscope-<job>-<time>.tar``; ``wall`` is seconds since the epoch, shown in UTC."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", job or "process").strip("-.")[:60] or "job"
    return f"hangscope-{safe}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(wall))}.tar"


def asked_for(output: str, name: str) -> Place:
    """The place that ``-o`` names: a new file, or an existing directory (a name ending in ``/`` too).

    Raises UsageError where that can be told: the file exists, its directory does not take a file.
    """
    full = os.path.abspath(output)
    kind = guarded.call(_kind_of, full, timeout=ANSWER_SECONDS)
    if kind.status in ("timeout", "abandoned"):
        raise UsageError(f"{output} does not answer", kind.reason, "-o on a file system that is alive")
    if kind.value == "file":
        raise UsageError(f"{output} exists already", None, "another name after -o; nothing is overwritten")
    if kind.value == "directory" or output.endswith("/"):
        place = Place(directory=full, file=name)
    else:
        place = Place(directory=os.path.dirname(full), file=os.path.basename(full))
    problem = refusal(place.directory)
    if problem is not None:
        raise UsageError(f"cannot write to {place.directory}", problem, "-o FILE in a directory of yours")
    return place


def by_default(name: str, avoid: Iterable[str], environment: Mapping[str, str]) -> Iterator[Place | str]:
    """The places to try in order; for one that is passed over, a line for people instead.

    ``avoid`` are mount points that a rank is blocked on (see ``blocked_mounts``).
    """
    mounts = mount_table()
    dead = set(avoid)
    for directory in _candidates(environment):
        mount, _ = mount_of(directory, mounts)
        if mount in dead:
            yield f"not saved in {directory}: a rank of the job is blocked on {mount}"
            continue
        problem = refusal(directory)
        if problem is not None:
            yield f"not saved in {directory}: {problem}"
            continue
        yield Place(directory=directory, file=name, cap=SHM_CAP if directory == "/dev/shm" else None)


def rescue(data: bytes, name: str, environment: Mapping[str, str]) -> str | None:
    """Writes a whole bundle to the first place that takes it. Returns its path, or None."""
    for place in by_default(name, (), environment):
        if isinstance(place, str) or (place.cap is not None and len(data) > place.cap):
            continue
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            descriptor = os.open(place.path, flags, 0o600)
            try:
                with open(descriptor, "wb") as file:
                    file.write(data)
            except OSError:
                os.unlink(place.path)
                raise
            return place.path
    return None


def _candidates(environment: Mapping[str, str]) -> Iterator[str]:
    with contextlib.suppress(OSError):  # the working directory was removed
        yield os.getcwd()
    for variable in ("SLURM_TMPDIR", "TMPDIR"):
        if environment.get(variable, "").startswith("/"):
            yield environment[variable]
    yield "/tmp"
    yield "/dev/shm"


def refusal(directory: str) -> str | None:
    """Why ``directory`` takes no file, or None when it does. Waits ``ANSWER_SECONDS`` at most."""
    outcome = guarded.call(_try_directory, directory, timeout=ANSWER_SECONDS)
    if outcome.status == "ok":
        value = outcome.value
        return value if isinstance(value, str) else None
    if outcome.status in ("timeout", "abandoned"):
        return f"{outcome.reason} (a dead mount?)"
    return outcome.reason


def _kind_of(path: str) -> str:
    if os.path.isdir(path):
        return "directory"
    return "file" if os.path.lexists(path) else "nothing"


def _try_directory(directory: str) -> str | None:
    """Writes and removes a small file. Runs in the killable child. Returns the refusal, or None."""
    path = os.path.join(directory, f".hangscope-{os.getpid()}")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            os.write(descriptor, b"x" * 4096)
            space = os.fstatvfs(descriptor)
        finally:
            os.close(descriptor)
            os.unlink(path)
    except OSError as error:
        return error.strerror or str(error)
    free = space.f_bavail * space.f_frsize
    return None if free >= LEAST_FREE else f"only {free} bytes free"


def mount_table(proc: str = "/proc") -> list[tuple[str, str]]:
    """(mount point, file system type) of every mount, from mountinfo(5); touches no mount itself."""
    return [(line.point, line.fstype) for line in procfs.mountinfo("self", proc)]


def mount_of(path: str, mounts: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """The (mount point, type) that holds a path, by its name alone: the last longest prefix."""
    best = ("/", "")
    for point, kind in mounts:
        inside = point == "/" or path == point or path.startswith(point + "/")
        if inside and len(point) >= len(best[0]):
            best = (point, kind)
    return best


def blocked_mounts(pids: Iterable[int], proc: str = "/proc") -> tuple[str, ...]:
    """Mounts of a remote or user-space file system that a process with a thread in D works on.

    Only names are compared: the mounts are never touched. Processes that cannot be read count for none.
    """
    mounts = mount_table(proc)
    found = set()
    for pid in pids:
        lines = (procfs.stat_fields(pid, proc, tid) for tid in procfs.tasks(pid, proc))
        if not any(line is not None and line.state == "D" for line in lines):
            continue
        names = [f"{proc}/{pid}/cwd"]
        names += [f"{proc}/{pid}/fd/{fd}" for fd in procfs.list_names(f"{proc}/{pid}/fd")[0]]
        for name in names:
            target, _ = procfs.read_link(name)
            if target is not None and target.startswith("/"):
                point, kind = mount_of(target, mounts)
                if REMOTE.search(kind):
                    found.add(point)
    return tuple(sorted(found))

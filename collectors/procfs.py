"""Plain readers of those files of /proc that cannot block.

Only files that need neither the target's mmap_lock nor its cooperation are read here: ``comm stat status
wchan syscall stack schedstat statm cgroup fd/ fdinfo/ io limits ns/ net/ mountinfo oom_*``. ``cmdline``,
``environ``, ``maps``, ``smaps*`` and ``mem`` wait for the mmap_lock of a process that may be stuck, for ever:
they belong into ``guarded.call``. Every reader tells what it could not read; none raises for a process that
is gone, foreign or strange. Python >= 3.8, standard library only.
"""

import errno
import os
from typing import Dict, List, NamedTuple, Optional, Tuple

Text = Tuple[Optional[str], Optional[str]]
"""(content, None), or (None, name of the errno: ENOENT, ESRCH, EACCES, EPERM, …)."""

GONE = ("ENOENT", "ESRCH")
"""What the kernel answers for a process or task that has ended."""
REFUSED = ("EACCES", "EPERM")
"""What it answers for a process of somebody else."""


class StatLine(NamedTuple):
    """The fields of ``/proc/PID/stat`` that hangscope uses, numbered as in proc_pid_stat(5)."""

    pid: int
    comm: str
    state: str
    ppid: int
    pgrp: int
    session: int
    utime: int
    """Clock ticks (field 14), as ``stime`` (15) and ``start_ticks`` (22, since boot)."""
    stime: int
    threads: int
    start_ticks: int
    exit_code: Optional[int]
    """Wait status (field 52); 0 while it lives, and for readers that may not trace it."""


def errno_name(error: OSError) -> str:
    """``EACCES`` for a PermissionError, and so on; the number as text where Python has no name."""
    return errno.errorcode.get(error.errno or 0, str(error.errno))


def read_bytes(path: str, cap: int = 1 << 20) -> Tuple[Optional[bytes], Optional[str]]:
    """At most ``cap`` bytes of a file, as (bytes, None) or (None, errno name). Never waits for a FIFO."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        return None, errno_name(error)
    chunks: List[bytes] = []
    left = cap
    try:
        while left > 0:
            chunk = os.read(descriptor, min(left, 1 << 16))
            if not chunk:
                break
            chunks.append(chunk)
            left -= len(chunk)
    except OSError as error:
        return None, errno_name(error)
    finally:
        os.close(descriptor)
    return b"".join(chunks), None


def read_text(path: str, cap: int = 1 << 20) -> Text:
    """At most ``cap`` bytes of a file as text (bytes that are not UTF-8 become U+FFFD)."""
    data, error = read_bytes(path, cap)
    return (None, error) if data is None else (data.decode("utf-8", "replace"), None)


def read_whole(path: str) -> Text:
    """As ``read_text``, with one read: for the small files of a process or thread, which the kernel makes as
    one record (``single_open`` in fs/proc: comm stat status wchan syscall stack schedstat)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        return None, errno_name(error)
    try:
        return os.read(descriptor, 1 << 16).decode("utf-8", "replace"), None
    except OSError as error:
        return None, errno_name(error)
    finally:
        os.close(descriptor)


def read_link(path: str) -> Text:
    """The target of a symbolic link, such as ``/proc/PID/exe``, without following it."""
    try:
        return os.fsencode(os.readlink(path)).decode("utf-8", "replace"), None
    except OSError as error:
        return None, errno_name(error)


def list_names(path: str) -> Tuple[List[str], Optional[str]]:
    """The names in a directory, unsorted, and the errno name when it could not be listed."""
    try:
        return os.listdir(path), None
    except OSError as error:
        return [], errno_name(error)


def list_pids(proc: str = "/proc") -> List[int]:
    """All process ids that this /proc shows, ascending."""
    return sorted(int(name) for name in list_names(proc)[0] if name.isdigit())


def tasks(pid: int, proc: str = "/proc") -> List[int]:
    """Thread ids of a process, ascending (the leader's equals the pid); [] when it is gone."""
    return sorted(int(name) for name in list_names(f"{proc}/{pid}/task")[0] if name.isdigit())


def live_id(pid: int, proc: str = "/proc") -> int:
    """The id below which a process shows its files: its pid, or a live tid once its leader has exited.

    A leader that has exited shows no files, links, namespaces or limits, though its threads live on with
    them. The kernel takes any tid below /proc, listed there or not.
    """
    leader = stat_fields(pid, proc)
    if leader is None or leader.state not in "ZX":
        return pid
    for tid in tasks(pid, proc):
        line = stat_fields(pid, proc, tid)
        if line is not None and line.state not in "ZX":
            return tid
    return pid


def parse_stat(text: str) -> Optional[StatLine]:
    """Understands a stat line; None when it is none. The comm may hold spaces, parentheses, newlines."""
    opening, closing = text.find("("), text.rfind(")")
    fields = text[closing + 1 :].split()
    if opening < 1 or closing < opening or len(fields) < 20:
        return None
    try:
        return StatLine(
            pid=int(text[:opening]),
            comm=text[opening + 1 : closing],
            state=fields[0],
            ppid=int(fields[1]),
            pgrp=int(fields[2]),
            session=int(fields[3]),
            utime=int(fields[11]),
            stime=int(fields[12]),
            threads=int(fields[17]),
            start_ticks=int(fields[19]),
            exit_code=int(fields[49]) if len(fields) > 49 else None,
        )
    except ValueError:
        return None


def stat_fields(pid: int, proc: str = "/proc", tid: Optional[int] = None) -> Optional[StatLine]:
    """The stat line of a process, or of its thread ``tid``; None when it is gone."""
    text, _ = read_text(f"{proc}/{pid}/stat" if tid is None else f"{proc}/{pid}/task/{tid}/stat", 4096)
    return None if text is None else parse_stat(text)


def start_ticks(pid: int, proc: str = "/proc") -> Optional[int]:
    """Clock ticks between boot and the start of the process: with the pid it names one process for ever."""
    line = stat_fields(pid, proc)
    return None if line is None else line.start_ticks


def parse_status(text: str) -> Dict[str, str]:
    """``Name:\\tvalue`` lines (``/proc/PID/status``, ``fdinfo``, ``meminfo``) as a dict, values stripped."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, colon, value in pairs if colon}


def status_field(text: str, name: str) -> Optional[str]:
    """One value of a ``status`` file, where ``parse_status`` of all its lines takes too long.

    >>> status_field("Name:\\tpython\\nTracerPid:\\t0\\n", "TracerPid")
    '0'
    """
    start = 0 if text.startswith(f"{name}:") else text.find(f"\n{name}:") + 1
    if start == 0 and not text.startswith(f"{name}:"):
        return None
    return text[start + len(name) + 1 :].partition("\n")[0].strip()


def status_fields(pid: int, proc: str = "/proc") -> Dict[str, str]:
    """``/proc/PID/status`` by field name (``Uid``, ``NSpid``, ``TracerPid``, …); {} when it is gone."""
    return parse_status(read_text(f"{proc}/{pid}/status", 1 << 16)[0] or "")


def owner(pid: int, proc: str = "/proc") -> Optional[int]:
    """The real user id of a process; None when it is gone."""
    fields = status_fields(pid, proc).get("Uid", "").split()
    return int(fields[0]) if fields and fields[0].isdigit() else None


def nspid(pid: int, proc: str = "/proc") -> Tuple[int, ...]:
    """The process's pid in each pid namespace, this /proc's first, its own last; () when not known.

    From the NSpid line of ``status`` (Linux 4.1).
    """
    words = status_fields(pid, proc).get("NSpid", "").split()
    return tuple(int(word) for word in words if word.isdigit())


def namespace(pid: int, kind: str, proc: str = "/proc") -> Optional[str]:
    """``pid:[4026531836]`` for kind ``pid``; None for another user's process, or one that is gone."""
    return read_link(f"{proc}/{pid}/ns/{kind}")[0]


def boot_time(proc: str = "/proc") -> Optional[float]:
    """Wall time of boot in whole seconds (``btime`` of /proc/stat)."""
    for line in (read_text(f"{proc}/stat", 4 << 20)[0] or "").splitlines():
        name, _, value = line.partition(" ")
        if name == "btime" and value.strip().isdigit():
            return float(value)
    return None


def identity_problem(pid: int, ticks: int, proc: str = "/proc") -> Optional[Tuple[str, str]]:
    """Why ``pid`` is not the process that started at ``ticks``: (``absent`` or ``denied``, reason).

    None when it is. ``ticks`` 0 means that the start is not known: then any process of that number will do.
    """
    text, error = read_text(f"{proc}/{pid}/stat", 4096)
    if error in GONE:
        return "absent", "the process has ended"
    line = None if text is None else parse_stat(text)
    if line is None:
        return "denied", f"/proc/{pid}/stat: {error or 'not in the known form'}"
    if ticks and line.start_ticks != ticks:
        return "absent", "the process has ended, and its pid belongs to another one now"
    return None


class MountLine(NamedTuple):
    """A line of ``/proc/PID/mountinfo`` (proc_pid_mountinfo(5)); paths with their escapes undone."""

    root: str
    """What of the file system is mounted: ``/``, or a path within it."""
    point: str
    fstype: str
    source: str
    options: str
    """The super block's options: a v1 cgroup mount names its controllers here."""


def mountinfo(pid: str = "self", proc: str = "/proc") -> List[MountLine]:
    """The mounts that a process sees, in the kernel's order (a later mount covers an earlier one)."""
    lines: List[MountLine] = []
    for text in (read_text(f"{proc}/{pid}/mountinfo", 16 << 20)[0] or "").splitlines():
        left, dash, right = text.partition(" - ")
        head, tail = left.split(" "), right.split(" ")
        if dash and len(head) >= 6 and len(tail) >= 3:
            root, point, source = (_unescape(word) for word in (head[3], head[4], tail[1]))
            lines.append(MountLine(root, point, tail[0], source, tail[2]))
    return lines


def _unescape(word: str) -> str:
    """Undoes the octal escapes of seq_path(): space, tab, newline, backslash."""
    for escape, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(escape, char)
    return word

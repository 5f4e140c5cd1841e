"""Where torch writes a rank's flight-recorder dump, and such a file read as it is.

``DebugInfoWriter`` appends the global rank to a base: a variable's value, or a default that has moved over
the versions (/tmp up to torch 2.6, the home's cache from 2.8, another name there in the newest). Opened as
every file that a target names (``target_files``). Python >= 3.8, standard library only.
"""

import base64
import os
import stat
from typing import Any, Dict, List, NamedTuple, Optional

from . import procfs, target_files
from .target_files import Refused, TargetRoot

VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
CAP = 8 << 20
"""Bytes of one dump that are taken, from its beginning. 2,000 entries with frames have half a megabyte."""
JSON_CAP = 2 * CAP
"""Bytes that one dump needs on its way out of the reading child."""


class Dump(NamedTuple):
    """``row``: ``{"path", "size", "mtime", "error", "cut"}``; ``data`` None where the file was not read."""

    row: Dict[str, Any]
    data: Optional[bytes]


def paths(settings: Dict[str, str], rank: int) -> List[str]:
    """The files in which this rank's dump can be, the named one alone where a variable names it.

    >>> paths({"TORCH_FR_DUMP_TEMP_FILE": "/job/trace_"}, 3)
    ['/job/trace_3']
    >>> paths({"HOME": "/home/eve"}, 0)[:2]
    ['/home/eve/.cache/torch/comm_lib_trace_rank_0', '/home/eve/.cache/torch/nccl_trace_rank_0']
    """
    named = [settings[name] for name in VARIABLES if settings.get(name)]
    if named:
        return [f"{named[0]}{rank}"]
    home = settings.get("HOME", "")
    cache = settings.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else "")
    bases = [f"{cache}/torch/comm_lib_trace_rank_"] if cache else []
    bases += [f"{home}/.cache/torch/nccl_trace_rank_"] if home else []
    return [f"{base}{rank}" for base in [*bases, "/tmp/nccl_trace_rank_"]]


def is_named(settings: Dict[str, str]) -> bool:
    """Whether a variable names the place, so that it is not the one that all jobs of the user share."""
    return any(settings.get(name) for name in VARIABLES)


def look(view: TargetRoot, path: str, owner: int) -> Optional[Dict[str, Any]]:
    """In the guarded child: the row of a file, with ``mark`` (changes when the file does) and, if it may be
    read, ``found`` (a descriptor). None where there is no such file."""
    try:
        found = view.find(path)
    except Refused as refusal:
        return {"path": path, "size": None, "mtime": None, "error": str(refusal)}
    except OSError as error:
        if procfs.errno_name(error) in ("ENOENT", "ENOTDIR"):
            return None
        return {"path": path, "size": None, "mtime": None, "error": procfs.errno_name(error)}
    about = os.fstat(found)
    row: Dict[str, Any] = {"path": path, "size": None, "mtime": None}
    row["error"] = target_files.refusal(about, owner)
    if stat.S_ISREG(about.st_mode):
        row.update(size=about.st_size, mtime=about.st_mtime)
        row["mark"] = [about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns]
    if row["error"] is None:
        row["found"] = found
    return row


def contents(row: Dict[str, Any]) -> List[Any]:
    """In the guarded child: what ``received`` understands, the file's first bytes in base64."""
    found = row.pop("found", None)
    row.pop("mark", None)
    row["cut"] = (row["size"] or 0) > CAP
    if found is None:
        return [row, None]
    try:
        data = _first(found)
    except OSError as error:
        row["error"] = procfs.errno_name(error)
        return [row, None]
    return [row, base64.b64encode(data).decode("ascii")]


def received(item: List[Any]) -> Dump:
    """A dump as it comes out of the child."""
    row, text = item
    return Dump(row, None if text is None else base64.b64decode(text))


def _first(found: int) -> bytes:
    """Opened through /proc/self/fd: the very file that was looked at."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(f"/proc/self/fd/{found}", flags)
    try:
        chunks: List[bytes] = []
        left = CAP
        while left > 0:
            chunk = os.read(descriptor, min(left, 1 << 20))
            if not chunk:
                break
            chunks.append(chunk)
            left -= len(chunk)
    finally:
        os.close(descriptor)
    return b"".join(chunks)

"""Which NCCL a process has loaded, from the file that is mapped into it: nothing of the process is asked.

The version stands in the file's name (``libnccl.so.2.21.5``), in the name of the wheel's own folder beside it
(``nvidia_nccl_cu12-2.27.5.dist-info``), or in the read-only data of the file (``NCCL version 2.27.5+…``, what
NCCL itself prints). Statically linked into torch it is found in none of them. Reading ``maps`` may block for
ever, so all of it belongs into a guarded child. Python >= 3.8, standard library only.
"""

import os
import re
import struct
from typing import Optional, Tuple

from . import procfs, target_files
from .target_files import Refused, TargetRoot

Version = Tuple[int, int, int]

MAPS_CAP = 32 << 20
DATA_CAP = 32 << 20
"""Bytes of read-only data that are searched. The GPU's code, most of the file, is in another section."""
_LIBRARY = re.compile(r"\s(/\S{0,4000}/libnccl\.so[.\d]{0,20})$", re.MULTILINE)
_WHEEL = re.compile(r"nvidia_nccl_cu\d\d-(\d{1,2})\.(\d{1,3})\.(\d{1,3})(?:\.\w{1,20})?\.dist-info")
_NAME = re.compile(r"libnccl\.so\.(\d{1,2})\.(\d{1,3})\.(\d{1,3})")
_TEXT = re.compile(rb"NCCL version (\d{1,2})\.(\d{1,3})\.(\d{1,3})")
SECTION = struct.Struct("<IIQQQQIIQQ")


def version(pid: int, proc: str = "/proc") -> Optional[Version]:
    """(2, 27, 5) of the library mapped into ``pid``; None when there is none, or it does not tell.

    Raises OSError and Refused. It takes the target's ids for good: only for a guarded child.
    """
    text, error = procfs.read_text(f"{proc}/{pid}/maps", MAPS_CAP)
    if text is None:
        raise OSError(f"its maps: {error}")
    found = _LIBRARY.search(text)
    if found is None:
        return None
    path = found[1]
    ids = target_files.ids_of(pid, proc)
    if ids is None:
        return None
    view = TargetRoot(f"{proc}/{pid}")
    try:
        target_files.become(ids)
        return _of_name(path) or _of_wheel(view, path) or _of_data(view, path)
    finally:
        view.close()


def _of_name(path: str) -> Optional[Version]:
    return _numbers(_NAME.search(path))


def _of_wheel(view: TargetRoot, path: str) -> Optional[Version]:
    """``site-packages/nvidia/nccl/lib/libnccl.so.2`` stands three folders below the wheel's own."""
    if not path.rpartition("/")[0].endswith("/nvidia/nccl/lib"):
        return None
    names = view.matching(path.rsplit("/", 4)[0] or "/", _WHEEL)
    return _numbers(_WHEEL.fullmatch(names[0])) if len(names) == 1 else None


def _of_data(view: TargetRoot, path: str) -> Optional[Version]:
    try:
        found = view.find(path)
        descriptor = os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, Refused):
        return None
    try:
        return _numbers(_TEXT.search(read_only_data(descriptor)))
    except (OSError, struct.error):
        return None
    finally:
        os.close(descriptor)


def read_only_data(descriptor: int) -> bytes:
    """The ``.rodata`` section of a 64-bit little-endian ELF file; b"" where it has none.

    Raises OSError and struct.error for a file that is torn.
    """
    head = os.pread(descriptor, 64, 0)
    if head[:6] != b"\x7fELF\x02\x01":
        return b""
    (table,) = struct.unpack_from("<Q", head, 40)
    size, count, names = struct.unpack_from("<HHH", head, 58)
    if size != SECTION.size or names >= count:
        return b""
    rows = list(SECTION.iter_unpack(os.pread(descriptor, size * count, table)[: size * count]))
    texts = os.pread(descriptor, min(rows[names][5], 1 << 16), rows[names][4]) if names < len(rows) else b""
    for row in rows:
        if texts[row[0] : row[0] + 8] == b".rodata\0":
            return os.pread(descriptor, min(row[5], DATA_CAP), row[4])
    return b""


def _numbers(found: "Optional[re.Match[str] | re.Match[bytes]]") -> Optional[Version]:
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))

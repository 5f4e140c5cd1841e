"""The environment of a process as it is now, not as it was at exec.

``/proc/PID/environ`` shows the block that exec laid out: it knows nothing of ranks that a program sets in
``os.environ`` (mp.spawn, Ray Train), and setproctitle overwrites it. libc's ``environ`` pointer, followed
through ``/proc/PID/mem``, shows what ``getenv`` would answer. The pointer's memory needs the permission that
py-spy needs; without it the block of exec is the fallback, marked ``static``. Both wait for the target's
mmap_lock: everything is read in guarded children. Python >= 3.8, standard library only.
"""

import struct
from typing import Any, Collection, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from . import guarded, in_turn, procfs
from .process_memory import Memory, NotFound, symbol_address

LIVE, STATIC = "live", "static"
MOST_VARIABLES = 8192
BLOCK_CAP = 4 << 20
"""Bytes of /proc/PID/environ that are read."""
PATIENCE = 1.5
"""Seconds without an answer after which a process counts as stuck."""


class Environment(NamedTuple):
    """``variables``: None when nothing could be read. ``source``: live or static. ``reason``: what kept the
    live one from being read (an errno name, or words); None when it is live."""

    variables: Optional[Dict[str, str]]
    source: Optional[str] = None
    reason: Optional[str] = None


class Glimpse(NamedTuple):
    """What one process answered in a scan: its command line and the wanted variables only."""

    cmdline: Optional[Tuple[str, ...]] = None
    variables: Optional[Dict[str, str]] = None
    source: Optional[str] = None
    exec_variables: Optional[Dict[str, str]] = None
    """The wanted variables of the block of exec: what the process was started with, if it still says."""
    reason: Optional[str] = None
    """Why ``variables`` is None or only static."""


def of_process(pid: int, timeout: float, proc: str = "/proc") -> Environment:
    """All variables of one process, within ``timeout`` seconds; never raises."""
    outcome = guarded.call(_read, pid, proc, timeout=timeout, cap=BLOCK_CAP * 2)
    if outcome.status != "ok":
        return Environment(None, None, outcome.reason)
    return Environment(*outcome.value)


def of_processes(
    pids: Sequence[int], deadline: float, patience: float, proc: str = "/proc"
) -> Dict[int, Environment]:
    """All variables of many processes, read by one child; never raises.

    ``deadline``: time.monotonic seconds for all. A process whose memory is stuck costs ``patience`` seconds
    and loses only its own answer.
    """
    outcomes = in_turn.each(lambda pid: list(_read(pid, proc)), pids, deadline, patience)
    return {
        pid: Environment(*end.value) if end.status == "ok" else Environment(None, None, end.reason)
        for pid, end in zip(pids, outcomes)
    }


def glimpses(
    pids: Sequence[int],
    wanted: Iterable[str],
    deadline: float,
    proc: str = "/proc",
    patience: float = PATIENCE,
    only_exec: Collection[int] = (),
) -> Dict[int, Glimpse]:
    """Command line and wanted variables of many processes, until ``deadline`` (time.monotonic seconds).

    A process whose memory is stuck costs ``patience`` seconds and loses only its own answer. ``only_exec``:
    pids of which the block of exec will do.
    """
    names = frozenset(wanted)

    def look(pid: int) -> List[Any]:
        return list(_glimpse(pid, names, proc, pid in only_exec))

    outcomes = in_turn.each(look, pids, deadline, patience)
    found = {}
    for pid, outcome in zip(pids, outcomes):
        found[pid] = _as_glimpse(outcome.value) if outcome.status == "ok" else Glimpse(reason=outcome.reason)
    return found


def _as_glimpse(value: Any) -> Glimpse:
    cmdline, variables, source, at_exec, reason = value
    return Glimpse(None if cmdline is None else tuple(cmdline), variables, source, at_exec, reason)


def _glimpse(pid: int, names: "frozenset[str]", proc: str, only_exec: bool = False) -> Glimpse:
    text, error = procfs.read_text(f"{proc}/{pid}/cmdline", 1 << 16)
    if error in procfs.GONE:
        return Glimpse(reason=error)
    cmdline = None if text is None else tuple(text.rstrip("\0").split("\0")) if text else ()
    at_exec, refused = _static(pid, proc)
    short = None if refused is not None else {name: at_exec[name] for name in names if name in at_exec}
    if only_exec:
        return Glimpse(cmdline, short, STATIC, short, refused)
    variables, source, reason = _read(pid, proc)
    chosen = None if variables is None else {name: variables[name] for name in names if name in variables}
    return Glimpse(cmdline, chosen, source, short, reason)


def _read(pid: int, proc: str) -> Environment:
    """Live if possible, else static. Runs in a guarded child: every step may block."""
    place = f"{proc}/{pid}"
    try:
        return Environment(read_live(place), LIVE)
    except OSError as error:
        why = procfs.errno_name(error)
    except (NotFound, struct.error) as error:
        why = str(error)
    variables, refused = _static(pid, proc)
    if refused is not None:
        return Environment(None, None, refused)
    return Environment(variables, STATIC, why)


def _static(pid: int, proc: str) -> Tuple[Dict[str, str], Optional[str]]:
    block, error = procfs.read_bytes(f"{proc}/{pid}/environ", BLOCK_CAP)
    if block is None:
        return {}, error
    return as_variables(block.split(b"\0")), None


def read_live(place: str) -> Dict[str, str]:
    """The variables that libc's ``environ`` points to now; ``place`` is ``/proc/PID``. May block for ever.

    Raises OSError where the memory may not be read, NotFound where the program has no ``environ``.
    """
    memory = Memory(place)
    try:
        pointer = memory.unpack("Q", symbol_address(memory, place, b"environ"))[0]
        if not pointer:
            return {}
        strings = [memory.string(address) for address in _addresses(memory, pointer)]
    finally:
        memory.close()
    variables = as_variables(strings)
    if strings and not variables:
        raise NotFound("environ points to no variables")
    return variables


def _addresses(memory: Memory, array: int) -> List[int]:
    """The pointers of a NULL-terminated array."""
    found: List[int] = []
    while len(found) < MOST_VARIABLES:
        chunk = memory.read(array + len(found) * 8, 512)
        pointers = [value for (value,) in struct.iter_unpack("<Q", chunk[: len(chunk) // 8 * 8])]
        if not pointers:
            raise NotFound("environ has no end")
        if 0 in pointers:
            return found + pointers[: pointers.index(0)]
        found += pointers
    raise NotFound("environ has no end")


def as_variables(strings: Iterable[bytes]) -> Dict[str, str]:
    """``NAME=value`` strings as a dict; of a name given twice the first counts, as for getenv(3).

    >>> as_variables([b"RANK=3", b"", b"not one", b"RANK=4"])
    {'RANK': '3'}
    """
    variables: Dict[str, str] = {}
    for string in strings:
        name, equals, value = string.partition(b"=")
        if name and equals:
            variables.setdefault(name.decode("utf-8", "replace"), value.decode("utf-8", "replace"))
    return variables

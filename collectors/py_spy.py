"""py-spy as a command: where it is, how it is asked, what its answers and complaints mean.

Facts of py-spy 0.4 (measured with 0.4.3): every failure exits with status 1 and says why on standard error;
``--json`` leaves out child processes, whatever ``--subprocesses`` says; ``--native`` excludes
``--nonblocking``. It attaches with PTRACE_SEIZE, so a killed one leaves no thread stopped. Python >= 3.8.
"""

import os
import re
import shutil
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import procfs, py_spy_answer, runner
from .interface import ABSENT, DENIED, ERROR, OK, TIMEOUT

CAP = 64 << 20
"""Bytes of one answer: about 9,000 threads of 25 frames."""

PTRACE_ADVICE = (
    "run hangscope as the job's user or as root, with CAP_SYS_PTRACE in a container "
    "(or set kernel.yama.ptrace_scope to 0)"
)


class Dump(NamedTuple):
    """One answer. ``status`` as a cell's; ``final``: asking the same way again cannot help."""

    status: str
    reason: Optional[str] = None
    threads: Tuple[Dict[str, Any], ...] = ()
    """Validated: frames are dicts with py-spy's own keys, innermost first."""
    final: bool = False
    seconds: float = 0.0


def find(given: Optional[str] = None) -> Optional[str]:
    """The py-spy program: ``given``, else beside this interpreter, else of the installed package, else
    on PATH. None when there is none."""
    candidates = [given] if given else []
    candidates.append(os.path.join(os.path.dirname(sys.executable or ""), "py-spy"))
    for candidate in candidates:
        if _is_program(candidate):
            return candidate
    return _of_package() or shutil.which("py-spy")


def _of_package() -> Optional[str]:
    """The program that the installed distribution ``py-spy`` brought, wherever its scripts went."""
    from importlib import metadata  # takes 20 ms, and is seldom needed

    try:
        files = metadata.files("py-spy") or []
    except metadata.PackageNotFoundError:
        return None
    paths = [os.path.normpath(str(file.locate())) for file in files if file.name == "py-spy"]
    return next((path for path in paths if _is_program(path)), None)


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def dump(
    program: str,
    pid: int,
    timeout: float,
    blocking: bool = False,
    with_locals: bool = False,
    native: bool = False,
    proc: str = "/proc",
    known: Optional[py_spy_answer.Known] = None,
) -> Dump:
    """Asks for the stacks of process (or live thread) ``pid``, for ``timeout`` seconds at most.

    Only ``blocking`` and ``native`` stop the target's threads; the caller has to know that they may be
    stopped (``attach.refusal``).
    """
    argv = [program, "dump", "--json", "--pid", str(pid)]
    if native:
        argv.append("--native")
    elif not blocking:
        argv.append("--nonblocking")
    if with_locals:
        argv.append("--locals")
    done = runner.run(argv, timeout, cap=CAP, env={"PATH": os.environ.get("PATH", ""), "RUST_BACKTRACE": "0"})
    if done.status in ("timeout", "abandoned"):
        return Dump(TIMEOUT, f"py-spy {done.complaint()}", (), True, done.seconds)
    if done.status == "missing":
        return Dump(ABSENT, f"{done.complaint()}; install py-spy where hangscope runs", (), True)
    if done.status == "failed":
        status, reason, final = explain(done.stderr.decode("utf-8", "replace"), pid, proc)
        return Dump(status, reason, (), final, done.seconds)
    if done.truncated:
        return Dump(ERROR, f"py-spy printed more than {CAP >> 20} MB", (), True, done.seconds)
    threads = py_spy_answer.parse(done.stdout, known)
    if threads is None:
        return Dump(ERROR, "py-spy's answer is not in the form of py-spy 0.4", (), False, done.seconds)
    return Dump(OK, None, threads, False, done.seconds)


COMPLAINTS: List[Tuple[str, str, str, bool]] = [
    # (pattern in standard error, status, what it means, final)
    ("Permission [Dd]enied|EACCES", DENIED, "the kernel refuses to show its memory; {ptrace}", True),
    ("Failed to suspend process.*EPERM", ERROR, "another tool traces it already: detach that one", True),
    ("unexpected waitpid result", ERROR, "it was stopped (SIGSTOP) while py-spy wanted to stop it", True),
    ("EPERM|Operation not permitted", DENIED, "ptrace is refused; {ptrace}", True),
    ("Failed to find python version", ABSENT, "not a Python process, as far as py-spy can tell", True),
    ("Failed to find a python interpreter", ERROR, "no interpreter in it (yet, or any more)", False),
    ("No such process|ESRCH", ERROR, "a thread or the process ended while it was read", False),
]


def explain(text: str, pid: int, proc: str = "/proc") -> Tuple[str, str, bool]:
    """What a failed py-spy means: (status, reason with the next step, final).

    The process's own state comes first: of one that is gone py-spy only says that it cannot read a file.
    """
    gone = ended(pid, proc)
    if gone is not None:
        return ABSENT, gone, True
    for pattern, status, meaning, final in COMPLAINTS:
        if re.search(pattern, text, re.DOTALL):
            return status, meaning.format(ptrace=PTRACE_ADVICE), final
    if "process executable name" in text and procfs.read_link(f"{proc}/{pid}/exe")[0] is None:
        return ABSENT, "it has no executable: a kernel thread, or about to end", True
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if re.match(r"\d+: ", line)]
    said = (lines[0] if lines else "no message") + (f" ({causes[-1]})" if causes else "")
    return ERROR, f"py-spy: {said[:300]}", False


def ended(pid: int, proc: str = "/proc") -> Optional[str]:
    """What is left of a process that has ended; None while it, or a thread of it, lives."""
    text, error = procfs.read_text(f"{proc}/{pid}/stat", 4096)
    if error in procfs.GONE:
        return "the process has ended"
    line = procfs.parse_stat(text or "")
    if line is None or line.state not in "ZX" or live_thread(pid, proc) is not None:
        return None
    return f"it is a zombie: it ended, and its parent {line.ppid} has not waited for it"


def live_thread(pid: int, proc: str = "/proc") -> Optional[int]:
    """A thread of ``pid`` that has not ended, the leader last; None when there is none."""
    for tid in sorted(procfs.tasks(pid, proc), key=lambda tid: tid == pid):
        line = procfs.stat_fields(pid, proc, tid)
        if line is not None and line.state not in "ZX":
            return tid
    return None

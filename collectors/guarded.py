"""Calls that may block for ever, in a child that may be killed, and abandoned if even that fails.

Reads of ``/proc/PID/{cmdline,environ,maps,mem}``, a stat on a dead mount and NVML on a lost GPU can
sleep in the kernel for ever (one process with its mmap_lock stuck is enough, even a neighbour's).
Each runs in a forked child with a deadline. A child that SIGKILL does not end is in uninterruptible
sleep: it is listed by pid, never waited for.
"""

import contextlib
import json
import os
import select
import signal
import time
from typing import Any, Callable, List, NamedTuple, Optional

GRACE = 0.5
"""Seconds that a killed child gets to disappear before it is abandoned."""

abandoned: List[int] = []
"""Children of this process that survived SIGKILL (uninterruptible sleep)."""

running: List[int] = []
"""Children that are running now: the agent ends them when it is interrupted."""


class Outcome(NamedTuple):
    """``status``: ok, timeout, error (``reason`` says which) or abandoned (timeout, and not killable).
    ``value``: what the function returned (anything that JSON can carry), also what it had sent
    before a timeout when it is a generator: then a list."""

    status: str
    value: Any = None
    reason: Optional[str] = None
    seconds: float = 0.0


def call(
    function: Callable[..., Any],
    *args: Any,
    timeout: float,
    cap: int = 64 << 20,
    silence: Optional[float] = None,
) -> Outcome:
    """Runs ``function(*args)`` in a forked child and returns its JSON-able result within ``timeout`` seconds.

    ``silence``: seconds without a new item after which a stream counts as timed out already.

    A generator function streams: each yielded value is kept as it comes, so what was read before a
    read that blocks is not lost. More than ``cap`` bytes of JSON are an error, with the items that fit.
    Never raises for what the function does. The child keeps no file but its pipe, standard output included: a
    reader of the agent's output must not wait for a child that cannot be killed. The function opens what it
    needs.
    """
    start = time.monotonic()
    try:
        read_end, write_end = os.pipe()
    except OSError as error:
        return Outcome("error", [], f"no pipe for the reader: {error.strerror}")
    try:
        pid = os.fork()
    except OSError as error:
        os.close(read_end)
        os.close(write_end)
        return Outcome("error", [], f"no process for the reader: {error.strerror}")
    if pid == 0:
        _child(function, args, write_end)
    running.append(pid)
    try:
        os.close(write_end)
        data, how = _drain(read_end, start + timeout, cap, silence)
    finally:
        os.close(read_end)
        gone = end_child(pid, kill=True)
        running.remove(pid)
    return _decode(data, how, gone, time.monotonic() - start)


def _child(function: Callable[..., Any], args: Any, write_end: int) -> None:
    """Sends one JSON line an item, then a last line ``{"end": …}``; never returns."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        keep_only(write_end)
        try:
            result = function(*args)
            if hasattr(result, "__next__"):
                for item in result:
                    _send(write_end, {"item": item})
                _send(write_end, {"end": "stream"})
            else:
                _send(write_end, {"item": result})
                _send(write_end, {"end": "value"})
        except BaseException as error:
            _send(write_end, {"end": "error", "reason": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(0)


def keep_only(*kept: int) -> None:
    """In a forked child: closes every file but ``kept``; 0 to 2, where not kept, become /dev/null."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        if number not in kept:
            os.dup2(null, number)
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        numbers = list(range(1024))
    for number in numbers:
        if number > 2 and number not in kept:
            with contextlib.suppress(OSError):
                os.close(number)


def _send(descriptor: int, value: Any) -> None:
    data = json.dumps(value).encode("ascii") + b"\n"
    while data:
        data = data[os.write(descriptor, data) :]


def _drain(
    descriptor: int, deadline: float, cap: int, silence: Optional[float] = None
) -> "tuple[bytes, str]":
    """Reads until end of file, the deadline, too long a silence or the cap.

    Returns (bytes, ``end`` | ``late`` | ``full``).
    """
    chunks: List[bytes] = []
    size = 0
    poller = select.poll()
    poller.register(descriptor, select.POLLIN | select.POLLHUP)
    while size <= cap:
        left = deadline - time.monotonic()
        if left <= 0:
            return b"".join(chunks), "late"
        if not poller.poll(min(left, left if silence is None else silence) * 1000):
            if silence is not None and silence <= left:
                return b"".join(chunks), "late"
            continue
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            return b"".join(chunks), "end"
        chunks.append(chunk)
        size += len(chunk)
    return b"".join(chunks), "full"


def _decode(data: bytes, how: str, gone: bool, seconds: float) -> Outcome:
    items: List[Any] = []
    end: Optional[str] = None
    reason: Optional[str] = None
    for line in data.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        message = json.loads(line.decode("ascii"))
        if "end" in message:
            end, reason = message["end"], message.get("reason")
        else:
            items.append(message["item"])
    if end == "value":
        return Outcome("ok", items[0], None, seconds)
    if end == "stream":
        return Outcome("ok", items, None, seconds)
    if end == "error":
        return Outcome("error", items, reason, seconds)
    if how == "end":
        return Outcome("error", items, "the reading process died", seconds)
    if how == "full":
        return Outcome("error", items, "the answer is too long", seconds)
    why = f"no answer in {seconds:.1f} s"
    if not gone:
        return Outcome("abandoned", items, why + ", and the reader cannot be killed", seconds)
    return Outcome("timeout", items, why, seconds)


def end_child(pid: int, kill: bool, grace: float = GRACE) -> bool:
    """Kills (when asked) and reaps a child. False: it is still there, and now listed as abandoned."""
    if kill:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + grace
    pause = 0.0005
    while True:
        try:
            done, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return True
        if done == pid:
            return True
        if time.monotonic() >= deadline:
            abandoned.append(pid)
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.02)

"""The system call in which a thread sleeps, by the C function that its native stack ends in.

For stacks of which nothing else is known: a saved dump has no kernel state with it.

>>> from hangscope.model.facts import Frame
>>> def innermost(*names): return tuple(Frame(function=name, file="", library="libc.so.6") for name in names)
>>> native_call(innermost("0x7f16", "pthread_cond_wait@@GLIBC_2.3.2")), native_call(innermost("__GI___poll"))
('futex', 'poll')
>>> native_call(innermost("open64")), native_call(innermost("c10d::Work::wait")), native_call(())
('open', None, None)
"""

from __future__ import annotations

import re

from hangscope.model.facts import Frame

_NOISE = re.compile(r"^(?:__GI_)?(?:__libc_|___|__|_)?|(?:64|_nocancel|_cancel)?(?:@.*|\(.*)?$")
_FUTEX = re.compile(
    r"(?:__)?(?:futex_\w+|GI___futex\w*|lll_lock_wait\w*|pthread_(?:cond|mutex|rwlock)_\w+|sem_(?:timed|clock)?wait\w*"
    r"|new_sem_wait\w*|do_futex_wait\w*|PyThread_acquire_lock\w*)"
)
_CALLS = frozenset(
    {
        "read", "write", "readv", "writev", "pread", "pwrite", "open", "openat", "fsync", "fdatasync", "stat",
        "fstat", "lstat", "statx", "flock", "fcntl", "poll", "ppoll", "select", "pselect", "epoll_wait",
        "epoll_pwait", "nanosleep", "clock_nanosleep", "wait4", "waitid", "waitpid", "accept", "accept4",
        "connect", "recv", "recvfrom", "recvmsg", "send", "sendto", "sendmsg", "ioctl", "io_getevents",
        "futex",
    }
)  # fmt: skip
_ALIASES = {
    "waitpid": "wait4",
    "recv": "recvfrom",
    "send": "sendto",
    "pselect": "pselect6",
    "pread": "pread64",
    "pwrite": "pwrite64",
}
DEPTH = 4
"""Frames that are looked at: a wrapper may stand around the call, and py-spy shows some without a name."""


def native_call(native: tuple[Frame, ...]) -> str | None:
    """The call's name in the kernel's table; None when the innermost functions are none."""
    for frame in native[:DEPTH]:
        if frame.library is None:
            return None
        name = frame.function[:200]
        bare = _NOISE.sub("", name)
        if _FUTEX.match(bare) or _FUTEX.match(name):
            return "futex"
        if bare in _CALLS:
            return _ALIASES.get(bare, bare)
        if not name.startswith("0x"):
            return None
    return None

"""What to set before the next run: each with what it gives, what it costs, and on which versions that rests.

A row says for which versions of torch or NCCL it holds; for an unknown version the row is shown that works in
most of them. Sources: torch's FlightRecorder.hpp and ProcessGroupNCCL.hpp of 2.6.0, 2.8.0, 2.10.0 and 2.14.1,
torch 2.13 as measured with gloo, NCCL's env.rst and src/debug.cc of 2.14 to 2.30.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from .values import Setting, Version

_WORKER_SERVER = (
    "from torch._C._distributed_c10d import _WorkerServer; hang_server = _WorkerServer('127.0.0.1', 0)"
)
_SIGNAL = "import faulthandler, signal; faulthandler.register(signal.SIGUSR1, all_threads=True)"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A setting and the versions for which it is said: from ``since`` on, up to and without ``until``.
    ``default_since``: on by itself from there on."""

    setting: Setting
    of: str = "torch"
    since: Version = ()
    until: Version = (99,)
    default_since: Version = (99,)


ROWS: tuple[Row, ...] = (
    Row(
        until=(2, 13),
        setting=Setting(
            name="TORCH_NCCL_TRACE_BUFFER_SIZE",
            value="2000",
            gives="flight recorder: which collective of which group each rank entered, started and finished",
            cost="no cost measurable on a 20 µs collective (torch 2.13, gloo); about 0.4 MB a rank and dump",
            source="default 0 (off) in FlightRecorder.hpp of torch 2.6, 2.8 and 2.10",
        ),
    ),
    Row(
        since=(2, 13),
        default_since=(2, 13),
        setting=Setting(
            name="TORCH_FR_BUFFER_SIZE",
            value="2000",
            gives="flight recorder: which collective of which group each rank entered, started and finished",
            cost="no cost measurable on a 20 µs collective (torch 2.13, gloo); about 0.4 MB a rank and dump",
            source="2000 by default in torch 2.13 (gloo) and in FlightRecorder.hpp of 2.14; 0 turns it off",
        ),
    ),
    Row(
        default_since=(2, 8),
        setting=Setting(
            name="TORCH_NCCL_DUMP_ON_TIMEOUT",
            value="1",
            gives="each rank writes its flight recorder to a file when a collective times out",
            cost="the end of a timed-out job is up to 15 s later (60 s in torch 2.6)",
            source="ProcessGroupNCCL.hpp: off by default up to 2.6, on from 2.8; NCCL back end only",
        ),
    ),
    Row(
        until=(2, 13),
        setting=Setting(
            name="TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
            value="$PWD/fr_trace_rank_",
            gives="the dumps lie where you look for them, not mixed with those of other jobs on the node",
            cost="one file a rank (its global rank is appended), at a time-out only",
            source="ProcessGroupNCCL.hpp; default /tmp/nccl_trace_rank_ up to 2.6, in ~/.cache/torch in 2.8",
        ),
    ),
    Row(
        since=(2, 13),
        setting=Setting(
            name="TORCH_FR_DUMP_TEMP_FILE",
            value="$PWD/fr_trace_rank_",
            gives="the dumps lie where you look for them, not mixed with those of other jobs on the node",
            cost="one file a rank (its global rank is appended), at a time-out only; not written by gloo",
            source="FlightRecorder.hpp of 2.14; default comm_lib_trace_rank_ in the cache folder's torch/",
        ),
    ),
    Row(
        since=(2, 6),
        setting=Setting(
            name="TORCH_NCCL_DEBUG_INFO_PIPE_FILE",
            value="/tmp/fr_trigger_",
            gives="hangscope capture can ask a hanging rank for its dump, long before the time-out",
            cost="one FIFO a rank, looked into once a second by a thread that runs anyway",
            source="ProcessGroupNCCL.cpp of 2.6 on; NCCL back end only",
        ),
    ),
    Row(
        since=(2, 4),
        setting=Setting(
            name="worker server",
            line=_WORKER_SERVER,
            gives="the flight recorder in milliseconds while the rank hangs, even one that holds the GIL",
            cost="9 sleeping threads and a port on the loopback address, without authentication",
            source="torch 2.4 on; measured with 2.13 (gloo)",
        ),
    ),
    Row(
        of="python",
        setting=Setting(
            name="PYTHONFAULTHANDLER",
            value="1",
            gives="the Python stack of every thread in the log when the watchdog aborts the process",
            cost="none before that",
            source="CPython's faulthandler",
        ),
    ),
    Row(
        of="python",
        setting=Setting(
            name="faulthandler signal",
            line=_SIGNAL,
            gives="kill -USR1 PID prints all Python stacks where py-spy may not attach, GIL held or not",
            cost="none before the signal; the signal can end a sleep or a system call early",
            source="CPython's faulthandler, measured with 3.11",
        ),
    ),
    Row(
        of="nccl",
        setting=Setting(
            name="NCCL_DEBUG",
            value="INFO",
            gives="communicators and their ranks, the network chosen, effective settings, the first error",
            cost="some hundred lines a rank at the start, nothing in each collective",
            source="NCCL 2.14 to 2.30, src/debug.cc",
        ),
    ),
    Row(
        of="nccl",
        setting=Setting(
            name="NCCL_DEBUG_FILE",
            value="$PWD/nccl.%h.%p.log",
            gives="those lines in a file a process: on stdout the last ones are lost when a rank is killed",
            cost="a small file a process; without %p all ranks of a node cut each other's file",
            source="NCCL 2.14 to 2.30, src/debug.cc: stdout is never flushed",
        ),
    ),
    Row(
        of="nccl",
        since=(2, 24),
        default_since=(2, 24),
        setting=Setting(
            name="NCCL_RAS_ENABLE",
            value="1",
            gives="NCCL tells which rank of a communicator lags or is gone (not of send, receive, graphs)",
            cost="a thread and a loopback port; before NCCL 2.29.2 a report can crash the job: not taken",
            source="NCCL 2.24 on; nccl issues 1669, 1718 (fixed in 2.27.3) and 1762 (fixed in 2.29.2)",
        ),
    ),
    Row(
        since=(2, 3),
        default_since=(2, 3),
        setting=Setting(
            name="TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
            value="480",
            gives="ends a rank whose watchdog is itself stuck in CUDA or waits for the GIL, and says so",
            cost="none; what it ends can be captured no more: raise it where somebody will look first",
            source="600 in torch 2.3 and 2.4, 480 from 2.5",
        ),
    ),
    Row(
        of="nccl",
        setting=Setting(
            name="NCCL_DEBUG_SUBSYS",
            value="INIT,BOOTSTRAP,ENV,COLL",
            gives="a line for each collective, so that the rank that launched fewer can be counted out",
            cost="a line for each collective: large files, and a write in every launch",
            source="NCCL 2.14 to 2.30, src/enqueue.cc; COLL is off by default",
            recommended=False,
        ),
    ),
    Row(
        setting=Setting(
            name="TORCH_DISTRIBUTED_DEBUG",
            value="DETAIL",
            gives="ranks that call different collectives, or other shapes, get an error that names both",
            cost="a gloo barrier and an exchange before each collective: slow",
            source="torch 1.13 to 2.14; measured with 2.13",
            recommended=False,
        ),
    ),
    Row(
        setting=Setting(
            name="TORCH_NCCL_ENABLE_TIMING",
            value="1",
            gives="the duration of each collective in the flight recorder",
            cost="raises the chance that the watchdog itself hangs",
            source="ProcessGroupNCCL.hpp of torch 2.6 to 2.14",
            recommended=False,
        ),
    ),
)


def settings_for(torch: Version | None, nccl: Version | None) -> tuple[Setting, ...]:
    """The settings for these versions; None: not known, or (torch) not there."""
    return tuple(_chosen(torch, nccl))


def _chosen(torch: Version | None, nccl: Version | None) -> Iterator[Setting]:
    for row in ROWS:
        version = {"torch": torch, "nccl": nccl}.get(row.of)
        if version is None:
            # of two names of one thing the older one: newer versions still read it
            if row.of != "torch" or row.since < (2, 13) or row.setting.value is None:
                yield msgspec.structs.replace(row.setting, default=row.default_since == row.since)
        elif row.since <= version < row.until:
            yield msgspec.structs.replace(row.setting, default=version >= row.default_since)


def exports(settings: tuple[Setting, ...]) -> str:
    """Shell lines that set what is worth setting and is not on already, for ``eval`` or a job script.

    >>> print(exports((Setting(name="A", value="$PWD/x", gives="g", cost="c", source="s"),)), end="")
    # g
    export A="$PWD/x"
    """
    return "".join(
        f'# {setting.gives}\nexport {setting.name}="{setting.value}"\n'
        for setting in settings
        if setting.recommended and not setting.default and setting.value is not None
    )

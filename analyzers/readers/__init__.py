"""Raw artifacts → typed values: one module an artifact kind, each showing its raw sample.

A reader takes ``(data, path)``; ``path`` is what its facts cite. It raises nothing but UnreadableEvidence.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from . import (
    environment,
    gpus,
    kernel_log,
    locks,
    log_files,
    memory,
    mounts,
    nvidia_smi,
    process,
    pystack_text,
    ras_artifacts,
    recorder,
    recorder_dumps,
    sockets,
    source,
    stacks,
    threads,
)


class Reader(msgspec.Struct, frozen=True):
    """Which artifact (collector and member name), and the function that understands it."""

    collector: str
    name: str
    read: Callable[[bytes, str], msgspec.Struct]


READERS: tuple[Reader, ...] = (
    Reader("threads", "threads.json", threads.read),
    Reader("process", "process.json", process.read),
    Reader("stacks", "stacks.json", stacks.read),
    Reader("native", "native.json", stacks.read_native),
    Reader("native", "native.txt", pystack_text.read),
    Reader("source", "source.json", source.read),
    Reader("sockets", "sockets.json", sockets.read),
    Reader("memory", "memory.json", memory.read),
    Reader("locks", "locks.json", locks.read),
    Reader("mounts", "mounts.json", mounts.read),
    Reader("environment", "environment.json", environment.read),
    Reader("recorder", "fr_trace.json", recorder.read),
    Reader("recorder", "nccl_trace.json", recorder.read),
    Reader("recorder_files", "files.json", recorder_dumps.read_table),
    Reader("recorder_files", "dump-0.pickle", recorder_dumps.read_dump),
    Reader("recorder_files", "dump-1.pickle", recorder_dumps.read_dump),
    Reader("recorder_files", "dump-2.pickle", recorder_dumps.read_dump),
    Reader("recorder_pipe", "dump.pickle", recorder_dumps.read_dump),
    Reader("ras", "ras.json", ras_artifacts.read_json),
    Reader("ras", "ras.txt", ras_artifacts.read_text),
    Reader("gpus", "nvml.json", gpus.read),
    Reader("gpus", "nvidia-smi.xml", nvidia_smi.read),
    Reader("output", "output.json", log_files.read_output),
    Reader("nccl_log", "nccl_log.json", log_files.read_nccl),
    Reader("kernel_log", "kernel.txt", kernel_log.read),
)


def reader_for(collector: str, name: str) -> Reader | None:
    """The reader of that artifact; None when it is carried for people only."""
    for reader in READERS:
        if reader.collector == collector and reader.name == name:
            return reader
    return None

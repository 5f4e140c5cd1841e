"""A FAKE of NCCL's RAS service: it speaks the protocol of NCCL 2.24 to 2.30 and makes its reports up.

No NCCL, no GPU. ``python -m tests.collectors.fake_ras_server --version 2.27.7 --scenario lagging`` serves on
127.0.0.1:28028 until it is ended; ``--fault`` makes it misbehave. Reports grow by ``--speed`` operations a
second, so that two of them differ where the job is to look alive. With several processes on one port (they
share it, as NCCL's do) one of them may be stopped.
"""

import argparse
import json
import mmap
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import BinaryIO, cast

KINDS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
SCENARIOS = ("healthy", "lagging", "missing", "none")
FAULTS = ("none", "slow", "torn", "invalid-json", "closing", "silent", "chatter")
JSON_SINCE = (2, 28, 7)
COMMA_SINCE = (2, 29, 2)
HASH = 0x51C0FFEE0DDBA11


class FakeJob:
    """One communicator of ``size`` ranks; the pid of rank 0 is given, and the others follow it."""

    def __init__(self, version: tuple[int, ...], scenario: str, size: int, pid: int, speed: float) -> None:
        self.version, self.scenario, self.size, self.pid, self.speed = version, scenario, size, pid, speed
        self.started = time.monotonic()

    def operations(self) -> int:
        """AllReduces that each rank has launched by now."""
        return 700 + int((time.monotonic() - self.started) * self.speed)

    def count(self, rank: int) -> int:
        return self.operations() - (1 if self.scenario == "lagging" and rank == 1 else 0)

    def present(self) -> list[int]:
        return [rank for rank in range(self.size) if not (self.scenario == "missing" and rank == 1)]

    def json(self) -> str:
        """The report of NCCL 2.28.7 on, without a comma where the versions before 2.29.2 have none."""
        base = {"host": "192.0.2.1", "cuda_dev": 0, "nvml_dev": 0}
        status = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False}
        ranks = [
            {
                "rank": rank,
                **base,
                "pid": self.pid + rank,
                "status": {**status, "abort_flag": False},
                "collective_counts": {kind: self.count(rank) if kind == "AllReduce" else 0 for kind in KINDS},
            }
            for rank in self.present()
        ]
        missing = [
            {
                "rank": rank,
                "host": "192.0.2.1",
                "pid": self.pid + rank,
                "cuda_dev": 1,
                "nvml_dev": 1,
                "status": {"unresponsive": True, "considered_dead": False},
            }
            for rank in range(self.size)
            if rank not in self.present()
        ]
        communicator = {
            "hash": f"0x{HASH:x}",
            "secondary_hash": "0x1:0x2",
            "size": self.size,
            "ranks_count": len(ranks),
            "missing_ranks_count": len(missing),
            "ranks": ranks,
            "missing_ranks": missing,
        }
        found = [] if self.scenario == "none" else [communicator]
        report = {
            "nccl_version": ".".join(str(part) for part in self.version),
            "cuda_runtime_version": 12090,
            "cuda_driver_version": 12090,
            "timestamp": time.strftime("%Y-%m-%d %H:%M:%S"),
            "communicators_count": len(found),
            "communicators": found,
            "ras": {"collection_time_sec": 0.004, "timeouts_count": len(missing)},
        }
        text = json.dumps(report, indent=2) + "\n"
        if self.version < COMMA_SINCE:
            text = re.sub(r'("nvml_dev": \d+),(\s+"status": \{\s+"unresponsive")', r"\1\2", text)
        return text

    def text(self) -> str:
        """The verbose report as people read it."""
        lines = [
            f"NCCL version {'.'.join(str(part) for part in self.version)} compiled with CUDA 12.9",
            "CUDA runtime version 12090, driver version 12090",
            "",
            "Job summary",
            "===========",
            "",
            "  Nodes  Processes         GPUs  Processes     GPUs",
            "(total)   per node  per process    (total)  (total)",
            f"{1:7}  {self.size:9}  {1:11}  {self.size:9}  {self.size:7}",
            "",
            "Communicators... (0.01s)",
            "=============",
            "",
        ]
        if self.scenario == "none":
            lines += ["No communicator data collected!", ""]
        else:
            errors = {"lagging": "MISMATCH", "missing": "INCOMPLETE"}.get(self.scenario, "OK")
            lines += [
                "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors",
                "    #  in group  per comm  per node  per comm  in group",
                f"{0:5}  {1:8}  {1:8}  {self.size:8}  {self.size:8}  {self.size:8}   RUNNING  {errors:>6}",
                "",
            ]
        lines += ["Errors", "======", "", *self._errors(), "Warnings", "========", "", *self._warnings()]
        return "\n".join(lines) + "\n"

    def _place(self, rank: int) -> str:
        return f"GPU {rank} managed by process {self.pid + rank} on node 192.0.2.1"

    def _errors(self) -> list[str]:
        if self.scenario != "missing":
            return []
        return [
            "INCOMPLETE",
            "  Missing communicator data from 1 job process",
            f"  Process {self.pid + 1} on node 192.0.2.1 managing GPU 1",
            "",
            f"#0-0 ({HASH:016x}) INCOMPLETE",
            "  Missing communicator data from 1 rank",
            f"  Rank 1 -- {self._place(1)}",
            "",
        ]

    def _warnings(self) -> list[str]:
        if self.scenario != "lagging":
            return []
        return [
            f"#0-0 ({HASH:016x}) MISMATCH",
            "  Communicator ranks have different AllReduce operation counts",
            f"  {self.size - 1} ranks have launched up to operation {self.operations()}",
            f"  Rank 1 has launched up to operation {self.operations() - 1} -- {self._place(1)}",
            "",
        ]


class FakeRasServer:
    """Listens as NCCL does, shares its port, and answers each connection in a thread of its own."""

    def __init__(self, job: FakeJob, port: int, fault: str = "none", host: str = "127.0.0.1") -> None:
        self.job, self.fault = job, fault
        self.listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.listener.bind((host, port))
        self.listener.listen(64)
        self.port: int = self.listener.getsockname()[1]

    def serve(self) -> None:
        while True:
            stream, _ = self.listener.accept()
            threading.Thread(target=self.answer, args=(stream,), daemon=True).start()

    def answer(self, stream: socket.socket) -> None:
        """One connection to its end."""
        kind = "text"
        print("connected", flush=True)
        with stream, stream.makefile("rwb", buffering=0) as lines:
            while line := lines.readline(1024):
                command = line.decode("ascii", "replace").strip()
                print(command, flush=True)
                if self.fault == "silent":
                    time.sleep(600)
                if self.fault == "closing":
                    return
                if self.fault == "chatter":
                    lines.write(b"HTTP/1.1 400 Bad Request " * 400)
                    return
                if command.lower() in ("status", "verbose status"):
                    self.report(cast(BinaryIO, lines), kind)
                    return
                reply, kind = self.reply(command, kind)
                lines.write(reply.encode("ascii") + b"\n")

    def reply(self, command: str, kind: str) -> tuple[str, str]:
        """(answer to a command of the handshake, the format that is set then)."""
        low = command.lower()
        if low.startswith("client protocol "):
            return "SERVER PROTOCOL 2", kind
        if low.startswith("timeout "):
            return (
                "OK" if low[8:].strip().isdigit() else f"ERROR: Invalid timeout value {command[8:]}"
            ), kind
        if low.startswith("set format ") and self.job.version >= JSON_SINCE:
            wanted = low[11:].strip()
            return ("OK", wanted) if wanted in ("json", "text") else (f"ERROR: Invalid format {wanted}", kind)
        return f"ERROR: Unknown command {command}", kind

    def report(self, lines: BinaryIO, kind: str) -> None:
        data = (self.job.json() if kind == "json" else self.job.text()).encode("ascii")
        if self.fault == "invalid-json":
            data = data.replace(b'"size"', b'"size', 1)
        if self.fault == "torn":
            data = data[: len(data) // 2]
        if self.fault == "slow":
            lines.write(data[:40])
            time.sleep(600)
        lines.write(data)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="2.29.7")
    parser.add_argument("--scenario", choices=SCENARIOS, default="healthy")
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--size", type=int, default=4)
    parser.add_argument("--pid", type=int, default=os.getpid(), help="of rank 0; its own by default")
    parser.add_argument("--speed", type=float, default=0.0)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=28028)
    parser.add_argument("--library", help="a file to map, as a loaded libnccl is mapped")
    options = parser.parse_args(list(argv))
    if options.library:
        with open(options.library, "rb") as library:
            mapped = mmap.mmap(library.fileno(), 0, prot=mmap.PROT_READ)
            assert len(mapped)  # kept: it ends with the process
    version = tuple(int(part) for part in options.version.split("."))
    job = FakeJob(version, options.scenario, options.size, options.pid, options.speed)
    server = FakeRasServer(job, options.port, options.fault, options.host)
    print(f"ready {server.port}", flush=True)
    server.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

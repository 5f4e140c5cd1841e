"""One rank of the demo's job: a small training loop that hangs for real. Run as a script, once a rank.

Every step a thread moves the rank's shard to the store, then the ranks all-gather their shards. To store
is to start a program with the store as its input. One rank's store is a FIFO that nobody writes to: Linux
keeps a parent in uninterruptible sleep (state D) until its vfork child has exec'ed, and this child never
will. So that thread is blocked in the kernel, its rank waits for it, and the other ranks in the all-gather.

``rank.py STORE [torch]``: standard library only, and with ``torch`` the all-gather is torch's, over gloo.
"""

import ctypes
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable

RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
SHARD = 4096
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


class OffloadThread(threading.Thread):
    """Moves shards to the store one after the other and says when each is there."""

    def __init__(self, store: str) -> None:
        super().__init__(name="param-offload", daemon=True)
        self.store = store
        self.shards: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.moved = threading.Semaphore(0)

    def run(self) -> None:
        while True:
            self.shards.get()
            start_program(self.store)
            self.moved.release()


def start_program(source: str) -> None:
    """Starts a program with ``source`` as its input, without the GIL, and waits for it."""
    actions = ctypes.create_string_buffer(1024)
    child = ctypes.c_int()
    arguments = (ctypes.c_char_p * 2)(b"true", None)
    LIBC.posix_spawn_file_actions_init(actions)
    LIBC.posix_spawn_file_actions_addopen(actions, 0, os.fsencode(source), os.O_RDONLY, 0)
    LIBC.posix_spawnp(ctypes.byref(child), b"true", actions, None, arguments, (ctypes.c_char_p * 1)(None))
    os.waitpid(child.value, 0)


class Ring:
    """The ranks joined by TCP: each one is connected to the next and was connected to by the one before."""

    def __init__(self) -> None:
        ports = [int(port) for port in os.environ["RING_PORTS"].split(",")]
        listener = socket.socket(fileno=int(os.environ["RING_LISTENER"]))
        self.next = socket.create_connection(("127.0.0.1", ports[(RANK + 1) % SIZE]))
        self.previous, _ = listener.accept()

    def all_gather(self, shard: bytes) -> list[bytes]:
        """Every rank's shard: each travels once round the ring."""
        shards = [shard]
        for _ in range(SIZE - 1):
            self.next.sendall(shards[-1])
            shards.append(self.receive(len(shard)))
        return shards

    def receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.previous.recv(count - len(data))
            if not part:
                sys.exit("the previous rank is gone")
            data += part
        return data


def gloo_all_gather() -> Callable[[bytes], object]:
    """torch's all-gather over gloo."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    outputs = [torch.empty(SHARD, dtype=torch.uint8) for _ in range(SIZE)]

    def all_gather(shard: bytes) -> None:
        dist.all_gather(outputs, torch.frombuffer(bytearray(shard), dtype=torch.uint8))

    return all_gather


def main() -> None:
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # the job must not outlive the demo
    all_gather = gloo_all_gather() if "torch" in sys.argv[2:] else Ring().all_gather
    offload = OffloadThread(sys.argv[1])
    offload.start()
    shard = bytes([RANK]) * SHARD
    while True:
        offload.shards.put(shard)
        offload.moved.acquire()
        all_gather(shard)
        time.sleep(0.02)


if __name__ == "__main__":
    main()

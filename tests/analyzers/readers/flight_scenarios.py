"""Small jobs that hang, as their Flight Recorders show them: each returns one dump a rank, and says who began
it."""

from __future__ import annotations

from .flight_dumps import Dump, Group, world

STEP = ("all_reduce", "_all_gather_base", "_reduce_scatter_base")


def lagging(backend: str = "nccl") -> list[Dump]:
    """Rank 1 of four never calls the all_gather that the others have started."""
    dumps = [Dump(rank, [world(4)], backend).steps(STEP, 5).call("all_reduce", line=20) for rank in range(4)]
    for dump in dumps:
        if dump.rank != 1:
            dump.call("_all_gather_base", line=21, state="started")
    return dumps


def in_subgroup() -> list[Dump]:
    """Rank 6 of eight skips an all_reduce of its group of four; the rest wait in the world for these."""
    halves = [Group("1", "tp", (0, 1, 2, 3)), Group("2", "tp", (4, 5, 6, 7))]
    dumps = []
    for rank in range(8):
        dump = Dump(rank, [world(8), halves[rank // 4]])
        for _ in range(6):
            dump.call("all_reduce", 1, line=30).call("broadcast", 0, line=31)
        if rank in (4, 5, 7):
            dump.call("all_reduce", 1, line=30, state="started")
        elif rank < 4:
            dump.call("all_reduce", 1, line=30).call("broadcast", 0, line=31, state="started")
        dumps.append(dump)
    return dumps


def odd_rank_three() -> list[Dump]:
    """Rank 3 is in a broadcast of its own, the others in the step's all_reduce."""
    dumps = [Dump(rank, [world(4)]).steps(STEP, 4) for rank in range(4)]
    for dump in dumps:
        own = ("broadcast", 77) if dump.rank == 3 else ("all_reduce", 20)
        dump.call(own[0], line=own[1], state="started")
    return dumps


def two_group_cycle(backend: str = "nccl") -> list[Dump]:
    """Ranks 0 and 1 call two groups in opposite order."""
    one, two = Group("1", "ring-a", (0, 1)), Group("2", "ring-b", (0, 1))
    dumps = []
    for rank in range(2):
        dump = Dump(rank, [world(2), one, two], backend).steps(("all_reduce",), 3)
        for _ in range(3):
            dump.call("all_reduce", 1, line=51).call("all_reduce", 2, line=51)
        dump.call("all_reduce", 1 + rank, line=51, state="started" if backend != "gloo" else "scheduled")
        dumps.append(dump)
    return dumps


def wrapped_ring() -> list[Dump]:
    """Two pipeline stages with a ring of 24: stage 0 has many more operations, so it remembers less of the
    world's. Rank 3 never calls the world's last all_reduce."""
    stages = [Group("1", "stage", (0, 1)), Group("2", "stage", (2, 3))]
    dumps = []
    for rank in range(4):
        dump = Dump(rank, [world(4), stages[rank // 2]])
        for _ in range(14):
            for _ in range(9 if rank < 2 else 1):
                dump.call("all_reduce", 1, line=12)
            dump.call("all_reduce", 0, line=60)
        if rank != 3:
            dump.call("all_reduce", 0, line=60, state="started")
        dumps.append(dump.wrapped(24))
    return dumps


def dump_skew() -> list[Dump]:
    """Nothing hangs in the recorders: rank 2's dump was written after the all_reduce that the others still
    show as running in theirs."""
    dumps = [Dump(rank, [world(4)]).steps(STEP, 4) for rank in range(4)]
    for dump in dumps:
        dump.call("all_reduce", line=20, state="completed" if dump.rank == 2 else "started")
    return dumps


def all_stuck() -> list[Dump]:
    """All have started the same operation, nobody has finished it: a link or a device, no rank's program."""
    return [
        Dump(rank, [world(4)]).steps(STEP, 4).call("all_reduce", line=20, state="started")
        for rank in range(4)
    ]


def sizes_differ() -> list[Dump]:
    """Rank 2 calls the same all_reduce with another size."""
    dumps = [Dump(rank, [world(4)]).steps(STEP, 4) for rank in range(4)]
    for dump in dumps:
        dump.call("all_reduce", line=20, state="started", sizes=((1000 if dump.rank == 2 else 1024,),))
    return dumps


def send_ring() -> list[Dump]:
    """Every rank sends to the next one, and nobody receives."""
    dumps = [Dump(rank, [world(3)]).steps(("all_reduce",), 4) for rank in range(3)]
    for dump in dumps:
        dump.call(f"send {dump.rank}->{(dump.rank + 1) % 3}", line=80, state="started", p2p=True)
    return dumps


def batched_receive() -> list[Dump]:
    """Rank 1 waits in a batch for rank 0, which never sends. The batches took collective numbers: rank 1 had
    more."""
    one, other = Dump(0, [world(2)]), Dump(1, [world(2)])
    for dump in (one, other):
        dump.steps(("all_reduce",), 3)
    for _ in range(2):
        other.call("coalesced", state="completed", p2p=True, line=90)
    number = other.entries[-1]["collective_seq_id"] + 1
    other.call("recv 1<-0", part=True, p2p=True, state="scheduled", number=number, line=91)
    other.call("coalesced", state="started", p2p=True, line=91)
    return [one, other]


def uneven_batches() -> list[Dump]:
    """All are stuck in one all_reduce. Its number differs: batches of transfers took more on some ranks."""
    dumps = []
    for rank, peers in enumerate(((1, 1), (0, 0, 2, 2, 2), (1, 1, 1))):
        dump = Dump(rank, [world(3)]).steps(("all_reduce",), 3)
        for peer in peers:
            number = dump.entries[-1]["collective_seq_id"] + 1
            for kind in (f"send {rank}->{peer}", f"recv {rank}<-{peer}"):
                dump.call(kind, part=True, p2p=True, state="scheduled", number=number)
            dump.call("coalesced", p2p=True, line=70)
        dumps.append(dump.call("all_reduce", line=99, state="started"))
    return dumps


def healthy() -> list[Dump]:
    """All operations of all ranks are done."""
    return [Dump(rank, [world(4)]).steps(STEP, 6) for rank in range(4)]

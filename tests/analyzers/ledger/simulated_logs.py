"""Logs of a simulated job: torch's watchdogs, dump signals and desync reports, gloo's barriers and time-outs,
the elastic launcher."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone

from hangscope.analyzers.readers.interface import Document
from hangscope.analyzers.readers.names import origin_of_name

from .simulated_dumps import groups_of_rank
from .simulated_run import NEVER, Call, Run
from .simulated_truth import LIMIT, Truth

TORCH_NAMES = {
    "all_reduce": "ALLREDUCE", "_all_gather_base": "_ALLGATHER_BASE", "broadcast": "BROADCAST",
    "_reduce_scatter_base": "_REDUCE_SCATTER_BASE", "reduce": "REDUCE", "send": "SEND", "recv": "RECV",
}  # fmt: skip
Row = tuple[float, int, str]
"""Time, rank (-1: the launcher), text with its head."""


def clock(time: float) -> str:
    return datetime.fromtimestamp(time, timezone.utc).strftime("%m%d %H:%M:%S.%f000")


def node(rank: int) -> str:
    return f"node-{'ab'[rank // 8]}"


def pid(rank: int) -> int:
    """Both nodes have the same numbers."""
    return 4000 + 10 * (rank % 8)


class _Speaker:
    def __init__(self, run: Run, rank: int) -> None:
        self.run, self.rank = run, rank

    def line(self, time: float, at: int, text: str) -> Row:
        return time, self.rank, f"[rank{self.rank}]:[E{clock(time)} ProcessGroupNCCL.cpp:{at}] {text}"

    def place(self, group: str) -> str:
        name, desc = group.split(" ", 1)
        order = groups_of_rank(self.run, self.rank).index(group)
        number = self.run.groups[group].index(self.rank)
        return f"[PG ID {order} PG GUID {name}({desc}) Rank {number}]"

    def counters(self, truth: Truth, group: str, now: float) -> tuple[int, int]:
        """(last enqueued, last completed) number, of collectives and transfers alike: the last one's."""
        own = [c for c in self.run.programs[self.rank] if c.group == group and c.launched <= now]
        if truth.inside == self.rank and own and own[-1] is self._last(now):
            own = own[:-1]
        done = [call for call in own if call.finished <= now]
        return (own[-1].number if own else -1), (done[-1].number if done else -1)

    def _last(self, now: float) -> Call:
        return [call for call in self.run.programs[self.rank] if call.launched <= now][-1]


def watchdog_rows(truth: Truth, chance: random.Random, *, desync: bool) -> list[Row]:
    """Who runs into the limit within two seconds of the first speaks; all others are asked for dumps."""
    run = truth.run
    gone = truth.guilty if truth.what == "killed" else frozenset()
    fires: list[tuple[float, int, Call]] = []
    for rank in range(run.ranks):
        for group in groups_of_rank(run, rank):
            late = [c for c in run.pending(rank, truth.now) if c.group == group]
            if late and rank not in gone:
                fires.append((late[0].launched + LIMIT + chance.uniform(0.0, 0.1), rank, late[0]))
    if not fires:
        return []
    first = min(fire[0] for fire in fires)
    window = chance.choice([5.0, 30.0, 60.0])
    rows: list[Row] = []
    fired = set()
    for time, rank, call in sorted(fires, key=lambda fire: fire[:2]):
        if time > first + window:
            continue
        fired.add(rank)
        rows += _timeout(_Speaker(run, rank), truth, call, time)
        if desync and not call.p2p:
            rows += _desync(_Speaker(run, rank), call, time)
    leader = min(fires, key=lambda fire: fire[:2])[1]
    for rank in set(range(run.ranks)) - gone:
        speaker, time = _Speaker(run, rank), first + chance.uniform(1.0, 2.0)
        enqueued, completed = speaker.counters(truth, "0 default_pg", time)
        whom = "this local rank" if rank in fired else f" rank {leader}"
        rows.append(
            speaker.line(
                time, 1870,
                f"{speaker.place('0 default_pg')} Received a dump signal due to a collective timeout from "
                f"{whom} and we will try our best to dump the debug info. "
                f"Last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}."
                "This is most likely caused by incorrect usages of collectives.",
            )
        )  # fmt: skip
    return rows


def _timeout(speaker: _Speaker, truth: Truth, call: Call, time: float) -> Iterator[Row]:
    number = speaker.run.groups[call.group].index(speaker.rank)
    yield speaker.line(
        time, 683,
        f"[Rank {number}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={call.number}, "
        f"OpType={TORCH_NAMES[call.kind]}, NumelIn={call.size}, NumelOut={call.size}, Timeout(ms)=600000) "
        f"ran for {600000 + speaker.rank * 7} milliseconds before timing out.",
    )  # fmt: skip
    enqueued, completed = speaker.counters(truth, call.group, time)
    yield speaker.line(
        time + 0.01, 2241,
        f"{speaker.place(call.group)}  failure detected by watchdog at work sequence id: {call.number} "
        f"PG status: last enqueued work: {enqueued}, last completed work: {completed}",
    )  # fmt: skip


def _desync(speaker: _Speaker, call: Call, time: float) -> Iterator[Row]:
    members = speaker.run.groups[call.group]
    latest: dict[int, tuple[int, bool, str]] = {}
    for place, rank in enumerate(members):
        own = [
            c
            for c in speaker.run.programs[rank]
            if c.group == call.group and not c.p2p and c.started <= time and c.started < NEVER
        ]
        if own:
            last = own[-1]
            latest[place] = (last.number, last.finished <= time, TORCH_NAMES[last.kind])
    if not latest:
        return
    lowest = min(number for number, _done, _kind in latest.values())
    joined = sorted(place for place, state in latest.items() if state[:2] == (lowest, False))
    behind = sorted(place for place, state in latest.items() if state[:2] == (lowest, True))
    never = sorted(set(range(len(members))) - set(latest))
    name = TORCH_NAMES[call.kind]
    texts = [f"\t - [{members.index(speaker.rank)}] Timeout at collective: {name}, #{call.number}"]
    if never:
        texts.append(
            f"\t - To our best knowledge, ranks {never} are the lagging ranks that caused this timeout. They "
            "never joined any collectives"
        )
    else:
        texts.append(
            "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:"
        )
        if joined:
            texts.append(f"\t   - {joined} joined but didn't finish collective #{lowest} (count from 1)")
        if behind:
            texts.append(
                f"\t   - {behind} finished collective #{lowest}, but didn't join collective #{lowest + 1} "
                "(count from 1)"
            )
    texts.append("\t - Snapshot of ranks' latest states:")
    for number in sorted({state[0] for state in latest.values()}, reverse=True):
        for done, word in ((False, "started"), (True, "finished")):
            there = {p: kind for p, (n, d, kind) in latest.items() if (n, d) == (number, done)}
            if there:
                texts.append(f"\t   #{number} {word} ranks:")
            for kind in sorted(set(there.values())):
                texts.append(f"\t     {sorted(p for p, k in there.items() if k == kind)} {word} {kind}")
    yield time + 0.001, speaker.rank, "\n".join(texts)


def gloo_rows(truth: Truth, chance: random.Random, *, barrier: bool) -> list[Row]:
    """What the victims print: the first its time-out, the others that its connection was closed. With
    ``barrier``, DETAIL mode: rank 0 of a group names who did not come."""
    run = truth.run
    rows: list[Row] = []
    waiting = [(calls[0], rank) for rank in range(run.ranks) if (calls := run.pending(rank, truth.now))]
    for order, (call, rank) in enumerate(sorted(waiting, key=lambda pair: pair[0].launched)):
        members, time = run.groups[call.group], truth.now + 0.1 * order
        head = f"[rank{rank}]: RuntimeError: [/b/gloo/gloo/transport/tcp/"
        if order:
            text = head + "pair.cc:534] Connection closed by peer [10.0.0.9]:4711"
        else:
            text = head + "unbound_buffer.cc:78] Timed out waiting 600000ms for recv operation to complete"
        if barrier and not call.p2p and not run.lenient and truth.what not in ("differs", "extra"):
            came = {
                place
                for place, other in enumerate(members)
                for c in run.programs[other]
                if c.group == call.group and c.number == call.number and not c.p2p and c.launched <= time
            }
            own = members.index(rank)
            missing = sorted(set(range(len(members))) - came)
            what = f"[rank{rank}]:[E{clock(time)} ProcessGroupGloo.cpp:67] "
            if own == 0 and missing:
                whom = f"Rank {missing[0]}" if len(missing) == 1 else f"Ranks {', '.join(map(str, missing))}"
                text = what + f"[Rank 0]: {whom} failed to pass monitoredBarrier in 600000 ms"
            elif own and missing:
                text = what + (
                    f"Rank {own} successfully reached monitoredBarrier, but received errors while waiting "
                    "for send/recv from rank 0. Please check rank 0 logs for faulty rank."
                )
        rows.append((time, rank, text))
    return rows


def launcher_rows(truth: Truth, chance: random.Random, victims: Iterable[int]) -> list[Row]:
    """The agent's words of node-a: the killed rank, or else the first victim's abort; then all others'
    end."""
    run = truth.run
    here = list(range(min(run.ranks, 8)))
    ended = [rank for rank in victims if rank in here]
    code, word = (-6, " (SIGABRT)") if run.gpu else (1, "")
    if truth.what == "killed":
        ended = [rank for rank in sorted(truth.guilty) if rank in here]
        code, word = -9, " (SIGKILL)"
    if not ended:
        return []
    first, time = ended[0], truth.now + 3.0
    date = datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%d_%H:%M:%S")
    api = "2606 torch/distributed/elastic/multiprocessing/api.py"
    rows = [
        f"W{clock(time)[:-3]} {api}:1028] Sending process {pid(rank)} closing signal SIGTERM"
        for rank in here
        if rank != first
    ]
    rows.append(
        f"E{clock(time)[:-3]} {api}:1002] failed (exitcode: {code}) "
        f"local_rank: {first} (pid: {pid(first)}) of binary: /env/bin/python3"
    )  # fmt: skip
    rows += ["=" * 60, "train.py FAILED", "-" * 60, "Failures:"]
    for number, rank in enumerate((rank for rank in here if rank != first), 1):
        rows += _failure(number, rank, -15, " (SIGTERM)", date)
    rows += [
        "-" * 60,
        "Root Cause (first observed failure):",
        *_failure(0, first, code, word, date),
        "=" * 60,
    ]
    return [(time, -1, "\n".join(rows))]


def _failure(number: int, rank: int, code: int, word: str, date: str) -> list[str]:
    trace = (
        f"Signal {-code}{word} received by PID {pid(rank)}" if code < 0 else "To enable traceback see: docs"
    )
    return [
        f"[{number}]:", f"  time      : {date}", f"  host      : {node(rank)}",
        f"  rank      : {rank} (local_rank: {rank % 8})", f"  exitcode  : {code} (pid: {pid(rank)}){word}",
        "  error_file: <N/A>", f"  traceback : {trace}",
    ]  # fmt: skip


def start_rows(truth: Truth) -> list[Row]:
    """The launcher's table of ranks."""
    size = truth.run.ranks
    here = list(range(min(size, 8)))
    head = f"I{clock(truth.now - 5000)[:-3]} 2606 torch/distributed/elastic/agent/server/api.py:553]"
    rows = [f"{head} [default] Rendezvous complete for workers. Result:", f"{head}   restart_count=0"]
    rows += [f"{head}   global_ranks={here}", f"{head}   global_world_sizes={[size] * len(here)}"]
    return [(truth.now - 5000, -1, "\n".join(rows))]


def logs(truth: Truth, chance: random.Random, *, loss: bool) -> list[Document]:
    """One log of all, or one a rank beside the launcher's."""
    if truth.what in ("slow", "healthy"):
        return []
    extra = chance.random() < 0.3
    rows = (
        watchdog_rows(truth, chance, desync=extra)
        if truth.run.gpu
        else gloo_rows(truth, chance, barrier=extra)
    )
    victims = list(dict.fromkeys(rank for _time, rank, text in rows if "Received a dump" not in text))
    if truth.what == "killed" or not loss or chance.random() < 0.5:
        rows += launcher_rows(truth, chance, victims)
    if not loss or chance.random() < 0.5:
        rows += start_rows(truth)
    if loss and chance.random() < 0.5:
        silent = {rank for rank in range(truth.run.ranks) if chance.random() < 0.3}
        rows = [row for row in rows if row[1] not in silent]
    rows.sort(key=lambda row: row[:2])
    return _documents(rows, truth, chance, loss)


def _documents(rows: list[Row], truth: Truth, chance: random.Random, loss: bool) -> list[Document]:
    if chance.random() < 0.5:
        files = {"job.log": rows}
    else:
        files = {}
        for row in rows:
            files.setdefault(f"rank_{row[1]}.log" if row[1] >= 0 else "launcher.log", []).append(row)
    found = []
    for path, own in files.items():
        data = "".join(text + "\n" for _time, _rank, text in own).encode()
        if loss and chance.random() < 0.2:
            data = data[: chance.randrange(len(data) + 1)]
        found.append(Document(path=path, data=data, mtime=truth.now + 10, origin=origin_of_name(path)))
    return found

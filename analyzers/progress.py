"""What moved between the samples, and what provably did not.

Progress is: an operation's sequence, the instance of a waiting call, frames above the innermost loop,
bytes between ranks, output or file positions. CPU ticks, context switches and the leaf's line are not:
spinners, proxies and polls tick in every hang.
"""

from __future__ import annotations

import itertools

import msgspec

from ..model.facts import Process, ProcessSample, Recorder, Ref, ThreadSample
from ..model.waits import WaitKind
from .job import BLOCKED, COMMUNICATION, LIVE, Job
from .membership import is_store, store_ports
from .moved import left_its_place, loop_moved, loops_of, waits_in_loop
from .ras_moved import launched

FUTEX_CALLS = (202, 98)
"""The number of ``futex`` on x86-64 and on aarch64."""
INSTANCE_BYTES = 64
"""glibc's condition variable waits on two words a few bytes apart in turn: closer addresses are one wait."""
DOWNLOAD_BYTES = 64 * 1024
"""Bytes from outside the job between two samples that are more than heartbeats and telemetry's answers."""


class Motion(msgspec.Struct, frozen=True, kw_only=True):
    """``moved``: True with evidence of progress, False with evidence of none, None without either.
    ``weak`` evidence (output, file positions) shows that the process runs, not that this wait moves."""

    moved: bool | None = None
    weak: bool = False
    text: str = ""
    ref: Ref | None = None


class Progress:
    """Answers for ranks and threads, computed when first asked."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._ranks: dict[int, Motion] = {}
        self._rank_pids = {(p.node, p.pid): rank for rank, p in job.ranks.items()}
        self._shared = _shared_targets(job)
        self._store_ports = store_ports(job)
        self._launched = launched(job.capture)
        self._common_loops: frozenset[tuple[str, str, int]] | None = None

    def rank(self, rank: int) -> Motion:
        """What the rank's recorder, connections, output and files say together; False only from a
        recorder that stood still."""
        if rank not in self._ranks:
            process = self._job.ranks.get(rank)
            self._ranks[rank] = self._of_process(process) if process is not None else Motion()
        return self._ranks[rank]

    def _of_process(self, process: Process) -> Motion:
        recorder = _recorders(process.recorders)
        if recorder.moved:
            return recorder
        more = self._launched.get((process.node, process.pid))
        if more is not None:
            return Motion(moved=True, text=f"RAS: it launched {more.more} more operations", ref=more.ref)
        samples = process.samples
        for earlier, later in itertools.pairwise(samples):
            for motion in (
                self._sockets(process, earlier, later),
                self._downloads(process, earlier, later),
                self._output(process, earlier, later),
                self._positions(earlier, later),
            ):
                if motion.moved:
                    return motion
        return recorder

    def process(self, process: Process) -> Motion:
        """For any process: output and file positions only count as weak evidence."""
        rank = self._rank_pids.get((process.node, process.pid))
        return self.rank(rank) if rank is not None else self._of_process(process)

    def thread(self, process: Process, tid: int) -> Motion:
        """Did this thread's own wait move: other frames, or another instance of the waiting call?"""
        every = [t for s in process.samples for t in s.threads if t.tid == tid]
        seen = [t for t in every if t.stack is not None and not t.torn]
        if len(seen) < 2:
            return Motion(moved=False, text="it did not run once") if never_ran(every) else Motion()
        kind = self._job.wait(process, tid).kind
        if kind is WaitKind.SOCKET and self._fed(process, tid):
            return Motion(moved=True, text="bytes came in on the socket that it reads")
        results = [self._between(earlier, later, kind) for earlier, later in itertools.pairwise(seen)]
        moved = [motion for motion in results if motion.moved]
        if moved:
            return moved[-1]
        return results[-1] if all(motion.moved is False for motion in results) else Motion()

    def _between(self, earlier: ThreadSample, later: ThreadSample, kind: WaitKind) -> Motion:
        motion = _between(earlier, later, kind)
        if motion.moved is not False or kind not in LIVE:
            return motion
        if kind is WaitKind.SLEEP and _same_turn(earlier, later):
            return motion  # one sleep, not one of many
        shared = self._loops_with_operations()
        private = [loop for loop in loops_of(later.stack or ()) if loop[:3] not in shared]
        return motion if kind is not WaitKind.COMPILE and waits_in_loop(earlier.stack, private) else Motion()

    def _loops_with_operations(self) -> frozenset[tuple[str, str, int]]:
        """Loops in which some rank waits in communication: nobody comes round them without joining it."""
        if self._common_loops is None:
            stacks = {
                id(thread.stack): thread.stack
                for _rank, process, thread in self._job.rank_threads()
                if thread.stack and self._job.wait(process, thread.tid).kind in COMMUNICATION
            }
            self._common_loops = frozenset(loop[:3] for stack in stacks.values() for loop in loops_of(stack))
        return self._common_loops

    def _fed(self, process: Process, tid: int) -> bool:
        """Bytes came in on the very socket that the thread waits at."""
        remote = self._job.wait(process, tid).remote
        received = [
            {k.inode: k.bytes_received for k in s.sockets if remote and k.remote == remote}
            for s in process.samples
        ]
        return any(
            (now or 0) > (earlier.get(inode) or 0)
            for earlier, later in itertools.pairwise(received)
            for inode, now in later.items()
            if inode in earlier
        )

    def _downloads(self, process: Process, earlier: ProcessSample, later: ProcessSample) -> Motion:
        """Much that came in from outside the job: a download that the others wait for is slow, not stuck."""
        before = {socket.inode: socket.bytes_received for socket in earlier.sockets}
        for socket in sorted(later.sockets, key=lambda item: (item.inode, item.fd)):
            was, now = before.get(socket.inode), socket.bytes_received
            inside = (socket.peer_node or process.node, socket.peer_pid or -1) in self._rank_pids
            if was is None or now is None or now - was < DOWNLOAD_BYTES or inside:
                continue
            if not is_store(self._store_ports, socket.local, socket.remote):
                text = f"{now - was} bytes received from {socket.remote}"
                return Motion(moved=True, weak=True, text=text, ref=later.ref)
        return Motion()

    def _sockets(self, process: Process, earlier: ProcessSample, later: ProcessSample) -> Motion:
        before = {socket.inode: socket for socket in earlier.sockets}
        for socket in sorted(later.sockets, key=lambda item: (item.inode, item.fd)):
            old = before.get(socket.inode)
            peer = (socket.peer_node or process.node, socket.peer_pid or -1)
            if old is None or peer == (process.node, process.pid) or peer not in self._rank_pids:
                continue
            if is_store(self._store_ports, socket.local, socket.remote):
                continue
            for name, was, now in (
                ("sent", old.bytes_acked, socket.bytes_acked),
                ("received", old.bytes_received, socket.bytes_received),
            ):
                if was is not None and now is not None and now > was:
                    other = self._rank_pids[peer]
                    return Motion(moved=True, text=f"{now - was} bytes {name} between it and rank {other}")
        return Motion()

    def _output(self, process: Process, earlier: ProcessSample, later: ProcessSample) -> Motion:
        if self._output_shared(process, later):
            return Motion()
        if earlier.output_size is None or later.output_size is None:
            return Motion()
        grown = later.output_size - earlier.output_size
        if grown > 0:
            return Motion(moved=True, weak=True, text=f"its output grew by {grown} bytes", ref=later.ref)
        return Motion()

    def _output_shared(self, process: Process, sample: ProcessSample) -> bool:
        return any(file.fd in (1, 2) and (process.node, file.target) in self._shared for file in sample.files)

    def _positions(self, earlier: ProcessSample, later: ProcessSample) -> Motion:
        before = {(file.fd, file.target): file.position for file in earlier.files}
        for file in sorted(later.files, key=lambda item: item.fd):
            was = before.get((file.fd, file.target))
            if file.fd <= 2 or was is None or file.position is None or not _regular(file.target):
                continue
            if file.position > was:
                return Motion(
                    moved=True, weak=True, text=f"its position in {file.target} moved", ref=later.ref
                )
        return Motion()


def _regular(target: str) -> bool:
    return target.startswith("/") and not target.startswith(("/dev/", "/proc/", "/sys/"))


def _shared_targets(job: Job) -> frozenset[tuple[str, str]]:
    """(node, path) of output files that several processes of the job write: growth is nobody's alone."""
    users: dict[tuple[str, str], set[int]] = {}
    for process in job.processes:
        for sample in process.samples[-1:]:
            for file in sample.files:
                if file.fd in (1, 2):
                    owner = job.owner(process)
                    users.setdefault((process.node, file.target), set()).add(-1 if owner is None else owner)
    return frozenset(key for key, owners in users.items() if len(owners) > 1)


def _recorders(recorders: tuple[Recorder, ...]) -> Motion:
    answers = [recorder for recorder in recorders if recorder.live]
    if len(answers) < 2:
        return Motion()
    first, last = answers[0], answers[-1]
    if _state(first) == _state(last):
        return Motion(moved=False, text="its flight recorder stood still", ref=last.ref)
    return Motion(moved=True, text="its flight recorder advanced", ref=last.ref)


def _state(recorder: Recorder) -> tuple[object, ...]:
    pending = tuple((entry.group, entry.sequence) for entry in recorder.pending)
    return (sorted(recorder.last_enqueued), sorted(recorder.last_completed), pending)


def _between(earlier: ThreadSample, later: ThreadSample, kind: WaitKind) -> Motion:
    communicates = kind in COMMUNICATION
    ref = later.stack_ref or later.ref
    if communicates and _other_instance(earlier, later):
        return Motion(moved=True, text="it waits in another call than in the sample before", ref=later.ref)
    before, after = earlier.stack or (), later.stack or ()
    if communicates or kind in BLOCKED:
        if left_its_place(before, after):
            return Motion(moved=True, text="its stack moved on", ref=ref)
        return Motion(moved=False, text="equal stacks", ref=ref)
    moved = loop_moved(before, after)
    texts = {True: "its stack moved on", False: "it never left its place or loop", None: ""}
    return Motion(moved=moved, text=texts[moved], ref=ref)


def never_ran(samples: list[ThreadSample]) -> bool:
    """It did not run once from the first of at least two samples to the last."""
    return len(samples) > 1 and all(_same_turn(*pair) for pair in itertools.pairwise(samples))


def _same_turn(earlier: ThreadSample, later: ThreadSample) -> bool:
    """It did not run once between the two samples."""
    switches = [(t.voluntary, t.involuntary) for t in (earlier, later)]
    return "R" not in (earlier.state, later.state) and None not in switches[0] and switches[0] == switches[1]


def _other_instance(earlier: ThreadSample, later: ThreadSample) -> bool:
    first, second = _futex(earlier), _futex(later)
    return first is not None and second is not None and abs(first - second) >= INSTANCE_BYTES


def _futex(thread: ThreadSample) -> int | None:
    call = thread.syscall
    if call is None or call.number not in FUTEX_CALLS or not call.args:
        return None
    return call.args[0]

"""NCCL's log lines, one at a time: every version's spelling, and what is left of torn ones."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangscope.analyzers.readers import nccl_collective, nccl_life, nccl_network, nccl_warning, ras_monitor
from hangscope.analyzers.readers.documents import read_document
from hangscope.analyzers.readers.interface import Document, Line, LineForm
from hangscope.analyzers.readers.nccl_line import NcclLine, messages
from hangscope.model.loose import NOBODY, LogEvent, Origin

HEAD = "node-a:411:502 [3] NCCL INFO "
FORMS: tuple[LineForm, ...] = (
    nccl_life.FORM,
    nccl_collective.FORM,
    nccl_warning.FORM,
    nccl_network.FORM,
    ras_monitor.FORM,
)


def said(text: str, origin: Origin = NOBODY) -> list[NcclLine]:
    return list(messages(Line(7, text, origin, "x.log")))


def events(form: LineForm, text: str, origin: Origin = NOBODY) -> list[LogEvent]:
    assert any(needle in text for needle in form.needles)
    found = form.read(Line(7, text, origin, "x.log"))
    return [fact for fact in found if isinstance(fact, LogEvent)]


def event(form: LineForm, text: str, origin: Origin = NOBODY) -> LogEvent:
    (one,) = events(form, text, origin)
    return one


class TestHead:
    @pytest.mark.parametrize(
        ("text", "level", "place"),
        [
            ("node-a:411:502 [3] NCCL INFO x", "INFO", None),
            ("node-a:411:502 [-1] NCCL INFO x", "INFO", None),
            ("node-a:411:502 NCCL CALL x", "CALL", None),
            ("node-a:411:502 [3] init.cc:77 NCCL WARN x", "WARN", "init.cc:77"),
            (
                "node-a:411:502 [3] misc/socket.cc:77 (ncclSocketInit) NCCL WARN x",
                "WARN",
                "misc/socket.cc:77",
            ),
            ("[2026-01-05 10:00:00] node-a:411:502 [3] init.cc:77 NCCL WARN x", "WARN", "init.cc:77"),
            ("2026-01-05_10:00:00.5 node-a:411:502 [3] NCCL ATTN x", "ATTN", None),
            ("node-a:411:502 [3] 1234.567890 ncclLaunch:55 NCCL TRACE x", "TRACE", "ncclLaunch:55"),
            ("[0] some prefix] node-a.site:411:502 [3] NCCL INFO x", "INFO", None),
            ("0: node-a:411:502 [3] NCCL INFO x", "INFO", None),
            ("2026-01-05T10:00:00Z node-a:411:502 [3] NCCL INFO x", "INFO", None),
        ],
    )
    def test_every_spelling(self, text: str, level: str, place: str | None) -> None:
        (one,) = said(text)
        assert (one.node, one.pid, one.level, one.place, one.text) == ("node-a", 411, level, place, "x")
        assert not one.torn

    def test_a_time_in_the_head(self) -> None:
        (one,) = said("[2026-01-05 10:00:00] node-a:411:502 [3] init.cc:77 NCCL WARN x")
        assert one.origin.wall == 1767607200.0
        (prefixed,) = said("node-a:411:502 [3] NCCL INFO x", Origin(rank=4, wall=5.0, node="pod-1", pid=1))
        assert prefixed.origin == Origin(rank=4, wall=5.0, node="node-a", pid=411)

    @pytest.mark.parametrize(
        ("text", "pids"),
        [
            ("node-a:411:50node-a:412:503 [4] NCCL INFO ok", [412]),
            ("node-a:411:502 [3] NCCL INFO Connected node-a:412:503 [4] NCCL INFO ok", [411, 412]),
            ("a word node-a:412:503 [4] NCCL INFO ok", [412]),
            ("/var/tmp/node-a:412:503 [4] NCCL INFO ok", [412]),
        ],
    )
    def test_torn_lines_name_no_host_and_no_rank(self, text: str, pids: list[int]) -> None:
        found = said(text, Origin(rank=3, node="node-a", source="prefix"))
        assert [one.pid for one in found] == pids
        assert found[-1].torn and found[-1].origin.node is None and found[-1].origin.rank is None

    def test_a_message_without_a_head(self) -> None:
        (one,) = said("external/a/net_socket.cc:200 NCCL WARN broken")
        assert (one.pid, one.level, one.torn) == (None, "WARN", True)
        assert said("we use NCCL version 2") == [] and said("NCCL") == []


class TestLife:
    @pytest.mark.parametrize(
        ("text", "kind", "identity"),
        [
            ("comm 0x5 rank 1 nranks 4 cudaDev 1 nvmlDev 3 - Init COMPLETE", "nccl-init-complete", None),
            ("comm 0x5 rank 1 nranks 4 cudaDev 1 busId ad000 - Init COMPLETE", "nccl-init-complete", None),
            (
                "comm 0x5 rank 1 nranks 4 cudaDev 1 nvmlDev 1 busId ad000 commId 0xbe - Init START",
                "nccl-init-start",
                f"{0xBE:016x}",
            ),
            (
                "ncclCommSplit comm 0x5 rank 1 nranks 4 cudaDev 1 nvmlDev 1 busId ad000 "
                "parent (nil) color -1 key 0 commId 0xbe - Init START",
                "nccl-init-start",
                f"{0xBE:016x}",
            ),
            (
                "[Rank 1] ncclCommInitRankConfig comm 0x5 rank 1 nranks 4 cudaDev 1 nvmlDev 1 busId ad000 "
                "commId 0xbe - Init START",
                "nccl-init-start",
                f"{0xBE:016x}",
            ),
            ("comm 0x5 rank 1 nranks 4 cudaDev 1 busId ad000 - Destroy COMPLETE", "nccl-comm-end", None),
            ("comm 0x5 rank 1 nranks 4 cudaDev 1 busId ad000 - Abort START", "nccl-comm-end", None),
            (
                "comm 0x5 rank 1 nranks 4 cudaDev 1 busId ad000 commId 0xbe - Abort COMPLETE",
                "nccl-comm-end",
                f"{0xBE:016x}",
            ),
            ("comm 0x5 rank 1 nRanks 4 nNodes 2 localRanks 2 localRank 1 MNNVL 0", "nccl-init-placed", None),
        ],
    )
    def test_every_spelling(self, text: str, kind: str, identity: str | None) -> None:
        one = event(nccl_life.FORM, HEAD + text)
        assert (one.kind, one.group_rank, one.communicator) == (kind, 1, identity)
        assert one.key is not None and one.key.startswith("comm 0x5 nranks 4")
        assert one.world_size == (4 if identity else None)

    @pytest.mark.parametrize(
        "text",
        [
            "comm 0x5 rank 1 nranks 4 cudaDev 1 busId ad000 - Finalize START",
            "a - Init b",
            "comm 0x - Init START",
        ],
    )
    def test_others_are_nothing(self, text: str) -> None:
        assert nccl_life.read(Line(7, HEAD + text, NOBODY, "x.log")) == []

    @pytest.mark.parametrize(
        ("text", "version"),
        [
            ("NCCL version 2.21.5+cuda12.4", "2.21.5"),
            (HEAD + "NCCL version 2.27.3+cuda12.9", "2.27.3"),
            ("RCCL version : 2.18.6-HEAD", "2.18.6"),
        ],
    )
    def test_versions(self, text: str, version: str) -> None:
        assert event(nccl_life.FORM, text).key == version
        assert events(nccl_life.FORM, "NCCL version 2.27.3 compiled with CUDA 12.9") == []


class TestCollective:
    TEXT = (
        "AllReduce: opCount 1f sendbuff 0x1 recvbuff (nil) count 9 datatype 99 op 0 root 2 "
        "comm 0x5 [nranks=4] stream 0x9"
    )

    def test_a_launch(self) -> None:
        one = event(nccl_collective.FORM, HEAD + self.TEXT)
        assert (one.sequence, one.dtype, one.peer, one.origin.pid) == (31, "datatype 99", None, 411)
        assert event(nccl_collective.FORM, HEAD + self.TEXT.replace("AllReduce", "Recv")).peer == 2

    @pytest.mark.parametrize(
        ("text", "pid"),
        [
            (HEAD + TEXT[:40], 411),
            (TEXT[60:], None),
            (HEAD + TEXT[60:], None),
            ("word " + HEAD + TEXT[:40], None),
        ],
    )
    def test_what_is_left_of_one_is_a_launch_of_no_number(self, text: str, pid: int | None) -> None:
        one = event(nccl_collective.FORM, text)
        assert (one.kind, one.sequence, one.key, one.origin.pid) == ("nccl-collective", None, None, pid)

    def test_two_in_one_line_and_the_rest_of_a_third(self) -> None:
        text = f"{HEAD}{self.TEXT}{HEAD}{self.TEXT} count 4 [nranks=2] str"
        found = events(nccl_collective.FORM, text)
        assert [one.sequence for one in found] == [31, 31, None]

    def test_the_devices_trace(self) -> None:
        one = event(nccl_collective.FORM, HEAD + "## [  99.000001] [12:00] 00001f KE busId c1000 nRanks 16")
        assert (one.kind, one.operation, one.group_rank, one.sequence) == ("nccl-kernel", "end", 12, 31)


PLACE = "node-a:411:502 [3] a/b.cc:77 NCCL WARN "
PEER = "10.0.0.7<44206>"


class TestWarning:
    @pytest.mark.parametrize(
        ("text", "kind", "code"),
        [
            (
                f"NET/IB : Got completion from peer {PEER} with error 12, opcode 0, len 0, vendor err 129",
                "nccl-network",
                12,
            ),
            (
                f"NET/IB : Got completion from peer {PEER} with error 5, opcode 0, len 0, vendor err 244",
                "nccl-closed",
                5,
            ),
            (
                f"NET/IB: Got completion from peer {PEER} with status=13 opcode=0 len=0 vendor err 0 (Send)",
                "nccl-network",
                13,
            ),
            (
                f"NET/IB: Got completion from peer {PEER} with status=IBV_WC_RETRY_EXC_ERR(12) "
                "opcode=IBV_WC_SEND(0) reqSize=8 vendor_err=129",
                "nccl-network",
                12,
            ),
            (
                f"NET/IB/GIN: Got completion from peer {PEER} with status=12 opcode=1 len=0 vendor err 0",
                "nccl-network",
                12,
            ),
            ("NET/IB : mlx5_0:1 Got async event : port error", "nccl-network", None),
            (
                "NET/IB : mlx5_0:1 async fatal event on QP (0x5): local work queue catastrophic error",
                "nccl-network",
                None,
            ),
            (f"Net : Connection closed by remote peer {PEER}", "nccl-closed", None),
            (f"Net : Call to recv from {PEER} failed : Connection timed out", "nccl-network", None),
            (f"socketProgressOpt: Call to recv from {PEER} failed : Broken pipe", "nccl-closed", None),
            (
                f"ncclOsSocketProgressOpt: Call to recv {PEER} failed : Connection timed out",
                "nccl-network",
                None,
            ),
            (f"socketStartConnect: Connect to {PEER} failed : No route to host", "nccl-network", None),
            ("socketPollConnect: exceeded timeouts (3)", "nccl-network", None),
            ("Bootstrap : no socket interface found", "nccl-network", None),
            ("No transport found for rank 0[1b000] -> rank 8[1b000]", "nccl-network", None),
            ("socketFinalizeAccept: wrong type 2 != 3", "nccl-network", None),
            (
                "[Proxy Service 3] Failed to execute operation Setup from rank 4, retcode 3",
                "nccl-network",
                None,
            ),
            ("Bootstrap Root : rank 3 of 8 ranks has already checked in", "nccl-duplicate-rank", None),
            (
                "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000",
                "nccl-duplicate-rank",
                None,
            ),
            ("Bootstrap Root : mismatch in rank count from procs 8 : 16", "nccl-mismatch", None),
            (
                "Mismatched NCCL version detected : rank 0 version 22703 rank 1 version 22105",
                "nccl-mismatch",
                None,
            ),
            ("Message truncated : received 256 bytes instead of 64", "nccl-mismatch", None),
            ("Error: failed to extend /dev/shm/nccl-Ab to 99 bytes", "nccl-shared-memory", None),
            ("Call to posix_fallocate failed : No space left on device", "nccl-shared-memory", None),
            ("Cuda failure 'out of memory'", "cuda-error", None),
            ("Cuda failure 719 'unspecified launch failure'", "cuda-error", None),
            ("ncclCommSetAsyncError: error comm 0x5 sets state 6", "nccl-warning", None),
        ],
    )
    def test_kinds(self, text: str, kind: str, code: int | None) -> None:
        one = event(nccl_warning.FORM, PLACE + text)
        assert (one.kind, one.code) == (kind, code)
        assert one.key in (None, "10.0.0.7:44206", "nranks 8")
        assert (PEER in text) <= (one.key == "10.0.0.7:44206")
        assert one.text == f"a/b.cc:77 NCCL WARN {text}"

    @pytest.mark.parametrize(
        "text",
        [
            "Cannot initialize CollNet, using point-to-point network instead",
            "NET/IB : mlx5_0:1 GID table changed",
            "NET/IB : mlx5_0:1 Got async event : port active",
            "NET/Plugin: Failed to find ncclNetPlugin symbol",
            "Could not find real path of /sys/x (-1)",
            "",
        ],
    )
    def test_of_healthy_jobs(self, text: str) -> None:
        assert events(nccl_warning.FORM, PLACE + text) == []

    @pytest.mark.parametrize(
        ("text", "kind", "key"),
        [
            ("Call to connect returned Connection refused, retrying", "nccl-network", None),
            (
                "socketPollConnect: connect returned No route to host, retrying (9/34) after s",
                "nccl-network",
                None,
            ),
            (
                f"socketPollConnect: connect to {PEER} returned Connection refused, retrying (9/34) after s",
                "nccl-network",
                "10.0.0.7:44206",
            ),
            ("[Service thread] Connection closed by localRank 3", "nccl-closed", "localRank 3"),
            ("enqueue.cc:1500 Cuda failure 'unspecified launch failure'", "cuda-error", None),
            (
                "RAS declaring peer 10.0.0.7<33001> as DEAD; rasDeadPeersHash 0x5",
                "nccl-network",
                "10.0.0.7:33001",
            ),
            ("proxy.cc:1458 -> 3", "nccl-error", None),
            ("group.cc:64 -> 1 [Async thread]", "nccl-error", "Async thread"),
            ("misc/socket.cc:50 (socketProgress) -> 6", "nccl-error", None),
        ],
    )
    def test_plain_lines(self, text: str, kind: str, key: str | None) -> None:
        one = event(nccl_warning.FORM, HEAD + text)
        assert (one.kind, one.key) == (kind, key)

    @pytest.mark.parametrize(
        "text", ["init.cc:7 -> 0", "init.cc:7 -> 7", "Call to accept returned x, retrying", "x.cc:3 hello"]
    )
    def test_plain_lines_that_say_nothing(self, text: str) -> None:
        assert events(nccl_warning.FORM, HEAD + text) == []

    def test_sizes_of_a_mismatch(self) -> None:
        text = f"NET/IB : req 0/1 tag 0 peer {PEER} collective mismatch error, local size 8 remote size 64"
        assert event(nccl_warning.FORM, PLACE + text).sizes == "8/64"
        text = f"NET/Socket : peer {PEER} message truncated : receiving 64 bytes instead of 8. If you believe"
        one = event(nccl_warning.FORM, PLACE + text)
        assert (one.sizes, one.key) == ("64/8", "10.0.0.7:44206")

    def test_a_guess_of_old_versions_speaks_of_a_communicators_rank(self) -> None:
        text = "Your program may be hanging, this may be caused by a collective mismatch around rank 5."
        one = event(nccl_warning.FORM, PLACE + text)
        assert one.about == (5,) and one.about_group_ranks


class TestNetwork:
    @pytest.mark.parametrize(
        ("text", "key"),
        [
            ("Bootstrap: Using ib0:10.1.0.7<0>", "bootstrap ib0:10.1.0.7"),
            (
                "NET/Socket : Using [0]eth0:10.0.0.7<0> [1]eth1:10.2.0.7<0>",
                "Socket eth0:10.0.0.7 eth1:10.2.0.7",
            ),
            ("NET/OFI Selected Provider is efa", None),
            ("NET/IB : No device found.", "IB none"),
            ("Using network IB", "network IB"),
            ("Using non-device net plugin version 0", None),
            ("NCCL_IB_HCA set to mlx5", "NCCL_IB_HCA mlx5"),
            ("NCCL_DEBUG_FILE set by environment to /tmp/x.", None),
            ("NCCL_ALGO set by environment to Ring.", "NCCL_ALGO Ring"),
        ],
    )
    def test_choices(self, text: str, key: str | None) -> None:
        form = nccl_network.FORM
        found = form.read(Line(7, HEAD + text, NOBODY, "x.log"))
        assert [fact.key for fact in found if isinstance(fact, LogEvent)] == ([key] if key else [])

    def test_channels(self) -> None:
        one = event(nccl_network.FORM, HEAD + "Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA")
        assert (one.group_rank, one.peer, one.key) == (0, 8, "NET/IB/0/GDRDMA")
        one = event(nccl_network.FORM, HEAD + "Channel 00 : 0[1b000] -> 1[2b000] via P2P/IPC")
        assert (one.group_rank, one.peer, one.key) == (0, 1, "P2P/IPC")
        assert events(nccl_network.FORM, HEAD + "Channel 00/128 :    0   1   2") == []


SAMPLES = (
    HEAD + TestCollective.TEXT,
    HEAD + "ncclCommSplit comm 0x5 rank 1 nranks 4 cudaDev 1 nvmlDev 1 busId ad000 "
    "parent 0x4 splitCount 1 color 0 key 1- Init START",
    PLACE
    + f"NET/IB: Got completion from peer {PEER} with status=12 opcode=1 len=0 vendor err 0 (Send) hca mlx5_0",
    HEAD + "Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA",
    HEAD + "proxy.cc:1458 (proxyProgress) -> 3 [Progress Thread]",
    "[2026-01-05 10:07:07] PEER_DEAD: Process 4020 on node 10.0.0.1 managing GPU 2 x",
)


@settings(max_examples=300, deadline=None)
@given(
    texts=st.lists(st.sampled_from(SAMPLES), min_size=1, max_size=3),
    cuts=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60), st.text(max_size=4)), max_size=4),
)
def test_torn_and_mutated_lines_raise_nothing(texts: list[str], cuts: list[tuple[int, int, str]]) -> None:
    text = "".join(texts)
    for start, size, put in cuts:
        text = text[:start] + put + text[start + size :]
    for form in FORMS:
        for fact in form.read(Line(1, text, NOBODY, "x")):
            assert isinstance(fact, LogEvent) and fact.ref.line == 1


def test_long_lines_take_linear_time() -> None:
    shapes = (
        "node-a:1:",
        "NCCL INFO ",
        "a.",
        "[0] ",
        "opCount 1",
        "1:",
        "NCCL WARN x:1 ",
        "connect to x",
        " -> 1 ",
    )
    shuffle = random.Random(5)
    begin = time.process_time()
    for _ in range(60):
        text = HEAD + "".join(shuffle.choice(shapes) * shuffle.randint(1, 60) for _ in range(60))
        for form in FORMS:
            form.read(Line(1, text[:4000], NOBODY, "x"))
    assert time.process_time() - begin < 5


def test_a_log_through_the_whole_reader() -> None:
    data = f"[rank3]:\x1b[31m{HEAD}{TestCollective.TEXT}\x1b[0m\r\n".encode()
    (fact,) = read_document(Document(path="x.log", data=data)).facts
    assert isinstance(fact, LogEvent) and fact.origin == Origin(
        rank=3, node="node-a", pid=411, source="prefix"
    )

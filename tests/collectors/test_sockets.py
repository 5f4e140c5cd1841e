"""Sockets between real processes: who owns them, what is on the way, and what may not be seen."""

import errno
import json
import os
import socket
import struct

import pytest

from hangscope.collectors import guarded, procfs, sockets, tcp_info

from .victims import become_nobody, context, exited_leader, needs_root, target, victim, wait_until

LISTENER = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
s = socket.socket(family); s.bind((sys.argv[1], 0)); s.listen(1)
print(s.getsockname()[1])
c, _ = s.accept()
sys.stdin.read()
"""
SENDER = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.sendall(b"x" * 4096)
print("ready")
sys.stdin.read()
"""


def take(*pids: int, ctx=None):
    result = sockets.COLLECTOR.collect(ctx or context(*pids), None)
    return result, json.loads(result.artifacts[0][1])


def rows_of(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines()[1:]]


def port_of(pid: int) -> str:
    with open(f"/proc/{pid}/net/tcp") as file, open(f"/proc/{pid}/net/tcp6") as file6:
        inodes = {owner["inode"] for owner in sockets.socket_owners([target(pid)], "/proc", [])[0]}
        rows = rows_of(file.read()) + rows_of(file6.read())
    return str(int(next(words[1] for words in rows if int(words[9]) in inodes).rpartition(":")[2], 16))


@pytest.fixture(params=["127.0.0.1", "::1"])
def connection(request):
    """(pid that does not read, pid that has sent 4096 bytes to it, address family's table)."""
    if request.param == "::1" and not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("no IPv6 on this machine")
    with (
        victim(LISTENER, request.param) as receiver,
        victim(SENDER, request.param, port_of(receiver)) as sender,
    ):
        wait_until(lambda: len(sockets.socket_owners([target(receiver)], "/proc", [])[0]) == 2)
        yield receiver, sender, "tcp6" if ":" in request.param else "tcp"


def test_both_ends_their_owners_and_what_is_on_the_way(connection):
    receiver, sender, table = connection
    result, value = take(receiver, sender)
    assert result.status == "ok", result.reason
    (space,) = value["namespaces"]
    assert space["net"] == os.readlink("/proc/self/ns/net") and space["pids"] == [receiver, sender]
    owner = {entry["inode"]: entry["pid"] for entry in value["owners"]}
    lines = rows_of(space[table])
    assert sorted((owner[int(words[9])], words[3]) for words in lines) == sorted(
        [(receiver, "0A"), (receiver, "01"), (sender, "01")]
    )
    unread = next(words for words in lines if owner[int(words[9])] == receiver and words[3] == "01")
    assert unread[4] == "00000000:00001000"
    info = {owner[row["inode"]]: row for row in value["tcp_info"]}
    assert info[receiver]["bytes_received"] == 4096 and info[sender]["bytes_acked"] >= 4096
    assert info[sender]["unacked"] == info[sender]["notsent"] == info[sender]["backoff"] == 0
    assert info[sender]["rto_us"] >= 200_000 and info[sender]["rtt_us"] > 0
    assert 0 <= info[receiver]["last_data_recv_ms"] < 60_000


def test_of_an_uncaptured_peer_only_its_end_of_the_connection_is_kept(connection):
    _, sender, table = connection
    with victim(LISTENER, "127.0.0.1"):
        _, value = take(sender)
    (space,) = value["namespaces"]
    lines = rows_of(space[table])
    assert len(lines) == 2 and {words[3] for words in lines} == {"01"}
    assert {entry["pid"] for entry in value["owners"]} == {sender}
    assert len(value["tcp_info"]) == 2
    other = rows_of(space["tcp" if table == "tcp6" else "tcp6"])
    assert other == []


def test_unix_sockets_of_the_targets_only(tmp_path):
    code = """
import socket, sys
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(1)
print("ready")
sys.stdin.read()
"""
    with victim(code, str(tmp_path / "mine")) as pid, victim(code, str(tmp_path / "other")):
        _, value = take(pid)
    text = value["namespaces"][0]["unix"]
    assert str(tmp_path / "mine") in text and str(tmp_path / "other") not in text
    assert value["tcp_info"] == []


def test_a_leader_that_has_exited_is_looked_at_through_its_thread(tmp_path):
    opening = "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(1)\n"
    with exited_leader(tmp_path / "held", opening) as pid:
        result, value = take(pid)
    assert result.status == "ok", result.reason
    (space,) = value["namespaces"]
    assert space["pids"] == [pid] and len(rows_of(space["tcp"])) == 1
    assert [entry["pid"] for entry in value["owners"]] == [pid]


@needs_root
def test_a_foreign_network_namespace():
    code = """
import ctypes, fcntl, socket, struct, sys
assert ctypes.CDLL(None).unshare(0x40000000) == 0  # CLONE_NEWNET
s = socket.socket(); fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
s.bind(("127.0.0.1", 0)); s.listen(1)
a = socket.create_connection(s.getsockname()); b, _ = s.accept()
a.sendall(b"x" * 100)
print("ready")
sys.stdin.read()
"""
    with victim(code) as pid, victim(LISTENER, "127.0.0.1") as here:
        result, value = take(pid, here)
    assert result.status == "ok", result.reason
    foreign, own = value["namespaces"]
    assert foreign["pids"] == [pid] and own["pids"] == [here] and foreign["net"] != own["net"]
    assert len(rows_of(foreign["tcp"])) == 3 and len(rows_of(own["tcp"])) == 1
    assert sorted(row["bytes_received"] for row in value["tcp_info"]) == [0, 100]


def collect_as_nobody(pids):
    become_nobody()
    result, value = take(*pids)
    return [result.status, result.reason, value]


@needs_root
def test_another_users_sockets_are_found_by_their_uid(connection):
    receiver, sender, table = connection
    outcome = guarded.call(collect_as_nobody, [receiver, sender], timeout=10)
    assert outcome.status == "ok", outcome.reason
    status, reason, value = outcome.value
    assert status == "partial"
    assert f"open files of pid {sender}: EACCES" in reason
    assert f"tcp_info of pid {receiver}: its network namespace may not be read" in reason
    (space,) = value["namespaces"]
    assert space["net"] is None and space["pids"] == [receiver, sender]
    assert len(rows_of(space[table])) >= 3 and value["tcp_info"] == [] and value["owners"] == []


def test_processes_that_are_gone():
    result, value = take(ctx=_gone())
    assert result.status == "ok" and value == {"namespaces": [], "tcp_info": [], "owners": []}


def _gone():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    ctx = context()
    ctx.targets.append(target(os.getpid())._replace(pid=pid))
    return ctx


def test_tables_that_fail_or_are_too_long(monkeypatch):
    plain = procfs.read_text

    def read(path, cap=1 << 20):
        return (None, "EIO") if path.endswith("net/tcp6") else plain(path, cap)

    monkeypatch.setattr(procfs, "read_text", read)
    monkeypatch.setattr(sockets, "TABLE_CAP", 10)
    result, value = take(os.getpid())
    assert f"net/tcp6 of pid {os.getpid()}: EIO" in result.reason
    assert "net/tcp is longer than 10 bytes" in result.reason
    assert value["namespaces"][0]["tcp6"] is None


def test_netlink_that_does_not_answer_is_a_gap(monkeypatch):
    def fail(places, wanted):
        yield places[0][0], [], "Operation not supported"
        raise RuntimeError("broken")

    monkeypatch.setattr(tcp_info, "of_namespaces", fail)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        result, _ = take(os.getpid())
    assert result.reason == "tcp_info: Operation not supported; tcp_info: RuntimeError: broken"


def test_the_ends_of_a_connection_may_stand_in_two_tables():
    mapped = "0000000000000000FFFF0000"
    head = "sl local rem st tx tr tm retr uid timeout inode\n"

    def line(number, local, remote, inode, uid=0):
        return f"{number}: {local} {remote} 01 00000000:00000000 00:00000000 00000000 {uid} 0 {inode} 1\n"

    texts = {
        "tcp": head
        + line(0, "0100007F:0050", "0100007F:9000", 11)
        + line(1, "0100007F:0051", "0100007F:9001", 12),
        "tcp6": head
        + line(0, f"{mapped}0100007F:9000", f"{mapped}0100007F:0050", 13)
        + line(1, "0" * 32 + ":1", "x", 0, 5),
        "unix": None,
    }
    tables, seen = sockets.keep(texts, {11}, set())
    assert [len(rows_of(tables[name])) for name in ("tcp", "tcp6")] == [1, 1] and tables["unix"] is None
    assert seen == {11, 13}
    assert sockets.keep(texts, set(), {5})[1] == set()


def test_a_socket_that_the_table_shows_twice_counts_once():
    line = "{}: 0100007F:0050 0100007F:9000 01 0:0 00:0 0 0 0 11 1\n"
    texts = {"tcp": "sl local rem st tx tr tm uid timeout inode\n" + line.format(58) + line.format(61)}
    tables, _ = sockets.keep({**texts, "tcp6": "head\n", "unix": "Num\n"}, {11}, set())
    assert [words[0] for words in rows_of(tables["tcp"])] == ["61:"]
    assert tables["tcp6"] == "head\n" and tables["unix"] == "Num\n"


def test_netlink_messages_that_are_cut_or_old():
    whole = struct.pack("=IHHII", 20, 20, 0, 1, 0) + b"data"
    assert list(tcp_info.messages(whole + whole)) == [(20, b"data"), (20, b"data")]
    assert list(tcp_info.messages(whole + whole[:10])) == [(20, b"data")]
    assert list(tcp_info.messages(struct.pack("=IHHII", 99, 20, 0, 1, 0))) == []
    message = bytes(68) + struct.pack("=I", 4711)
    info = struct.pack("=HH", 4 + 60, tcp_info.INET_DIAG_INFO) + bytes(60)
    row = tcp_info.parse(message + info)
    assert row["inode"] == 4711 and row["unacked"] == 0 and "bytes_acked" not in row
    assert tcp_info.parse(message + struct.pack("=HH", 500, 2)) == {"inode": 4711}


@pytest.mark.parametrize(("kind", "payload"), [(tcp_info.NLMSG_ERROR, struct.pack("=i", -errno.EPERM))])
def test_a_netlink_error_is_raised(monkeypatch, kind, payload):
    class Channel:
        def __init__(self, *_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def settimeout(self, _):
            pass

        def sendto(self, *_):
            pass

        def recv(self, _):
            return struct.pack("=IHHII", 16 + len(payload), kind, 0, 1, 0) + payload

    monkeypatch.setattr(socket, "socket", Channel)
    with pytest.raises(PermissionError):
        tcp_info.dump(socket.AF_INET)
    assert list(tcp_info.of_namespaces([("k", "")], [1])) == [("k", [], "Operation not permitted")]


def test_the_own_namespace_with_the_wanted_sockets_only():
    with socket.socket() as a, socket.socket() as b:
        a.bind(("127.0.0.1", 0))
        a.listen()
        b.connect(a.getsockname())
        inode = os.fstat(b.fileno()).st_ino
        ((key, rows, problem),) = tcp_info.of_namespaces([("own", "")], [inode])
    assert (key, problem) == ("own", None) and [row["inode"] for row in rows] == [inode]


def test_a_namespace_that_cannot_be_opened_or_entered(tmp_path):
    ((key, rows, problem),) = tcp_info.of_namespaces([("k", str(tmp_path / "gone"))], [])
    assert (key, rows) == ("k", []) and problem.endswith("gone: No such file or directory")
    answer = guarded.call(tcp_info.of_namespaces, [("k", "/dev/null")], [], timeout=5)
    assert answer.value[0][2].startswith("setns: ")

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangscope.collectors import guarded, nccl_library, ras, ras_client
from hangscope.collectors.interface import ABSENT, ERROR, OK, PARTIAL, TIMEOUT, Context, Result

from . import fake_ras_server, victims

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Fake:
    """A running fake RAS server, and what it has heard."""

    def __init__(self, port: int, *arguments: str, **variables: str) -> None:
        command = [sys.executable, "-u", "-m", "tests.collectors.fake_ras_server", "--port", str(port)]
        self.process = subprocess.Popen(
            [*command, *arguments],
            cwd=ROOT,
            env={**os.environ, "NCCL_RAS_ADDR": f"localhost:{port}", **variables},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("ready")
        self.pid = self.process.pid

    def end(self) -> list[str]:
        """Everything it heard."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        heard, _ = self.process.communicate(timeout=10)
        return heard.splitlines()


@contextlib.contextmanager
def fake(*arguments: str, port: int | None = None, **variables: str) -> Iterator[Fake]:
    server = Fake(port or free_port(), *arguments, **variables)
    try:
        yield server
    finally:
        server.end()


def context(*pids: int, explicit: bool = True) -> Context:
    return victims.context(*pids, options={"asked_for": ("ras",) if explicit else ()})


def ask(ctx: Context) -> Result:
    return ras.COLLECTOR.collect(ctx, None)


def test_json_from_the_versions_that_have_it() -> None:
    with fake("--version", "2.29.7", "--scenario", "lagging") as server:
        result = ask(context(server.pid))
        heard = server.end()
    assert result.status == OK, result.reason
    ((name, data),) = result.artifacts
    assert name == "ras.json"
    ranks = json.loads(data)["communicators"][0]["ranks"]
    assert [rank["collective_counts"]["AllReduce"] for rank in ranks] == [700, 699, 700, 700]
    assert heard == ["connected", "CLIENT PROTOCOL 2", "TIMEOUT 5", "SET FORMAT json", "VERBOSE STATUS"]


def test_text_from_the_versions_before() -> None:
    with fake("--version", "2.27.7", "--scenario", "lagging") as server:
        result = ask(context(server.pid))
    assert result.status == OK, result.reason
    ((name, data),) = result.artifacts
    assert name == "ras.txt"
    assert b"Rank 1 has launched up to operation 699" in data


def test_the_json_without_a_comma_is_kept_byte_for_byte() -> None:
    with fake("--version", "2.29.1", "--scenario", "missing") as server:
        result = ask(context(server.pid))
    assert result.status == OK
    with pytest.raises(ValueError):
        json.loads(result.artifacts[0][1])
    assert b'"unresponsive": true' in result.artifacts[0][1]


@pytest.mark.parametrize(
    ("fault", "status", "reason", "kept"),
    [
        ("torn", PARTIAL, "before its last section", True),
        ("slow", PARTIAL, "timed out", True),
        ("invalid-json", OK, "", True),
        ("closing", ERROR, "closed the connection", False),
        ("chatter", ERROR, "not RAS", False),
        ("silent", TIMEOUT, "timed out", False),
    ],
)
def test_faults(fault: str, status: str, reason: str, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras_client, "HANDSHAKE", 0.15)
    monkeypatch.setattr(ras_client, "REPORT", 0.3)
    with fake("--fault", fault) as server:
        result = ask(context(server.pid))
        heard = server.end()
    assert result.status == status, result
    assert reason in (result.reason or "")
    assert bool(result.artifacts) == kept
    assert heard.count("connected") == (1 if kept else ras_client.TRIES)


def test_one_stopped_process_of_those_that_share_the_port_costs_only_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ras_client, "HANDSHAKE", 0.15)
    monkeypatch.setattr(ras_client, "TRIES", 24)
    port = free_port()
    with fake(port=port) as stopped, fake(port=port) as healthy:
        os.kill(stopped.pid, signal.SIGSTOP)
        result = ask(context(stopped.pid, healthy.pid))
    assert result.status == OK, result.reason


def test_a_node_asks_at_most_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake() as server:
        ctx = context(server.pid)
        assert not ras.was_asked(ctx)
        assert ask(ctx).status == OK
        again = ask(ctx)
        assert ras.was_asked(ctx)
        assert again.status == ABSENT
        assert "asked 0 s ago" in str(again.reason)
        ctx.shared[ras.LAST] = time.monotonic() - ras.APART
        assert ask(ctx).status == OK
        heard = server.end()
    assert heard.count("connected") == 2


def test_no_port_but_that_of_the_variable_is_ever_connected_to() -> None:
    with fake(NCCL_RAS_ADDR="localhost:1") as server:
        result = ask(context(server.pid))
        assert result.status == ABSENT
        assert "no rank listens" in str(result.reason)
        assert server.end() == []


@pytest.mark.parametrize(
    ("variables", "reason"),
    [({"NCCL_RAS_ENABLE": "0"}, "NCCL_RAS_ENABLE is 0"), ({"NCCL_RAS_ADDR": "localhost"}, "names no port")],
)
def test_settings_that_rule_it_out(variables: dict[str, str], reason: str) -> None:
    with fake(**variables) as server:
        result = ask(context(server.pid))
        assert (result.status, result.reason) == (ABSENT, result.reason)
        assert reason in str(result.reason)
        assert server.end() == []


def library(folder: Path, how: str, version: str) -> Path:
    """A file that tells its version as a real libnccl does."""
    if how == "name":
        path = folder / f"libnccl.so.{version}"
    elif how == "wheel":
        path = folder / "site-packages" / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
        (folder / "site-packages" / f"nvidia_nccl_cu12-{version}.dist-info").mkdir(parents=True)
    else:
        path = folder / "libnccl.so.2"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(elf(f"NCCL version {version}+cuda12.9\0".encode() if how == "data" else b"nothing"))
    return path


def elf(data: bytes) -> bytes:
    """An ELF file of three sections: none, .rodata, the names."""
    names = b"\0.rodata\0.shstrtab\0"
    start = 64
    table = start + len(data) + len(names)
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQ", 3, 62, 1, 0, 0, table)
    head += struct.pack("<IHHHHHH", 0, 64, 0, 0, 64, 3, 2)
    rows = [
        (0,) * 10,
        (1, 1, 2, 0, start, len(data), 0, 0, 1, 0),
        (9, 3, 0, 0, start + len(data), len(names), 0, 0, 1, 0),
    ]
    return head + data + names + b"".join(nccl_library.SECTION.pack(*row) for row in rows)


@pytest.mark.parametrize("how", ["name", "wheel", "data"])
@pytest.mark.parametrize(("version", "asked"), [("2.29.2", True), ("2.27.5", False)])
def test_only_versions_that_cannot_crash_are_asked(
    how: str, version: str, asked: bool, tmp_path: Path
) -> None:
    with fake("--library", str(library(tmp_path, how, version)), "--version", version) as server:
        result = ask(context(server.pid, explicit=False))
        heard = server.end()
    if asked:
        assert result.status == OK, result.reason
    else:
        assert result.status == ABSENT
        assert "NCCL 2.27.5: before 2.29.2" in str(result.reason)
        assert heard == []


def test_a_server_older_than_its_library_says_is_not_asked_for_text(tmp_path: Path) -> None:
    with fake("--library", str(library(tmp_path, "name", "2.29.7")), "--version", "2.27.3") as server:
        result = ask(context(server.pid, explicit=False))
        heard = server.end()
    assert (result.status, "older than the library" in str(result.reason)) == (ERROR, True)
    assert "VERBOSE STATUS" not in heard


def test_an_endless_report_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras_client, "CAP", 300)
    with fake("--size", "90") as server:
        result = ask(context(server.pid))
    assert (result.status, "longer than" in str(result.reason)) == (PARTIAL, True)


def test_an_unknown_version_is_not_asked_unless_ras_is_named() -> None:
    with fake() as server:
        result = ask(context(server.pid, explicit=False))
        assert result.status == ABSENT
        assert "of unknown version" in str(result.reason)
        assert ask(context(server.pid)).status == OK


@pytest.mark.parametrize("data", [b"", b"\x7fELF\x02\x01" + bytes(20), elf(b"x")[:90], b"#!/bin/sh\n" * 20])
def test_a_library_that_is_none_has_no_version(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "libnccl.so.2"
    path.write_bytes(data or b"\0")
    with fake("--library", str(path)) as server:
        outcome = guarded.call(nccl_library.version, server.pid, "/proc", timeout=5.0)
    assert (outcome.status, outcome.value) == ("ok", None)


def test_another_job_on_the_same_port_is_not_asked(tmp_path: Path) -> None:
    port = free_port()
    path = str(library(tmp_path, "name", "2.30.7"))
    with fake("--library", path, port=port) as own, fake(port=port) as other:
        result = ask(context(own.pid, explicit=False))
        assert result.status == ABSENT
        assert "another job" in str(result.reason)
        assert (own.end(), other.end()) == ([], [])


def test_of_two_jobs_on_one_port_the_answer_must_name_our_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras_client, "TRIES", 24)
    port = free_port()
    with fake(port=port) as own, fake("--pid", "3000000", port=port):
        result = ask(context(own.pid))
        assert result.status == OK, result.reason
        first = json.loads(result.artifacts[0][1])["communicators"][0]["ranks"][0]
        assert first["pid"] == own.pid
        own.end()
        # only the other one is left to answer: as if it held our port
        where = ras_client.Where(os.getpid(), [("127.0.0.1", port)], [own.pid], True, True)
        (answer,) = list(ras_client.ask(where, 5.0))
    assert answer == {"problem": "the answer is of another job that uses the same port"}


def test_processes_without_a_listener_are_left_alone() -> None:
    result = ask(context(os.getpid()))
    assert result.status == ABSENT
    assert ask(Context([])).status == ABSENT


def test_an_ipv6_listener_is_found() -> None:
    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 here")
    with fake("--host", "::1") as server:
        assert ask(context(server.pid)).status == OK


def test_the_fake_says_what_it_is_and_refuses_what_ras_refuses() -> None:
    assert "FAKE" in str(fake_ras_server.__doc__)
    job = fake_ras_server.FakeJob((2, 24, 3), "missing", 3, 40, 0.0)
    server = fake_ras_server.FakeRasServer(job, 0)
    try:
        assert server.reply("SET FORMAT json", "text")[0] == "ERROR: Unknown command SET FORMAT json"
        assert server.reply("timeout x", "text")[0].startswith("ERROR: Invalid timeout")
        assert "Missing communicator data from 1 rank" in job.text()
        job.scenario = "none"
        assert "No communicator data collected" in job.text()
        assert json.loads(job.json())["communicators"] == []
    finally:
        server.listener.close()


def test_a_library_that_is_gone_or_torn_tells_nothing(tmp_path: Path) -> None:
    path = library(tmp_path, "data", "2.29.7")
    with fake("--library", str(path)) as server:
        path.unlink()
        outcome = guarded.call(nccl_library.version, server.pid, "/proc", timeout=5.0)
        assert outcome.value is None
        path.write_bytes(elf(b"x")[:-30])
        outcome = guarded.call(nccl_library.version, server.pid, "/proc", timeout=5.0)
        assert outcome.value is None
    with open(path, "rb") as torn:
        path.write_bytes(b"\x7fELF\x02\x01" + bytes(58))
        assert nccl_library.read_only_data(torn.fileno()) == b""

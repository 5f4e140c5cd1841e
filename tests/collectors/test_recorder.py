import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangscope.collectors import recorder, worker_server
from hangscope.collectors.interface import ABSENT, DENIED, ERROR, OK, PARTIAL, TIMEOUT, Target

from . import victims
from .stack_victims import SLEEPER_AND_SPINNER

SERVER = (
    victims.NAME_THREAD
    + """
import socket, sys, threading, time
kind, mode = sys.argv[1:3]
decoy = socket.create_server(("127.0.0.1", 0))
def other():  # gloo and the store listen too
    decoy.accept()
    print("decoy was connected to", flush=True)
threading.Thread(target=other, daemon=True).start()
if kind == "unix":
    listener = socket.socket(socket.AF_UNIX); listener.bind(sys.argv[3]); listener.listen()
elif kind == "inet6":
    listener = socket.create_server(("::", 0), family=socket.AF_INET6)
else:
    listener = socket.create_server(("127.0.0.1" if kind == "inet" else "0.0.0.0", 0))
def serve():
    name_thread("pt_workerserver")
    while True:
        stream, _ = listener.accept()
        request = stream.recv(4096).decode()
        method, path, _ = request.split(" ", 2)
        body = ('{"path": "%s", "method": "%s"}' % (path, method)).encode()
        if mode == "silent":
            time.sleep(60)
        if mode == "nonsense":
            stream.sendall(b"SSH-2.0-x\\r\\n")
        elif mode == "old" and "wait" in path or {"nccl": "fr_trace", "cpu": "nccl"}.get(mode, "-") in path:
            stream.sendall(b"HTTP/1.1 404 Not Found\\r\\n\\r\\n")
        else:
            cut = 5 if mode == "cut" else 0
            stream.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % (len(body) + cut) + body)
        stream.close()
def idle():
    name_thread("pt_workerserver")
    time.sleep(600)
for work in (idle, serve):
    threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
time.sleep(600)
"""
)


def ask(pid: int) -> "recorder.Result":
    ctx = victims.context(pid)
    return recorder.COLLECTOR.collect(ctx, ctx.targets[0])


@contextlib.contextmanager
def server(kind: str, mode: str = "answers", *arguments: str) -> Iterator[int]:
    with victims.victim(SERVER, kind, mode, *arguments) as pid:

        def accepts() -> bool:
            try:
                worker_server.find(pid)
            except worker_server.NotThere:
                return False
            return True

        victims.wait_until(accepts)
        yield pid


@pytest.mark.parametrize("kind", ["inet", "any", "inet6", "unix"])
def test_the_server_is_found_by_its_accepting_thread_and_asked(kind: str, tmp_path: Path) -> None:
    if kind == "inet6" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 here")
    long_name = tmp_path / ("d" * 60)
    long_name.mkdir()
    with contextlib.chdir(long_name), server(kind, "answers", str(tmp_path / "socket")) as pid:
        result = ask(pid)
    assert result.status == OK, result.reason
    answers = {name: json.loads(data) for name, data in result.artifacts}
    assert answers == {
        "fr_trace.json": {"path": "/handler/fr_trace_json", "method": "POST"},
        "nccl_trace.json": {"path": "/handler/dump_nccl_trace_json", "method": "POST"},
        "wait_counters.json": {"path": "/handler/wait_counter_values", "method": "POST"},
    }


@pytest.mark.parametrize(
    ("mode", "status", "reason", "artifacts"),
    [
        ("old", PARTIAL, "answers 404", ["fr_trace.json", "nccl_trace.json"]),
        ("cut", ERROR, "was cut", []),
        ("nonsense", ERROR, "no HTTP server", []),
    ],
)
def test_answers_that_are_none(mode: str, status: str, reason: str, artifacts: list[str]) -> None:
    with server("inet", mode) as pid:
        result = ask(pid)
    assert result.status == status
    assert reason in str(result.reason)
    assert [name for name, _ in result.artifacts] == artifacts


@pytest.mark.parametrize(("mode", "trace"), [("cpu", "fr_trace"), ("nccl", "nccl_trace")])
def test_of_the_two_recorders_a_build_may_have_one(mode: str, trace: str) -> None:
    with server("inet", mode) as pid:
        ctx = victims.context(pid)
        results = [recorder.COLLECTOR.collect(ctx, ctx.targets[0]) for _ in range(2)]
    for result in results:
        assert (result.status, result.reason) == (OK, None)
        assert [name for name, _ in result.artifacts] == [f"{trace}.json", "wait_counters.json"]
    (lacking,) = ctx.shared[recorder.LACKING]
    assert lacking[2] == {"cpu": "dump_nccl_trace_json", "nccl": "fr_trace_json"}[mode]
    assert (ctx.targets[0][:2] in ctx.shared.get(recorder.ANSWERED, ())) == (mode == "nccl")


def test_a_stopped_server_costs_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "DEADLINE", 0.3)
    with server("inet") as pid:
        address = worker_server.find(pid)
        os.kill(pid, signal.SIGSTOP)
        result = ask(pid)
        assert result.status in (TIMEOUT, ABSENT)  # a stopped accept may no longer show as one
        monkeypatch.setattr(worker_server, "find", lambda pid, proc: address)
        result = ask(pid)
        assert result.status == TIMEOUT
        assert str(result.reason).startswith("fr_trace_json")


def test_an_answer_above_the_cap_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_server, "CAP", 20)
    with server("inet") as pid:
        assert "larger than" in str(ask(pid).reason)


def test_a_listener_without_a_worker_server_is_never_connected_to() -> None:
    code = SERVER.replace('name_thread("pt_workerserver")', "pass")
    with victims.victim(code, "inet", "answers") as pid:
        result = ask(pid)
        assert result.status == ABSENT
        assert "no torch worker server" in str(result.reason)
        with pytest.raises(worker_server.NotThere):
            worker_server.find(pid)


def test_threads_of_that_name_that_accept_nothing_are_no_server() -> None:
    code = (
        victims.NAME_THREAD
        + """
import socket, time
listener = socket.create_server(("127.0.0.1", 0))
name_thread("pt_workerserver")
print("ready", flush=True)
time.sleep(600)
"""
    )
    with victims.victim(code) as pid:
        result = ask(pid)
        assert result.status == ABSENT
        assert "waits for a connection" in str(result.reason)
        with pytest.raises(worker_server.NotThere, match="cannot be told on riscv64"):
            worker_server.find(pid, machine="riscv64")


def test_a_unix_path_that_leads_to_another_process_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    heard: list[bytes] = []
    with server("unix", "answers", str(path)) as pid:
        path.unlink()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()

            def hear() -> None:
                stream, _ = listener.accept()
                heard.append(stream.recv(100))
                stream.close()

            listening = threading.Thread(target=hear)
            listening.start()
            result = ask(pid)
            with socket.socket(socket.AF_UNIX) as last:
                if listening.is_alive():
                    last.connect(str(path))
            listening.join(5)
    assert result.status == ERROR
    assert f"process {os.getpid()} listens there" in str(result.reason)
    assert heard == [b""]


@victims.needs_root
def test_a_server_in_another_network_namespace_is_asked_there() -> None:
    if not os.access("/usr/bin/unshare", os.X_OK):
        pytest.skip("needs unshare")
    command = ["unshare", "--net", "sh", "-c", 'ip link set lo up 2>/dev/null; exec "$@"', "sh"]
    outer = subprocess.Popen(
        [*command, sys.executable, "-u", "-c", SERVER, "any", "answers"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert outer.stdout is not None
        if not outer.stdout.readline():
            pytest.skip("no network namespace can be made here")

        def answered() -> bool:
            result = ask(outer.pid)
            return result.status == OK or "unreachable" in str(result.reason)

        victims.wait_until(answered)
        own = os.readlink("/proc/self/ns/net")
        assert os.readlink(f"/proc/{outer.pid}/ns/net") != own
    finally:
        outer.kill()
        outer.wait()
        if outer.stdout is not None:
            outer.stdout.close()


def test_no_ptrace_emulation_unreadable_system_calls_and_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    with server("inet") as pid:
        monkeypatch.setattr(worker_server.procfs, "read_link", lambda path: (None, "EACCES"))
        result = ask(pid)
        assert result.status == DENIED
        assert "open files" in str(result.reason)
        real = worker_server.procfs.read_text
        monkeypatch.setattr(
            worker_server.procfs,
            "read_text",
            lambda path, cap: (None, "EPERM") if path.endswith("syscall") else real(path, cap),
        )
        result = ask(pid)
        assert result.status == DENIED
        assert "system calls" in str(result.reason)


def test_other_processes_and_dead_ones_are_not_asked() -> None:
    ctx = victims.context()
    assert recorder.COLLECTOR.collect(ctx, Target(os.getpid(), 0, "dataloader")).reason == "not a rank"
    assert recorder.COLLECTOR.collect(ctx, Target(4_000_000, 1, "rank")).status == ABSENT
    with victims.victim(SLEEPER_AND_SPINNER) as pid:
        assert ask(pid).status == ABSENT


TORCH = """
import torch
from torch._C._distributed_c10d import _WorkerServer
server = _WorkerServer("127.0.0.1", 0)
print("ready", flush=True)
import time
time.sleep(600)
"""


@pytest.mark.realjob
def test_a_real_torch_worker_server_answers() -> None:
    pytest.importorskip("torch")
    with victims.victim(TORCH) as pid:
        # a thread of it takes its name a moment after it was started
        names = Path(f"/proc/{pid}/task")
        victims.wait_until(lambda: any("pt_workerserv" in p.read_text() for p in names.glob("*/comm")))
        result = ask(pid)
    assert result.status == OK, result.reason
    answers = {name: json.loads(data) for name, data in result.artifacts}
    assert "version" in answers["fr_trace.json"]
    assert isinstance(answers["wait_counters.json"], dict)

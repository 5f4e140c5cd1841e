"""Whole captures, by the command that people type, of jobs and under conditions that are hard."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

from hangscope.bundle.reader import read_bundle
from hangscope.model.evidence import Shard
from tests.benchmarks.plain_job import plain_job, thread_states
from tests.collectors.agent_process import status_of
from tests.collectors.victims import needs_root, wait_until

ROOT = pathlib.Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "hangscope")
QUICK = ("--interval", "0.1", "--patience", "0", "--skip-collectors", "native")


def capture(
    pid: int, *options: str, prefix: tuple[str, ...] = (), **more: object
) -> "subprocess.CompletedProcess[str]":
    """``hangscope capture -p``, quick unless told otherwise."""
    given: dict[str, object] = {"capture_output": True, "text": True, "cwd": ROOT, "timeout": 90, **more}
    command = [*prefix, *COMMAND, "capture", "-p", str(pid), *QUICK, *options]
    return subprocess.run(command, **given)  # type: ignore[call-overload]  # the keywords of run


def shard_of(path: pathlib.Path | str) -> Shard:
    return read_bundle(str(path)).shards[0]


def contents(shard: Shard) -> bytes:
    """All that is in a shard, frames and what is known of the processes included."""
    parts = [artifact.data for artifact in shard.artifacts]
    return b"\n".join(
        [*parts, repr((shard.node, shard.scan, shard.frames, shard.cells, shard.notes)).encode()]
    )


@contextlib.contextmanager
def ranks(
    code: str, directory: pathlib.Path, count: int = 2, arguments: tuple[str, ...] = (), **variables: str
) -> Iterator[list[int]]:
    """Ranks of one program that says ``ready``; their output goes to ``<rank>.out`` in the directory."""
    script = directory / "train.py"
    script.write_text(textwrap.dedent(code))
    started: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(count):
            numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
            told = {name: str(number) for name, number in numbers.items()}
            environment = {
                **os.environ,
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "29881",
                **told,
                **variables,
            }
            with open(directory / f"{rank}.out", "wb") as output:
                command = [sys.executable, str(script), *arguments]
                started.append(subprocess.Popen(command, env=environment, stdout=output, cwd=directory))
        for rank in range(count):
            wait_until(lambda rank=rank: "ready" in (directory / f"{rank}.out").read_text(errors="replace"))  # type: ignore[misc]  # bound now
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()


SECRETIVE = """
    import os, threading
    os.environ["LATE_API_TOKEN"] = "hidden-LATE"
    open("nccl.log", "w").write("n:1:2 [0] NCCL INFO token=hidden-NCCL https://u:hidden-NCCLURL@h/\\n")
    for text in (
        "Authorization: Bearer hidden-BEARER1234567890",
        "fetching https://user:hidden-URL@host/x?token=hidden-QUERY&x=1",
        "password=hidden-PLAIN WANDB_API_KEY=hidden-WANDB",
        'api: {"api_key": "hidden-JSON", "n": 1}',
        "AKIAQ7Q7Q7Q7Q7Q7Q7Q7 wJalrXUtnFEMI/K7MDENG/bPxRfiCYhidden9999",
        "-----BEGIN RSA PRIVATE KEY-----", "hidden-PEM", "-----END RSA PRIVATE KEY-----", "ready",
    ):
        print(text, flush=True)
    token = "hidden-SOURCE"; threading.Event().wait()
"""


def test_no_secret_of_a_rank_is_anywhere_in_the_bundle(tmp_path: pathlib.Path) -> None:
    arguments = ("--api-key", "hidden-ARG1", "--token=hidden-ARG2", "--url", "https://u:hidden-ARG3@h/")
    secrets = {
        "WANDB_API_KEY": "hidden-ENV1",
        "AWS_SECRET_ACCESS_KEY": "hidden-ENV2",
        "MASTER_PASSWORD": "hidden-ENV3",
        "SLURM_JWT": "hidden-ENV4",
        "https_proxy": "http://u:hidden-ENV5@proxy:1",
        "NCCL_DEBUG_FILE": "nccl.log",
    }
    with ranks(SECRETIVE, tmp_path, 2, arguments, **secrets) as pids:
        done = capture(pids[0], "-o", str(tmp_path / "b.tar"), "-v", "--samples", "1")
    assert done.returncode == 0, done.stderr
    shard = shard_of(tmp_path / "b.tar")
    data = contents(shard)
    assert re.findall(rb"\S*hidden\S*", data) == []
    assert "hidden" not in done.stdout + done.stderr
    for name, told in (
        ("output.json", b"fetching"),
        ("nccl_log.json", b"NCCL INFO"),
        ("source.json", b"wait()"),
    ):
        assert any(a.name == name and told in a.data for a in shard.artifacts), name
    assert data.count(b"<redacted") > 12


STRANGE = """
    import ctypes, os, threading
    libc = ctypes.CDLL(None)
    def stay(number):
        libc.prctl(15, b"w) R \\n\\x1b[2J%d" % (number % 10), 0, 0, 0)
        threading.Event().wait()
    many = os.environ["RANK"] == "1"
    threading.stack_size(1 << 17)
    for number in range(300 if many else 1):
        threading.Thread(target=stay, args=(number,), daemon=True).start()
    held = [os.open(os.devnull, 0) for _ in range(0 if many else 900)]
    libc.prctl(15, b"a) Z (\\n\\x1b[31m", 0, 0, 0)
    print("ready", flush=True)
    threading.Event().wait()
"""


def test_strange_names_many_threads_and_many_files(tmp_path: pathlib.Path) -> None:
    folder = pathlib.Path(os.fsdecode(os.fsencode(tmp_path) + b"/d\xe9\xff \x1b[31m"))
    folder.mkdir()
    with ranks(STRANGE, folder, 2, (os.fsdecode(b"--name=\xff\xfe\x1b[2J"),)) as pids:
        done = capture(pids[1], "-o", str(tmp_path / "b.tar"), "--samples", "1", text=False)
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stdout + done.stderr  # type: ignore[operator]  # bytes, as text is off
    shard = shard_of(tmp_path / "b.tar")
    assert shard.scan is not None and [row.pid for row in shard.scan.processes] == pids
    for pid, least in zip(pids, (2, 301), strict=True):
        assert status_of(shard, "stacks", pid) == "ok" and status_of(shard, "process", pid) == "ok"
        stacks = [a for a in shard.artifacts if a.name == "stacks.json" and a.pid == pid]
        assert len(json.loads(stacks[0].data)["threads"]) == least
    process = next(a for a in shard.artifacts if a.name == "process.json" and a.pid == pids[0])
    assert len(json.loads(process.data)["fds"]) > 900


@needs_root
def test_without_the_right_to_trace_all_else_is_there_and_one_line_lifts_it(tmp_path: pathlib.Path) -> None:
    """An emulation of Yama and of containers: the capture lacks CAP_SYS_PTRACE and the ranks do not, so the
    kernel refuses ptrace, process_vm_readv, mem, environ, syscall and stack."""
    drop = ("setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace")
    if subprocess.run([*drop, "true"], capture_output=True).returncode:
        pytest.skip("setpriv cannot drop the capability here")
    with plain_job(2, 3, "refused") as pids:
        done = capture(pids[0], "-o", str(tmp_path / "b.tar"), "--json", prefix=drop)
    assert done.returncode == 0, done.stderr
    assert "no Python stacks without the right to trace" in done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["kind"] == "undecided" and verdict["initiators"] == []
    first = verdict["missing"][0]
    assert "Python stacks" in first["what"] and "CAP_SYS_PTRACE" in first["why"]
    assert f"hangscope capture -p {pids[0]}" in first["command"]
    assert not any("native" in fact["what"] for fact in verdict["missing"])
    shard = shard_of(tmp_path / "b.tar")
    assert {(c.collector, c.status) for c in shard.cells if c.status == "error"} == set()
    refused = {c.collector for c in shard.cells if c.status == "denied"}
    assert "stacks" in refused and not refused & {
        "threads",
        "process",
        "memory",
        "sockets",
        "mounts",
        "locks",
    }
    assert shard.sealed and shard.scan is not None and len(shard.scan.processes) == 2


def test_standard_output_that_nobody_reads_costs_no_evidence(tmp_path: pathlib.Path) -> None:
    with plain_job(1, 2, "unread") as pids:
        process = subprocess.Popen(
            [*COMMAND, "capture", "-p", str(pids[0]), *QUICK, "-o", "-"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        )
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        process.stderr.close()
        assert process.wait(60) == 1
    found = re.search(
        r"did not take the bundle: Broken pipe; it is saved in (\S+)\n  try: hangscope analyze", said
    )
    assert found is not None and "Traceback" not in said and "Exception ignored" not in said
    try:
        assert shard_of(found[1]).sealed
    finally:
        os.unlink(found[1])


def test_an_interrupt_before_anything_was_captured(tmp_path: pathlib.Path) -> None:
    with plain_job(1, 2, "early") as pids:
        command = [*COMMAND, "capture", "-p", str(pids[0]), "-o", str(tmp_path / "b.tar")]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        assert process.stderr is not None
        assert "the evidence arrives in" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        process.stderr.close()
        assert process.wait(30) in (130, -signal.SIGINT) and "Traceback" not in said
        assert not set(thread_states(pids).values()) & {"T", "t"}


FIRST_ACT = """
import hangscope.__main__ as entry, sys
entry.offer_itself()
loaded = [name for name in sys.modules if name.startswith("hangscope.")]
print(open("/proc/self/oom_score_adj").read().strip(), loaded)
"""
CAPTURES = """
import hangscope.__main__ as entry, sys
entry.offer_itself = lambda: print("offered")
sys.argv[1:] = ["capture", "-p", "4194305"]
entry.main()
"""


def test_its_first_act_offers_it_to_the_memory_killer() -> None:
    """Before anything is imported: a rank at its memory limit must outlive the capture."""
    for code, told in ((FIRST_ACT, "1000 ['hangscope.__main__']\n"), (CAPTURES, "offered\n")):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
        assert done.stdout == told

"""The agent runs with whatever Python the node has, from 3.8 on: a capture of itself there."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = ("threads", "process", "memory", "sockets", "locks", "mounts")
SCRIPT = """
import importlib, json, os, sys
from hangscope.collectors import procfs
from hangscope.collectors.interface import PROCESS, Context, Target
assert procfs.boot_time() and procfs.nspid(os.getpid())
me = Target(os.getpid(), procfs.start_ticks(os.getpid()), "rank")
cells = {}
for name in sys.argv[1:]:
    collector = importlib.import_module("hangscope.collectors." + name).COLLECTOR
    result = collector.collect(Context([me]), me if collector.scope == PROCESS else None)
    sizes = [len(json.loads(data)) for _, data in result.artifacts]
    cells[name] = [collector.name, result.status, result.reason, sizes]
print(json.dumps(cells))
"""


def oldest() -> "str | None":
    installed = sorted((Path.home() / ".pyenv" / "versions").glob("3.8.*/bin/python"))
    return str(installed[-1]) if installed else shutil.which("python3.8")


@pytest.mark.parametrize(
    "python", [pytest.param(sys.executable, id="this"), pytest.param(oldest(), id="3.8")]
)
def test_a_capture_of_itself(python):
    if python is None:
        pytest.skip("no Python 3.8 on this machine")
    done = subprocess.run(
        [
            python,
            "-I",
            "-X",
            "dev",
            "-c",
            f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{SCRIPT}",
            *MODULES,
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    cells = json.loads(done.stdout)
    assert [cells[name][0] for name in MODULES] == list(MODULES)
    for status, reason, artifacts in (cell[1:] for cell in cells.values()):
        assert status in ("ok", "partial") and (reason is None) == (status == "ok"), reason
        assert len(artifacts) == 1 and artifacts[0] >= 1

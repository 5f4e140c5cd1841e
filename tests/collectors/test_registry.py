"""Every collector keeps its contract: one file, one line in the registry, one row in FORMAT.md."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import hangscope.bundle
from hangscope.collectors import registry
from hangscope.collectors.interface import NODE, PROCESS, STATUSES, Collector, Context, Target
from hangscope.errors import UsageError

FORMAT = pathlib.Path(hangscope.bundle.__file__).with_name("FORMAT.md").read_text()
ROWS = re.findall(r"^\| `(\w+)` \| ([PN]) \| (every|once|on request) \|", FORMAT, re.MULTILINE)
NOBODY = Target(2**22 + 1, 1, "rank", 0)
OLD = pathlib.Path.home() / ".pyenv/versions/3.8.18/bin/python"


def each(function: object) -> object:
    return pytest.mark.parametrize("collector", registry.COLLECTORS, ids=lambda collector: collector.name)(
        function
    )  # type: ignore[operator]


@each
def test_a_collector_says_what_it_is(collector: Collector) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]{0,39}", collector.name)
    assert collector.scope in (PROCESS, NODE)
    assert isinstance(collector.once, bool)
    assert 0.0 < collector.budget <= 30.0
    assert collector.describes and "\n" not in collector.describes and len(collector.describes) <= 110
    assert callable(collector.collect)


@each
def test_the_format_documents_it(collector: Collector) -> None:
    rows = [row for row in ROWS if row[0] == collector.name]
    assert rows, f"FORMAT.md has no row for {collector.name}"
    for _, scope, when in rows:
        assert scope == ("P" if collector.scope == PROCESS else "N")
        asked = collector.name in registry.ON_REQUEST
        assert when == ("on request" if asked else "once" if collector.once else "every")


@each
def test_a_process_that_is_gone_is_a_status_with_a_reason(collector: Collector) -> None:
    class Stacks:
        def stack(self, frames: object) -> int:
            return 0

    ctx = Context([NOBODY], intern=Stacks())
    result = collector.collect(ctx, NOBODY if collector.scope == PROCESS else None)
    assert result.status in STATUSES
    assert result.status == "ok" or result.reason
    for name, data in result.artifacts:
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}", name) and isinstance(data, bytes)


def test_names_are_unique_and_the_format_knows_no_others() -> None:
    names = [collector.name for collector in registry.COLLECTORS]
    assert len(set(names)) == len(names)
    assert {row[0] for row in ROWS} == set(names)
    assert set(registry.ON_REQUEST) | set(registry.ALL_AT_ONCE) <= set(names)


def test_selection_keeps_the_order() -> None:
    names = [collector.name for collector in registry.COLLECTORS]
    assert [collector.name for collector in registry.selected()] == names
    assert [collector.name for collector in registry.selected(only=("memory", "threads"))] == [
        "threads",
        "memory",
    ]
    assert "gpus" not in [collector.name for collector in registry.selected(skip=("gpus",))]
    with pytest.raises(UsageError, match="no collector 'gpu'"):
        registry.selected(skip=("gpu",))


@pytest.mark.skipif(not OLD.exists(), reason="no Python 3.8 here")
def test_the_agent_runs_on_the_oldest_python(tmp_path: pathlib.Path) -> None:
    entry = pathlib.Path(hangscope.__file__).parent / "collectors" / "agent_entry.py"
    command = [str(OLD), "-I", "-S", "-B", str(entry), "--pid", str(os.getpid()), "--only-this-process"]
    command += ["--samples", "1", "--skip", "stacks"]
    with open(tmp_path / "shard.tar.gz", "wb") as shard:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=shard, stderr=subprocess.PIPE, timeout=60
        )
    assert done.returncode == 0, done.stderr
    assert b'"event":"end"' in done.stderr


def test_nothing_beside_the_package_becomes_importable() -> None:
    """A training repository's own ``collectors`` must not be taken for ours, nor ours for it."""
    entry = pathlib.Path(hangscope.__file__).parent / "collectors" / "agent_entry.py"
    code = (
        f"import runpy; m = runpy.run_path({str(entry)!r}, run_name='agent_entry'); m['load_package']()\n"
        "import hangscope.collectors.interface, importlib.util\n"
        "assert importlib.util.find_spec('collectors') is None and importlib.util.find_spec('tests') is None"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr

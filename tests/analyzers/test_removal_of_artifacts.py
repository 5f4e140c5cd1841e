"""The recorded captures: without any one collector's artifacts of a process, or of a sample, the verdict
names the same ranks or nobody."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Hashable

import msgspec
import pytest

from hangscope.analyzers.analysis import analyze
from hangscope.analyzers.facts import parsed
from hangscope.analyzers.readers import Reader, reader_for
from hangscope.bundle.reader import read_bundle
from hangscope.model.evidence import Artifact, Evidence

BUNDLES = sorted((pathlib.Path(__file__).parents[2] / "fixtures" / "bundles").glob("*/bundle.tar"))


def without(evidence: Evidence, key: Callable[[Artifact], Hashable], value: Hashable) -> Evidence:
    shards = tuple(
        msgspec.structs.replace(shard, artifacts=tuple(a for a in shard.artifacts if key(a) != value))
        for shard in evidence.shards
    )
    return msgspec.structs.replace(evidence, shards=shards)


def of_process(artifact: Artifact) -> Hashable:
    return artifact.node, artifact.collector, artifact.pid


def of_sample(artifact: Artifact) -> Hashable:
    return artifact.node, artifact.collector, artifact.sample


@pytest.fixture
def read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every artifact is read once, however many variants it is in."""
    kept: dict[str, msgspec.Struct] = {}

    def remembering(collector: str, name: str) -> Reader | None:
        reader = reader_for(collector, name)
        if reader is None:
            return None

        def read(data: bytes, path: str) -> msgspec.Struct:
            if path not in kept:
                kept[path] = reader.read(data, path)
            return kept[path]

        return Reader(collector, name, read)

    monkeypatch.setattr(parsed, "reader_for", remembering)


@pytest.mark.usefixtures("read_once")
@pytest.mark.skipif(not BUNDLES, reason="no recorded bundles in fixtures/bundles")
@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.parent.name)
def test_no_artifact_turns_the_verdict_to_another_name(path: pathlib.Path) -> None:
    evidence = read_bundle(str(path))
    whole = analyze(evidence)
    wrong = []
    for key in (of_process, of_sample):
        for value in sorted({key(a) for shard in evidence.shards for a in shard.artifacts}, key=str):
            verdict = analyze(without(evidence, key, value))
            if verdict.initiators not in (whole.initiators, ()):
                wrong.append((value, verdict.kind, verdict.initiators))
    assert wrong == []

"""Opens what a command was given as a bundle, and says so when there is nothing in it."""

from __future__ import annotations

import sys

from ..bundle.reader import read_bundle
from ..errors import BundleError
from ..model.evidence import Evidence
from ..report.interface import printable
from .standard_input import as_file


def evidence_of(path: str) -> Evidence:
    """The evidence in a bundle; ``-`` is standard input. Raises as ``evidence_in`` does."""
    if path == "-":
        with as_file(sys.stdin.buffer) as name:
            return evidence_in(name, path)
    return evidence_in(path, path)


def evidence_in(file: str, path: str) -> Evidence:
    """The evidence in the bundle ``file``; ``path`` is what people know it by.

    Raises BundleError for what is no bundle, and for one that was cut before its first piece of evidence:
    nothing may be concluded from that, not even that nothing hangs.
    """
    try:
        evidence = read_bundle(file)
    except BundleError as error:
        if path != "-":
            raise
        raise type(error)(error.what.replace(file, "standard input"), error.why, error.advice) from error
    if not any(shard.cells or shard.artifacts for shard in evidence.shards):
        raise BundleError(
            f"{path} holds no evidence", _why_empty(evidence), "copy it again, or capture again"
        )
    return evidence


def damage(evidence: Evidence) -> list[str]:
    """What is missing from a bundle, or was dropped from it, in lines for people; often none."""
    said = []
    for shard in evidence.shards:
        if shard.problem is not None:
            said.append(
                f"shard {shard.name} was not read to its end ({shard.problem}); what comes before counts"
            )
        elif not shard.sealed:
            said.append(f"shard {shard.name} is not sealed: its agent ended before its time")
    said += [f"node {node} delivered nothing: {why}" for node, why in evidence.missing_nodes]
    return [printable(line) for line in dict.fromkeys([*said, *evidence.notes])]


def _why_empty(evidence: Evidence) -> str:
    return "; ".join(damage(evidence)) or "its shards are empty"

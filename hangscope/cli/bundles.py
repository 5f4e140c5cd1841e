"""Opens what a command was given as a bundle, and says so when there is nothing in it."""

from __future__ import annotations

import sys

from ..bundle.reader import read_bundle
from ..errors import BundleError
from ..model.evidence import Evidence
from ..report.interface import printable
from .standard_input import as_file


def evidence_of(path: str) -> Evidence:
    """The evidence in a bundle; ``-`` is standard input.

    Raises BundleError for what is no bundle, and for one that was cut before its first piece of evidence:
    nothing may be concluded from that, not even that nothing hangs.
    """
    if path == "-":
        with as_file(sys.stdin.buffer) as name:
            try:
                evidence = read_bundle(name)
            except BundleError as error:
                what = error.what.replace(name, "standard input")
                raise type(error)(what, error.why, error.advice) from error
    else:
        evidence = read_bundle(path)
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

"""Jobs with a known fault, and the evidence of them in the forms that people have, with what gets lost.

``python -m tests.analyzers.ledger.simulated_job --seeds 2000`` hunts wrong names among them, and prints how
often the fault is named for each kind of fault and set of evidence.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
from collections import Counter
from collections.abc import Sequence

import msgspec

from hangscope.analyzers.loose import analyze_loose
from hangscope.analyzers.readers.interface import Document
from hangscope.model.verdict import Verdict

from .simulated_dumps import dumps
from .simulated_logs import logs
from .simulated_states import nccl_logs, ras, stacks
from .simulated_truth import TRUTHS, Truth, truth_of

SETS = ("fr", "fr-loss", "logs", "logs-loss", "nccl", "nccl-loss", "ras", "stacks", "mixed", "mixed-loss")


class Case(msgspec.Struct):
    """One job and one set of evidence of it."""

    seed: int
    truth: Truth
    evidence: str
    documents: list[Document]

    @property
    def ageless(self) -> bool:
        """A count of launches is among the documents, of a job that ran when it was taken: nothing in one
        count tells a job that runs from one that hangs."""
        ran = self.truth.what in ("slow", "healthy") or self.evidence.endswith("-loss")
        return ran and any(document.path.startswith(("nccl.", "ras")) for document in self.documents)

    @property
    def unnoted(self) -> bool:
        """Somebody waits in a send or receive of gloo, which is in no recorder and no log."""
        run = self.truth.run
        return not run.gpu and any(
            call.p2p for rank in range(run.ranks) for call in run.pending(rank, self.truth.now)
        )


def case_of(seed: int, what: str | None = None, evidence: str | None = None) -> Case:
    """The case of a seed; a set without any document is a case too."""
    chance = random.Random(f"evidence {seed}")
    chosen = SETS[seed % len(SETS)]
    truth = truth_of(seed, what)
    name = evidence or chosen
    return Case(seed, truth, name, _documents(truth, name, chance))


def _documents(truth: Truth, name: str, chance: random.Random) -> list[Document]:
    source, loss = name.removesuffix("-loss"), name.endswith("-loss")
    if source == "fr":
        return [
            *dumps(truth, chance, loss=loss),
            *(logs(truth, chance, loss=False) if truth.what == "killed" else ()),
        ]
    if source == "logs":
        return logs(truth, chance, loss=loss)
    if source == "nccl":
        return nccl_logs(truth, chance, loss=loss)
    if source == "ras":
        return ras(truth, chance)
    if source == "stacks":
        return stacks(truth, chance, loss=False)
    found: list[Document] = []
    if chance.random() < 0.7:
        found += dumps(truth, chance, loss=loss)
    if chance.random() < 0.7:
        found += logs(truth, chance, loss=loss)
    if chance.random() < 0.4:
        found += nccl_logs(truth, chance, loss=loss)
    if chance.random() < 0.4:
        found += ras(truth, chance)
    if chance.random() < 0.4:
        found += stacks(truth, chance, loss=loss)
    return found


def wrong(case: Case, verdict: Verdict) -> str | None:
    """Why the verdict's names are wrong; None where they are right, or nobody is named."""
    truth = case.truth
    named = {*verdict.initiators, *(root.rank for root in verdict.roots if root.rank is not None)}
    allowed = truth.guilty | truth.knot if verdict.kind == "cycle" else truth.guilty
    blind = case.ageless or case.unnoted
    if named <= allowed or (blind and verdict.confidence == "low" and len(named) == 1):
        return None
    return f"names {sorted(named)} as {verdict.kind}, the truth is {truth.what} of {sorted(truth.guilty)}"


def verdict_of(documents: Sequence[Document]) -> Verdict:
    """The one verdict on the documents."""
    found = analyze_loose(documents)
    assert len(found) == 1, [verdict.job for verdict in found]
    return found[0]


def complaints(case: Case, *, removals: int = 3) -> list[str]:
    """What is wrong with the verdicts on a case: names, order, removal of one document."""
    verdict = verdict_of(case.documents)
    found = []
    if (why := wrong(case, verdict)) is not None:
        found.append(why)
    chance = random.Random(f"order {case.seed}")
    mixed = list(case.documents)
    chance.shuffle(mixed)
    other = verdict_of(mixed)
    if (other.kind, other.initiators, other.confidence) != (
        verdict.kind,
        verdict.initiators,
        verdict.confidence,
    ):
        found.append(f"order: {_short(verdict)} or {_short(other)}")
    places = list(range(len(case.documents)))
    for place in chance.sample(places, min(removals, len(places))):
        rest = [document for number, document in enumerate(case.documents) if number != place]
        fewer = verdict_of(rest)
        path = case.documents[place].path
        if (why := wrong(case, fewer)) is not None:
            found.append(f"without {path}: {why}")
        elif fewer.initiators and verdict.initiators and not _akin(fewer, verdict):
            found.append(f"without {path}: {_short(fewer)} instead of {_short(verdict)}")
    return found


def _akin(one: Verdict, other: Verdict) -> bool:
    a, b = set(one.initiators), set(other.initiators)
    return a <= b or b <= a


def _short(verdict: Verdict) -> str:
    return f"{verdict.kind} {list(verdict.initiators)} {verdict.confidence}"


def outcome(case: Case, verdict: Verdict) -> str:
    """named, kind (a kind without a name that the design asks for), or undecided."""
    if verdict.initiators:
        return "named"
    return verdict.kind if verdict.kind != "undecided" else "undecided"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--what", choices=TRUTHS)
    parser.add_argument("--set", choices=SETS)
    parser.add_argument("--show", type=int, default=20)
    options = parser.parse_args(arguments)
    table: dict[tuple[str, str], Counter[str]] = {}
    bad = 0
    for seed in range(options.first, options.first + options.seeds):
        try:
            case = case_of(seed, options.what, options.set)
            if not case.documents:
                continue
            verdict = verdict_of(case.documents)
            found = complaints(case)
        except Exception:
            print(f"seed {seed}:", traceback.format_exc())
            bad += 1
            continue
        table.setdefault((case.truth.what, case.evidence), Counter())[outcome(case, verdict)] += 1
        if found:
            bad += 1
            if bad <= options.show:
                print(f"seed {seed} {case.truth.what} {case.evidence} {case.truth.run.ranks} ranks")
                for line in found:
                    print("    " + line)
    for key, counts in sorted(table.items()):
        total = sum(counts.values())
        told = ", ".join(f"{name} {100 * count // total} %" for name, count in counts.most_common())
        print(f"{key[0]:9} {key[1]:10} {total:5}  {told}")
    print(f"{bad} seeds with complaints")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

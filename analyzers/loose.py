"""The analysis of what people have: documents, facts and captures → one verdict a job. Nothing here reads
files or prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..model.evidence import Evidence
from ..model.facts import Capture
from ..model.loose import LogEvent, LooseFact, StackDump
from ..model.verdict import Verdict
from .analysis import analyze, analyze_capture
from .ledger.decide import decide
from .ledger.epochs import newest_attempt
from .ledger.explained import with_reasons
from .ledger.jobs import JobFacts, jobs_of, without_copies
from .ledger.joined import joined
from .ledger.picture import Picture, picture_of
from .ledger.reasons import Reason, Stacks
from .ledger.verdict import verdict_of
from .loose_stacks import capture_of
from .readers.documents import read_document
from .readers.interface import Document
from .waits import waits_of


def analyze_loose(
    documents: Iterable[Document], evidence: Iterable[Evidence] = (), job_key: str | None = None
) -> tuple[Verdict, ...]:
    """Reads the documents one after the other and returns one verdict a job. Raises nothing for what they
    hold: what cannot be read is noted. Of the documents only the facts are kept."""
    facts: list[LooseFact] = []
    notes: list[str] = []
    for document in documents:
        reading = read_document(document)
        facts.extend(reading.facts)
        notes.extend(reading.notes)
    return analyze_facts(facts, notes, evidence, job_key)


def analyze_facts(
    facts: Sequence[LooseFact],
    notes: Sequence[str] = (),
    evidence: Iterable[Evidence] = (),
    job_key: str | None = None,
) -> tuple[Verdict, ...]:
    """Returns one verdict a job that facts or captures speak of; never none. ``notes``: what could not be
    read. ``evidence``: captures; with facts beside it, the only one is taken to be of the same job, unless
    every rank that both know is another process there."""
    captured = [analyze(item) for item in evidence]
    if not facts and captured:
        return tuple(captured)
    jobs = jobs_of(without_copies(facts), job_key)
    if len(jobs) == 1 and len(captured) == 1 and not _strangers(jobs[0].facts, captured[0]):
        return (_of_job(jobs[0], notes, captured[0]),)
    return (*captured, *(_of_job(job, notes, None) for job in jobs))


def _strangers(facts: Sequence[LooseFact], captured: Verdict) -> bool:
    """Whether the ranks that facts and a capture both tell the pids of are other processes: another attempt,
    or another job."""
    known = {rank: pid for rank, _node, pid, *_ in captured.captured if pid}
    told = {
        (origin.rank, origin.pid)
        for fact in facts
        if (origin := getattr(fact, "origin", None)) is not None and origin.pid and origin.rank in known
    }
    return bool(told) and not any(known[rank] == pid for rank, pid in told)


def _of_job(job: JobFacts, notes: Sequence[str], captured: Verdict | None) -> Verdict:
    """The verdict on one job: its newest attempt, the stacks among its facts, and a capture of it."""
    attempt = newest_attempt(job.facts)
    picture = picture_of(
        attempt.facts,
        job=job.key,
        notes=(*notes, *job.notes, *attempt.notes),
        unequal=attempt.unequal,
    )
    decision = decide(picture)
    verdict = verdict_of(picture, decision)
    capture = capture_of(attempt.facts, picture.world_size, age=_age(picture))
    if capture is not None:
        waits = waits_of(capture)
        if verdict.initiators:
            stacks = Stacks(capture, waits)
            reasons = {rank: r for rank in verdict.initiators[:8] if (r := stacks.reason(rank)) is not None}
            verdict = with_reasons(verdict, reasons, firm=_firm(picture, verdict, reasons))
        verdict = joined(verdict, _of_stacks(capture, attempt.facts), picture)
    return joined(verdict, captured, picture)


def _of_stacks(capture: Capture, facts: Sequence[LooseFact]) -> Verdict | None:
    if not any(isinstance(fact, StackDump) for fact in facts):
        return None
    return analyze_capture(capture, waits_of(capture))


def _firm(picture: Picture, verdict: Verdict, reasons: dict[int, Reason]) -> bool:
    """A recorder or a count proves that the ranks had not entered what the others wait in."""
    return all(
        lane.standings[rank].firm
        for lane in picture.lanes
        for rank in verdict.initiators
        if rank in reasons and rank in lane.standings
    )


def _age(picture: Picture) -> float | None:
    """Seconds for which the job had been stuck, as a watchdog says or the recorders' files show."""
    told = [
        fact.seconds
        for fact in picture.facts
        if isinstance(fact, LogEvent) and fact.kind in ("watchdog-timeout", "wait-timeout") and fact.seconds
    ]
    for operation in picture.operations:
        if operation.created_ns is None:
            continue
        written = [
            standing.read_at
            for rank in operation.waiting
            if (standing := operation.lane.standings.get(rank)) is not None and standing.read_at is not None
        ]
        if written:
            told.append(max(written) - operation.created_ns / 1e9)
    return max((age for age in told if age > 0), default=None)

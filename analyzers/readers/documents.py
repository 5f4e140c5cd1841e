"""One document → everything that the forms understand in it.

A file form takes the whole file. In a text, block forms see the lines of one writer each, line forms the
lines with one of their needles, whether a block took them or not: a watchdog's text stands in tracebacks too.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from hangscope.errors import UnreadableEvidence
from hangscope.model.loose import FlightRecord, LogEvent, LooseFact, Origin, ProcessState, StackDump

from .forms import FORMS
from .interface import BlockForm, Document, FileForm, Form, Line, LineForm
from .lines import is_text, lines_of, within, writer
from .needles import Needles

HEAD = 1 << 16
"""Bytes by which a file form recognises a file."""
MOST_NOTES = 20


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a document held. ``forms``: names of those that read something, in the order of FORMS."""

    facts: tuple[LooseFact, ...]
    notes: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()
    strange: bool = False
    """Nothing in it has a known form: it says nothing for or against anybody."""


def read_document(document: Document) -> Reading:
    """Returns the facts in a document, and notes on what could not be read. Its content raises nothing."""
    return read_with(document, FORMS)


def read_with(document: Document, forms: tuple[Form, ...]) -> Reading:
    """The same with other forms."""
    notes: list[str] = []
    if not document.data.strip(b"\0 \r\n\t"):
        return Reading(facts=(), notes=(f"{document.path} is empty",), strange=True)
    whole = _as_file(document, forms, notes)
    if whole is not None:
        return whole
    if not is_text(document.data):
        if notes:
            return Reading(facts=(), notes=tuple(notes))
        return _unknown(document, "it is no text, and no file of a known form")
    lines = within(lines_of(document), document.since, document.until)
    reading = _Text(lines, _plan(forms), notes).read()
    if not reading.facts and not notes:
        return _unknown(document, f"none of its {len(lines)} lines has a known form")
    return msgspec.structs.replace(
        reading, facts=tuple(_attributed(reading.facts, document.origin, lines)), notes=tuple(notes)
    )


def _unknown(document: Document, why: str) -> Reading:
    return Reading(facts=(), notes=(f"{document.path} is not understood: {why}",), strange=True)


def _as_file(document: Document, forms: tuple[Form, ...], notes: list[str]) -> Reading | None:
    """What the first file form that can read the file makes of it; None when none can."""
    head = document.data[:HEAD]
    for form in forms:
        if not isinstance(form, FileForm):
            continue
        try:
            if not form.recognise(head):
                continue
            facts = form.read(document)
        except UnreadableEvidence as error:
            _note(
                notes,
                f"{document.path} looks like {form.title}, and cannot be read: {error.why or error.what}",
            )
            continue
        return Reading(facts=tuple(_attributed(facts, document.origin, ())), forms=(form.name,))
    return None


class _Plan(msgspec.Struct, frozen=True):
    """The forms of a text, by the literals in front of them."""

    blocks: dict[str, BlockForm]
    singles: dict[str, LineForm]
    needles: Needles


@functools.lru_cache(maxsize=4)
def _plan(forms: tuple[Form, ...]) -> _Plan:
    blocks = {form.name: form for form in forms if isinstance(form, BlockForm)}
    singles = {form.name: form for form in forms if isinstance(form, LineForm)}
    wanted = {name: form.openers for name, form in blocks.items()}
    wanted |= {name: form.needles for name, form in singles.items()}
    return _Plan(blocks, singles, Needles(wanted))


class _Text:
    """The reading of one text."""

    def __init__(self, lines: list[Line], plan: _Plan, notes: list[str]) -> None:
        self.plan = plan
        self.notes = notes
        self.lines = lines
        self.owners = {
            index: owners
            for index, owners in enumerate(map(plan.needles.owners, (line.text for line in lines)))
            if owners
        }
        self.found: list[tuple[int, LooseFact]] = []
        self.used: set[str] = set()

    def read(self) -> Reading:
        """The facts, in the order of the lines that they cite."""
        for index, owners in self.owners.items():
            for name in owners:
                form = self.plan.singles.get(name)
                if form is not None:
                    self._single(form, index)
        for stream in self._streams():
            self._blocks(*stream)
        self.found.sort(key=lambda pair: pair[0])
        forms = tuple(name for name in (*self.plan.blocks, *self.plan.singles) if name in self.used)
        return Reading(facts=tuple(fact for _, fact in self.found), forms=forms)

    def _single(self, form: LineForm, index: int) -> None:
        try:
            facts = form.read(self.lines[index])
        except UnreadableEvidence as error:
            self._failed(form, self.lines[index], error)
            return
        self._keep(form, index, facts)

    def _streams(self) -> Iterator[tuple[list[Line], dict[int, tuple[str, ...]], list[int]]]:
        """Of each writer with a block's first line: its lines, the openers among them, their places."""
        opened: dict[tuple[object, ...], dict[int, tuple[str, ...]]] = {}
        for index, owners in self.owners.items():
            blocks = tuple(name for name in owners if name in self.plan.blocks)
            if blocks:
                opened.setdefault(writer(self.lines[index].origin), {})[index] = blocks
        if not opened:
            return
        members: dict[tuple[object, ...], list[int]] = {key: [] for key in opened}
        for index, line in enumerate(self.lines):
            mine = members.get(writer(line.origin))
            if mine is not None:
                mine.append(index)
        for key, places in members.items():
            openers = {at: opened[key][place] for at, place in enumerate(places) if place in opened[key]}
            yield [self.lines[place] for place in places], openers, places

    def _blocks(self, stream: list[Line], openers: dict[int, tuple[str, ...]], places: list[int]) -> None:
        free = 0
        for at, names in openers.items():
            if at < free:
                continue
            for name in names:
                end = self._block(self.plan.blocks[name], stream, at, places)
                if end > at:
                    free = end
                    break

    def _block(self, form: BlockForm, stream: list[Line], at: int, places: list[int]) -> int:
        try:
            facts, end = form.read(stream, at)
        except UnreadableEvidence as error:
            self._failed(form, stream[at], error)
            return at
        if end > at:
            self._keep(form, places[at], facts)
        return end

    def _keep(self, form: Form, index: int, facts: Sequence[LooseFact]) -> None:
        if facts:
            self.used.add(form.name)
            self.found += [(index, fact) for fact in facts]

    def _failed(self, form: Form, line: Line, error: UnreadableEvidence) -> None:
        why = error.why or error.what
        _note(self.notes, f"{line.path}:{line.number} looks like {form.title}, and cannot be read: {why}")


def _note(notes: list[str], text: str) -> None:
    if len(notes) < MOST_NOTES:
        notes.append(text)


_SPEAKERS = (LogEvent, FlightRecord, StackDump)


def _attributed(facts: Sequence[LooseFact], name: Origin, lines: Sequence[Line]) -> Iterator[LooseFact]:
    """The facts, with what the file's name tells where their own lines tell nothing.

    A name's rank is not that of a file in which several ranks wrote, and one process's name is not that of
    the second one whose stacks are in the file, nor of a child of it.
    """
    ranks = {line.origin.rank for line in lines} | {
        fact.origin.rank for fact in facts if isinstance(fact, _SPEAKERS)
    }
    if not ranks <= {None, name.rank}:
        name = msgspec.structs.replace(name, rank=None, local_rank=None, pid=None, source=None)
    above = _above(fact for fact in facts if isinstance(fact, StackDump))
    lone = msgspec.structs.replace(name, rank=None, local_rank=None, pid=None, source=None)
    for fact in facts:
        if isinstance(fact, ProcessState):
            yield _with(fact, lone)
        elif isinstance(fact, StackDump):
            lead = not above or above == {fact.origin.pid}
            yield _with(fact, name if lead else lone)
        elif isinstance(fact, _SPEAKERS):
            yield _with(fact, name)
        else:
            yield fact


def _above(dumps: Iterable[StackDump]) -> set[int | None]:
    """The processes that were not dumped as children of others in the file; empty where no pid is told."""
    parents = {dump.origin.pid: dump.ppid for dump in dumps if dump.origin.pid is not None}
    return {pid for pid, parent in parents.items() if parent not in parents}


def _with(fact: LogEvent | FlightRecord | StackDump | ProcessState, name: Origin) -> LooseFact:
    origin = fact.origin
    missing = {
        field: value
        for field in ("local_rank", "node", "pid", "attempt")
        if getattr(origin, field) is None and (value := getattr(name, field)) is not None
    }
    if origin.rank is None and name.rank is not None and origin.source != "content":
        missing |= {"rank": name.rank, "source": "name"}
    return (
        msgspec.structs.replace(fact, origin=msgspec.structs.replace(origin, **missing)) if missing else fact
    )

"""Documents → readings: which form gets which lines, whose facts they are, and what is said of the rest."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.analyzers.readers.documents import Reading, read_document, read_with
from hangscope.analyzers.readers.interface import BlockForm, Document, FileForm, Form, Line, LineForm
from hangscope.errors import UnreadableEvidence
from hangscope.model.facts import Ref
from hangscope.model.loose import LogEvent, LooseFact, Origin, StackDump


def event(line: Line) -> LogEvent:
    return LogEvent(kind="exception", origin=line.origin, text=line.text, ref=line.ref)


def read_line(line: Line) -> Sequence[LooseFact]:
    if "broken" in line.text:
        raise UnreadableEvidence("it is broken")
    return (event(line),)


def read_block(lines: Sequence[Line], index: int) -> tuple[Sequence[LooseFact], int]:
    if "broken" in lines[index].text:
        raise UnreadableEvidence("it is broken")
    end = index + 1
    while end < len(lines) and lines[end].text.startswith("  "):
        end += 1
    dump = StackDump(tool="gdb", origin=lines[index].origin, title=f"{end - index}", ref=lines[index].ref)
    return ((dump,), end) if end - index > 1 else ((), index)


def read_file(document: Document) -> Sequence[LooseFact]:
    if b"broken" in document.data:
        raise UnreadableEvidence("it is broken")
    return (StackDump(tool="pystack", origin=Origin(), ref=Ref(document.path)),)


FORMS: tuple[Form, ...] = (
    FileForm(name="file", title="a file", recognise=lambda head: head[:2] == b"%F", read=read_file),
    LineForm(name="line", title="a line", needles=("ERROR", "FATAL"), read=read_line),
    BlockForm(name="block", title="a block", openers=("Stack of", "FATAL"), read=read_block),
)


def read(text: str, path: str = "x.log", origin: Origin | None = None, **options: float) -> Reading:
    document = Document(path=path, data=text.encode(), origin=origin or Origin(), **options)
    return read_with(document, FORMS)


def test_lines_and_blocks_come_in_the_order_of_their_lines() -> None:
    reading = read("a\nERROR one\nStack of 1\n  f\n  g ERROR\nb\nFATAL x\n  h\n")
    assert [(type(fact).__name__, fact.ref.line) for fact in reading.facts] == [
        ("LogEvent", 2),
        ("StackDump", 3),
        ("LogEvent", 5),
        ("LogEvent", 7),
        ("StackDump", 7),
    ]
    assert reading.forms == ("block", "line") and reading.notes == ()


def test_a_block_is_of_one_writer() -> None:
    reading = read("[rank1]: Stack of 1\n[rank0]: Stack of 0\n[rank1]:   f\n[rank0]:   f\n[rank0]:   g\n")
    dumps = [fact for fact in reading.facts if isinstance(fact, StackDump)]
    assert [(dump.origin.rank, dump.title) for dump in dumps] == [(1, "2"), (0, "3")]


def test_a_form_that_fails_costs_a_note() -> None:
    reading = read("ERROR broken\nStack of broken\nERROR fine\n")
    assert [fact.ref.line for fact in reading.facts] == [3]
    assert reading.notes == (
        "x.log:1 looks like a line, and cannot be read: it is broken",
        "x.log:2 looks like a block, and cannot be read: it is broken",
    )


def test_file_forms_come_first_and_a_broken_file_may_still_be_a_text() -> None:
    assert read("%F").forms == ("file",)
    reading = read("%F broken\nERROR\n")
    assert reading.forms == ("line",) and "cannot be read" in reading.notes[0]
    assert not read("%F broken").strange


def test_what_nobody_understands_is_said() -> None:
    assert read("step 1\n").notes == ("x.log is not understood: none of its 1 lines has a known form",)
    assert read(" \n\n").notes == ("x.log is empty",) and read("").strange
    document = Document(path="x", data=bytes(range(256)) * 9)
    assert "no text" in read_document(document).notes[0] and read_document(document).strange


def test_the_name_of_a_file_tells_where_its_lines_tell_nothing() -> None:
    name = Origin(rank=3, node="node-a", source="name")

    def ranks(text: str) -> list[tuple[int | None, str | None]]:
        facts = read(text, origin=name).facts
        return [(fact.origin.rank, fact.origin.source) for fact in facts if isinstance(fact, LogEvent)]

    assert ranks("ERROR\n[rank3]: ERROR\n") == [(3, "name"), (3, "prefix")]
    assert ranks("ERROR\n[rank4]: ERROR\n") == [(None, None), (4, "prefix")]  # a file of several ranks
    (fact,) = read("ERROR\n", origin=name).facts
    assert isinstance(fact, LogEvent) and fact.origin.node == "node-a"


def test_lines_outside_the_time_are_left_out() -> None:
    text = "2026-01-02 03:00:00 ERROR a\n2026-01-02 04:00:00 ERROR b\nERROR c\n"
    assert [fact.ref.line for fact in read(text, since=1_767_326_400.0).facts] == [2, 3]
    assert [fact.ref.line for fact in read(text, until=1_767_326_000.0).facts] == [1]

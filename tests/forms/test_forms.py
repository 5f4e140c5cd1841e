"""Every form has a reader, fixtures and a verdict: each case is read and judged alone."""

from __future__ import annotations

import importlib

import pytest

from hangscope.analyzers.readers.forms import FORMS
from hangscope.analyzers.readers.interface import BlockForm, FileForm, Form, LineForm
from hangscope.model.loose import EVENT_KINDS, LogEvent

from .cases import CASES, FIXTURES, NAMES, Case, cases_of, folders
from .table import TABLE, module_of, table

each_case = pytest.mark.parametrize("case", CASES, ids=NAMES)
each_form = pytest.mark.parametrize("form", FORMS, ids=[form.name for form in FORMS])
CONFIDENCES = ("low", "medium", "high")


@each_case
def test_a_case_gives_its_facts(case: Case) -> None:
    counts = case.counts()
    assert {kind: counts[kind] for kind in case.facts} == case.facts, dict(counts)


@each_case
def test_a_case_alone_gives_its_verdict(case: Case) -> None:
    loose = pytest.importorskip("hangscope.analyzers.loose")
    verdicts = loose.analyze_loose(case.documents())
    named = {rank for verdict in verdicts for rank in verdict.initiators}
    assert not named & set(case.wrong)
    assert len(verdicts) == 1
    verdict = verdicts[0]
    assert (verdict.kind, verdict.initiators) == (case.kind, case.initiators), verdict
    if case.cause is not None:
        assert verdict.cause == case.cause
    if case.confidence is not None:
        assert CONFIDENCES.index(verdict.confidence) <= CONFIDENCES.index(case.confidence)


@each_case
def test_a_case_is_read_by_its_form_and_every_fact_cites_its_line(case: Case) -> None:
    readings = case.readings()
    assert case.form in {name for _, reading in readings for name in reading.forms}
    for document, reading in readings:
        rows = document.data.count(b"\n") + 1
        for fact in reading.facts:
            assert fact.ref.artifact.startswith(document.path)
            assert fact.ref.line is None or 1 <= fact.ref.line <= rows
            if isinstance(fact, LogEvent):
                assert fact.kind in EVENT_KINDS and 0 < len(fact.text) <= 400
                assert fact.text.replace("\t", " ").isprintable()


def test_forms_have_names_of_their_own() -> None:
    names = [form.name for form in FORMS]
    assert len(names) == len(set(names))


@each_form
def test_a_form_is_whole(form: Form) -> None:
    assert form.title and form.name == form.name.lower() and " " not in form.name
    if isinstance(form, LineForm):
        assert form.needles and all(form.needles)
    if isinstance(form, BlockForm):
        assert form.openers and all(form.openers)
    if isinstance(form, FileForm):
        assert not form.recognise(b"") and not form.recognise(b"step 1 loss 2.0\n" * 400)


@each_form
def test_the_module_of_a_form_shows_a_sample(form: Form) -> None:
    name = ".".join(("hangscope", *module_of(form).with_suffix("").parts))
    module = importlib.import_module(name)
    shown = [module.__doc__, *(getattr(item, "__doc__", None) for item in vars(module).values())]
    assert any(">>> " in text for text in shown if isinstance(text, str))


@each_form
def test_a_form_has_fixtures(form: Form) -> None:
    cases = cases_of(form.name)
    assert cases and all(case.path.exists() for case in cases)


def test_every_fixture_belongs_to_a_form_and_to_a_case() -> None:
    assert set(folders()) == {form.name for form in FORMS}
    for name in folders():
        listed = {case.file for case in cases_of(name)} | {"truth.toml"}
        assert {path.name for path in (FIXTURES / name).iterdir()} == listed


def test_the_table_of_forms_is_up_to_date() -> None:
    assert TABLE.read_text(encoding="utf-8") == table(), "python -m tests.forms"

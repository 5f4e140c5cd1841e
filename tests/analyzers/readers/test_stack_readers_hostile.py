"""The readers of stacks on cut, mixed and hostile texts: nothing but facts, and in linear time."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangscope.analyzers.loose_stacks import capture_of
from hangscope.analyzers.readers import (
    cuda_gdb,
    faulthandler,
    gdb_python,
    gdb_text,
    proc_stack,
    ps_text,
    py_spy_text,
    pystack_dump,
    traceback_text,
)
from hangscope.analyzers.readers.interface import BlockForm
from hangscope.analyzers.waits import waits_of

from ...forms.cases import FIXTURES
from .dumps import facts_of

FORMS: dict[str, BlockForm] = {
    module.FORM.name: module.FORM
    for module in (
        py_spy_text,
        pystack_dump,
        gdb_text,
        gdb_python,
        cuda_gdb,
        faulthandler,
        traceback_text,
        proc_stack,
        ps_text,
    )
}
TEXTS = [
    path.read_text(encoding="utf-8")
    for name in FORMS
    for path in sorted((FIXTURES / name).rglob("*"))
    if path.is_file() and path.suffix != ".toml" and path.stat().st_size < 20_000
]
HOSTILE = [
    "Traceback (most recent call last):",
    '  File "/a.py", line 3, in f',
    '  File "/a.py", line 3 in f',
    "Thread 1 (idle)",
    "Thread 0x1 (most recent call first):",
    "Thread 1 (LWP 5):",
    "#0  f () at f.c:1",
    "#1 Waiting for a lock (e.g. GIL)",
    "    a::b<c::d (x",
    "    f" + " (" * 900,
    "/proc/1/stack",
    "[<0>] f",
    "PID S CMD",
    "Process 1: x",
    "Python v3.11",
    "Traceback for thread 1 (a) [] (most recent call last):",
    '    (C) File "a", line 1, in f' + " (" * 900,
    "        Locals:",
    "Error: Failed to suspend process",
    "#3 " + "(" * 1800 + ")" * 900,
    "thread 1",
]


@pytest.mark.parametrize("line", HOSTILE)
@pytest.mark.parametrize("name", FORMS)
def test_the_same_line_ever_again_takes_linear_time(name: str, line: str) -> None:
    def seconds(count: int) -> float:
        text = (line + "\n") * count
        begun = time.process_time()
        facts_of(FORMS[name], text)
        return time.process_time() - begun

    assert seconds(1_200) < 1.0


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_cut_and_mixed_texts_raise_nothing_and_can_be_analysed(data: st.DataObject) -> None:
    first, second = data.draw(st.sampled_from(TEXTS)), data.draw(st.sampled_from(TEXTS))
    rows = (
        first.split("\n")[: data.draw(st.integers(1, 80))]
        + second.split("\n")[data.draw(st.integers(0, 40)) :]
    )
    for _ in range(data.draw(st.integers(0, 6))):
        place = data.draw(st.integers(0, len(rows) - 1))
        rows[place] = data.draw(
            st.sampled_from([rows[place][: len(rows[place]) // 2], *HOSTILE[:12], rows[place][::-1], "\t"])
        )
    facts = [fact for form in FORMS.values() for fact in facts_of(form, "\n".join(rows))]
    capture = capture_of(facts, data.draw(st.sampled_from([None, 2, 4])))
    if capture is not None:
        assert waits_of(capture)


@given(text=st.text(alphabet='Thread0x1() idle:#PIDFile\n /procLWP[<>]+",.', max_size=400))
@settings(max_examples=50, deadline=None)
def test_noise_raises_nothing(text: str) -> None:
    for form in FORMS.values():
        facts_of(form, text or " ")

"""Input that nobody wrote: cut, mixed, mutated, repeated. Nothing leaves a reader, and no time explodes."""

from __future__ import annotations

import functools
import random
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hangscope.analyzers.readers.documents import read_document
from hangscope.analyzers.readers.forms import FORMS
from hangscope.analyzers.readers.interface import Document

from .cases import CASES

each_form = pytest.mark.parametrize("form", [form.name for form in FORMS])
MOST = 40_000
"""Bytes of a fixture that are played with."""


@functools.cache
def samples_of(form: str) -> list[bytes]:
    return [document.data[:MOST] for case in CASES if case.form == form for document in case.documents()]


def read(data: bytes) -> None:
    read_document(Document(path="x", data=data, mtime=1_740_000_000.0))


@each_form
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(seed=st.integers(0, 1 << 32))
def test_mutated_input_raises_nothing(form: str, seed: int) -> None:
    chance = random.Random(seed)
    samples = samples_of(form)
    if not samples:
        pytest.skip("no fixture yet")
    data = bytearray(chance.choice(samples))
    for _ in range(chance.randrange(1, 12)):
        place = chance.randrange(len(data) + 1)
        what = chance.randrange(5)
        if what == 0:
            data[place : place + 1] = bytes([chance.randrange(256)])
        elif what == 1:
            del data[place : place + chance.randrange(60)]
        elif what == 2:
            data[place:place] = chance.choice(
                (b"\n", b"9" * 30, b"-", b"\xff", b"\0", b"[rank99999999]:", b" ")
            )
        elif what == 3:
            data[place:place] = data[place : place + chance.randrange(400)]
        else:
            del data[place:]
    read(bytes(data))


@each_form
def test_input_cut_anywhere_raises_nothing(form: str) -> None:
    for data in samples_of(form)[:2]:
        for place in range(0, len(data), max(1, len(data) // 9)):
            read(data[:place])
            read(data[place:])


@each_form
def test_lines_of_two_texts_in_one_raise_nothing(form: str) -> None:
    chance = random.Random(form)
    for data in samples_of(form)[:1]:
        other = chance.choice(samples_of(chance.choice(CASES).form)).split(b"\n")
        mixed = [line for pair in zip(data.split(b"\n"), other, strict=False) for line in pair]
        chance.shuffle(other)
        read(b"\n".join(mixed))
        read(b"\n".join(line[: chance.randrange(200)] for line in [*other, *mixed]))
        read(b"".join(b"[rank%d]: %s\n" % (chance.randrange(4), line) for line in mixed))


def seconds(document: Document) -> float:
    start = time.process_time()
    read_document(document)
    return time.process_time() - start


@each_form
def test_time_grows_with_the_size_and_no_faster(form: str) -> None:
    for data in sorted(samples_of(form), key=len)[-2:]:
        if b"\n" not in data[:4096]:
            continue  # a file form: it ends where the first copy does
        times = max(1, 15_000 // len(data))
        small, large = (Document(path="x", data=data * times * factor) for factor in (1, 4))
        least = min(seconds(small) for _ in range(2))
        assert seconds(large) <= 10 * least + 0.2

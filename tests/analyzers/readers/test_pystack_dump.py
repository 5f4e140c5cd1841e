"""pystack's text, saved or pasted."""

from __future__ import annotations

from hangscope.analyzers.readers import pystack_dump
from hangscope.model.loose import Origin

from .dumps import dumps_of

FORM = pystack_dump.FORM
TEXT = """
Traceback for thread 52 (pt_gloo_runloop) [] (most recent call last):
    (C) File "???", line 0, in c10d::ProcessGroupGloo::runLoop(int) (/v/libtorch_cpu.so)
Traceback for thread 41 (python3) [Has the GIL,Garbage collecting] (most recent call last):
    (Python) File "/job/x.py", line 8, in <module>
        main()
    (Python) File "/v/torch/distributed/distributed_c10d.py", line 20, in recv
        work.wait()
      Arguments:
        src: 3
        tag: 1
    (C) File "./nptl/futex.c", line 57, in futex_wait (inlined) (/lib/libc.so.6)
"""


def test_threads_states_sources_and_peers() -> None:
    (dump,) = dumps_of(FORM, TEXT)
    loop, main = dump.threads
    assert (dump.origin.pid, dump.native, loop.name, main.main, main.owns_gil) == (
        41,
        True,
        "pt_gloo_runloop",
        True,
        True,
    )
    inner, recv, module = main.frames
    assert (inner.function, inner.library) == ("futex_wait", "/lib/libc.so.6")
    assert recv.source is not None and recv.source.text == "work.wait()" and recv.source.alone
    assert recv.ints == (("src", 3), ("tag", 1)) and module.function == "<module>"


def test_the_same_threads_again_are_another_dump() -> None:
    first, second = dumps_of(FORM, TEXT + TEXT)
    assert first.threads[0].tid == second.threads[0].tid and second.ref.line != first.ref.line


def test_an_empty_stack_and_what_follows() -> None:
    (dump,) = dumps_of(FORM, "The frame stack for thread 9 is empty\nstep 4 loss 2.0")
    assert (dump.origin.pid, [thread.tid for thread in dump.threads]) == (None, [9])


def test_the_rank_in_front() -> None:
    assert dumps_of(FORM, "RANK=7" + TEXT)[0].origin.rank == 7
    assert dumps_of(FORM, TEXT, Origin(rank=2, pid=99, source="prefix"))[0].origin.pid == 41


def test_its_own_error_is_a_problem() -> None:
    (dump,) = dumps_of(FORM, "\U0001f480 Engine error: Operation not permitted \U0001f480")
    assert (dump.threads, dump.problem) == ((), "Operation not permitted")
    assert dumps_of(FORM, "\U0001f480 we are doomed") == []

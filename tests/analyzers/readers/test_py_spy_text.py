"""py-spy's text in every version, whole and damaged."""

from __future__ import annotations

import pytest

from hangscope.analyzers.readers import py_spy_text
from hangscope.analyzers.readers.py_spy_frames import frame_of
from hangscope.model.loose import Origin

from .dumps import dumps_of

FORM = py_spy_text.FORM


def test_heads_titles_and_threads() -> None:
    (dump,) = dumps_of(
        FORM,
        """
        Process 88: sglang::scheduler_PP2_TP1
        Python v3.12.3 (/usr/bin/python3.12)
        Thread 88 (idle): "MainThread"
            f (a.py:1)
        Thread 90 (active+gil): "poll"
            g (b.py)
        Thread 91 (idle)
        """,
    )
    assert (dump.origin.pid, dump.title, dump.origin.rank, dump.native) == (
        88,
        "sglang::scheduler_PP2_TP1",
        None,
        False,
    )
    assert [(t.tid, t.name, t.main, t.active, t.owns_gil) for t in dump.threads] == [
        (88, "MainThread", True, False, False),
        (90, "poll", False, True, True),
        (91, None, False, False, False),
    ]
    assert [frame.line for thread in dump.threads for frame in thread.frames] == [1, 0]


def test_two_processes_are_two_dumps_and_a_child_knows_its_parent() -> None:
    first, second = dumps_of(
        FORM,
        """
        Process 10: python a.py
        Python v3.11.7 (x)
        Thread 10 (idle): "MainThread"
            f (a.py:1)
        --------------------------------
        Process 11: python a.py
        Python v3.11.7 (x)
        Parent Process 10: python a.py
        Thread 11 (idle): "MainThread"
            g (a.py:2)
        """,
    )
    assert (first.origin.pid, first.ppid, second.origin.pid, second.ppid) == (10, None, 11, 10)


def test_native_frames_stand_between_python_frames() -> None:
    (dump,) = dumps_of(
        FORM,
        """
        Thread 7 (idle): "MainThread"
            0x7caaa50b1a9b (?)
            pthread_cond_wait (libc.so.6)
            torch::autograd::Engine::execute (libtorch_cpu.so)
            pysleep (Modules/timemodule.c:2159)
            backward (torch/autograd/graph.py:825)
            main (train (copy).py:9)
        """,
    )
    libraries = [frame.library for frame in dump.threads[0].frames]
    assert libraries == ["?", "libc.so.6", "libtorch_cpu.so", "?", None, None]
    assert dump.native and dump.threads[0].frames[-1].file == "train (copy).py"


def test_locals_are_left_out_but_for_the_integers_of_transfers() -> None:
    (dump,) = dumps_of(
        FORM,
        """
        Thread 7 (idle): "MainThread"
            send (/v/torch/distributed/distributed_c10d.py:2500)
                Arguments:
                    dst: 3
                    tag: 12
                    password: "dst: 9 (of somebody)"
                Locals:
                    group: None
            main (train.py:9)
                Locals:
                    dst: 4
        """,
    )
    assert [(frame.function, frame.ints) for frame in dump.threads[0].frames] == [
        ("send", (("dst", 3), ("tag", 12))),
        ("main", ()),
    ]


def test_locals_without_indentation() -> None:
    (dump,) = dumps_of(
        FORM,
        """
        Thread 7 (idle): "MainThread"
        recv (torch/distributed/distributed_c10d.py:2500)
        Arguments:
        src: 5
        tensor: <Tensor at 0x7f>
        main (train.py:9)
        """,
    )
    assert [(frame.function, frame.ints) for frame in dump.threads[0].frames] == [
        ("recv", (("src", 5),)),
        ("main", ()),
    ]


def test_ray_stack_of_version_0_1() -> None:
    (dump,) = dumps_of(
        FORM,
        "Stack dump for user 6201 ray::Worker\nThread 0x7F4A (active)\n\t step (a.py:8)\n\t main (b.py:2)",
    )
    assert (dump.origin.pid, dump.threads[0].ident, len(dump.threads[0].frames)) == (6201, 0x7F4A, 2)


def test_damage_is_said() -> None:
    (dump,) = dumps_of(
        FORM,
        """
        Thread (idle): "MainThread"
        all_reduce (torch/distributed/distributed_c10d.py:25)
        ...
        main ()
        """,
    )
    assert dump.problem == "the dump lost its thread ids"
    assert [frame.file for frame in dump.threads[0].frames] == ["torch/distributed/distributed_c10d.py", ""]


def test_a_wrapped_symbol_is_one_frame() -> None:
    (dump,) = dumps_of(
        FORM,
        """
        Thread 7 (idle): "MainThread"
            pybind11::cpp_function::initialize<bool, c10d::Work, std::chrono::dura
        tion<long> >(pybind11::name const&)::{lambda(pybind11::detail::functi
        on_call&)#1}::_FUN (libtorch_python.so)
            main (train.py:9)
        """,
    )
    first, second = dump.threads[0].frames
    assert first.library == "libtorch_python.so" and "duration<long>" in first.function
    assert second.function == "main"


def test_the_rank_in_front_of_a_dump() -> None:
    text = 'Process 10: python a.py\nPython v3.11 (x)\nThread 10 (idle): "MainThread"\n    f (a.py:1)'
    ranks = [
        dumps_of(FORM, f"{head}\n{text}")[0].origin.rank
        for head in (
            "RANK=3",
            "== rank 5 ==",
            "LOCAL_RANK=3",
            "NODE_RANK=1",
            "Rank 0 timed out first",
            "$ python train.py --rank 3",
        )
    ]
    assert ranks == [3, 5, None, None, None, None]


def test_a_prefix_speaks_of_who_printed_the_dump() -> None:
    text = 'Process 11: child\nPython v3.11 (x)\nThread 11 (idle): "MainThread"\n    f (a.py:1)'
    printed = Origin(rank=4, pid=10, source="prefix", node="node-a")
    (of_a_child,) = dumps_of(FORM, text, printed)
    assert (of_a_child.origin.rank, of_a_child.origin.pid, of_a_child.origin.node) == (None, 11, "node-a")
    (of_itself,) = dumps_of(FORM, text, Origin(rank=4, pid=11, source="prefix"))
    assert of_itself.origin.rank == 4


@pytest.mark.parametrize(
    ("text", "pid", "said"),
    [
        ("Process 8: a\nPython v3.11.9 (x)\nError: Failed to suspend process", 8, "suspend"),
        ("$ py-spy dump --pid 81\nError: Permission denied (os error 13)", 81, "os error 13"),
        ("Error: UNW_EBADREG: bad register number", None, "UNW_EBADREG"),
        ("$ py-spy dump -p 9\nError: Failed to copy Py_Version symbol", 9, "Py_Version"),
    ],
)
def test_failures_are_problems(text: str, pid: int | None, said: str) -> None:
    (dump,) = dumps_of(FORM, text)
    assert (dump.threads, dump.origin.pid) == ((), pid) and said in (dump.problem or "")


@pytest.mark.parametrize(
    "text",
    [
        "Process 10: finished",
        "Process 10 exited with code 1 (idle)",
        "the engine is (idle) now",
        "Thread 4 (waiting): x",
        "Stack dump for ",
    ],
)
def test_other_lines_are_no_dump(text: str) -> None:
    assert dumps_of(FORM, f"{text}\nstep 3 loss 2.0\n") == []


@pytest.mark.parametrize(
    "text", ["", "f", "f ()x", "Saved (step 1)", "saved the model (model.pt:1)", "(x.py:1)"]
)
def test_a_line_without_indentation_must_look_like_a_frame(text: str) -> None:
    assert frame_of(text) is None

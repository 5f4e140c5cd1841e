"""gdb's stacks, native and Python, and cuda-gdb's kernels."""

from __future__ import annotations

import pytest

from hangscope.analyzers.readers import cuda_gdb, gdb_python, gdb_text
from hangscope.analyzers.readers.gdb_frames import cleaned, frame_of

from .dumps import dumps_of, events_of


@pytest.mark.parametrize(
    ("text", "function", "file", "line"),
    [
        ("#10 0x00001555 in cudaFree () from /lib/libcudart.so", "cudaFree", "/lib/libcudart.so", 0),
        ("#12 0x15 in commDestroySync (job_=0x1) at init.cc:1313", "commDestroySync", "init.cc", 1313),
        ("#3  start_thread () at /lib64/libpthread.so.0", "start_thread", "/lib64/libpthread.so.0", 0),
        ("#0  syscall ()", "syscall", "", 0),
        ('#5 f(std::string, int) (s="a) (b", n=1) at x.cc:3', "f(std::string, int)", "x.cc", 3),
        ("#1  <signal handler called>", "<signal handler called>", "", 0),
        ("#7 (anonymous namespace)::ring(int) () from /l.so", "(anonymous namespace)::ring(int)", "/l.so", 0),
    ],
)  # fmt: skip
def test_frames_in_all_forms(text: str, function: str, file: str, line: int) -> None:
    frame = frame_of(text)
    assert frame is not None
    assert (frame.function, frame.file, frame.line) == (function, file, line)


@pytest.mark.parametrize(
    "text", ["#0 all_reduce from x/distributed_c10d.py:3174", "# 3 f ()", "#1", "1 f ()"]
)
def test_what_is_no_frame(text: str) -> None:
    assert frame_of(text) is None


def test_pager_and_prompts() -> None:
    assert cleaned("---Type <return> to continue, or q <return> to quit---#2  f ()") == "#2  f ()"
    assert cleaned("--Type <RET> for more, q to quit, c to continue without paging--c") == ""
    assert cleaned("(gdb) (gdb) bt") == "bt"


def test_threads_of_all_heads() -> None:
    (dump,) = dumps_of(
        gdb_text.FORM,
        """
        Thread 4 (Thread 0x7f01 (LWP 14) "a b"):
        #0  f () from /l.so
        Thread 3 (Thread 0x7f02 (LWP 13)):
        #0  f () from /l.so
        #1  g (x=1,
            y=2) at g.c:3
        Thread 2 (LWP 12):
        #0  f () at f.c:1
        Thread 1 (process 11):
        #0  f () at f.c:1
        """,
    )
    assert dump.origin.pid == 11
    assert [(t.tid, t.ident, t.name, len(t.frames)) for t in dump.threads] == [
        (14, 0x7F01, "a b", 1),
        (13, 0x7F02, None, 2),
        (12, None, None, 1),
        (11, None, None, 1),
    ]


def test_a_second_print_is_another_dump() -> None:
    text = "Thread 1 (LWP 11):\n#0  f () at f.c:1\n"
    assert [dump.origin.pid for dump in dumps_of(gdb_text.FORM, text + text)] == [11, 11]


def test_a_lone_backtrace_must_look_like_gdbs() -> None:
    text = "#0  f (x=1) at f.c:1\n#1  main () at m.c:2"
    (dump,) = dumps_of(gdb_text.FORM, f"Attaching to process 77\n{text}")
    assert (dump.origin.pid, len(dump.threads[0].frames)) == (77, 2)
    assert dumps_of(gdb_text.FORM, "#0  f (x=1)\n#1  main ()") == []
    assert dumps_of(gdb_text.FORM, "#0 all_reduce from x.py:3\n#1 step from y.py:4") == []


def test_info_threads_gives_innermost_frames() -> None:
    (dump,) = dumps_of(
        gdb_text.FORM,
        """
          Id   Target Id         Frame
        * 1    Thread 0x7fc7 (LWP 52422) "" select_poll () at m.c:650
          2    LWP 52440 "pt_nccl_watchdg" 0x00007fc73a1 in poll (n=2) from /l.so
        """,
    )
    assert dump.problem == gdb_text.INNERMOST_ONLY
    assert [(t.tid, t.main, t.frames[0].function) for t in dump.threads] == [
        (52422, True, "select_poll"),
        (52440, False, "poll"),
    ]


def test_py_bt_of_all_threads_leaves_out_those_without_python() -> None:
    (dump,) = dumps_of(
        gdb_python.FORM,
        """
        Thread 2 (Thread 0x7f (LWP 12) "x"):
        Unable to locate python frame
        Thread 1 (Thread 0x7e (LWP 11) "y"):
        Traceback (most recent call first):
          Waiting for the GIL
          File "/a.py", line 3, in f
            lock.acquire()
          (frame information optimized out)
          File "/a.py", line 9, in <module>
            f()
        """,
    )
    assert (dump.origin.pid, dump.native, dump.threads[1].waits_for_gil) == (11, False, False)
    assert [(f.function, f.source.text if f.source else None) for f in dump.threads[1].frames] == [
        ("f", "lock.acquire()"),
        ("<module>", "f()"),
    ]


def test_old_forms_of_py_bt() -> None:
    old, full = dumps_of(
        gdb_python.FORM,
        """
        #1 Waiting for a lock (e.g. GIL)
        #4 file '/x/threading.py', in 'wait'
        stop
        #3 Frame 0x7f80, for file /job/t.py, line 31, in wait_all (self=<S at remote 0x7f>)
        """,
    )
    assert (old.threads[0].frames[0].function, old.threads[0].frames[0].line) == ("wait", 0)
    assert (full.threads[0].frames[0].function, full.threads[0].frames[0].line) == ("wait_all", 31)


def test_remarks_alone_are_no_stack() -> None:
    assert dumps_of(gdb_python.FORM, "#1 Waiting for a lock (e.g. GIL)\n" * 50) == []


def test_kernels_on_the_devices() -> None:
    events = events_of(
        cuda_gdb.FORM,
        """
          Kernel Parent Dev Grid Status   SMs Mask GridDim BlockDim Invocation
        * 0 - 3 41 Active 0x01 (1,1,1) (64,1,1) ncclReduceRingLLKernel_sum_f64()
          1 - 3 42 Active 0x01 (1,1,1) (64,1,1) my_kernel(int*)
        """,
    )
    assert [(event.operation, event.key) for event in events] == [("reduce", "device 3"), (None, "device 3")]
    assert events_of(cuda_gdb.FORM, "(cuda-gdb) info cuda kernels\nNo CUDA kernels.") == []

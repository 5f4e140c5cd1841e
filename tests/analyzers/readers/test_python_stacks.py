"""faulthandler, tracebacks, and prints of all threads."""

from __future__ import annotations

import faulthandler as python_faulthandler
import sys
import tempfile
import threading

from hangscope.analyzers.readers import faulthandler, traceback_text

from .dumps import dumps_of, events_of, facts_of


def test_what_this_python_prints_is_read() -> None:
    stop = threading.Event()
    waiter = threading.Thread(target=stop.wait, name="waiter", daemon=True)
    waiter.start()
    with tempfile.TemporaryFile("w+") as file:
        python_faulthandler.dump_traceback(file)
        file.seek(0)
        text = file.read()
    stop.set()
    waiter.join()
    (dump,) = dumps_of(faulthandler.FORM, text)
    assert {thread.ident for thread in dump.threads} >= {threading.get_ident(), waiter.ident}
    functions = {f.function for thread in dump.threads for f in thread.frames}
    assert {"wait", sys._getframe().f_code.co_name} <= {name.rpartition(".")[2] for name in functions}


def test_a_time_out_and_an_unfinished_list() -> None:
    (dump,) = dumps_of(
        faulthandler.FORM,
        """
        Timeout (1 day, 0:02:00)!
        Thread 0x00007f02 (most recent call first):
          File "/x.py", line 4 in run
          ...
        Thread 0x00007f01 (most recent call first):
          File "/x.py", line ??? in barrier
          File "/x.py", line 9 in <module>
        Thread 0x00007f02 (most recent call first):
        """,
    )[:1]
    assert [(t.ident, t.main, len(t.frames)) for t in dump.threads] == [(0x7F02, False, 1), (0x7F01, True, 2)]


def test_a_crash_is_an_event_and_marks_the_dump() -> None:
    text = """
    Fatal Python error: Bus error
    Python runtime state: initialized
    Current thread 0x00007f01 (most recent call first):
      File "/x.py", line 9 in <module>
    """
    dump, event = facts_of(faulthandler.FORM, text)
    assert event.kind == "exception" and event.text == dump.problem == "Fatal Python error: Bus error"
    (alone,) = facts_of(faulthandler.FORM, "Fatal Python error: init_fs_encoding: failed")
    assert alone.kind == "exception"


def test_the_stack_of_the_only_thread() -> None:
    (dump,) = dumps_of(
        faulthandler.FORM, 'Stack (most recent call first):\n  File "/x.py", line 9 in <module>'
    )
    assert dump.threads[0].main and dump.threads[0].ident is None


def test_exceptions_by_kind_and_place() -> None:
    text = """
    Traceback (most recent call last):
      File "/a.py", line 3, in step
        loss = f(
               ^^
    {last}
    """
    kinds = {
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried": "cuda-oom",
        "RuntimeError: CUDA error: device-side assert": "cuda-error",
        "torch.distributed.DistBackendError: NCCL error in: x": "exception",
        "KeyError: 'loss'": "exception",
        "KeyError": "exception",
    }
    for last, kind in kinds.items():
        (event,) = events_of(traceback_text.FORM, text.format(last=last))
        assert (event.kind, event.key, event.text) == (kind, "/a.py:3 in step", last)


def test_an_interrupt_is_a_stack_innermost_first() -> None:
    dump, event = facts_of(
        traceback_text.FORM,
        """
        Traceback (most recent call last):
          File "/a.py", line 9, in <module>
            main()
          File "/a.py", line 3, in main
            work.wait()
        KeyboardInterrupt
        """,
    )
    assert event.kind == "exception" and dump.threads[0].main
    inner, outer = dump.threads[0].frames
    assert (inner.function, outer.function) == ("main", "<module>")
    assert inner.source is not None and inner.source.text == "work.wait()"


def test_chained_exceptions_are_events_one_by_one() -> None:
    first = 'Traceback (most recent call last):\n  File "/a.py", line 3, in f\n    x\nKeyError: 1\n'
    link = "During handling of the above exception, another exception occurred:\n"
    events = events_of(traceback_text.FORM, first + link + first.replace("KeyError", "ValueError"))
    assert [event.text for event in events] == ["KeyError: 1", "ValueError: 1"]


def test_lines_of_two_ranks_between_one_another_give_no_stack() -> None:
    text = """
    Traceback (most recent call last):
      File "/a.py", line 9, in <module>
    Traceback (most recent call last):
        main()
      File "/a.py", line 9, in <module>
        main()
    KeyboardInterrupt
    KeyboardInterrupt
    """
    (event,) = facts_of(traceback_text.FORM, text)
    assert (event.kind, event.key) == ("exception", None)


def test_all_threads_with_their_names() -> None:
    (dump,) = dumps_of(
        traceback_text.FORM,
        """
        --- Thread 140735 (MainThread) ---
          File "/a.py", line 3, in main
            q.get()
        --- Thread 0x7f01 "feeder" ---
          File "/a.py", line 5, in feed
            read()
        """,
    )
    assert [(t.ident, t.name, t.main, t.frames[0].function) for t in dump.threads] == [
        (140735, "MainThread", True, "main"),
        (0x7F01, "feeder", None, "feed"),
    ]


def test_a_stack_of_a_warning_is_none() -> None:
    text = 'Stack (most recent call last):\n  File "/a.py", line 3, in main\n    q.get()\nWARNING late'
    assert facts_of(traceback_text.FORM, text) == []
    assert facts_of(traceback_text.FORM, "Traceback (most recent call last):\n" * 300) == []


def test_the_timer_tells_how_far_apart_two_dumps_are() -> None:
    text = '{head}\nThread 0x00007f02 (most recent call first):\n  File "/x.py", line 4 in run\n'
    seconds = [
        dumps_of(faulthandler.FORM, text.format(head=head))[0].apart
        for head in ("Timeout (0:02:00)!", "Timeout (1 day, 0:00:00.500000)!", "Timeout (x)!", "")
    ]
    assert seconds == [120.0, 86400.5, None, None]

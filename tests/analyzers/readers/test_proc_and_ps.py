"""Kernel stacks, wchan listings and ps."""

from __future__ import annotations

import os
import subprocess

from hangscope.analyzers.readers import proc_stack, ps_text

from .dumps import dumps_of, facts_of, states_of


def test_a_stack_below_a_loops_header() -> None:
    (dump,) = dumps_of(
        proc_stack.FORM,
        """
        == /proc/41/task/43
        python3
        rpc_wait_bit_killable
        [<0>] rpc_wait_bit_killable+0x1e/0xa0 [sunrpc]
        [<0>] schedule
        """,
    )
    (thread,) = dump.threads
    assert (dump.origin.pid, thread.tid, thread.main) == (41, 43, False)
    assert thread.kernel_stack == ("rpc_wait_bit_killable [sunrpc]", "schedule")


def test_a_stack_that_nothing_names() -> None:
    (dump,) = dumps_of(
        proc_stack.FORM, "[<ffffffff81>] schedule+0x35/0x80\n[<ffffffffffffffff>] 0xffffffffffffffff"
    )
    assert (dump.origin.pid, dump.threads[0].tid, dump.threads[0].kernel_stack) == (None, None, ("schedule",))


def test_wchan_in_all_listings_and_a_state() -> None:
    first, second = dumps_of(
        proc_stack.FORM,
        """
        /proc/41/task/41 futex_wait_queue
        /proc/41/task/42/wchan:nfs_start_io_read
        State: D (disk sleep)
        /proc/41/task/43/wchan:0
        /proc/50/wchan: do_epoll_wait
        """,
    )
    assert [(t.tid, t.wchan, t.state) for t in first.threads] == [
        (41, "futex_wait_queue", None),
        (42, "nfs_start_io_read", "D"),
        (43, None, None),
    ]
    assert (second.origin.pid, second.threads[0].wchan) == (50, "do_epoll_wait")


def test_names_of_files_alone_are_no_stack() -> None:
    assert dumps_of(proc_stack.FORM, "/proc/41/maps\n" * 200 + "[  12.3] x") == []
    assert dumps_of(proc_stack.FORM, "cat: /proc/41/stack: Permission denied") == []


def test_this_machines_ps_is_read() -> None:
    for columns in (
        "aux",
        "-ef",
        "axl",
        "-eLo pid,ppid,lwp,stat,wchan:25,etime,cmd",
        "-eo pid,lstart,stat,comm",
    ):
        text = subprocess.run(
            ["ps", *columns.split()], capture_output=True, text=True, check=True, timeout=20
        ).stdout
        rows = {state.pid: state for state in states_of(ps_text.FORM, text)}
        assert os.getpid() in rows, columns
        if "STAT" in text:
            assert rows[os.getpid()].state in "RSD"


def test_days_forest_and_defunct() -> None:
    (parent, child) = states_of(
        ps_text.FORM,
        """
          PID  PPID STAT WCHAN              ELAPSED CMD
          711   700 DNl  nfs_start_io_read 1-02:00:01 python train.py --local_rank=5
          712   711 Z    -                      07:30  |   \\_ [python] <defunct>
        """,
    )
    assert (parent.state, parent.wchan, parent.elapsed, parent.origin.local_rank) == (
        "D",
        "nfs_start_io_read",
        93601.0,
        5,
    )
    assert (child.ppid, child.state, child.wchan, child.elapsed, child.command) == (
        711,
        "Z",
        None,
        450.0,
        "[python] <defunct>",
    )


def test_threads_of_a_process_are_a_dump() -> None:
    facts = facts_of(
        ps_text.FORM,
        """
          PID   TID S WCHAN      COMMAND
          711   711 S futex_wait python
          711   712 D oom_wait   python
          800   800 S do_wait    bash
        """,
    )
    assert [type(fact).__name__ for fact in facts] == ["ProcessState", "ProcessState", "StackDump"]
    assert [(t.tid, t.main, t.state, t.wchan) for t in facts[2].threads] == [
        (711, True, "S", "futex_wait"),
        (712, False, "D", "oom_wait"),
    ]


def test_the_kernels_own_threads_are_left_out_while_they_rest() -> None:
    rows = states_of(
        ps_text.FORM,
        """
          PID  PPID S CMD
            2     0 S [kthreadd]
           91     2 D [nvidia-modeset/kthread_q]
           92     1 S [odd] name
        """,
    )
    assert [row.pid for row in rows] == [91, 92]


def test_a_sentence_with_pid_is_no_header() -> None:
    assert facts_of(ps_text.FORM, "PID 4711 was killed\nPID COMMAND\nno row") == []

"""py-spy's JSON: whole, several, cut, hostile."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hangscope.analyzers.readers import py_spy_json
from hangscope.errors import UnreadableEvidence
from hangscope.model.loose import Origin

from .dumps import document


def thread(**changed: Any) -> dict[str, Any]:
    frame = {"name": "f", "filename": "/a.py", "module": None, "short_filename": "a.py", "line": 3}
    return {
        "pid": 41,
        "thread_id": 139,
        "thread_name": None,
        "os_thread_id": 42,
        "active": True,
        "owns_gil": False,
        "frames": [{**frame, "locals": None}],
        "process_info": None,
        **changed,
    }


def test_threads_names_and_peers() -> None:
    frame = {
        "name": "recv",
        "filename": "/v/torch/distributed/distributed_c10d.py",
        "module": None,
        "line": 5,
        "locals": [{"name": "src", "addr": 1, "arg": True, "repr": "2"}, {"name": "x", "repr": "7"}],
    }
    data = json.dumps([thread(), thread(os_thread_id=41, thread_name="MainThread", frames=[frame])])
    assert py_spy_json.recognise(data.encode())
    (dump,) = py_spy_json.read(document(data, origin=Origin(rank=3, source="name")))
    assert (dump.origin.rank, dump.origin.pid, dump.problem) == (3, 41, None)
    assert [(t.tid, t.main, t.active) for t in dump.threads] == [(42, False, True), (41, True, True)]
    assert dump.threads[1].frames[0].ints == (("src", 2),)


def test_lists_one_after_the_other_cite_their_lines() -> None:
    data = (
        f"{json.dumps([thread()])}\n{json.dumps([thread(pid=51)], indent=1)}\n{json.dumps([thread(pid=61)])}"
    )
    dumps = py_spy_json.read(document(data))
    assert [dump.origin.pid for dump in dumps] == [41, 51, 61]
    assert [dump.ref.line for dump in dumps] == [
        1,
        2,
        2 + json.dumps([thread(pid=51)], indent=1).count("\n") + 1,
    ]


def test_what_stands_before_the_cut_is_read() -> None:
    data = json.dumps([thread(), thread()])
    (dump,) = py_spy_json.read(document(data[:-30]))
    assert (len(dump.threads), dump.problem) == (1, py_spy_json.CUT)


@pytest.mark.parametrize(
    "data",
    [b"[", b"[{]", b"[" * 100_000, b'[{"frames": 3}]', b"\xff\xfe[", b'[{"pid": "x", "frames": []}]', b"{}"],
)
def test_what_is_no_dump_raises_the_readers_error(data: bytes) -> None:
    with pytest.raises(UnreadableEvidence):
        py_spy_json.read(document(data))


def test_another_list_is_not_recognised() -> None:
    assert not py_spy_json.recognise(b'[{"a": 1}]')
    assert not py_spy_json.recognise(b'{"frames": [], "owns_gil": 1}')

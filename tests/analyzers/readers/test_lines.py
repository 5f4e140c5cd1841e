"""Texts as people have them → lines as the forms see them: every prefix, alone and stacked, every damage."""

from __future__ import annotations

import time

import pytest

from hangscope.analyzers.readers.interface import MOST_LINE, Document, Line
from hangscope.analyzers.readers.lines import is_text, lines_of, streams, within
from hangscope.model.loose import Origin

MTIME = 1_767_225_600.0
"""2026-01-01 00:00 UTC."""


def lines(text: str | bytes, mtime: float | None = MTIME) -> list[Line]:
    data = text if isinstance(text, bytes) else text.encode()
    return lines_of(Document(path="x.log", data=data, mtime=mtime))


def line(text: str) -> Line:
    (found,) = lines(text)
    return found


RANKS = [
    ("[rank3]: Traceback (most recent call last):", 3),
    ("[rank12]:[E814 13:15:55.540449524 ProcessGroupNCCL.cpp:607] [Rank 0] text", 12),
    ("[rank7]:[rank7]:V0731 10:00:00.000000 41 a.py:3] text", 7),
    ("[default3]:[rank11]: text", 11),
    ("[rank: 5] Seed set to 1", 5),
    ("[1,6]<stdout>:text", 6),
    ("[6]<stderr>:text", 6),
    ("(Worker[rank=9] pid=77, ip=10.0.0.3) text", 9),
    ("(VllmWorker rank=2 pid=88) text", 2),
    ("2026-01-02 03:04:05,678: rank4[107][MainThread]: INFO: text", 4),
    ("[pod/llama-1/main] 2026-01-02T03:04:05.1Z [rank8]: text", 8),
    ("2026-01-02T03:04:05.678901234Z stderr F [rank1]: text", 1),
    ("\x1b[36m(Actor pid=5)\x1b[0m [rank6]: text", 6),
    ("[36m(Actor pid=5)[0m [rank6]: text", 6),
    ("  0%|          | 0/4 [00:00<?, ?it/s][rank2]:[E814 13:15:55.5 a.cpp:1] text", 2),
    ("(EngineCore_DP1 pid=14) text", None),
    ("[default3]: text", None),
    ("[7] finished collective #18, but didn't join collective #19", None),
    ("0: a line that somebody numbered", None),
    ("[3]: text", None),
    ("rank 3: text", None),
]


@pytest.mark.parametrize(("text", "rank"), RANKS, ids=[text[:40] for text, _ in RANKS])
def test_the_rank_of_a_prefix_is_global_or_none(text: str, rank: int | None) -> None:
    origin = line(text).origin
    assert origin.rank == rank
    assert origin.source == (None if rank is None else "prefix")


PLACES = [
    ("[default3]:text", {"local_rank": 3}),
    ("(RayWorkerWrapper pid=4009) text", {"pid": 4009, "label": "RayWorkerWrapper"}),
    ("(pid=4009, ip=10.0.0.7) text", {"pid": 4009, "node": "10.0.0.7"}),
    ("(EngineCore_DP1 pid=14) text", {"pid": 14, "label": "EngineCore_DP1"}),
    ("2026-01-02 03:04:05,500: rank4[107][MainThread]: text", {"pid": 107}),
    ("[pod/llama-1/main] text", {"node": "llama-1"}),
    ("Jan  2 03:04:05 node-a python3[55]: text", {"node": "node-a", "pid": 55}),
]


@pytest.mark.parametrize(("text", "fields"), PLACES, ids=[text[:30] for text, _ in PLACES])
def test_what_else_a_prefix_tells(text: str, fields: dict[str, object]) -> None:
    found = line(text)
    assert found.text == "text"
    assert {name: getattr(found.origin, name) for name in fields} == fields


DATE = 1_767_323_045.5
"""2026-01-02 03:04:05.5 UTC."""
TIMES = [
    ("2026-01-02T03:04:05.5Z text", DATE),
    ("2026-01-02 03:04:05,500 - text", DATE),
    ("2026/01/02 03:04:05.500 text", DATE),
    ("2026-01-02T05:04:05.5+02:00 text", DATE),
    ("[2026-01-02 03:04:05,500] text", DATE),
    ("[NeMo W 2026-01-02 03:04:05 file:724] text", DATE - 0.5),
    ("2026-01-02T03:04:05.5Z stdout F text", DATE),
    ("18:11:06.680 text", None),
    ("[18:11:06] text", None),
    ("2026-13-02 03:04:05 text", None),
]


@pytest.mark.parametrize(("text", "wall"), TIMES, ids=[text[:30] for text, _ in TIMES])
def test_dates_are_taken_off_and_kept_as_times(text: str, wall: float | None) -> None:
    found = line(text)
    assert (found.text, found.origin.wall) == ("text", wall)


HEADS = [
    ("[E814 13:15:55.500000000 ProcessGroupNCCL.cpp:607] text", 1_755_177_355.5),
    ("E0325 20:57:27.500000 2606 torch/a.py:869] text", 1_742_936_247.5),
    ("I1231 23:00:00.500000 2606 a.cpp:8] text", 1_767_222_000.5),
    ("[2026-01-02 03:04:05 PP1 TP1] text", DATE - 0.5),
    ("[Fri Jan  2 03:04:05 2026] NVRM: text", DATE - 0.5),
    ("Dec 31 23:00:00 node-a kernel: [14.5] NVRM: text", 1_767_222_000.0),
    ("Dec 31 23:00:00 node-a slurmstepd[4]: text", 1_767_222_000.0),
    ("[ 1843.308145] NVRM: text", None),
]


@pytest.mark.parametrize(("text", "wall"), HEADS, ids=[text[:30] for text, _ in HEADS])
def test_heads_that_forms_know_stay_and_give_their_time(text: str, wall: float | None) -> None:
    found = line(text)
    assert (found.text, found.origin.wall) == (text, wall)
    if wall is not None and "2026" not in text:
        assert lines(text, mtime=None)[0].origin.wall is None


def test_a_time_with_its_zone_beats_one_without() -> None:
    assert line("2026-01-02 09:00:00,000 2026-01-02T03:04:05.5Z text").origin.wall == DATE


def test_task_numbers_become_ranks_only_where_lines_prove_it() -> None:
    def ranks(text: str) -> list[int | None]:
        return [found.origin.rank for found in lines(text)]

    tasks = lines(" 0: step\n 1: step\n12: step\n 0: step\n")
    assert [(found.text, found.origin.label, found.origin.rank) for found in tasks] == [
        ("step", "srun 0", None),
        ("step", "srun 1", None),
        ("step", "srun 12", None),
        ("step", "srun 0", None),
    ]
    assert ranks("0: a\n1: [rank1]: b\n2: c\n0: d\n") == [0, 1, 2, 0]
    assert ranks("0: [rank0]: a\n1: b\n") == [0, None]
    assert ranks("0: [rank0]: a\n1: [rank8]: b\n1: c\n") == [0, 8, None]
    assert [found.text for found in lines("".join(f"{n}: x\n" for n in range(20)))][3] == "3: x"


def test_mpi_ranks_are_ranks_unless_lines_say_otherwise() -> None:
    assert [f.origin.rank for f in lines("[1,0]<stdout>:a\n[1,1]<stdout>:[rank8]: b\n[1,1]<stderr>:c\n")] == [
        None,
        8,
        None,
    ]


def test_writers_are_told_apart_by_what_prefixes_say_and_not_by_times() -> None:
    text = "[rank0]: 2026-01-02 03:04:05 a\nplain\n[rank1]: b\n[rank0]: 2026-01-02 03:04:06 c\nmore\n"
    found = [[item.text for item in stream] for stream in streams(lines(text))]
    assert found == [["a", "c"], ["plain", "more"], ["b"]]
    numbers = lines("[80746] a\n[80747] b\n[80746] c\n")
    assert [[item.text for item in stream] for stream in streams(numbers)] == [["a", "c"], ["b"]]


def test_two_ranks_in_one_line_are_two_lines() -> None:
    head = "[E814 13:15:55.5 ProcessGroupNCCL.cpp:607] "
    found = lines(f"[pod/a-1/main] [rank0]:{head}one [rank1]:{head}two[rank2]:{head}three")
    assert [(item.number, item.text, item.origin.rank, item.origin.node) for item in found] == [
        (1, f"{head}one ", 0, "a-1"),
        (1, f"{head}two", 1, "a-1"),
        (1, f"{head}three", 2, "a-1"),
    ]


def test_carriage_returns_and_bars() -> None:
    bar = " 40%|####      | 4/10 [00:01<00:02,  3.1it/s]"
    assert lines("\r".join([bar] * 50)) == []
    assert [item.text for item in lines(f"{bar}\r{bar}Timeout (0:02:00)!\r\nnext\r\n")] == [
        "Timeout (0:02:00)!",
        "next",
    ]
    assert [(item.number, item.text) for item in lines("a\rb\nc")] == [(1, "a"), (1, "b"), (2, "c")]
    long = "x" * 100
    assert [item.text for item in lines(f"{long}{bar}")] == [long]


def test_pasted_texts() -> None:
    stack = "Thread 7 (idle)\n    f (a.py:1)\n"
    quoted = "".join(f"> {row}\n" for row in stack.splitlines())
    fenced = f"like this:\n  ```text\n    {stack.replace(chr(10), chr(10) + '    ')}\n  ```\nbye\n"
    for text in (stack, quoted, "".join(f"\t{row}\n" for row in stack.splitlines())):
        assert "".join(f"{item.text}\n" for item in lines(text)) == stack
    assert [(item.number, item.text) for item in lines(fenced)] == [
        (1, "like this:"),
        (3, "Thread 7 (idle)"),
        (4, "    f (a.py:1)"),
        (7, "bye"),
    ]
    assert [item.text for item in lines("> alone\nx\n")] == ["> alone", "x"]


def test_encodings() -> None:
    assert lines("Zeit: über\n".encode("utf-16"))[0].text == "Zeit: über"
    assert lines(b"\xef\xbb\xbfa\n")[0].text == "a"
    assert lines(b"not all of \xff it\n")[0].text == "not all of \ufffd it"
    assert lines(b"\0\0\0\0" + b"after a truncation\n" * 4)[0].text == "after a truncation"
    assert not is_text(bytes(range(256)) * 8) and lines(bytes(range(256)) * 8) == []


def test_a_line_has_a_length() -> None:
    assert len(line("x" * 100_000).text) == MOST_LINE


def test_container_logs() -> None:
    rows = ['{"log":"[rank1]: a\\n","stream":"stderr","time":"2026-01-02T03:04:05.5Z"}', '{"log":"broken']
    assert [(item.text, item.origin.rank, item.origin.wall) for item in lines("\n".join(rows))] == [
        ("a", 1, DATE),
        ('{"log":"broken', None, None),
    ]
    parts = ["stderr P [rank1]: a", "stdout F between", "stderr P b", "stderr F c"]
    found = lines("\n".join(f"2026-01-02T03:04:05.5Z {part}" for part in parts))
    assert [(item.number, item.text) for item in found] == [(2, "between"), (4, "abc")]


def test_lines_of_a_time() -> None:
    text = "first\n2026-01-02 03:04:05 a\nb\n2026-01-02 04:00:00 c\nd\n2026-01-02 05:00:00 e\n"
    found = within(lines(text), DATE, DATE + 3600)
    assert [item.text for item in found] == ["first", "c", "d"]


def test_time_is_linear() -> None:
    def seconds(text: str) -> float:
        start = time.process_time()
        lines(text)
        return time.process_time() - start

    for unit in (
        "[rank1]:",
        "(",
        "[",
        " ",
        "\r",
        "%|",
        "> ",
        "[rank1]:[E814 1",
        "\x1b[",
        "2026-01-02 ",
        "```\n",
    ):
        short = min(seconds(unit * (40_000 // len(unit))) for _ in range(2))
        assert seconds(unit * (160_000 // len(unit))) < 10 * short + 0.2, unit


def test_nobody_is_everybody_without_a_prefix() -> None:
    assert line("plain").origin == Origin()

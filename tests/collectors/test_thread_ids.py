import pytest

from hangscope.collectors import p2p_locals, thread_ids
from hangscope.collectors.attach import Task


def task(inner: int) -> Task:
    return Task("S", (), 0, inner, False)


def test_inner_ids_are_translated_and_unknown_ones_dropped() -> None:
    threads = [{"os_thread_id": 1}, {"os_thread_id": 2}, {"os_thread_id": 9}]
    thread_ids.translate(threads, {500: task(1), 501: task(2)})
    assert [thread["os_thread_id"] for thread in threads] == [500, 501, None]


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ([[0, 11, 5], [0, 12, 5]], {100: 11, 200: 12}),
        ([[11, 11], [12, 12]], {100: 11, 200: 12}),
        ([[11, 12], [12, 11]], {}),  # two places that contradict each other
        ([[11], [11]], {}),  # one thread cannot be two
        ([[1], [2]], {}),
        ([[], []], {}),
    ],
)
def test_the_place_of_the_id_is_found_when_it_is_the_only_one(
    blocks: list[list[int]], expected: dict[int, int]
) -> None:
    assert thread_ids.match([100, 200], blocks, {11: 11, 12: 12}) == expected


def test_unreadable_memory_names_no_thread() -> None:
    assert thread_ids.of_pthreads(4_000_000, [4096], {1: task(1)}, 1.0) == {}
    assert thread_ids.of_pthreads(1, [], {}, 1.0) == {}


def frame(filename: str, name: str, line: int = 1, local: object = None) -> dict[str, object]:
    return {"filename": filename, "name": name, "line": line, "locals": local}


@pytest.mark.parametrize(
    ("filename", "name", "expected"),
    [
        ("/x/torch/distributed/distributed_c10d.py", "send", True),
        ("/x/torch/distributed/distributed_c10d.py", "all_reduce", False),
        ("/x/deepspeed/runtime/pipe/p2p.py", "anything", True),
        ("/x/megatron/core/pipeline_parallel/p2p_communication.py", "P2PCommunicator._communicate", True),
        ("/x/mytorch/distributed/distributed_c10d.py", "send", False),
        ("/x/p2p.py", "send", False),
    ],
)
def test_point_to_point_code_is_known_by_file_and_function(filename: str, name: str, expected: bool) -> None:
    assert p2p_locals.is_p2p(frame(filename, name)) is expected


def test_only_named_integers_survive() -> None:
    send = "/x/torch/distributed/distributed_c10d.py"
    records = [
        {"name": "dst", "addr": 1, "arg": True, "repr": "3"},
        {"name": "tag", "addr": 1, "arg": True, "repr": "secret"},
        {"name": "group_dst", "addr": 1, "arg": False, "repr": "None"},
        {"name": "token", "addr": 1, "arg": False, "repr": "12345"},
        {"name": "src", "addr": 1, "arg": False, "repr": 7},
        "odd",
    ]
    assert p2p_locals.kept(frame(send, "send", local=records)) == [records[0]]
    assert p2p_locals.kept(frame("/x/user.py", "send", local=records)) is None
    assert p2p_locals.kept(frame(send, "send", local="odd")) is None
    frames = [frame(send, "send", 5)]
    assert p2p_locals.add(frames, [frame(send, "send", 6, records)]) is False
    assert frames[0]["locals"] is None
    assert p2p_locals.add(frames, [frame(send, "send", 5, records)]) is True
    assert frames[0]["locals"] == [records[0]]

"""c10 heads and process groups in front of torch's messages."""

from __future__ import annotations

import pytest

from hangscope.analyzers.readers.interface import Line
from hangscope.analyzers.readers.torch_line import continues, counter, messages, operation
from hangscope.model.loose import NOBODY, Origin


def said(text: str, origin: Origin = NOBODY) -> list[tuple[str, int | None, str | None, int | None]]:
    found = messages(Line(1, text, origin, "x.log"))
    return [(one.text, one.origin.rank, one.group, one.group_rank) for one in found]


@pytest.mark.parametrize(
    ("text", "rank", "group", "group_rank"),
    [
        ("[E ProcessGroupNCCL.cpp:458] [Rank 3] x", None, None, 3),
        ("[rank7]:[E ProcessGroupNCCL.cpp:577] [Rank 3] x", 7, None, 3),
        ("[rank1]:[E ProcessGroupNCCL.cpp:1537] [PG 1 Rank 1] x", 1, None, 1),
        ("[E ProcessGroupNCCL.cpp:1537] [PG 0 Rank 5] x", 5, "0", 5),
        ("[rank0]:[E814 13:15:55.54 ProcessGroupNCCL.cpp:16] [PG 1 Rank 2] x", 0, "1", 2),
        ("[E814 13:15:55.54 ProcessGroupNCCL.cpp:16] [PG 0 (default_pg) Rank 2] x", 2, "0", 2),
        ("[rank9]:[E1206 18:44:12.7 f.cpp:6] [PG ID 2 PG GUID 9 Rank 7] x", 9, "9", 7),
        ("[E1206 18:44:12.7 f.cpp:6] [PG ID 2 PG GUID 9 Rank 7] x", None, "9", 7),
        ("[E1206 18:44:12.7 f.cpp:6] [PG ID 0 PG GUID 0(default_pg) Rank 118] x", 118, "0", 118),
        ("I0820 14:27:21.486460 4030959 f.cpp:1669] [PG ID 5 PG GUID 37(TP) Rank 1] x", None, "37", 1),
        ("[PG ID 0 PG GUID 0(default_pg) Rank 4] x", 4, "0", 4),
    ],
)  # fmt: skip
def test_every_prefix_tells_group_and_rank(text: str, rank: int, group: str, group_rank: int) -> None:
    ((message, *found),) = said(text)
    assert message.endswith("x") and "cpp" not in message
    assert found == [rank, group, group_rank]


def test_the_groups_description_is_kept_apart() -> None:
    text = "[rank9]:[E812 01:02:03.4 f.cpp:6] [PG ID 5 PG GUID 37(TENSOR_MODEL_PARALLEL_GROUP) Rank 1] x"
    (message,) = messages(Line(1, text, NOBODY, "x"))
    assert (message.group, message.group_desc) == ("37", "TENSOR_MODEL_PARALLEL_GROUP")


def test_a_rank_in_the_message_beats_the_lines_own() -> None:
    ((_, rank, _, _),) = said("[rank7]:[E f.cpp:577] [Rank 3] x", Origin(rank=1, source="prefix"))
    assert rank == 7
    ((_, rank, _, _),) = said("[rank7]: RuntimeError: x", Origin(rank=1, source="prefix"))
    assert rank == 7


def test_a_group_rank_is_never_taken_for_the_prefixs_rank() -> None:
    ((_, rank, _, group_rank),) = said("[PG ID 0 PG GUID 0(default_pg) Rank 4] x", Origin(rank=6))
    assert (rank, group_rank) == (6, 4)


def test_messages_glued_on_one_line_come_apart() -> None:
    text = "50%|##   | 5/10[E f.cpp:1] [Rank 0] a[rank2]:[E f.cpp:1] [Rank 1] bI0820 14:27:21.4 40 f.cpp:9] c"
    assert [(text, group_rank) for text, _, _, group_rank in said(text)] == [
        ("50%|##   | 5/10", None),
        ("[Rank 0] a", 0),
        ("[Rank 1] bI0820 14:27:21.4 40 f.cpp:9] c", 1),
    ]


@pytest.mark.parametrize(
    ("text", "yes"),
    [
        ("#12 step from /job/train.py:88", True),
        ("\t - To our best knowledge, ranks [1] are", True),
        ("\t     [0, 1] started ALLREDUCE", True),
        ("# a comment from nobody", False),
        ("", False),
        ("    loss = step(batch)", False),
    ],
)
def test_lines_of_a_message_that_was_prefixed_once(text: str, yes: bool) -> None:
    assert continues(text) is yes


def test_counters_of_operations() -> None:
    assert operation("REDUCE_SCATTER") == "reduce_scatter"
    assert [counter(kind) for kind in ("all_reduce", "recv", "coalesced", None)] == [
        "torch",
        "torch-p2p",
        "torch-coalesced",
        "torch",
    ]

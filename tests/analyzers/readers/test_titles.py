"""What titles and the lines in front of a dump tell, and what they must not."""

from __future__ import annotations

import pytest

from hangscope.analyzers.readers.titles import introduced, title_origin
from hangscope.model.loose import NOBODY, Origin

from .dumps import lines


@pytest.mark.parametrize(
    ("title", "rank", "local"),
    [
        ("python train.py --local_rank=5", None, 5),
        ("python train.py --local-rank 2 --rank 3", None, 2),
        ("VLLM::Worker_TP1_EP1", None, None),
        ("sglang::scheduler_PP2_TP1", None, None),
        ("env RANK=12 LOCAL_RANK=4 python train.py", 12, None),
        ("python x.py MY_RANK=3 NODE_RANK=1 GROUP_RANK=2", None, None),
        ("python x.py --global-rank 7", None, None),
        ("python x.py RANK=99999999", None, None),
    ],
)
def test_titles(title: str, rank: int | None, local: int | None) -> None:
    origin = title_origin(title, pid=7)
    assert (origin.rank, origin.local_rank, origin.pid) == (rank, local, 7)
    assert origin.source == ("content" if rank is not None else None)


def test_the_content_beats_a_name() -> None:
    known = Origin(rank=1, source="name", local_rank=1)
    found = title_origin("RANK=3 --local_rank 2", known)
    assert (found.rank, found.source, found.local_rank) == (3, "content", 1)


@pytest.mark.parametrize(
    ("before", "rank"),
    [
        ("RANK=3", 3),
        ("HOSTNAME=node-b RANK=3", 3),
        ("[ Rank: 4 ]", 4),
        ("rank 3 is slow", None),
        ("LOCAL_RANK=3", None),
        ("RANK=3\na\nb\nc", None),
        ("RANK=3\n    f (a.py:1)", None),
    ],
)
def test_lines_in_front(before: str, rank: int | None) -> None:
    rows = lines(before + "\nProcess 4: x")
    found = introduced(rows, len(rows) - 1, NOBODY)
    assert found.rank == rank
    assert found.node == ("node-b" if "HOSTNAME" in before else None)

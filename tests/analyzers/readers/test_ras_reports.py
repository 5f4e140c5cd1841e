"""Saved reports of NCCL's RAS, as text and as JSON."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangscope.analyzers.readers import ras_json, ras_text
from hangscope.analyzers.readers.interface import Document, Line
from hangscope.errors import UnreadableEvidence
from hangscope.model.loose import NOBODY, Origin, RasReport

HASH = "00000000c0ffee01"
TABLE = "    0         1         1         {size}         {size}         {size}   RUNNING  {errors}"


def where(rank: int) -> str:
    return f"GPU {rank} managed by process {4000 + rank} on node 10.0.0.1"


def report(*rows: str, size: int = 4, errors: str = "MISMATCH", version: str = "2.27.7") -> str:
    head = (
        f"NCCL version {version} compiled with CUDA 12.9\nCUDA runtime version 12090, driver version 12090\n"
    )
    return head + TABLE.format(size=size, errors=errors) + "\n" + "\n".join(rows) + "\n"


def mismatch(*rows: str, kind: str = "AllReduce") -> tuple[str, ...]:
    title = f"  Communicator ranks have different {kind} operation counts"
    return (f"#0-0 ({HASH}) MISMATCH", title, *(f"  {row}" for row in rows))


def read_text(text: str) -> list[RasReport]:
    lines = [
        Line(number, row, NOBODY, "x.txt") for number, row in enumerate(text.splitlines(), 1) if row.strip()
    ]
    found, index = [], 0
    while index < len(lines):
        facts, end = ras_text.read(lines, index) if opens(lines[index]) else ([], index)
        found += [fact for fact in facts if isinstance(fact, RasReport)]
        index = max(end, index + 1)
    return found


def opens(line: Line) -> bool:
    return any(opener in line.text for opener in ras_text.FORM.openers)


def groups(*rows: str, size: int = 4) -> tuple[tuple[str, int, tuple[int, ...]], ...]:
    (one,) = read_text(report(*mismatch(*rows), size=size))
    return one.communicators[0].groups


class TestText:
    def test_those_that_are_not_listed_are_told_where_the_numbers_add_up(self) -> None:
        rows = (
            "3 ranks have launched up to operation 9",
            f"Rank 2 has launched up to operation 8 -- {where(2)}",
        )
        assert groups(*rows) == (("AllReduce", 9, (0, 1, 3)), ("AllReduce", 8, (2,)))

    def test_and_not_where_they_do_not(self) -> None:
        rows = (
            "2 ranks have launched up to operation 9",
            f"Rank 2 has launched up to operation 8 -- {where(2)}",
        )
        assert groups(*rows) == (("AllReduce", 8, (2,)),)

    def test_a_list_below_its_line(self) -> None:
        rows = (
            "4 ranks have launched up to operation 9",
            "2 ranks have not launched any operations",
            f"  Rank 1 -- {where(1)}",
            f"  Rank 5 -- {where(5)}",
        )
        assert groups(*rows, size=6) == (("AllReduce", 9, (0, 2, 3, 4)), ("AllReduce", 0, (1, 5)))

    def test_two_parties_that_are_not_listed_stay_unknown(self) -> None:
        rows = ("2 ranks have launched up to operation 9", "2 ranks have launched up to operation 8")
        assert groups(*rows) == (("AllReduce", 9, ()), ("AllReduce", 8, ()))

    def test_a_rank_that_no_communicator_has_spoils_its_kind_alone(self) -> None:
        rows = mismatch(
            "3 ranks have launched up to operation 9",
            f"Rank 77123 has launched up to operation 8 -- {where(2)}",
            "Communicator ranks have different Reduce operation counts",
            "3 ranks have launched up to operation 2",
            f"Rank 3 has launched up to operation 1 -- {where(3)}",
        )
        (one,) = read_text(report(*rows))
        assert one.communicators[0].groups == (("Reduce", 2, (0, 1, 2)), ("Reduce", 1, (3,)))
        assert "77123" in one.notes[0]

    def test_ranks_without_data_are_in_no_count(self) -> None:
        rows = (
            f"#0-0 ({HASH}) INCOMPLETE",
            "  Missing communicator data from 1 rank",
            f"  Rank 3 -- {where(3)}",
            f"#0-0 ({HASH}) MISMATCH",
            "  Communicator ranks have different status",
            "  3 ranks have status RUNNING",
            f"  Rank 1 has status NOCOMM -- {where(1)}",
            *mismatch("2 ranks have launched up to operation 9")[1:],
            f"  Rank 4 has launched up to operation 8 -- {where(4)}",
        )
        (one,) = read_text(report(*rows, size=5))
        communicator = one.communicators[0]
        assert communicator.groups == (("AllReduce", 9, (0, 2)), ("AllReduce", 8, (4,)))
        assert [(item.rank, item.pid, item.gpu) for item in communicator.missing] == [(3, 4003, 3)]
        assert [(item.rank, item.state) for item in communicator.ranks] == [(1, "NOCOMM"), (4, "")]
        assert communicator.status == ("RUNNING", "MISMATCH", "INCOMPLETE")

    def test_errors_and_dead_processes(self) -> None:
        rows = (
            "Errors",
            "======",
            "DEAD",
            "  1 job process is considered dead (unreachable via the RAS network)",
            "  Process 4003 on node 10.0.0.1 managing GPU 3",
            "INCOMPLETE",
            "  Missing communicator data from 1 job process",
            "  Process 4000 on node 10.0.0.1 managing GPUs 0,1 (NVML 4,5)",
            f"#0-0 ({HASH}) INCOMPLETE",
            "  Missing communicator data from 2 ranks",
            f"  Rank 3 -- {where(3)}",
            "  Rank 0 -- [process information not found]",
            f"#0-0 ({HASH}) ERROR",
            "  Asynchronous errors on 1 rank",
            f"  Rank 1 reported Remote process error -- {where(1)}",
        )
        (one,) = read_text(report(*rows))
        assert one.dead_processes == (("10.0.0.1", 4003),) and one.silent_processes == (("10.0.0.1", 4000),)
        communicator = one.communicators[0]
        assert communicator.dead == (3,) and [item.rank for item in communicator.missing] == [0, 3]
        assert communicator.missing[0].pid is None
        assert [(item.rank, item.error) for item in communicator.ranks] == [(1, "Remote process error")]

    def test_two_reports_are_two_facts_with_their_times(self) -> None:
        rows = mismatch("4 ranks have launched up to operation 9")
        text = f"2026-01-05 10:00:00\n{report(*rows)}==== 2026-01-05 10:00:20 ====\n{report(*rows)}"
        first, second = read_text(text)
        assert first.wall is not None and second.wall == first.wall + 20
        assert first.ref.line == 2 and second.ref.line is not None and second.ref.line > first.ref.line

    def test_the_time_of_a_prefix(self) -> None:
        lines = [Line(1, row, Origin(wall=77.0), "x") for row in report(*mismatch()).splitlines()]
        (one,) = ras_text.read(lines, 0)[0]
        assert isinstance(one, RasReport) and one.wall == 77.0

    def test_a_report_without_its_beginning(self) -> None:
        rows = mismatch(
            "3 ranks have launched up to operation 9", f"Rank 2 has launched up to operation 8 -- {where(2)}"
        )
        (one,) = read_text("\n".join(rows))
        assert one.nccl_version is None and one.communicators[0].groups == (("AllReduce", 8, (2,)),)

    def test_it_ends_where_other_text_begins(self) -> None:
        text = (
            report(*mismatch("4 ranks have launched up to operation 9"))
            + "step 1\nstep 2\nstep 3\nstep 4\nstep 5\n"
        )
        lines = [Line(n, row, NOBODY, "x") for n, row in enumerate(text.splitlines(), 1)]
        facts, end = ras_text.read(lines, 0)
        assert len(facts) == 1 and lines[end].text == "step 1"

    @pytest.mark.parametrize(
        "row", ["Job summary of the week", "it was compiled with CUDA 12", "see #0-0 (x)"]
    )
    def test_what_only_looks_like_one(self, row: str) -> None:
        assert ras_text.read([Line(1, row, NOBODY, "x"), Line(2, "more", NOBODY, "x")], 0) == ([], 0)

    def test_a_size_that_no_job_has_costs_nothing(self) -> None:
        begin = time.process_time()
        (one,) = read_text(report(*mismatch("8888888 ranks have launched up to operation 9"), size=9_999_999))
        assert one.communicators[0].groups == () and time.process_time() - begin < 1


def rank(number: int, count: int = 5, **status: Any) -> dict[str, Any]:
    return {
        "rank": number,
        "host": "10.0.0.1",
        "pid": 4000 + number,
        "cuda_dev": number,
        "nvml_dev": number,
        "status": {"init_state": 0, **status},
        "collective_counts": {"AllReduce": count},
    }


def document(*values: object) -> Document:
    return Document(
        path="x.json", data="".join(json.dumps(value, indent=1) + "\n" for value in values).encode()
    )


def answer(
    ranks: list[dict[str, Any]], missing: tuple[dict[str, Any], ...] = (), **more: Any
) -> dict[str, Any]:
    communicator = {"hash": "0xc0ffee01", "size": 4, "ranks": ranks, "missing_ranks": list(missing), **more}
    return {"nccl_version": "2.29.7", "timestamp": "2026-01-05 10:00:00", "communicators": [communicator]}


class TestJson:
    def test_states_and_errors(self) -> None:
        ranks = [
            rank(0),
            rank(1, abort_flag=True),
            rank(2, finalize_called=True, async_error=6),
            rank(3, init_state=7),
        ]
        (one,) = ras_json.read(document(answer(ranks)))
        found = one.communicators[0]
        assert [item.state for item in found.ranks] == ["RUNNING", "ABORT", "FINALIZE", "INIT"]
        assert [item.error for item in found.ranks] == [None, None, "Remote process error", None]
        assert found.status == ("ABORT", "ERROR", "MISMATCH") and found.hash == HASH
        assert one.gpus == 4 and one.wall == 1767607200.0

    def test_missing_ranks(self) -> None:
        def status(silent: bool, dead: bool) -> dict[str, bool]:
            return {"unresponsive": silent, "considered_dead": dead}

        missing = (
            {**rank(1), "status": status(True, True)},
            {**rank(2), "status": status(True, False)},
            {**rank(3), "host": "unknown", "pid": -1, "cuda_dev": -1, "status": status(False, False)},
        )
        (one,) = ras_json.read(document(answer([rank(0)], missing)))
        found = one.communicators[0]
        assert found.dead == (1,) and [item.state for item in found.missing] == ["", "", "NOCOMM"]
        assert (found.missing[2].node, found.missing[2].pid, found.missing[2].gpu) == (None, None, None)
        assert one.dead_processes == (("10.0.0.1", 4001),) and one.silent_processes == (("10.0.0.1", 4002),)

    def test_a_later_report_that_is_cut_is_a_note(self) -> None:
        whole = document(answer([rank(0)])).data
        reports = ras_json.read(Document(path="x", data=b"OK\n" + whole + whole + whole[: len(whole) // 2]))
        assert len(reports) == 2 and "not whole" in reports[1].notes[0]
        assert reports[0].ref.line == 2 and reports[1].ref.line == 2 + whole.count(b"\n")

    @pytest.mark.parametrize(
        "data",
        [
            b'{"nccl_version": "2.29", "communicators": [{"hash": "0x1", "size": 2, ',
            b'{"nccl_version": "2.29", "communicators": 7}',
            b'{"nccl_version": "2.29", "communicators": [{"hash": "zz", "size": 2}]}',
            b'{"nccl_version": "2.29", "communicators": [{"hash": "0x1", "size": 99999999}]}',
            b'{"nccl_version": "2.29" "communicators": []}',
            b'{"nccl_version": "2.29", "communicators": ' + b"[" * 100_000,
            b'{"nccl_version": ' + b"9" * 10_000 + b', "communicators": []}',
        ],
    )
    def test_what_is_no_report_is_unreadable(self, data: bytes) -> None:
        assert ras_json.recognise(data)
        with pytest.raises(UnreadableEvidence):
            ras_json.read(Document(path="x.json", data=data))

    def test_ranks_that_the_communicator_has_not_are_left_out(self) -> None:
        (one,) = ras_json.read(document(answer([rank(0), rank(44), rank(-2)])))
        assert [item.rank for item in one.communicators[0].ranks] == [0]

    def test_recognised_by_content(self) -> None:
        assert not ras_json.recognise(b'{"communicators": []}') and not ras_json.recognise(b"nothing")


@settings(max_examples=150, deadline=None)
@given(cut=st.integers(0, 900), put=st.binary(max_size=6), size=st.integers(0, 40))
def test_mutated_reports_raise_nothing_else(cut: int, put: bytes, size: int) -> None:
    whole = document(answer([rank(number) for number in range(4)])).data
    data = whole[:cut] + put + whole[cut + size :]
    with contextlib.suppress(UnreadableEvidence):
        ras_json.read(Document(path="x", data=data))
    rows = mismatch(
        "3 ranks have launched up to operation 9", f"Rank 2 has launched up to operation 8 -- {where(2)}"
    )
    text = report(*rows)
    read_text(text[:cut] + put.decode("latin-1") + text[cut + size :])

"""The table of Xids: causes, followers, programs' own faults."""

from __future__ import annotations

import pytest

from hangscope.analyzers import xid
from hangscope.analyzers.devices import FATAL_EVENTS


@pytest.mark.parametrize("code", [46, 48, 62, 64, 74, 79, 94, 95, 119, 120, 136, 140, 143, 155, 158, 167])
def test_first_causes(code: int) -> None:
    known = xid.significance(code)
    assert known.fatal and not known.follower and not known.app and known.action


@pytest.mark.parametrize("code", [13, 31, 69])
def test_the_programs_own_faults(code: int) -> None:
    known = xid.significance(code)
    assert known.app and known.fatal and not known.follower


@pytest.mark.parametrize("code", [43, 45, 137, 154])
def test_followers(code: int) -> None:
    assert xid.significance(code).follower and not xid.significance(code).fatal


@pytest.mark.parametrize("code", [63, 92, 109, 9999])
def test_what_starts_no_hang(code: int) -> None:
    assert not xid.significance(code).fatal and not xid.significance(code).follower


def test_the_line_tells_a_chained_xid_and_a_link_error_that_stops_nothing() -> None:
    assert xid.significance(79, "Xid 79, caused by previous Xid 149").follower
    for code in range(144, 151):
        assert xid.significance(code, "NETIR_LINK_EVT Fatal XC0").fatal
        for word in ("Nonfatal", "Non-fatal", "NONFATAL"):
            assert xid.significance(code, f"NETIR_LINK_EVT {word} XC0").part == "note"


def test_codes_of_kinds() -> None:
    assert [xid.code_of(kind) for kind in ("xid-79", "xid-", "sxid-12028", "xid-²", "hung-task")] == [
        79, None, None, None, None,
    ]  # fmt: skip


def test_the_table_agrees_with_the_analysis_of_captures() -> None:
    codes = {xid.code_of(kind) for kind in FATAL_EVENTS} - {109}
    assert all(code is not None and xid.significance(code).part == "cause" for code in codes)

"""``environment/pid-N/environment.json``: allow-listed variables, secrets masked on the node.

>>> read(b'{"variables": {"RANK": "2"}, "source": "live"}', "x").variables["RANK"]
'2'
"""

from __future__ import annotations

import msgspec

from .raw import decode


class EnvironmentTable(msgspec.Struct, frozen=True, kw_only=True):
    """``source``: live (libc's memory) or static (as it was at exec)."""

    variables: dict[str, str]
    source: str | None = None


def read(data: bytes, path: str) -> EnvironmentTable:
    """The variables of one process."""
    return decode(data, EnvironmentTable, path)

"""PCI addresses, in the one form in which facts carry them: ``0000:44:00``, lower case, without function.

Kernel lines leave the function out, NVML and nvidia-smi print eight digits of domain and a function, old
drivers four, damaged tables one.
"""

from __future__ import annotations

import re

ADDRESS = r"[0-9a-fA-F]{1,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
"""A pattern for an address as any of the tools print it."""

_PARTS = re.compile(
    r"(?<![0-9a-fA-F])(?<![0-9a-fA-F]:)(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})"
    r"(?:\.[0-7])?(?![0-9a-fA-F:])"
)


def normal(text: str | None) -> str | None:
    """The first address in ``text``; None when there is none. A domain that is not told is 0.

    >>> normal("00000000:44:00.0"), normal("PCI:0000:B3:00"), normal("0:53:00.0"), normal("N/A")
    ('0000:44:00', '0000:b3:00', '0000:53:00', None)
    >>> normal("00010009:01:00.0")
    '10009:01:00'
    """
    found = _PARTS.search(text[:200]) if text else None
    if found is None:
        return None
    return f"{int(found[1] or '0', 16):04x}:{found[2]}:{found[3]}".lower()

"""What the doctor's examination returns: values only, nothing is printed here."""

from __future__ import annotations

from typing import Literal

import msgspec

Version = tuple[int, ...]

Level = Literal["ok", "note", "warning", "unknown"]
"""``unknown``: it could not be looked at, ``text`` says why."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to arm before the next run. ``value`` None: a line of code, in ``line``."""

    name: str
    value: str | None = None
    line: str | None = None
    """Python to put into the training script, where no variable does it."""
    gives: str
    cost: str
    source: str
    """Which versions and upstream files the statement rests on."""
    recommended: bool = True
    """False: only while one looks for a known kind of fault, since it slows the job or fills disks."""
    default: bool = False
    """True: on already in this version; shown, so that nobody turns it off."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One look at this machine. ``command``: what lifts a warning."""

    name: str
    level: Level
    text: str
    command: str | None = None


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """One variable of a running process that matters when it hangs."""

    name: str
    value: str
    level: Level
    text: str


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """``source``: where the versions were found, in words."""

    torch: str | None = None
    nccl: str | None = None
    source: str = ""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. ``environment`` None: no process was given."""

    format: str = "hangscope-doctor/1"
    versions: Versions
    settings: tuple[Setting, ...]
    checks: tuple[Check, ...]
    environment: tuple[Variable, ...] | None = None
    environment_source: str | None = None
    """``live``, or ``static``: as it was at exec."""


def numbers(text: str | None) -> Version | None:
    """The leading numbers of a version; None where there are none.

    >>> numbers("2.13.0+cpu"), numbers("2.8"), numbers(None), numbers("main")
    ((2, 13, 0), (2, 8), None, None)
    """
    parts: list[int] = []
    for part in (text or "").split("+")[0].split(".")[:4]:
        if not part.isdecimal() or len(part) > 6:
            break
        parts.append(int(part))
    return tuple(parts) or None

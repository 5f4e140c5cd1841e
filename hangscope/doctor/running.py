"""A running job's environment: what is armed, and what can itself hang the job or hide why it hangs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from .settings import ROWS
from .values import Level, Variable, Version


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """``applies`` gets the value; ``text`` is what that value does, with the version it was read in."""

    name: str
    applies: Callable[[str], bool]
    text: str
    level: Level = "warning"


def _is(*values: str) -> Callable[[str], bool]:
    return lambda value: value.strip().upper() in values


def _anything(value: str) -> bool:
    return bool(value.strip())


def _endless_timeout(value: str) -> bool:
    text = value.strip()
    return text.isdecimal() and len(text) < 10 and (int(text) == 0 or int(text) >= 32)


OFF, ON = _is("0", "FALSE", "NO", "N", "OFF"), _is("1", "TRUE", "YES", "Y", "ON")
EQUAL = "must be equal on all ranks, else they hang or compute nonsense; often left over from debugging"

RULES: tuple[Rule, ...] = (
    Rule(
        name="CUDA_LAUNCH_BLOCKING",
        applies=ON,
        text="with several communicators in a process this deadlocks by itself; left over from debugging?",
    ),
    Rule(
        name="TORCH_NCCL_ASYNC_ERROR_HANDLING",
        applies=OFF,
        text="a collective that times out is never reported: the job hangs for ever (ProcessGroupNCCL.hpp)",
    ),
    Rule(
        name="NCCL_ASYNC_ERROR_HANDLING",
        applies=OFF,
        text="a collective that times out is never reported: the job hangs for ever (older name)",
    ),
    Rule(
        name="TORCH_NCCL_BLOCKING_WAIT",
        applies=ON,
        text="from torch 2.6 on there is then no watchdog thread, so no dump at a time-out",
    ),
    Rule(
        name="TORCH_NCCL_ENABLE_TIMING",
        applies=ON,
        text="raises the chance that the watchdog itself hangs (torch 2.6 to 2.14)",
    ),
    Rule(
        name="TORCH_NCCL_ENABLE_MONITORING",
        applies=OFF,
        text="no heartbeat monitor: a watchdog stuck in CUDA is not noticed, and nobody looks into the FIFO",
    ),
    Rule(
        name="TORCH_NCCL_DUMP_ON_TIMEOUT",
        applies=OFF,
        text="no flight-recorder dump when a collective times out",
    ),
    Rule(name="TORCH_FR_BUFFER_SIZE", applies=_is("0"), text="the flight recorder is off"),
    Rule(name="TORCH_NCCL_TRACE_BUFFER_SIZE", applies=_is("0"), text="the flight recorder is off"),
    Rule(
        name="TORCH_DISTRIBUTED_DEBUG",
        applies=_is("DETAIL"),
        text="a gloo barrier before each collective: slow, and waits that would not be there without it",
    ),
    Rule(
        name="NCCL_IB_TIMEOUT",
        applies=_endless_timeout,
        text="0, or 32 and more, is no limit: a dead link becomes a silent hang (default 20 from NCCL 2.23)",
    ),
    Rule(
        name="NCCL_IB_RETURN_ASYNC_EVENTS",
        applies=OFF,
        text="errors of the InfiniBand port are ignored: a hang in place of an error (NCCL 2.23 on)",
    ),
    Rule(name="NCCL_RAS_ENABLE", applies=OFF, text="NCCL's RAS is off: it cannot tell which rank lags"),
    Rule(
        name="NCCL_DEBUG",
        applies=_is("TRACE"),
        text="every NCCL call is printed: slow, large, left over from debugging?",
    ),
    Rule(
        name="NCCL_DEBUG_SUBSYS",
        applies=lambda value: bool({"ALL", "COLL"} & set(value.upper().replace(" ", "").split(","))),
        text="a line for each collective: slow and large, but the rank that lags can be counted out",
        level="note",
    ),
    Rule(
        name="NCCL_DEBUG_FILE",
        applies=lambda value: bool(value) and "%p" not in value,
        text="without %p all ranks of a node write one file, and each cuts it when it starts",
    ),
    *(
        Rule(name=name, applies=_anything, text=EQUAL, level="note")
        for name in (
            "NCCL_ALGO",
            "NCCL_PROTO",
            "NCCL_NET",
            "NCCL_IB_DISABLE",
            "NCCL_P2P_DISABLE",
            "NCCL_SHM_DISABLE",
        )
    ),
)


def examined(variables: Mapping[str, str], torch: Version | None) -> tuple[Variable, ...]:
    """What of the environment matters, warnings first. A variable that does two things stands twice."""
    found = [*_dangers(variables), *_armed(variables)]
    found += _unarmed(variables, torch)
    order = {"warning": 0, "note": 1, "unknown": 2, "ok": 3}
    return tuple(sorted(found, key=lambda item: order[item.level]))


def _dangers(variables: Mapping[str, str]) -> Iterator[Variable]:
    for rule in RULES:
        value = variables.get(rule.name)
        if value is not None and rule.applies(value):
            yield Variable(name=rule.name, value=value, level=rule.level, text=rule.text)


def _armed(variables: Mapping[str, str]) -> Iterator[Variable]:
    wrong = {item.name for item in _dangers(variables)}
    for row in ROWS:
        setting = row.setting
        value = variables.get(setting.name)
        if value and setting.value is not None and setting.recommended and setting.name not in wrong:
            yield Variable(name=setting.name, value=value, level="ok", text=setting.gives)


def _unarmed(variables: Mapping[str, str], torch: Version | None) -> Iterator[Variable]:
    """The recorder is what a verdict rests on most: that it is off is worth a line of its own."""
    if torch is None or torch >= (2, 13):
        return
    names = ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE")
    if not any(variables.get(name) for name in names):
        text = "the flight recorder is off by default in this torch: no rank can tell what it entered"
        yield Variable(name=names[0], value="", level="warning", text=text)

"""XLA (JAX, TensorFlow): rendezvous of device threads, TPU start-up, Megascale's digests.

Numbers are *devices*, not ranks: one process drives several. The group of the events is ``xla-devices``.

- until 2021 (``pjrt``'s ``rendezvous.h``): *participant for device ordinal 1 … waiting for all participants*,
  whose key lists the devices: what no line has come from is missing;
- since 2023 (``xla/service/rendezvous.cc``): *waiting for `initialize clique for rank 6; …` for 10 seconds*;
- since 2024 (``gpu_clique_key``): *`Acquire clique: devices=4:[1,2,3,5]; …`*: a list cut short names nobody.

>>> from .interface import Line
>>> from hangscope.model.loose import NOBODY
>>> stuck = ("This thread has been waiting for 5000ms for and may be stuck: participant for device ordinal "
...     "{}, stream 0x1 waiting for all participants to arrive at rendezvous RendezvousKey{{run_id=RunId: 7, "
...     "global_devices=[0, 1, 2], num_local_participants=3, collective_op_kind=cross_replica, op_id=1}}")
>>> lines = [Line(at, stuck.format(at), NOBODY, "x") for at in (1, 2)]
>>> (fact,), after = read_participants(lines, 0)
>>> fact.kind, fact.about, fact.about_group_ranks, fact.group, fact.world_size, after
('stall-missing', (0,), True, 'xla-devices', 3, 2)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hangscope.model.loose import LogEvent

from .interface import BlockForm, Facts, Line, LineForm
from .raw import real

DEVICES = "xla-devices"
MOST_LINES = 4096
_PARTICIPANT = re.compile(
    r"participant for device ordinal (?P<ordinal>\d{1,6}),? .{0,200}?"
    r"rendezvous (?P<key>RendezvousKey\{.{1,2000})"
)
_GLOBAL = re.compile(
    r"global_devices=\[(?P<devices>[\d, ]{1,1500})\], num_local_participants=(?P<local>\d{1,6})"
)
_WAITING = re.compile(
    r"waiting for `(?P<what>[^`]{1,1500})` for (?P<seconds>\d{1,9}) seconds"
    r"(?:.{0,40}?Expected (?P<expected>\d{1,7}) threads to join)?"
)
_RANK = re.compile(r"\bfor rank (?P<rank>\d{1,7})\b")
_CLIQUE = re.compile(r"`(?P<what>Acquire clique: devices=(?P<size>\d{1,7}):\[[^`]{1,1500})`")
_TPU = re.compile(
    r"TPU backend initialization is taking more than (?P<seconds>\d{1,9}(?:\.\d{1,3})?) seconds"
)
_MEGASCALE = re.compile(r"Potential cause: (?P<cause>[A-Z][A-Z_]{3,80})\b")


def read_participants(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """The lines of one rendezvous: which of its devices have no thread there."""
    first = _PARTICIPANT.search(lines[start].text)
    if first is None:
        return (), start
    key = first["key"].rstrip()
    ordinals = {int(first["ordinal"])}
    at = start + 1
    while at < min(len(lines), start + MOST_LINES):
        other = _PARTICIPANT.search(lines[at].text)
        if other is None or other["key"].rstrip() != key:
            break
        ordinals.add(int(other["ordinal"]))
        at += 1
    fields: dict[str, Any] = {"kind": "stall-waiting", "about": tuple(sorted(ordinals))}
    listed = _GLOBAL.search(key)
    if listed is not None:
        devices = {int(word) for word in re.findall(r"\d{1,7}", listed["devices"])}
        fields["world_size"] = len(devices)
        # ordinals are local: they are the global devices only where one process has all of them
        if int(listed["local"]) == len(devices) and ordinals < devices:
            fields |= {"kind": "stall-missing", "about": tuple(sorted(devices - ordinals))}
    return (_event(lines[start], key[:200], fields),), at


def read_line(line: Line) -> Facts:
    """A rendezvous that somebody waits in, TPU start-up, a Megascale digest: *stall-waiting*."""
    text = line.text
    waiting, clique = _WAITING.search(text), _CLIQUE.search(text)
    if waiting is not None:
        rank = _RANK.search(waiting["what"])
        fields = {
            "about": (int(rank["rank"]),) if rank is not None else (),
            "seconds": real(waiting["seconds"]),
            "world_size": int(waiting["expected"]) if waiting["expected"] else None,
        }
        return (_event(line, waiting["what"][:200], fields),)
    if clique is not None and "waiting" in text:
        return (_event(line, clique["what"][:200], {"world_size": int(clique["size"])}),)
    if (tpu := _TPU.search(text)) is not None:
        return (_event(line, "TPU initialization", {"seconds": real(tpu["seconds"])}),)
    if (digest := _MEGASCALE.search(text)) is not None and "egascale" in text + line.path:
        return (_event(line, digest["cause"], {}),)
    return ()


def _event(line: Line, key: str, fields: dict[str, Any]) -> LogEvent:
    return LogEvent(
        **{"kind": "stall-waiting", **fields},
        origin=line.origin,
        about_group_ranks=True,
        group=DEVICES,
        counter="xla",
        key=key,
        text=line.text.strip()[:400],
        ref=line.ref,
    )


PARTICIPANTS = BlockForm(
    name="xla-participants",
    title="XLA: participants by device ordinal",
    openers=("participant for device ordinal ",),
    read=read_participants,
)
LINE = LineForm(
    name="xla-rendezvous",
    title="XLA: rendezvous, TPU start-up, Megascale digests",
    needles=("waiting for `", "`Acquire clique: ", "TPU backend initialization", "Potential cause: "),
    read=read_line,
)

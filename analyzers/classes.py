"""Ranks that do the same are one line for the reader: the report follows classes, not ranks."""

from __future__ import annotations

import msgspec

from ..model.facts import Ref
from .graph import Built
from .graph.operations import slot_label
from .job import Job
from .places import place, shown
from .presence import Presence


class RankClass(msgspec.Struct, frozen=True, kw_only=True):
    """``what``: the operation, the wait or the presence that the ranks have in common."""

    ranks: tuple[int, ...]
    what: str
    at: str | None = None
    ref: Ref | None = None


def rank_classes(job: Job, built: Built, presences: dict[int, Presence]) -> tuple[RankClass, ...]:
    """Returns every rank in exactly one class, the largest class first. The key is the operation's slot (its
    group and sequence are in it), else what the main thread waits for and where, and the state; ranks in
    operations of two groups are never in one class."""
    slot_of = {joiner.rank: slot for slot in built.slots.values() for joiner in slot.joiners}
    groups: dict[tuple[object, ...], list[int]] = {}
    found: dict[tuple[object, ...], RankClass] = {}
    for rank in job.members:
        presence = presences[rank]
        process = presence.process
        if presence.being != "alive" or process is None:
            ref = presence.refs[0] if presence.refs else None
            made = RankClass(ranks=(), what=presence.why, ref=ref)
        else:
            wait = job.wait(process, process.pid)
            slot = slot_of.get(rank)
            what = f"in {slot_label(slot)}" if slot is not None else (wait.why or wait.kind.value)
            made = RankClass(ranks=(), what=what, at=place(shown(wait)), ref=wait.ref)
        main = job.threads(process).get(process.pid) if process is not None else None
        group = slot_of[rank].id if rank in slot_of and presence.being == "alive" else None
        key = (group, presence.being, made.what, made.at, main.state if main is not None else None)
        groups.setdefault(key, []).append(rank)
        found.setdefault(key, made)
    classes = [msgspec.structs.replace(found[key], ranks=tuple(ranks)) for key, ranks in groups.items()]
    return tuple(sorted(classes, key=lambda item: (-len(item.ranks), item.ranks)))

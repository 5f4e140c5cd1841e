"""Who has not come to the store, told by the number of those who have.

The store's host counts processes before any of them does anything else: while one has not come, it answers
nobody's keys, and whoever waits for a key of the host's rank waits for the one that has not come (torch,
``TCPStore::waitForWorkers``).
"""

from __future__ import annotations

from collections.abc import Iterable

from hangscope.model.loose import LogEvent, LooseFact

from .identities import WORLD, Identities
from .lanes import Lanes

CLIENTS = "store clients"
"""The key under which the reader of store lines puts the count of the host."""
FIRST_ADDRESS = "/default_pg/0//cpu//0/0"
"""Under it rank 0 publishes where its gloo listens, once the store is complete."""
OF_LAUNCHERS = frozenset({"exit", "exit-first", "terminated-by-launcher", "restart"})
WAITS = ("store-waiting", "store-timeout", "rendezvous-timeout")


def add_missing_by_count(lanes: Lanes, events: Iterable[LogEvent], who: Identities) -> None:
    """Where as many ranks say that they wait at the store as are counted there, the rest of the job has not
    come. Every rank that waits for any key has come to the store itself."""
    come: dict[tuple[str, int], int] = {}
    waiting: dict[str, set[int]] = {}
    for event in events:
        rank = who.event_rank(event)
        if event.kind not in WAITS or rank is None:
            continue
        waiting.setdefault(CLIENTS, set()).add(rank)
        if not event.key or event.code is None or not event.world_size:
            continue
        if who.world_size in (None, event.world_size):
            counted = (event.key, event.world_size)
            come[counted] = max(come.get(counted, 0), event.code)
            waiting.setdefault(event.key, set()).add(rank)
    for (key, size), count in come.items():
        ranks = waiting[key]
        if len(ranks) != count or count >= size or max(ranks) >= size:
            continue
        if who.world_size is None and key != CLIENTS:
            continue
        lane = lanes.lane(f"store:{key}", WORLD)
        lane.tallied = True
        for rank in set(range(size)) - ranks:
            standing = lane.standing(rank)
            known = standing.known
            standing.limit(0, firm=True)
            standing.known = known  # it is spoken of; nothing of its own was read


def unmet(facts: Iterable[LooseFact]) -> LogEvent | None:
    """The store's host that has waited for clients in vain; None where no line says so."""
    return next((fact for fact in facts if isinstance(fact, LogEvent) and _short(fact)), None)


def _short(event: LogEvent) -> bool:
    counted = event.kind == "rendezvous-timeout" and event.key == CLIENTS
    return counted and event.code is not None and event.code < (event.world_size or 0)


def host_may_wait(facts: Iterable[LooseFact], rank: int, keys: Iterable[str]) -> bool:
    """Whether the rank may be the store's host, still waiting for others, when its address in the first group
    is asked for. Under a launcher, which hosts the store itself, it is not."""
    if rank != 0 or not any(key.endswith(FIRST_ADDRESS) for key in keys):
        return False
    return not any(isinstance(fact, LogEvent) and fact.kind in OF_LAUNCHERS for fact in facts)

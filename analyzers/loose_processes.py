"""Which dumps and rows of ps are of one process: by rank, by pid within a node or file, by thread idents."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..model.loose import Origin, ProcessState, StackDump
from .loose_merge import Look, looks_of


class Group(msgspec.Struct, kw_only=True, eq=False):
    """What belongs to one process."""

    origin: Origin
    artifact: str
    title: str = ""
    dumps: list[StackDump] = msgspec.field(default_factory=list)
    states: list[ProcessState] = msgspec.field(default_factory=list)
    looks: list[Look] = msgspec.field(default_factory=list)

    def fits(self, origin: Origin, artifact: str) -> bool:
        """Whether a fact of that origin is of this process. A pid alone proves it within one node or file."""
        mine = self.origin
        for one, other in ((mine.rank, origin.rank), (mine.pid, origin.pid), (mine.node, origin.node)):
            if None not in (one, other) and one != other:
                return False
        if mine.rank is not None and origin.rank is not None:
            return True
        same_place = artifact == self.artifact or (mine.node is not None and mine.node == origin.node)
        return mine.pid is not None and mine.pid == origin.pid and same_place


def processes_of(dumps: Iterable[StackDump], states: Iterable[ProcessState]) -> list[Group]:
    """Dumps and rows of ps by process, in the order in which they came. One that fits two is of neither."""
    groups: list[Group] = []
    index: dict[object, list[Group]] = {}
    for dump in dumps:
        found = _fitting(index, dump)
        if len(found) != 1:
            found = [Group(origin=dump.origin, artifact=dump.ref.artifact)]
            groups += found
        group = found[0]
        group.dumps.append(dump)
        group.title = group.title or dump.title
        group.origin = _joined(group.origin, dump.origin)
        for key in (("rank", group.origin.rank), ("pid", group.origin.pid), _idents(dump)):
            if key[1] is not None and group not in index.setdefault(key, []):
                index[key].append(group)
    _add_states(groups, index, states)
    for group in groups:
        group.looks = looks_of(group.dumps, group.states)
    return groups


def _fitting(index: dict[object, list[Group]], dump: StackDump) -> list[Group]:
    origin = dump.origin
    near = [*index.get(("rank", origin.rank), ()), *index.get(("pid", origin.pid), ())]
    unique = {id(group): group for group in near}
    found = [group for group in unique.values() if group.fits(origin, dump.ref.artifact)]
    if found or origin.pid is not None:
        return found
    again = index.get(_idents(dump), ())
    return [group for group in again if origin.rank in (None, group.origin.rank)]


def _idents(dump: StackDump) -> tuple[str, object]:
    """What tells a process again whose pid is unknown: the same threads by ``pthread_self``, in one file."""
    known = frozenset(thread.ident for thread in dump.threads if thread.ident is not None)
    if dump.origin.pid is not None or len(known) < len(dump.threads):
        return "idents", None
    return "idents", (dump.ref.artifact, known)


def _joined(one: Origin, other: Origin) -> Origin:
    """The origin that both make together."""
    names = ("rank", "local_rank", "node", "pid", "attempt", "wall", "source")
    missing = {name: getattr(other, name) for name in names if getattr(one, name) is None}
    return msgspec.structs.replace(one, **missing)


def _add_states(
    groups: list[Group], index: dict[object, list[Group]], states: Iterable[ProcessState]
) -> None:
    """A row of ps belongs to the only dumped process with its pid. A child's row makes the child known."""
    for state in states:
        same = [g for g in index.get(("pid", state.pid), ()) if _one_node(g.origin, state.origin)]
        parents = [g for g in index.get(("pid", state.ppid), ()) if _one_node(g.origin, state.origin)]
        if len(same) == 1:
            same[0].states.append(state)
            same[0].title = same[0].title or state.command
            same[0].origin = _joined(same[0].origin, state.origin)
        elif not same and (len(parents) == 1 or state.origin.rank is not None):
            group = Group(
                origin=msgspec.structs.replace(state.origin, pid=state.pid),
                artifact=state.ref.artifact,
                title=state.command,
                states=[state],
            )
            groups.append(group)
            index.setdefault(("pid", state.pid), []).append(group)


def _one_node(one: Origin, other: Origin) -> bool:
    return None in (one.node, other.node) or one.node == other.node

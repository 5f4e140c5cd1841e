"""What the members' earlier operations say of a rank that has not joined: it may have left the common path,
and those who joined may be the ones who did."""

from __future__ import annotations

import msgspec

from hangscope.model.ranges import ranks_phrase

from .alignment import Operation
from .differences import Difference, first_difference, parted_places
from .finding import Cap, Finding
from .hidden_waits import hidden_wait, unnoted
from .picture import Picture, is_arrival


def tempered(finding: Finding, picture: Picture) -> Finding:
    """What makes a blocked rank's finding weaker, or another kind: most of a group has not joined; its own
    history shows where it left the path."""
    absent = finding.cause == "store-wait-missing-rank" and not any(
        operation.lane.tallied for operation in finding.operations
    )
    if not (finding.kind == "rank-blocked" or absent) or finding.type != "rank":
        return finding
    why = hidden_wait(picture, finding.ranks, finding.operations)
    if why is not None:
        return msgspec.structs.replace(
            finding, kind="undecided", ranks=(), fact=why, unknown=tuple({*finding.unknown, *finding.ranks})
        )
    collective = [operation for operation in finding.operations if not is_arrival(operation)]
    if not collective:
        return finding
    if (doubt := unnoted(picture, finding.ranks)) is not None:
        finding = msgspec.structs.replace(finding, caps=(*finding.caps, ("low", doubt)))
    found = _by_history(finding, collective[0])
    if found.kind != "rank-blocked":
        return found
    for operation in collective:
        members = len(operation.lane.members or operation.lane.standings)
        lacking = set(operation.lacking) & set(finding.ranks)
        if len(lacking) > 1 and 2 * len(lacking) >= members:
            fact = (
                f"{len(lacking)} of {members} members have not joined {operation.name}: they are held up, or "
                f"{ranks_phrase(operation.joined)} entered one too many"
            )
            return msgspec.structs.replace(finding, kind="undecided", ranks=(), fact=fact)
    return found


def _by_history(finding: Finding, operation: Operation) -> Finding:
    """What the members' earlier operations say: the minority whose path parted may be ahead as well."""
    lane = operation.lane
    earlier = first_difference(lane)
    if earlier is not None and earlier.sequence < operation.sequence:
        if earlier.odd == finding.ranks:
            return _diverged(finding, earlier, "rank-skips-collective")
        why = f"the members differ at #{earlier.sequence} already, and not in {ranks_phrase(finding.ranks)}"
        caps: tuple[Cap, ...] = (*finding.caps, ("low", why))
        if earlier.odd and set(operation.waiting) <= set(earlier.odd):
            return msgspec.structs.replace(
                finding,
                kind="rank-diverged" if earlier.elsewhere else "mismatch",
                ranks=earlier.odd,
                victims=tuple(sorted({*finding.victims, *finding.ranks} - set(earlier.odd))),
                cause="collective-order-mismatch",
                fact=f"{ranks_phrase(earlier.odd)} differed at #{earlier.sequence}, and is ahead",
                difference=earlier,
                caps=(*finding.caps, ("low", "only the majority says who left the common path")),
            )
        if earlier.odd:
            return msgspec.structs.replace(finding, difference=earlier, caps=caps)
        fact = f"the members differ at #{earlier.sequence} already: who left the common path is ambiguous"
        return msgspec.structs.replace(
            finding,
            kind="mismatch",
            ranks=(),
            victims=tuple(sorted({*finding.victims, *finding.ranks})),
            cause="collective-order-mismatch",
            fact=fact,
            difference=earlier,
            caps=caps,
        )
    parted = parted_places(lane, operation.sequence)
    if parted is None:
        return finding
    if parted.odd == finding.ranks:
        return _diverged(finding, parted, "rank-local-condition-divergence")
    if parted.odd and set(parted.odd) <= set(operation.waiting):
        fact = f"{ranks_phrase(parted.odd)} took another path from #{parted.sequence} on, and is ahead"
        ahead = msgspec.structs.replace(
            finding,
            ranks=parted.odd,
            victims=tuple(sorted({*finding.victims, *finding.ranks} - set(parted.odd))),
            fact=fact,
            caps=(*finding.caps, ("low", "only call sites and a majority say who left the common path")),
        )
        return _diverged(ahead, parted, "rank-local-condition-divergence")
    fact = (
        f"from #{parted.sequence} on the members called from different places: who left the path is ambiguous"
    )
    return msgspec.structs.replace(finding, kind="undecided", ranks=(), fact=fact, difference=parted)


def _diverged(finding: Finding, difference: Difference, cause: str) -> Finding:
    return msgspec.structs.replace(finding, kind="rank-diverged", cause=cause, difference=difference)

"""Where a job's ranks must be: all on this node, or which of them. Only what the job itself says, no DNS.

Python >= 3.8, standard library only.
"""

import base64
import json
import re
from typing import Any, List, Optional, Sequence, Set, Tuple

from .kinship import Family
from .rank_claims import Claim

Extent = Tuple[Optional[bool], Optional[Tuple[int, ...]]]
"""(single node: True, False, None = not known; the global ranks that this node hosts, or None)."""
MOST_RANKS = 1 << 20


def extent(ranks: Sequence[Claim], family: Family) -> Extent:
    """What is known of the job of these ranks."""
    size = next((claim.world_size for claim in ranks if claim.world_size is not None), None)
    if size is None or size > MOST_RANKS:
        return None, None
    if _all_here(ranks, size):
        return True, tuple(range(size))
    blocks = _blocks(ranks, size)
    if blocks is not None:
        whole = len(blocks) == size
        # two agents may share a host: without the address of another host, "elsewhere" is not sure
        return (True if whole else None if _loopback(ranks) else False), blocks
    return _by_launcher(ranks, size, family)


def _all_here(ranks: Sequence[Claim], size: int) -> bool:
    seen = {claim.rank for claim in ranks if claim.rank is not None}
    local = {claim.identity.local_world_size for claim in ranks if claim.identity is not None}
    if len(seen) == size or size in local:
        return True
    return local == {None} and _loopback(ranks)


def _loopback(ranks: Sequence[Claim]) -> bool:
    """Whether the ranks meet at this host's loopback address. In a Kubernetes pod that proves nothing: the
    operator for PyTorchJob tells the master's own pod ``localhost``. The host's own name or address proves
    nothing either: the node of rank 0 of any job has it."""
    for claim in ranks:
        address = claim.variable("MASTER_ADDR") or ""
        if address not in ("localhost", "::1") and not re.fullmatch(r"127(\.\d{1,3}){3}", address):
            return False
        if claim.variable("KUBERNETES_SERVICE_HOST") is not None:
            return False
    return True


def _blocks(ranks: Sequence[Claim], size: int) -> Optional[Tuple[int, ...]]:
    """torchrun numbers the ranks of an agent in one block, which starts at rank - local rank."""
    found: Set[int] = set()
    for claim in ranks:
        known = claim.identity
        if known is None or known.local_rank is None or known.local_world_size is None:
            continue
        if not known.source.endswith(" RANK") or not known.local_rank < known.local_world_size <= size:
            continue
        first = known.rank - known.local_rank
        found.update(range(max(0, first), min(size, first + known.local_world_size)))
    return tuple(sorted(found)) or None


def _by_launcher(ranks: Sequence[Claim], size: int, family: Family) -> Extent:
    first = ranks[0]
    source = "" if first.identity is None else first.identity.source
    if source.endswith("SLURM_PROCID"):
        nodes = first.variable("SLURM_STEP_NUM_NODES") or first.variable("SLURM_NNODES")
        if nodes == "1":
            return True, tuple(range(size))
        tasks = [int(word) for word in (first.variable("SLURM_GTIDS") or "").split(",") if word.isdigit()]
        return (None if nodes is None else False), tuple(sorted(tasks)) or None
    local = None if first.identity is None else first.identity.local_world_size
    if source.endswith(("OMPI_COMM_WORLD_RANK", "PMI_RANK")) and local is not None and local < size:
        return False, None
    return _world_info(ranks, size, family)


def _world_info(ranks: Sequence[Claim], size: int, family: Family) -> Extent:
    """DeepSpeed's launcher carries ``--world_info``: base64 of {"host": [slots]}, ranks in that order."""
    for ancestor in family.ancestors(ranks[0].process.pid):
        arguments = family.table[ancestor].cmdline or ()
        hosts = _decode(_option(arguments, "--world_info"))
        if not hosts or sum(hosts) != size:
            continue
        if len(hosts) == 1:
            return True, tuple(range(size))
        node = _option(arguments, "--node_rank") or ""
        if node.isdigit() and int(node) < len(hosts):
            before = sum(hosts[: int(node)])
            return False, tuple(range(before, before + hosts[int(node)]))
        return False, None
    return None, None


def _option(arguments: Sequence[str], name: str) -> Optional[str]:
    for number, word in enumerate(arguments):
        if word.startswith(name + "="):
            return word[len(name) + 1 :]
        if word == name and number + 1 < len(arguments):
            return arguments[number + 1]
    return None


def _decode(text: Optional[str]) -> List[int]:
    """Slots of each host, in order; [] when it is not what it should be."""
    try:
        hosts: Any = json.loads(base64.urlsafe_b64decode(text or ""))
    except ValueError:
        return []
    if not isinstance(hosts, dict) or not all(isinstance(slots, list) for slots in hosts.values()):
        return []
    return [len(slots) for slots in hosts.values()]

"""Where everything stands in a bundle, and which versions of the format are understood. See FORMAT.md.

Python >= 3.8, standard library only: the writer on the stuck node imports it.
"""

import re
from typing import NamedTuple, Optional

from ..errors import BundleError, NewerFormat

NAME = "hangscope-bundle"
MAJOR = 1
FORMAT = f"{NAME}/{MAJOR}"

MANIFEST = "manifest.json"
SHARDS = "shards"
SHARD_SUFFIX = ".tar.gz"

NODE = "node.json"
PROCESSES = "processes.json"
SEAL = "status.json"
STATUS = "status.json"
"""Name of a cell's status member, and of the seal at the top of a shard."""

STREAM_CUT = "stream cut"
ADVICE = "hangscope capture -p PID, which writes one"
"""The reason of a cell whose status never arrived."""

_SHARD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
_MEMBER = re.compile(
    r"(?P<top>node\.json|processes\.json|status\.json)"
    r"|intern/(?P<table>frames|stacks)-(?P<first>\d{1,9})\.json"
    r"|s(?P<sample>\d{1,6})/(?P<collector>[a-z][a-z0-9_]{0,39})/(?:node|pid-(?P<pid>\d{1,10}))"
    r"/(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,39})"
)


class Place(NamedTuple):
    """What a member's path says. Exactly one of ``top``, ``table`` and ``collector`` is set."""

    top: Optional[str] = None
    table: Optional[str] = None
    first: int = 0
    sample: int = 0
    collector: Optional[str] = None
    pid: Optional[int] = None
    name: str = ""


def cell_path(sample: int, collector: str, pid: Optional[int]) -> str:
    """The folder of one cell inside a shard: ``s0/threads/pid-4711``."""
    subject = "node" if pid is None else f"pid-{pid}"
    return f"s{sample}/{collector}/{subject}"


def intern_path(table: str, first: int) -> str:
    """The member that continues ``frames`` or ``stacks`` from table index ``first``."""
    return f"intern/{table}-{first}.json"


def place_of(path: str) -> Optional[Place]:
    """What a member path means, or None for one that has no place in this format."""
    match = _MEMBER.fullmatch(path)
    if match is None:
        return None
    if match["top"] is not None:
        return Place(top=match["top"])
    if match["table"] is not None:
        return Place(table=match["table"], first=int(match["first"]))
    pid = None if match["pid"] is None else int(match["pid"])
    return Place(sample=int(match["sample"]), collector=match["collector"], pid=pid, name=match["name"])


def shard_path(name: str) -> str:
    """The shard's path inside a bundle. Raises ValueError for a name that could leave its folder."""
    if not _SHARD_NAME.fullmatch(name):
        raise ValueError(f"not a shard name: {name!r}")
    return f"{SHARDS}/{name}{SHARD_SUFFIX}"


def shard_name(host: str) -> str:
    """A valid shard name close to a host name (or any other text)."""
    cleaned = re.sub(r"[^A-Za-z0-9._-]", "-", host)[:100].lstrip("._-")
    return cleaned or "node"


def shard_of(path: str) -> Optional[str]:
    """The shard's name when ``path`` is the place of a shard in a bundle, else None."""
    folder, _, file = path.partition("/")
    if folder != SHARDS or not file.endswith(SHARD_SUFFIX):
        return None
    name = file[: -len(SHARD_SUFFIX)]
    return name if _SHARD_NAME.fullmatch(name) else None


def check_format(value: object) -> None:
    """Returns when this tool reads the format ``value`` (the ``format`` field of a manifest or node).

    Raises NewerFormat for a later major version, BundleError for anything else that is not ours.
    """
    match = re.fullmatch(rf"{NAME}/(\d{{1,6}})(?:\.\d{{1,6}})?", value) if isinstance(value, str) else None
    if match is None:
        raise BundleError("this is no hangscope bundle", f"its format field is {ascii(value)[:60]}", ADVICE)
    if int(match[1]) > MAJOR:
        raise NewerFormat(
            "the bundle is of a newer format",
            f"it is {NAME}/{int(match[1])}, this hangscope reads up to {FORMAT}",
            "pip install --upgrade hangscope",
        )
    if int(match[1]) < 1:
        raise BundleError("this is no hangscope bundle", f"there never was a {ascii(value)[:60]}", ADVICE)

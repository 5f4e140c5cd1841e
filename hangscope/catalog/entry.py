"""What an entry of the catalogue is, and how its file is read."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from ..errors import HangscopeError

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

FOLDER = Path(__file__).with_name("entries")

Category = Literal[
    "order", "mismatch", "host", "rank-died", "start-up", "network", "gpu", "slow", "look-alike"
]
Severity = Literal["critical", "high", "medium", "low"]
Framework = Literal["PyTorch", "HF Trainer", "DeepSpeed", "Megatron", "Lightning", "vLLM", "any"]

CATEGORIES: dict[Category, str] = {
    "order": "the ranks do not make the same calls in the same order",
    "mismatch": "all ranks came, with operations that do not fit together",
    "host": "a rank is blocked in host code",
    "rank-died": "a rank has died, or was stopped",
    "start-up": "a rank never came, or the job does not get past its start",
    "network": "the ranks cannot reach one another",
    "gpu": "a GPU or its driver does not answer",
    "slow": "the job moves, too slowly",
    "look-alike": "no hang, or a sight that several causes share",
}
"""In the order of the list, each with what it means."""

SEVERITIES: tuple[Severity, ...] = get_args(Severity)

Text = Annotated[str, Meta(min_length=1)]
Name = Annotated[str, Meta(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*\Z")]


class BrokenEntry(HangscopeError):
    """A file of the catalogue that is no entry."""


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the tables of an entry have in common: no key that nobody reads."""


class Symptom(Part, frozen=True):
    """``see``: a log line, a stack, a counter; ``why``: what makes it look so."""

    see: Text
    why: Text


class Confirmation(Part, frozen=True):
    """A command that only looks, and what its output must show."""

    command: Text
    shows: Text


class RootCause(Part, frozen=True):
    name: Text
    detail: Text


class Fix(Part, frozen=True):
    """``command`` is empty where there is none; ``safe`` is False where work may be lost."""

    text: Text
    command: str
    safe: bool


class Prevention(Part, frozen=True):
    """``code`` is empty where there is none."""

    framework: Framework
    text: Text
    code: str


class LookAlike(Part, frozen=True):
    """``tell_apart``: the one fact that decides between this entry and that."""

    id: Name
    tell_apart: Text


class Reference(Part, frozen=True):
    """Upstream documentation or source, by name."""

    name: Text
    what: Text


class Entry(Part, frozen=True):
    """One way in which a job gets stuck, or seems to. Fields in the order of the file."""

    id: Name
    title: Text
    category: Category
    severity: Severity
    tags: Annotated[tuple[Text, ...], Meta(min_length=1)]
    executive: Text
    answer: Text
    mechanism: Text
    oncall: Annotated[tuple[Text, ...], Meta(min_length=2)]
    affects: Annotated[tuple[Text, ...], Meta(min_length=1)]
    duration: Text
    scale: Text
    fingerprint: Text
    related: tuple[Name, ...]
    symptoms: Annotated[tuple[Symptom, ...], Meta(min_length=3)]
    confirm: Annotated[tuple[Confirmation, ...], Meta(min_length=2)]
    root_causes: Annotated[tuple[RootCause, ...], Meta(min_length=1)]
    fix: Annotated[tuple[Fix, ...], Meta(min_length=2)]
    prevention: Annotated[tuple[Prevention, ...], Meta(min_length=2)]
    look_alikes: Annotated[tuple[LookAlike, ...], Meta(min_length=1)]
    references: Annotated[tuple[Reference, ...], Meta(min_length=1)]


def read(path: Path) -> Entry:
    """Returns the entry in the file. Raises BrokenEntry, naming the file and the key."""
    try:
        entry = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Entry)
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenEntry(f"{path.name}: cannot be read", str(error)) from error
    except tomllib.TOMLDecodeError as error:
        raise BrokenEntry(f"{path.name}: not TOML", str(error)) from error
    except msgspec.ValidationError as error:
        raise BrokenEntry(f"{path.name}: not an entry", str(error)) from error
    if entry.id != path.stem:
        raise BrokenEntry(f"{path.name}: not an entry", f"its id is {entry.id}, and must be its file's name")
    return entry


@functools.cache
def ids() -> tuple[str, ...]:
    """The ids of all entries, sorted; reads no file."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def find(name: str) -> Entry | None:
    """The entry of that id (capitals, spaces and underscores are forgiven), or None."""
    wanted = "-".join(name.lower().replace("_", " ").replace("-", " ").split())
    return _read_once(wanted) if wanted in ids() else None


@functools.cache
def _read_once(id: str) -> Entry:
    return read(FOLDER / f"{id}.toml")


@functools.cache
def entries() -> tuple[Entry, ...]:
    """All entries, by category in the order of ``CATEGORIES``, then by id. Raises BrokenEntry."""
    order = list(CATEGORIES)
    return tuple(sorted(map(_read_once, ids()), key=lambda entry: (order.index(entry.category), entry.id)))

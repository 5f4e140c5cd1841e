"""The fixtures of the forms: ``fixtures/loose/<form>/<case>`` and what ``truth.toml`` beside them demands."""

from __future__ import annotations

import pathlib
import sys
from collections import Counter
from collections.abc import Iterator

import msgspec

from hangscope.analyzers.readers.documents import Reading, read_document
from hangscope.analyzers.readers.interface import Document
from hangscope.loose import opened
from hangscope.model.loose import LogEvent

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = pathlib.Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures" / "loose"


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ``[[case]]``. ``facts``: how many of each, by the kind of a log event, else by type.

    ``kind``, ``initiators``, ``cause`` and ``confidence`` are of the verdict on this case alone.
    """

    file: str
    what: str
    facts: dict[str, int]
    kind: str = "undecided"
    initiators: tuple[int, ...] = ()
    wrong: tuple[int, ...] = ()
    cause: str | None = None
    confidence: str | None = None
    form: str = ""

    @property
    def path(self) -> pathlib.Path:
        """The file or folder."""
        return FIXTURES / self.form / self.file

    def documents(self) -> Iterator[Document]:
        """What stands in it, cited from the fixture's folder on."""
        for found in opened([str(self.path)]):
            if isinstance(found, Document):
                path = str(pathlib.Path(found.path).relative_to(FIXTURES / self.form))
                yield msgspec.structs.replace(found, path=path)

    def readings(self) -> list[tuple[Document, Reading]]:
        """What the forms understand of it."""
        return [(document, read_document(document)) for document in self.documents()]

    def counts(self) -> Counter[str]:
        """The facts in it, counted as ``facts`` does."""
        facts = (fact for _, reading in self.readings() for fact in reading.facts)
        return Counter(fact.kind if isinstance(fact, LogEvent) else type(fact).__name__ for fact in facts)


def folders() -> list[str]:
    """The forms that have a folder of fixtures."""
    return sorted(path.name for path in FIXTURES.iterdir() if path.is_dir()) if FIXTURES.is_dir() else []


def cases_of(form: str) -> list[Case]:
    """The cases of one form; none where it has no ``truth.toml``."""
    truth = FIXTURES / form / "truth.toml"
    if not truth.is_file():
        return []
    listed = tomllib.loads(truth.read_text(encoding="utf-8"))["case"]
    return [msgspec.convert({**case, "form": form}, Case) for case in listed]


CASES = [case for form in folders() for case in cases_of(form)]
NAMES = [f"{case.form}/{case.file}" for case in CASES]

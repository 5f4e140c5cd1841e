"""The table form → reader → fixtures → tests, made from the forms themselves."""

from __future__ import annotations

import inspect
import pathlib

from hangscope.analyzers.readers.forms import FORMS
from hangscope.analyzers.readers.interface import BlockForm, FileForm, Form

from .cases import FIXTURES, ROOT, cases_of

TABLE = FIXTURES / "FORMS.md"
HEAD = """\
# Every form of loose evidence

Made by `python -m tests.forms`. Each case is read, and judged alone, by `tests/forms/test_forms.py`; what it
must give stands in the `truth.toml` beside it.

| form | what it is | reader | variants (fixtures) | more tests |
| --- | --- | --- | --- | --- |
"""


def module_of(form: Form) -> pathlib.Path:
    """The reader's file, below ``analyzers``."""
    file = pathlib.Path(inspect.getsourcefile(inspect.unwrap(form.read)) or "").resolve()
    return file.relative_to(ROOT)


def tests_of(form: Form) -> list[str]:
    """Files of tests that import the reader's module."""
    module = module_of(form).stem
    found = []
    for path in sorted((ROOT / "tests" / "analyzers").rglob("test_*.py")):
        if f"readers.{module} " in path.read_text() or f"readers import {module}" in path.read_text():
            found.append(str(path.relative_to(ROOT)))
    return found


def table() -> str:
    """The whole file."""
    return HEAD + "".join(_row(form) for form in FORMS)


def _row(form: Form) -> str:
    shape = "file" if isinstance(form, FileForm) else "block" if isinstance(form, BlockForm) else "line"
    cases = "; ".join(f"{case.what} (`{case.file}`)" for case in cases_of(form.name))
    cells = (
        f"`{form.name}`, {shape}",
        form.title,
        f"`{module_of(form)}`",
        cases,
        ", ".join(f"`{test}`" for test in tests_of(form)),
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"

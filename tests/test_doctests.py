"""The samples in docstrings are run: what they show is what the code does."""

import doctest
import importlib
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]


def sampled() -> list[str]:
    """Import names of the modules that have a sample in a docstring."""
    found = []
    for folder in ("hangscope", "collectors", "analyzers"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if ">>> " in path.read_text():
                parts = path.relative_to(ROOT).with_suffix("").parts
                found.append(".".join(parts if folder == "hangscope" else ("hangscope", *parts)))
    return [name.removesuffix(".__init__") for name in found]


@pytest.mark.parametrize("name", sampled())
def test_docstring_samples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0

"""Every arrow of the layout: which folder may import what. The agent half must stay free of dependencies."""

import ast
import pathlib
import sys
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parents[1]

AGENT_SIDE = ("hangscope", "hangscope.errors", "hangscope.bundle")
"""What collectors may import of the program (the bundle reader excepted, see below)."""

ALLOWED: dict[str, tuple[str, ...]] = {
    "collectors": ("stdlib", "collectors", "pynvml", *AGENT_SIDE),
    "analyzers": (
        "stdlib",
        "analyzers",
        "msgspec",
        "networkx",
        "tomli",
        "hangscope.model",
        "hangscope.errors",
    ),
    "hangscope/bundle": ("stdlib", *AGENT_SIDE, "hangscope.model", "msgspec"),
    "hangscope/model": ("stdlib", "msgspec", "hangscope.model"),
    "hangscope/catalog": (
        "stdlib",
        "msgspec",
        "tomli",
        "hangscope.errors",
        "hangscope.report",
        "hangscope.catalog",
    ),
    "hangscope/report": (
        "stdlib",
        "msgspec",
        "rich",
        "hangscope.model",
        "hangscope.errors",
        "hangscope.report",
    ),
}


def modules(folder: str) -> list[pathlib.Path]:
    return sorted(path for path in (ROOT / folder).rglob("*.py"))


def dotted(path: pathlib.Path) -> str:
    """The import name of a file: both symlinked folders live below ``hangscope``."""
    relative = path.relative_to(ROOT).with_suffix("")
    parts = [part for part in relative.parts if part != "__init__"]
    return ".".join(parts if parts[0] == "hangscope" else ["hangscope", *parts])


def imports(path: pathlib.Path) -> Iterator[str]:
    """Full names of everything that the file imports, wherever in it."""
    package = dotted(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            prefix = [*start, *([node.module] if node.module else [])]
            yield from (".".join([*prefix, alias.name]) for alias in node.names)


def permitted(name: str, allowed: tuple[str, ...]) -> bool:
    if name.split(".")[0] in sys.stdlib_module_names or name.startswith("__future__"):
        return "stdlib" in allowed
    for prefix in allowed:
        full = f"hangscope.{prefix}" if prefix in ("collectors", "analyzers") else prefix
        if full == "hangscope":
            if name in ("hangscope", "hangscope.__version__"):
                return True
        elif name == full or name.startswith(full + "."):
            return True
    return False


@pytest.mark.parametrize("folder", ALLOWED)
def test_a_folder_imports_only_what_the_layout_allows(folder: str) -> None:
    found = modules(folder)
    assert found, f"no modules in {folder}"
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in found
        for name in imports(path)
        if not permitted(name, ALLOWED[folder])
    ]
    assert wrong == []


def test_the_agent_never_loads_the_bundle_reader_or_the_model() -> None:
    reader = ("reader.py", "shard_reader.py")
    agent = modules("collectors") + [p for p in modules("hangscope/bundle") if p.name not in reader]
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in agent
        for name in imports(path)
        if name.startswith(
            ("hangscope.bundle.reader", "hangscope.bundle.shard_reader", "hangscope.model", "msgspec")
        )
    ]
    assert wrong == []


def test_the_rule_itself_catches_what_it_forbids() -> None:
    assert not permitted("hangscope.analyzers.solve", ALLOWED["collectors"])
    assert not permitted("hangscope.collectors.stacks", ALLOWED["analyzers"])
    assert not permitted("msgspec", ALLOWED["collectors"])
    assert not permitted("hangscope.report.text", ALLOWED["analyzers"])
    assert permitted("hangscope.model.facts", ALLOWED["analyzers"])


def test_nothing_at_the_top_level_is_importable_as_collectors_or_analyzers() -> None:
    """Training repositories have folders of those names on their path."""
    for name in ("collectors", "analyzers"):
        link = ROOT / "hangscope" / name
        assert link.is_symlink() and link.readlink() == pathlib.Path("..") / name
    assert "collectors*" not in (ROOT / "pyproject.toml").read_text()


def test_only_the_command_line_prints() -> None:
    printing = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("collectors", "analyzers", "hangscope")
        for path in modules(folder)
        if path.relative_to(ROOT).parts[:2] != ("hangscope", "cli")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert printing == []

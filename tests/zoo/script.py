"""Turns a scenario's readable ``job.py`` into the anonymous script that really runs.

``job.py`` may use plain names and comments for its reader. What runs must give nothing away: every name
that the script defines is replaced by one drawn from a pool, comments and docstrings go, functions
change places, and which rank is special is drawn too. Everything follows from the seed.

Names with a meaning to the renderer (``job.py`` assigns them at the top, so that it also runs as it is):

``CHOSEN``, ``PARTNER``  two different ranks, drawn by the seed
``ANY_ORDER``            ``if ANY_ORDER:`` the statements below it may come in any order
``EITHER``               ``if EITHER: … else: …`` one of the two is kept
``"@1"``, ``"@2"``       strings that become names of the pool (thread names)
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterable
from typing import NamedTuple

WORDS = """
amber basalt birch breeze brook canyon cedar cinder clover cobalt coral cove crag delta dune ember
fern fjord flint garnet glade grove harbor hazel heath heron indigo iris ivory jade juniper kelp
lagoon larch laurel lichen linden lotus maple marble marsh meadow mesa mica moss nectar oak ochre
olive onyx opal orchid osprey pebble pine plover plum poplar quartz raven reed ridge river robin
rowan russet saffron sage sepia shale shoal sienna slate sorrel spruce summit tansy teal thicket
thistle tidal topaz umber vale violet walnut willow yarrow zephyr
"""
POOL = tuple(WORDS.split())
FIXED = ("CHOSEN", "PARTNER", "ANY_ORDER", "EITHER")
KEPT = frozenset({"run", "forward", "self", "main", "do_GET"})
"""Names that a framework calls, or that every script has."""


class Script(NamedTuple):
    """``text`` runs; ``chosen`` and ``partner`` are ranks; ``words`` maps ``@1`` to what it became."""

    text: str
    chosen: int
    partner: int
    words: dict[str, str]


def render(template: str, name: str, seed: int, candidates: Iterable[int]) -> Script:
    """The script of one seed, always the same. ``candidates``: the ranks that may be chosen."""
    chance = random.Random(f"{name}/{seed}")
    ranks = sorted(candidates)
    chosen = chance.choice(ranks)
    partner = chance.choice([rank for rank in ranks if rank != chosen] or [chosen])
    tree = ast.parse(template)
    words = list(POOL)
    chance.shuffle(words)
    names = {name: words.pop() for name in _variables(tree)}
    attributes = {name: words.pop() for name in _attributes(tree)}
    marks = {mark: words.pop() for mark in ("@1", "@2", "@3")}
    change = _Anonymous(names, attributes, marks, {"CHOSEN": chosen, "PARTNER": partner}, chance)
    anonymous = change.visit(tree)
    _shuffle_functions(anonymous, chance)
    return Script(ast.unparse(ast.fix_missing_locations(anonymous)) + "\n", chosen, partner, marks)


def _variables(tree: ast.AST) -> list[str]:
    """Functions, classes, arguments and variables that the script defines, in order of appearance."""
    imported = {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = None
        elif isinstance(node, ast.arg):
            found[node.arg] = None
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = None
    return _renamable(found, imported)


def _attributes(tree: ast.AST) -> list[str]:
    """Methods and attributes of the script's own classes."""
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found[node.attr] = None
        elif isinstance(node, ast.ClassDef):
            found.update((part.name, None) for part in node.body if isinstance(part, ast.FunctionDef))
    return _renamable(found, set())


def _renamable(found: Iterable[str], imported: set[str]) -> list[str]:
    skip = imported | KEPT | set(FIXED)
    return [name for name in found if name not in skip and not name.startswith("__")]


class _Anonymous(ast.NodeTransformer):
    """Renames, strips docstrings, fills in the ranks and resolves the seed's choices."""

    def __init__(
        self,
        names: dict[str, str],
        attributes: dict[str, str],
        marks: dict[str, str],
        values: dict[str, int],
        chance: random.Random,
    ) -> None:
        self.names = names
        self.attributes = attributes
        self.marks = marks
        self.values = values
        self.chance = chance

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self.names.get(node.name, node.name)
        node.body = _without_docstring(node.body)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self.names.get(node.name, node.name)
        for part in node.body:
            if isinstance(part, ast.FunctionDef):
                part.name = self.attributes.get(part.name, part.name)
        node.body = _without_docstring(node.body)
        return self.generic_visit(node)

    def visit_Module(self, node: ast.Module) -> ast.AST:
        node.body = _without_docstring(node.body)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self.names.get(node.arg, node.arg)
        node.annotation = None
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self.values:
            return ast.Constant(self.values[node.id])
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        node.attr = self.attributes.get(node.attr, node.attr)
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant(self.marks[node.value]) if node.value in self.marks else node

    def visit_Global(self, node: ast.Global) -> ast.AST:
        node.names = [self.names.get(name, name) for name in node.names]
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id in FIXED:
            return None
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.AST]:
        question = node.test.id if isinstance(node.test, ast.Name) else None
        if question not in ("ANY_ORDER", "EITHER"):
            return self.generic_visit(node)
        kept = node.body
        if question == "ANY_ORDER":
            self.chance.shuffle(kept)
        elif self.chance.random() < 0.5:
            kept = node.orelse
        done: list[ast.AST] = []
        for statement in kept:
            result = self.visit(statement)
            done.extend(result if isinstance(result, list) else [result])
        return done


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(body) > 1:
        return body[1:]
    return body


def _shuffle_functions(tree: ast.Module, chance: random.Random) -> None:
    """Functions of the module change places with one another; everything else stays."""
    places = [index for index, node in enumerate(tree.body) if isinstance(node, ast.FunctionDef)]
    functions = [tree.body[index] for index in places]
    chance.shuffle(functions)
    for index, node in zip(places, functions, strict=True):
        tree.body[index] = node

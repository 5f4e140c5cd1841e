import ast
import pathlib
import random
from typing import Any

import pytest

from hangscope.collectors import blocks, logical_lines

SOURCE = '''\
import threading
with open("a") as outer:
    def work(self, batch):
        """Text that looks like code:
        with not_this:
            for nor in this:
        """
        for step in range(3):  # with neither(this):
            async_ = f"{batch["key"]} {'}'} {step:>{width}}"
            with (
                self.lock,
                other(")") as held,
            ):
                wait_here(
  1,
                )
            while (x
                   == y):
                pass
            else:
                not_in_the_loop()
        with self.lock: on_the_line()
        lines = (
            a,
        )
        async with gate as g, \\
                door:
            @decorate(
                1)
            def inner(): pass
            class Local:
                value = 1
            await_here()
'''


def around(line: int, source: str = SOURCE) -> dict[str, Any] | None:
    return blocks.around(logical_lines.split(source, line), line)


WORK = "def work(self, batch)"
FOR = [8, "for step in range(3)"]


@pytest.mark.parametrize(
    ("line", "function", "withs", "loops"),
    [
        (3, None, [[2, 'open("a") as outer']], []),
        (9, WORK, [], [FOR]),
        (11, WORK, [], [FOR]),
        (12, WORK, [], [FOR]),
        (14, WORK, [[10, '( self.lock, other(")") as held, )']], [FOR]),
        (15, WORK, [[10, '( self.lock, other(")") as held, )']], [FOR]),
        (17, WORK, [], [FOR]),
        (19, WORK, [], [FOR, [17, "while (x == y)"]]),
        (21, WORK, [], [FOR]),
        (22, WORK, [], []),
        (24, WORK, [], []),
        (27, WORK, [], []),
        (28, WORK, [[26, "gate as g, door"]], []),
        (32, None, [], []),
        (33, WORK, [[26, "gate as g, door"]], []),
    ],
)
def test_the_blocks_around_a_line(line: int, function: str | None, withs: Any, loops: Any) -> None:
    assert around(line) == {"function": function, "withs": withs, "loops": loops}


@pytest.mark.parametrize("line", [0, 99])
def test_no_statement_no_blocks(line: int) -> None:
    assert around(line) is None


@pytest.mark.parametrize(
    "text",
    [
        'x = f"{a',
        "x = f'{a:{b'",
        "x = (((",
        '"""',
        "'",
        "\\",
        "f'''{",
        "x = f'{{'",
        "\tif x:\n  y",
        "\x0c\x00",
        "f'{a:\n",
    ],
)
def test_text_that_is_no_python_gives_lines_and_no_error(text: str) -> None:
    lines = logical_lines.split(text + "\nafter = 1\n", 9)
    assert all(line.first <= line.last for line in lines)


@pytest.mark.parametrize(
    "text",
    [
        """x = f"{d["("]}" """,
        """x = rf'\\{d["("]}' 'it' """,
        """x = f"{f"{f"{"("}"}"}" """,
        """x = f'{a:{b}(}' if"("else'(' """,
        """x = t'{a!r:>{w}}(' """,
        """x = f"{{(" "}}" """,
        """x = F'''{a}
(''' '' """,
        """x = b'(' r"\\"  # ( """,
        """x = '\\
(' """,
        '''x = f"""{(1
)}("""''',
    ],
)
def test_brackets_in_strings_open_nothing(text: str) -> None:
    source = text + "\nwith lock:\n    wait()\n"
    line = source.count("\n")
    found = around(line, source)
    assert found is not None
    assert found["withs"] == [[line - 1, "lock"]]


def test_a_statement_of_hundreds_of_lines_is_not_believed() -> None:
    assert around(300, "with lock:\n  x = (\n" + "1,\n" * 500 + ")\n") is None


def enclosing(tree: ast.AST) -> dict[int, tuple[bool, list[int], list[int]]]:
    """By Python's own parser: (in a function, with lines, loop lines) of each statement's first line."""
    found: dict[int, tuple[bool, list[int], list[int]]] = {}

    def visit(node: ast.AST, function: bool, withs: list[int], loops: list[int]) -> None:
        for field, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST):
                    continue
                here = (function, withs, loops)
                if field == "body":
                    match node:
                        case ast.FunctionDef() | ast.AsyncFunctionDef():
                            here = (True, [], [])
                        case ast.ClassDef():
                            here = (False, [], [])
                        case ast.With() | ast.AsyncWith():
                            here = (function, [*withs, node.lineno], loops)
                        case ast.For() | ast.AsyncFor() | ast.While():
                            here = (function, withs, [*loops, node.lineno])
                if isinstance(child, ast.stmt):
                    found.setdefault(child.lineno, here)
                visit(child, *here)

    visit(tree, False, [], [])
    return found


def test_agrees_with_pythons_parser_on_the_standard_library() -> None:
    files = sorted(pathlib.Path(ast.__file__).parent.glob("*.py"))
    generator = random.Random(3)
    checked = 0
    for path in generator.sample(files, 15):
        source = path.read_text(encoding="utf-8")
        lines = logical_lines.split(source, source.count("\n") + 1)
        headers = {line.first for line in lines}
        for line, (function, withs, loops) in enclosing(ast.parse(source)).items():
            found = blocks.around(lines, line)
            if line not in headers or found is None:
                continue  # a body on its header's line; a table of hundreds of lines
            checked += 1
            assert [with_[0] for with_ in found["withs"]] == withs, f"{path}:{line}"
            assert [loop[0] for loop in found["loops"]] == loops, f"{path}:{line}"
            assert (found["function"] is not None) == function, f"{path}:{line}"
    assert checked > 1000

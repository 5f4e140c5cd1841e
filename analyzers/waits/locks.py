"""Names of locks, from source text: the one that a line waits for, and those that enclosing blocks hold."""

from __future__ import annotations

import re

from hangscope.model.facts import Frame

from ..dictionary import lookup

WITH = re.compile(r"^(?:async\s+)?with\b\s*(?P<rest>.+)$")
CONDITION = re.compile(r"(?P<lock>[A-Za-z_][\w.]*(?:\[[^\]]*\])?)\.wait(?:_for)?\s*\(")
CONDITION_WAIT = re.compile(r"(?:Condition\.)?wait(?:_for)?")
ACQUIRE = re.compile(r"(?P<lock>[A-Za-z_][\w.]*(?:\[[\w.'\"]+\])?)\.(?:acquire|__enter__)\s*\(")
NAME = re.compile(r"^[A-Za-z_][\w]*(?:\.[A-Za-z_]\w*|\[(?:\d+|'[^']*'|\"[^\"]*\")\])*$")
LOCKLIKE = re.compile(r"lock|mutex|sem|cond|guard|cv\b|critical", re.IGNORECASE)
OTHER = re.compile(
    r"ctx|context|stream|grad|pool|executor|timer|profil|record|session|scope|graph|autocast|file|span",
    re.IGNORECASE,
)
"""Names of context managers that are no locks: streams, autocast, profilers, files, pools."""


def with_items(line: str) -> list[str]:
    """The context expressions of the ``with`` statement on a line; [] when there is none.

    >>> with_items("with a, b['x:y'] as c: work()"), with_items("with (a, b):"), with_items("x = 1")
    (['a', "b['x:y']"], ['a', 'b'], [])
    """
    block = WITH.match(line)
    if block is None:
        return []
    header = _before_colon(block["rest"]).strip()
    if header.startswith("(") and header.endswith(")"):
        header = header[1:-1]
    return items_of(header)


def _before_colon(text: str) -> str:
    """The part before the first colon outside of brackets: the header of a block."""
    depth = 0
    for index, letter in enumerate(text):
        depth += letter in "([{"
        depth -= letter in ")]}"
        if letter == ":" and depth == 0:
            return text[:index]
    return text


def items_of(text: str) -> list[str]:
    """The context expressions of a ``with`` statement's items, without ``as`` targets.

    >>> items_of("self.a, open(f, 'r') as g"), items_of("a.b")
    (['self.a', "open(f, 'r')"], ['a.b'])
    """
    found: list[str] = []
    depth, start = 0, 0
    for index, letter in enumerate(text):
        depth += letter in "([{"
        depth -= letter in ")]}"
        if letter == "," and depth == 0:
            found.append(text[start:index])
            start = index + 1
    found.append(text[start:])
    return [re.split(r"\sas\s", item)[0].strip() for item in found if item.strip()]


def is_lock(expression: str) -> bool:
    """True for an expression that may well be a lock: a plain name, and none of something else.

    >>> [is_lock(text) for text in ("self._a", "torch.no_grad()", "get_lock(1)", "locks[i]", "stream")]
    [True, False, False, False, False]
    """
    return NAME.match(expression) is not None and (
        LOCKLIKE.search(expression) is not None or OTHER.search(expression) is None
    )


def qualified(expression: str, frame: Frame) -> str:
    """``self.x`` as ``Class.x``: the class from the function's qualified name (Python >= 3.11).

    >>> qualified("self.a", Frame(function="Cache.put.<locals>.again", file="x.py"))
    'Cache.a'
    """
    head, dot, rest = expression.partition(".")
    owner = _class_of(frame.function)
    return f"{owner}.{rest}" if dot and head in ("self", "cls") and owner else expression


def _class_of(qualname: str) -> str | None:
    """The class that the method, or a function inside of the method, belongs to."""
    parts = qualname.split(".")
    for index in range(len(parts) - 1, 0, -1):
        if parts[index] != "<locals>" and parts[index - 1] != "<locals>":
            return parts[index - 1]
    return None


def waited_lock(frame: Frame) -> str | None:
    """The lock that the frame's own line takes: its only ``with`` item, or what it acquires. None when the
    line says nothing, or takes several."""
    text = frame.source.text if frame.source else ""
    taken = ACQUIRE.search(text)
    if taken:
        return qualified(taken["lock"], frame)
    names = with_items(text)
    return qualified(names[0], frame) if len(names) == 1 and is_lock(names[0]) else None


def takes_lock(frame: Frame) -> bool:
    """True when the line takes at least one lock, named or not."""
    text = frame.source.text if frame.source else ""
    taken = any(is_lock(item) or LOCKLIKE.search(item) for item in with_items(text))
    return taken or ACQUIRE.search(text) is not None


def held_locks(stack: tuple[Frame, ...]) -> tuple[str, ...]:
    """Locks of the ``with`` blocks that enclose the lines of the stack, outermost frame first.

    The standard library's own are left out, and so is the one that a condition gives back while it waits.
    """
    names = [name for frame in reversed(stack) for name in _enclosing(frame)]
    given_back = _given_back(stack)
    return tuple(dict.fromkeys(name for name in names if name != given_back))


def _enclosing(frame: Frame) -> list[str]:
    """The locks of the ``with`` blocks around a line of the user's, outermost first."""
    if frame.source is None or not frame.source.withs or _is_standard(frame):
        return []
    return [
        qualified(item, frame) for _, items in frame.source.withs for item in items_of(items) if is_lock(item)
    ]


def _given_back(stack: tuple[Frame, ...]) -> str | None:
    """The lock that ``Condition.wait`` has released: the condition itself where a ``with`` names it; else
    the nearest one held, as a condition can be made around another lock. None for a thread that waits
    in no condition of the user's (events, semaphores and queues have one of their own)."""
    index = 0
    while (
        index < len(stack) and CONDITION_WAIT.fullmatch(stack[index].function) and _is_standard(stack[index])
    ):
        index += 1
    if index in (0, len(stack)) or _is_standard(stack[index]):
        return None
    caller = stack[index]
    held = [name for frame in stack[index:] for name in reversed(_enclosing(frame))]
    text = caller.source.text if caller.source is not None else ""
    named = [qualified(found["lock"], caller) for found in CONDITION.finditer(text)]
    return next((name for name in held if name in named), held[0] if held else None)


def _is_standard(frame: Frame) -> bool:
    known = lookup(frame)
    return known is not None and known.row.framework == "Python"

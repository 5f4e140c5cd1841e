"""The same guarded call for many items: an item that blocks loses only its own answer.

One child works through the items; when it falls silent, it is killed, its item is skipped, and a fresh child
goes on with the rest. Python >= 3.8, standard library only.
"""

import time
from typing import Any, Callable, Iterable, Iterator, List, Sequence, Tuple

from . import guarded

MOST_STUCK = 32
"""Children that are started again, before the rest is given up: each stuck item may leave one behind."""


def each(
    function: Callable[[Any], Any], items: Sequence[Any], deadline: float, patience: float
) -> List[guarded.Outcome]:
    """``function(item)`` of every item, as Outcomes in the order of the items.

    ``deadline``: time.monotonic seconds for all; ``patience``: seconds without an answer that make an item
    count as stuck. Items not reached are timeouts that say so. ``function`` returns what JSON can carry.
    """

    def one(item: Any) -> Iterator[Any]:
        yield function(item)

    outcomes = streams(one, items, deadline, patience)
    return [end._replace(value=end.value[0] if end.status == "ok" else None) for end in outcomes]


def streams(
    function: Callable[[Any], Iterable[Any]], items: Sequence[Any], deadline: float, patience: float
) -> List[guarded.Outcome]:
    """As ``each``, of a function that gives rows: the value of every Outcome is a list of them.

    The rows that came before an item blocked are kept. An item that keeps answering is left after
    ``patience`` seconds too: the others have to get their turn.
    """
    outcomes: List[guarded.Outcome] = []
    stuck = 0
    while len(outcomes) < len(items) and time.monotonic() < deadline and stuck < MOST_STUCK:
        rest = items[len(outcomes) :]
        left = max(0.0, deadline - time.monotonic())
        answer = guarded.call(_work, function, rest, patience, timeout=left, silence=patience)
        rows: List[Any] = []
        for kind, value in answer.value or []:
            if kind == "row":
                rows.append(value)
            else:
                outcomes.append(guarded.Outcome(kind, rows, value))
                rows = []
        if answer.status != "ok" and len(outcomes) < len(items):
            outcomes.append(guarded.Outcome(answer.status, rows, answer.reason))
            stuck += 1
    missed = guarded.Outcome("timeout", [], "not reached before the deadline")
    return outcomes + [missed] * (len(items) - len(outcomes))


def _work(
    function: Callable[[Any], Iterable[Any]], items: Sequence[Any], patience: float
) -> Iterator[Tuple[str, Any]]:
    """Runs in the child: ``row`` with each row of an item, then how the item ended, with the reason."""
    for item in items:
        until = time.monotonic() + patience
        end: Tuple[str, Any] = ("ok", None)
        try:
            for row in function(item):
                yield "row", row
                if time.monotonic() > until:
                    end = ("timeout", f"not finished after {patience:.1f} s")
                    break
        except (OSError, ValueError, LookupError) as error:
            end = ("error", f"{type(error).__name__}: {error}")
        yield end

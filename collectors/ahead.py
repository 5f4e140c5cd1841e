"""What one child has read for several processes, before the cell of each is taken.

A child for every cell costs more than what it reads. The sampler lets a collector that needs one ask for some
processes together; the answers wait here for their cells. A process whose memory or files block loses only
its own answer (``in_turn``). Python >= 3.8, standard library only.
"""

from typing import Any, Dict, Optional, Tuple

from .interface import Context

ANSWERS = "ahead.answers"
"""Key in ``ctx.shared``: {(collector, pid): answer}, emptied by the sampler behind the cells."""


def leave(ctx: Context, collector: str, pid: int, answer: Any) -> None:
    """Keeps an answer for the cell of ``pid``."""
    answers: Dict[Tuple[str, int], Any] = ctx.shared.setdefault(ANSWERS, {})
    answers[collector, pid] = answer


def take(ctx: Context, collector: str, pid: int) -> Optional[Any]:
    """The answer for the cell of ``pid``, once; None: nobody has asked, and the cell does it by itself."""
    answers: Dict[Tuple[str, int], Any] = ctx.shared.get(ANSWERS, {})
    return answers.pop((collector, pid), None)


def forget(ctx: Context) -> None:
    """Drops what no cell has taken."""
    ctx.shared.pop(ANSWERS, None)

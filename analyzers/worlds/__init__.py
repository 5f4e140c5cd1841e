"""Several worlds in one capture: told apart before the graph is drawn, one verdict each."""

from .facts import World, worlds_of
from .verdicts import joined

__all__ = ["World", "joined", "worlds_of"]

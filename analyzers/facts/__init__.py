"""Evidence → facts: every artifact read once, then joined into processes, threads, sockets, groups."""

from .capture import read_capture

__all__ = ["read_capture"]

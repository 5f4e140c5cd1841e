"""The catalogue: what makes distributed jobs hang, one text file an entry (``entries/<id>.toml``).

An id is the cause id of the verdicts where there is one. To add an entry: one file with all keys of
``entry.Entry``; ``tests/catalog`` says what it lacks.
"""

from .entry import CATEGORIES, SEVERITIES, BrokenEntry, Entry, entries, find, ids

__all__ = ["CATEGORIES", "SEVERITIES", "BrokenEntry", "Entry", "entries", "find", "ids"]

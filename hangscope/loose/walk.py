"""The files of a folder, sorted, and nothing that would leave it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from .bundles import is_bundle
from .interface import FoundBundle, Limits, Unread

SKIPPED = frozenset((".git", ".hg", ".svn", "__pycache__", "node_modules", "site-packages", ".venv", ".tox"))
"""Folders in which nobody keeps a job's evidence."""


def walk(folder: str, limits: Limits) -> Iterator[str | FoundBundle | Unread]:
    """Paths of regular files below ``folder``, folder by folder in the order of their names.

    Links are not followed, so that nothing outside is read; pipes, sockets and devices are passed over.
    """
    count = 0
    todo = [(folder, 0)]
    while todo:
        here, depth = todo.pop()
        try:
            names = sorted(os.listdir(here))
        except OSError as error:
            yield Unread(here, error.strerror or str(error))
            continue
        deeper: list[tuple[str, int]] = []
        for name in names:
            path = os.path.join(here, name)
            kind = _kind(path)
            if kind == "folder" and name not in SKIPPED:
                if is_bundle(path):
                    yield FoundBundle(path)
                elif depth < limits.depth:
                    deeper.append((path, depth + 1))
                else:
                    yield Unread(path, f"more than {limits.depth} folders deep")
            elif kind == "file":
                count += 1
                if count > limits.files:
                    yield Unread(folder, f"it has more than {limits.files:,} files", partly=True)
                    return
                yield path
            elif kind == "link":
                yield Unread(path, "a link; name it to have it read")
        todo += reversed(deeper)


def _kind(path: str) -> str:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return "gone"
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "special"

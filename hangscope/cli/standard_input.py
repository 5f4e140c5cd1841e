"""A bundle that comes through a pipe, put into a file for as long as it is read."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import IO


@contextlib.contextmanager
def as_file(stream: IO[bytes]) -> Iterator[str]:
    """Yields the name of a file with everything that ``stream`` holds; it is gone afterwards."""
    with tempfile.NamedTemporaryFile(prefix="hangscope-", suffix=".tar") as copy:
        shutil.copyfileobj(stream, copy)
        copy.flush()
        yield copy.name

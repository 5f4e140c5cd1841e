"""Where jobs are found: one module a scheduler."""

from __future__ import annotations

from .interface import Scheduler
from .local import LocalScheduler

SCHEDULERS: tuple[Scheduler, ...] = (LocalScheduler(),)
"""The schedulers that ``--job`` and bare ``hangscope`` ask, in this order. One line adds one."""

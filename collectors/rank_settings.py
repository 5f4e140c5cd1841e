"""The few environment variables of a rank that tell where its own evidence is: logs, dumps, pipes, RAS.

Read once a capture: by the ``environment`` collector for all processes together, else for one rank when a
collector needs them first. Python >= 3.8, standard library only.
"""

from typing import Dict, NamedTuple, Optional, Tuple

from . import live_environment, procfs
from .interface import ABSENT, DENIED, ERROR, TIMEOUT, Context, Result, Target

SETTINGS = "rank_settings"
"""Key in ``ctx.shared``: {(pid, start ticks): {variable: value}}."""

WANTED = (
    "HOME",
    "XDG_CACHE_HOME",
    "NCCL_DEBUG_FILE",
    "NCCL_CONF_FILE",
    "NCCL_RAS_ADDR",
    "NCCL_RAS_ENABLE",
    "TORCH_FR_DUMP_TEMP_FILE",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE",
)


class Settings(NamedTuple):
    """``variables`` None: not readable, and ``failure`` is the cell's result."""

    variables: Optional[Dict[str, str]]
    failure: Optional[Result] = None


def known(ctx: Context, target: Target) -> Optional[Dict[str, str]]:
    """The variables, where the process's environment was read in this capture; else None."""
    settings: Dict[Tuple[int, int], Dict[str, str]] = ctx.shared.get(SETTINGS, {})
    return settings.get(target[:2])


def remember(ctx: Context, target: Target, variables: Dict[str, str]) -> Dict[str, str]:
    """Keeps, and returns, those of a process's variables that matter here."""
    settings = {name: variables[name] for name in WANTED if name in variables}
    ctx.shared.setdefault(SETTINGS, {})[target[:2]] = settings
    return settings


def of(ctx: Context, target: Target, seconds: float) -> Settings:
    """The variables, read now within ``seconds`` where they are not known yet."""
    variables = known(ctx, target)
    if variables is not None:
        return Settings(variables)
    pid = procfs.live_id(target.pid, ctx.proc)
    found = live_environment.of_process(pid, ctx.remaining(seconds), ctx.proc)
    if found.variables is None:
        reason = found.reason or "not readable"
        return Settings(None, Result(_status(reason), f"its environment: {reason}"))
    return Settings(remember(ctx, target, found.variables))


def _status(reason: str) -> str:
    if reason in procfs.REFUSED:
        return DENIED
    if reason in procfs.GONE:
        return ABSENT
    return TIMEOUT if reason.startswith("no answer") else ERROR

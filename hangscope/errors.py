"""The errors that hangscope raises on purpose.

Each says what happened, why, and what to try; the command line prints exactly that and exits.
Python 3.8 and the standard library only: the agent raises them too.
"""

from typing import Optional


class HangscopeError(Exception):
    """An error whose text is meant for the person at the terminal.

    ``str(error)`` is ``what: why`` and, on a second line, the next step.
    """

    exit_status = 1

    def __init__(self, what: str, why: Optional[str] = None, advice: Optional[str] = None) -> None:
        self.what = what
        self.why = why
        self.advice = advice
        super().__init__(what)

    def __str__(self) -> str:
        head = self.what if self.why is None else f"{self.what}: {self.why}"
        return head if self.advice is None else f"{head}\n  try: {self.advice}"


class UsageError(HangscopeError):
    """The command was given something that it cannot mean."""

    exit_status = 2


class NoSuchTarget(HangscopeError):
    """The pid or job is not there, or is not what it was taken for."""


class PermissionRefused(HangscopeError):
    """The kernel refuses to show the target to this user."""


class CaptureFailed(HangscopeError):
    """Nothing usable could be captured."""


class BundleError(HangscopeError):
    """A bundle cannot be read, or must not be trusted."""


class NewerFormat(BundleError):
    """The bundle was written by a newer major version of the format."""


class UnreadableEvidence(HangscopeError):
    """A reader met input that is not in the form it knows (the readers' only error)."""

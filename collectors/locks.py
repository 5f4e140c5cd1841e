"""File locks of the whole node, held and waited for, as ``/proc/locks`` lists them (Linux 2.4)."""

import json
from typing import Optional

from . import procfs
from .interface import DENIED, ERROR, NODE, OK, PARTIAL, Context, Result, Target

CAP = 4 << 20


class Locks:
    """Takes ``locks.json``; see FORMAT.md."""

    name = "locks"
    scope = NODE
    once = False
    budget = 2.0
    describes = "file locks held and waited for on this node"

    def collect(self, ctx: Context, target: Optional[Target]) -> Result:
        """``{"locks": text}``; the text is cut at 4 MiB, at the end of a line."""
        text, error = procfs.read_text(f"{ctx.proc}/locks", CAP)
        if text is None:
            return Result(DENIED if error in procfs.REFUSED else ERROR, f"/proc/locks: {error}")
        reason = None
        if len(text) >= CAP:
            text, reason = text[: text.rfind("\n") + 1], f"/proc/locks is longer than {CAP} bytes"
        data = json.dumps({"locks": text}).encode("ascii")
        return Result(OK if reason is None else PARTIAL, reason, (("locks.json", data),))


COLLECTOR = Locks()

import os

import pytest

from hangscope.collectors import guarded, live_environment, nccl_library, rank_settings
from hangscope.collectors.interface import ABSENT, DENIED, ERROR, TIMEOUT, Target

from . import victims


@pytest.mark.parametrize(
    ("reason", "status"),
    [("EACCES", DENIED), ("ESRCH", ABSENT), ("no answer in 2.0 s", TIMEOUT), ("EIO", ERROR), (None, ERROR)],
)
def test_an_environment_that_is_not_readable_is_a_status(
    reason: str | None, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = live_environment.Environment(None, None, reason)
    monkeypatch.setattr(live_environment, "of_process", lambda pid, seconds, proc: found)
    variables, failure = rank_settings.of(victims.context(), Target(os.getpid(), 0, "rank"), 1.0)
    assert variables is None and failure is not None
    assert failure.status == status and "its environment" in str(failure.reason)


def test_a_rank_is_read_once_and_only_what_is_wanted_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def read(pid: int, seconds: float, proc: str) -> live_environment.Environment:
        asked.append(pid)
        return live_environment.Environment({"HOME": "/h", "HF_TOKEN": "x"}, "live")

    monkeypatch.setattr(live_environment, "of_process", read)
    ctx, target = victims.context(), Target(os.getpid(), 0, "rank")
    assert rank_settings.known(ctx, target) is None
    for _ in range(2):
        assert rank_settings.of(ctx, target, 1.0).variables == {"HOME": "/h"}
    assert asked == [os.getpid()]


def test_no_library_and_no_process() -> None:
    assert guarded.call(nccl_library.version, os.getpid(), timeout=5.0).value is None
    gone = guarded.call(nccl_library.version, 2**22 + 1, timeout=5.0)
    assert (gone.status, gone.reason) == ("error", "OSError: its maps: ENOENT")

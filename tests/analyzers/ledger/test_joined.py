"""Recorders or logs and stacks of one job give one verdict: agreeing, explaining, or shown as disagreeing."""

from __future__ import annotations

import msgspec

from hangscope.analyzers.loose import analyze_facts
from hangscope.model.facts import Frame, Ref
from hangscope.model.loose import DumpedThread, Origin, StackDump
from hangscope.model.verdict import Verdict

from .builder import START, LedgerBuilder

C10D = "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


def frame(function: str, file: str, line: int) -> Frame:
    return Frame(function=function, file=file, line=line)


READS = (
    frame("read_shard", "/job/data.py", 41),
    frame("load", "/job/data.py", 60),
    frame("main", "/job/train.py", 12),
)
WAITS = (
    frame("all_reduce", C10D, 3252),
    frame("wrapper", "/env/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", 83),
    frame("main", "/job/train.py", 10),
)


def stack(rank: int, frames: tuple[Frame, ...], **fields: object) -> StackDump:
    """One py-spy dump of the rank's main thread."""
    ref = Ref(f"stacks/rank-{rank}.txt", 3)
    thread = DumpedThread(
        tid=100 + rank,
        name="MainThread",
        main=True,
        frames=frames,
        ref=ref,
        active=False,
        **fields,  # type: ignore[arg-type]
    )
    origin = Origin(rank=rank, node="node-a", pid=100 + rank, source="content")
    return StackDump(tool="py-spy", origin=origin, threads=(thread,), ref=ref)


def job() -> LedgerBuilder:
    made = LedgerBuilder(4).run(times=11).stuck(on=[0, 1, 3])
    made.written = dict.fromkeys(range(4), START / 1e9 + 800)
    return made


def verdict(made: LedgerBuilder, *stacks: StackDump) -> Verdict:
    found = analyze_facts([*made.facts(), *stacks])
    assert len(found) == 1
    return found[0]


def test_the_stack_of_the_rank_that_has_not_joined_says_why() -> None:
    blocked = stack(
        2, READS, state="D", wchan="rpc_wait_bit_killable", kernel_stack=("rpc_wait_bit_killable", "nfs_read")
    )
    found = verdict(job(), blocked)
    assert (found.kind, found.initiators) == ("rank-blocked", (2,))
    root = found.roots[0]
    assert (root.state, root.wait, root.tid, root.pid) == ("D", "filesystem", 102, 102)
    assert found.cause == "checkpoint-fs-blocked" or found.cause == "thread-blocked-in-kernel"
    assert found.waiting == (0, 1, 3)
    artifacts = {line.artifact for line in found.evidence}
    assert "stacks/rank-2.txt" in artifacts and "dumps/rank_0" in artifacts
    assert not any(fact.what.startswith("the stack of rank 2") for fact in found.missing)


def test_a_rank_that_waits_in_communication_itself_is_not_named() -> None:
    found = verdict(job(), stack(2, WAITS))
    assert (found.kind, found.initiators) == ("undecided", ())
    assert "waits in communication itself" in (found.deciding_fact or "")


def test_a_running_stack_is_no_cause() -> None:
    found = verdict(job(), stack(2, (frame("step", "/job/train.py", 33),), state="R"))
    assert found.initiators == (2,) and found.cause is None and found.confidence != "high"


def test_a_stack_that_does_not_tell_what_it_waits_for_still_tells_where_it_is() -> None:
    found = verdict(job(), stack(2, (frame("reshuffle", "/job/mixing.py", 33),)))
    assert (found.kind, found.initiators, found.confidence) == ("rank-blocked", (2,), "medium")
    assert (found.deciding_fact or "").endswith("its main thread is in reshuffle at /job/mixing.py:33")
    assert found.roots[0].at == "/job/mixing.py:33"
    wanted = next(fact for fact in found.missing if "stack of rank 2" in fact.what)
    assert (wanted.what, wanted.command) == (
        "the native stack of rank 2",
        "py-spy dump --native --pid 102",
    )
    assert found.next[0].command == wanted.command and not found.action.safe_to_kill


def test_c_frames_alone_ask_for_the_python_stack() -> None:
    frames = (Frame(function="__GI___libc_read", file="", library="libc.so.6"),)
    dump = msgspec.structs.replace(stack(2, frames), tool="gdb", native=True)
    found = verdict(job(), dump)
    assert found.initiators == (2,)
    assert "its main thread is in __GI___libc_read" in (found.deciding_fact or "")
    assert found.missing[0].what == "the Python stack of rank 2"


def test_dumps_without_a_rank_are_asked_for_where_a_stack_is_missing() -> None:
    unnamed = msgspec.structs.replace(
        stack(2, READS), origin=Origin(pid=102, source=None), ref=Ref("pasted.txt", 1)
    )
    found = verdict(job(), unnamed)
    assert found.initiators == (2,)
    assert [fact.what for fact in found.missing][:2] == ["which rank pid 102 is", "the stack of rank 2"]


def test_a_job_that_has_ended_is_not_kept_alive() -> None:
    made = job()
    made.event("exit-first", 0, code=1, text="failed (exitcode: 1)")
    found = verdict(made, stack(2, (frame("reshuffle", "/job/mixing.py", 33),)))
    assert found.action.safe_to_kill and found.action.text.startswith("the job has ended")


def test_stacks_of_everybody_agree_with_the_recorders() -> None:
    stacks = [stack(rank, WAITS) for rank in (0, 1, 3)]
    blocked = stack(
        2, READS, state="D", wchan="rpc_wait_bit_killable", kernel_stack=("rpc_wait_bit_killable",)
    )
    found = verdict(job(), *stacks, blocked)
    assert (found.kind, found.initiators) == ("rank-blocked", (2,))
    assert found.roots[0].state == "D"


def test_stacks_of_victims_add_no_name() -> None:
    found = verdict(job(), stack(0, WAITS), stack(1, WAITS))
    assert found.initiators == (2,)


def test_a_stack_against_sequence_numbers_names_nobody_else() -> None:
    """Rank 1 stands in a read, and its recorder shows it in the operation as well; rank 2 has not joined."""
    found = verdict(job(), stack(1, READS, state="D", wchan="rpc_wait_bit_killable"))
    assert set(found.initiators) <= {2}


def test_all_joined_and_a_reading_stack_names_nobody() -> None:
    made = LedgerBuilder(3).run(times=4).stuck()
    found = verdict(made, stack(0, WAITS), stack(1, READS), stack(2, WAITS))
    assert found.initiators == ()


def test_stacks_alone_are_judged_by_the_stacks_analysis() -> None:
    facts = [
        stack(0, WAITS),
        stack(1, READS, state="D", wchan="rpc_wait_bit_killable", kernel_stack=("nfs_read",)),
    ]
    found = analyze_facts(facts)[0]
    assert found.initiators in ((), (1,))
    assert found.coverage != "0/?"

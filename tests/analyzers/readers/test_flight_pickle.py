"""Flight Recorder pickles: every version, the fast way and the slow one, cut, mutated, hostile."""

from __future__ import annotations

import contextlib
import gc
import pathlib
import pickle
import pickletools
import struct
import time
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hangscope.analyzers.readers import flight_opcodes, flight_pickle
from hangscope.analyzers.readers.flight_entry import title
from hangscope.analyzers.readers.flight_header import ranks_of
from hangscope.analyzers.readers.flight_json import read as read_json
from hangscope.analyzers.readers.flight_json import recognise as recognise_json
from hangscope.analyzers.readers.flight_pickle import read, recognise
from hangscope.analyzers.readers.flight_place import call_site
from hangscope.analyzers.readers.interface import Document
from hangscope.analyzers.readers.names import origin_of_name
from hangscope.errors import UnreadableEvidence
from hangscope.model.loose import FlightRecord
from tests.benchmarks.c10d_pickler import pickled
from tests.benchmarks.synthetic_dumps import job

from . import flight_scenarios as jobs
from .flight_dumps import Dump, Group, world

STATES = ("completed", "started", "scheduled")
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def record(data: bytes, path: str = "nccl_trace_rank_0") -> FlightRecord:
    [found] = read(Document(path=path, data=data, origin=origin_of_name(path)))
    return found


def slow_record(data: bytes, monkeypatch: pytest.MonkeyPatch) -> FlightRecord:
    """The same, every entry executed."""
    with monkeypatch.context() as patch:
        patch.setattr(flight_pickle, "_MOST_TEMPLATES", 0)
        return record(data)


# versions and back ends


@pytest.mark.parametrize("version", ["1.0", "2.0", "2.1", "2.2", "2.3", "2.4", "2.9", "2.10"])
def test_every_version_gives_the_same_group(version: str) -> None:
    dump = jobs.lagging()[0]
    group = record(dump.pickle(version)).groups[0]
    assert (group.name, group.enqueued, group.completed, group.low_water) == ("0", 17, 16, 1)
    assert group.started == 17 and group.aligned
    last = group.operations[-1]
    assert (last.kind, last.state, last.finished, last.sizes) == ("all_gather", "started", False, "[[1024]]")
    assert [frame.line for frame in last.place] == [21]


def test_old_groups_but_the_default_one_are_local() -> None:
    dump = Dump(0, [world(2), Group("7", "tp", (0, 1))]).call("all_reduce").call("all_reduce", 1)
    found = record(dump.pickle("1.0"))
    assert [group.name for group in found.groups] == ["0", "local 1"]
    assert found.version == "" and found.world_size is None


@pytest.mark.parametrize("backend", ["nccl", "gloo", "nccl2", "xccl", "hccl", "ncclx", "c10d"])
def test_back_ends(backend: str) -> None:
    found = record(jobs.lagging(backend)[0].pickle())
    assert found.backend == backend and found.entries == 17
    group = found.groups[0]
    assert group.enqueued == 17
    assert group.completed == (None if backend == "c10d" else 16)
    assert group.started == (None if backend in ("gloo", "c10d") else 17)
    assert [item.finished for item in group.operations] == [True] * 8 + [False]


def test_gloo_configures_one_group_without_a_name() -> None:
    found = record(jobs.lagging("gloo")[0].pickle())
    assert found.groups[0].members is None and found.world_size is None


def test_members_and_size_of_the_world() -> None:
    found = record(jobs.in_subgroup()[6].pickle(), "nccl_trace_rank_6")
    assert [group.members for group in found.groups] == [tuple(range(8)), (4, 5, 6, 7)]
    assert found.world_size == 8 and found.origin.rank == 6


def test_a_retired_operation_of_nccl_that_did_not_complete_has_timed_out() -> None:
    dump = Dump(0, [world(2)]).call("all_reduce", state="started")
    dump.entries[-1]["retired"] = True
    assert record(dump.pickle()).groups[0].operations[0].finished is False


def test_an_entry_counts_though_the_status_does_not_know_it_yet() -> None:
    value = jobs.lagging()[0].value()
    value["pg_status"]["0"]["last_enqueued_collective"] = 16
    assert record(pickled(value)).groups[0].enqueued == 17


def test_the_status_speaks_where_there_are_no_entries() -> None:
    value = jobs.lagging()[0].value()
    value["entries"] = []
    group = record(pickled(value)).groups[0]
    assert (group.name, group.enqueued, group.completed, group.operations) == ("0", 17, 16, ())
    del value["entries"]
    assert record(pickled(value)).groups == (group,)
    value["pg_status"]["0"] = {"last_enqueued_collective": -1, "last_started_collective": "x"}
    assert record(pickled(value)).groups[0].enqueued is None


# point-to-point and coalesced


def test_point_to_point_operations_stand_apart() -> None:
    group = record(jobs.send_ring()[2].pickle()).groups[0]
    last = group.operations[-1]
    assert (last.kind, last.p2p, last.source, last.target, last.sequence) == ("send", True, 2, 0, 1)
    assert group.enqueued == 4 and group.aligned


def test_the_parts_of_a_batch_have_the_state_of_the_batch() -> None:
    group = record(jobs.batched_receive()[1].pickle()).groups[0]
    assert not group.aligned and group.enqueued is None and group.low_water is None
    [part] = [item for item in group.operations if item.p2p]
    assert (part.kind, part.source, part.target, part.state) == ("recv", 0, 1, "started")


def test_a_finished_batch_finishes_its_parts() -> None:
    dump = Dump(0, [world(2)]).call("all_reduce")
    for _ in range(30):
        number = dump.entries[-1]["collective_seq_id"] + 1
        for kind in ("send 0->1", "recv 0<-1"):
            dump.call(kind, part=True, p2p=True, state="scheduled", number=number)
        dump.call("coalesced", p2p=True)
    group = record(dump.pickle()).groups[0]
    assert all(item.finished for item in group.operations)
    assert sum(item.p2p for item in group.operations) == 8


def test_a_region_of_collectives_is_one_operation() -> None:
    dump = Dump(0, [world(2)]).call("all_reduce")
    for size in (8, 16):
        dump.call("_reduce_scatter_base", part=True, state="scheduled", number=2, sizes=[[size]])
    dump.call("coalesced", sizes=[], state="started")
    group = record(dump.pickle()).groups[0]
    last = group.operations[-1]
    assert (len(group.operations), last.kind, last.sizes, last.state) == (2, "coalesced", "[[8]]", "started")
    assert group.aligned and group.enqueued == 2


@pytest.mark.parametrize("after", [1, 5, 40])
def test_a_group_that_was_made_again_is_another_one(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What timed out before the restart is not what hangs now."""
    dump = Dump(0, [world(2)]).steps(jobs.STEP, 20).call("all_reduce", state="started", line=20)
    dump._counts.clear()
    dump.steps(jobs.STEP, after).call("all_reduce", state="started", line=20)
    for found in (record(dump.pickle()), slow_record(dump.pickle(), monkeypatch)):
        group = found.groups[0]
        assert (group.enqueued, group.completed) == (3 * after + 1, 3 * after)
        assert [item.sequence for item in group.operations if not item.finished] == [3 * after + 1]
        assert (group.low_water or 0) <= max(3 * after - 8, 1)


def test_neighbours_may_be_swapped() -> None:
    dump = Dump(0, [world(2)]).steps(jobs.STEP, 4)
    dump.entries[6], dump.entries[7] = dump.entries[7], dump.entries[6]
    group = record(dump.pickle()).groups[0]
    assert (group.enqueued, group.low_water) == (12, 1)


def test_old_versions_count_everything_in_one_counter() -> None:
    dump = Dump(0, [world(2)]).call("all_reduce").call("send 0->1", p2p=True)
    assert not record(dump.pickle("1.0")).groups[0].aligned
    assert record(dump.pickle("2.1")).groups[0].aligned


# ranks


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_5", 5),
        ("/tmp/nccl_trace_rank_0", 0),
        ("comm_lib_trace_rank_12", 12),
        ("/root/.cache/torch/comm_lib_trace_rank_3", 3),
        ("nccl_trace_rank_node-a-07_3", 3),
        ("nccl_trace_rank_gpu12.cluster.example_41", 41),
        ("job-9/nccl_trace_rank_2.pkl", 2),
        ("fr/hccl_trace_rank_6", 6),
        ("xccl_trace_rank_4", 4),
        ("fr_trace_rank_7.json", 7),
        ("dumps.zip!rank_1", 1),
        ("run/rank3/trace.pickle", 3),
        ("flight_recorder", None),
        ("trace_20260105", None),
        ("dump.3", None),
    ],
)
def test_ranks_of_names(name: str, rank: int | None) -> None:
    value = jobs.lagging("gloo")[0].value()
    assert record(pickled(value), name).origin.rank == rank


def test_a_rank_is_in_all_groups_that_its_process_configures() -> None:
    grid = [world(4), Group("1", "tp", (0, 1)), Group("3", "dp", (1, 3))]
    found = record(Dump(1, grid).call("all_reduce").pickle(), "unnamed")
    assert (found.origin.rank, found.origin.source) == (1, "content")
    assert record(Dump(1, grid).call("all_reduce").pickle(), "nccl_trace_rank_0").origin.rank == 1


def test_a_name_that_the_content_denies_is_no_rank() -> None:
    data = Dump(2, [Group("4", "tp", (2, 3))]).call("all_reduce").pickle()
    assert record(data, "nccl_trace_rank_3").origin.rank == 3
    assert record(data, "nccl_trace_rank_0").origin.rank is None


def test_transfers_tell_the_rank() -> None:
    data = Dump(6, [Group("4", "pp", (2, 6))]).call("recv 1<-0", p2p=True).pickle()
    assert record(data, "unnamed").origin.rank == 6


def test_groups_that_contradict_each_other_tell_nothing() -> None:
    data = Dump(0, [Group("1", "a", (0, 1)), Group("2", "b", (2, 3))]).call("all_reduce").pickle()
    assert record(data, "nccl_trace_rank_1").origin.rank == 1


def test_the_hook_does_not_know_the_ranks_of_a_group() -> None:
    groups = [world(4), Group("1", "tp", (0, 1))]
    found = record(Dump(3, groups, "c10d").call("all_reduce").call("all_reduce", 1).pickle(), "unnamed")
    assert [group.members for group in found.groups] == [(0, 1, 2, 3), None]


# small parts


def test_titles() -> None:
    assert (title("nccl:send 3->12").source, title("nccl:send 3->12").target) == (3, 12)
    assert title("nccl:all_reduce_barrier").kind == "barrier"
    assert (title("").kind, title("all_reduce").backend, title("c10d:alltoall").kind) == (
        "",
        "",
        "all_to_all",
    )


def test_texts_of_ranks() -> None:
    assert ranks_of("[0, 0]") is None and ranks_of("[-1]") is None and ranks_of("0, 1") is None
    assert ranks_of("[3]") == (3,)


def test_call_sites_leave_out_what_is_everywhere() -> None:
    torch = "/opt/venv/lib/python3.11/site-packages/torch/"
    frames = [
        ("all_gather", torch + "distributed/distributed_c10d.py", 1),
        ("wrapper", torch + "c10d_logger.py", 2),
    ]
    frames += [(f"inside{at}", torch + "distributed/fsdp/_runtime_utils.py", at) for at in range(5)]
    frames += [("_bootstrap", "/usr/lib/python3.11/multiprocessing/process.py", 3), ("c10::run", "??", 0)]
    frames += [(f"own{at}", "/job/train.py", at) for at in range(9)]
    assert [frame.function for frame in call_site(frames)] == [
        "inside0",
        "inside1",
        "own0",
        "own1",
        "own2",
        "own3",
    ]
    assert call_site([("c10::run", "run.cpp", 3)])[0].function == "c10::run"


def test_recognise() -> None:
    assert recognise(jobs.lagging()[0].pickle()) and recognise(jobs.lagging()[0].pickle("1.0"))
    assert not recognise(pickle.dumps({"weights": [1, 2]})) and not recognise(b"\x80") and not recognise(b"")


# the fast way


def wide(count: int = 300) -> Dump:
    """Numbers of all widths, new places all the time, memo numbers beyond 255, optional keys."""
    dump = Dump(0, [world(4), Group("1", "tp", (0, 1))])
    for at in range(count):
        line = at % 7 if at < count // 2 else at
        dump.call(("all_reduce", "broadcast")[at % 2], at % 2, line=line, sizes=[[at * 300, 70000 * at]])
        if at % 11 == 3:
            dump.entries[-1]["duration_ms"] = 1.5 * at
    for entry in dump.entries[-20::3]:
        entry.update(state="started", retired=False, time_discovered_completed_ns=None)
    return dump


@pytest.mark.parametrize("version", ["1.0", "2.1", "2.4", "2.10"])
def test_the_fast_way_gives_what_executing_gives(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = wide().pickle(version)
    assert record(data) == slow_record(data, monkeypatch)


def test_the_fast_way_over_durations(monkeypatch: pytest.MonkeyPatch) -> None:
    value = wide().value()
    durations = {entry["record_id"]: entry.get("duration_ms") for entry in wide().entries}
    for entry in value["entries"]:
        if durations[entry["record_id"]] is not None:
            entry["duration_ms"] = durations[entry["record_id"]]
    data = pickled(value)
    assert b"duration_ms" in data and record(data) == slow_record(data, monkeypatch)


def test_the_fast_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a dump of a large job nearly every entry is matched."""
    [data] = [data for rank, data in job(64, 3).dumps() if rank == 9]
    executed = []
    original = flight_pickle._Reading.executed

    def counted(reading: Any, value: dict[str, Any]) -> None:
        executed.append(1)
        original(reading, value)

    monkeypatch.setattr(flight_pickle._Reading, "executed", counted)
    found = record(data)
    assert found.entries == 2000 and len(executed) < 30
    assert found == slow_record(data, monkeypatch)


def test_reading_leaves_no_circles_behind() -> None:
    """The reading processes run without the collector of circles."""
    data = wide().pickle()
    record(data)
    gc.collect()
    gc.disable()
    try:
        record(data)
        assert gc.collect() == 0
    finally:
        gc.enable()


@SLOW
@given(st.data())
def test_any_mixture_of_entries_is_read_the_same_on_both_ways(data: st.DataObject) -> None:
    dump = Dump(0, [world(4), Group("1", "tp", (0, 1))])
    kinds = st.sampled_from(["all_reduce", "send 0->1", "recv 0<-1", "coalesced", "barrier"])
    base = data.draw(st.sampled_from([0, 250, 65530, (1 << 31) - 5, 1 << 40]))
    for at in range(data.draw(st.integers(2, 60))):
        kind = data.draw(kinds)
        p2p = " " in kind
        dump.call(
            kind, data.draw(st.integers(0, 1)), state=data.draw(st.sampled_from(STATES)),
            line=data.draw(st.integers(1, 4)), p2p=p2p or data.draw(st.booleans()),
            part=p2p and data.draw(st.booleans()), number=base + at // 3,
            sizes=data.draw(st.sampled_from([[], [[]], [[1]], [[1, 300], [70000]], [[1]] * 12])),
        )  # fmt: skip
    pickle_of = dump.pickle(data.draw(st.sampled_from(["1.0", "2.1", "2.10"])))
    monkeypatch = pytest.MonkeyPatch()
    assert record(pickle_of) == slow_record(pickle_of, monkeypatch)


def test_python_s_own_pickles_of_a_dump() -> None:
    wanted = record(jobs.lagging()[0].pickle())
    plain = msgspec.json.decode(msgspec.json.encode(jobs.lagging()[0].value()))
    for protocol in (2, 3, 4, 5):
        assert record(pickle.dumps(plain, protocol=protocol)) == wanted


# cut, mutated


def test_what_stands_before_the_cut_is_told() -> None:
    data = wide().pickle()
    counts = []
    for end in range(0, len(data) - 1, 997):
        try:
            found = record(data[:end])
        except UnreadableEvidence:
            continue
        assert found.partial and found.version == ("2.10" if end > 50 else found.version)
        counts.append(found.entries)
    assert counts == sorted(counts) and counts[-1] >= 280
    assert record(data).partial is None


def test_zeros_behind_a_cut() -> None:
    data = jobs.lagging()[0].pickle()
    found = record(data[: len(data) // 2] + bytes(4096))
    assert found.entries >= 4 and "no known opcode" in str(found.partial)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_mutated_dumps_raise_nothing_else(data: st.DataObject) -> None:
    dump = jobs.batched_receive()[1] if data.draw(st.booleans()) else jobs.in_subgroup()[6]
    mutated = bytearray(dump.pickle(data.draw(st.sampled_from(["1.0", "2.1", "2.10"]))))
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(mutated) - 1))
        mutated[place] = data.draw(st.sampled_from(list(b"}(](hjqrXKMJN\x8a\x88ueast.\x85\x86\x00\xff")))
    with contextlib.suppress(UnreadableEvidence):
        record(bytes(mutated))


# hostile


class Bomb:
    """Writes a file when it is unpickled the usual way."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return pathlib.Path.write_text, (self.path, "executed")


HEAD = b"\x80\x02}(X\x09\x00\x00\x00pg_config}X\x07\x00\x00\x00entries]("


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_nothing_is_executed(protocol: int, tmp_path: pathlib.Path) -> None:
    bomb = tmp_path / "bomb"
    dump = {"pg_config": {}, "entries": [{"profiling_name": "nccl:all_reduce", "x": Bomb(bomb)}]}
    with pytest.raises(UnreadableEvidence, match="nccl_trace_rank_0"):
        record(pickle.dumps(dump, protocol=protocol))
    assert not bomb.exists()


@pytest.mark.parametrize(
    "code",
    [
        b"cos\nsystem\n", b"\x8c\x02os\x8c\x06system\x93", b"N)R", b"N}b", b"(ios\nsystem\n",
        b"(cos\nsystem\no", b"N)\x81", b"N)}\x92", b"\x82\x01", b"\x83\x01\x00", b"\x84\x01\x00\x00\x00",
        b"Pid\n", b"NQ", b"\x97", b"\x98",
    ],
)  # fmt: skip
def test_opcodes_that_would_run_code(code: bytes) -> None:
    with pytest.raises(UnreadableEvidence) as raised:
        record(HEAD + code + b"e" + b"u.")
    assert "not executed" in str(raised.value.why)


def memo_growth() -> bytes:
    """Every list holds the one before twice."""
    body = b"](K\x01eq\x00"
    for at in range(60):
        body += b"](h" + bytes([at]) + b"h" + bytes([at]) + b"eq" + bytes([at + 1])
    return HEAD + b"}(X\x0b\x00\x00\x00input_sizesh\x00" + body + b"X\x06\x00\x00\x00frames" + b"h<" + b"ueu."


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"](" * 100_000,
        HEAD + b"]" * 300_000,
        HEAD + b"(" * 1_000,
        HEAD + b"X\xff\xff\xff\xff" + b"x" * 100,
        HEAD + b"\x8d" + b"\xff" * 8,
        HEAD + b"\x8a\xff" + b"\x01" * 255 + b"eu.",
        HEAD + b"\x8b\xff\xff\xff\x7f" + b"\x01" * 255,
        HEAD + b"Nr\xff\xff\xff\xff0eu.",
        HEAD + b"".join(b"Nr" + struct.pack("<I", at) for at in range(60_000)),
        HEAD + b"]q\x00h\x00aeu.",
        HEAD + b"}(X\x06\x00\x00\x00frames]q\x00h\x00aueu.",
        HEAD + b"\x96" + b"\xff" * 8,
        HEAD + b"}(K\x01K\x02u" + b"eu.",
        HEAD + b"h\x63eu.",
        HEAD + b"uuuu",
        HEAD + b"eeee.",
        memo_growth(),
        b"\x80\x02]pg_config.",
        b"\x80\x02.pg_status",
        b"\x80\x02Npg_config",
    ],
    ids=lambda data: f"{len(data)}-{data[-8:]!r}",
)
def test_bombs_cost_little(data: bytes) -> None:
    tracemalloc.start()
    start = time.process_time()
    with contextlib.suppress(UnreadableEvidence):
        record(data)
    taken = time.process_time() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 20 and peak < 400e6


@pytest.mark.parametrize(
    ("limit", "data"),
    [
        ("MOST_STEPS", HEAD + b"]" * 2000),
        ("MOST_MEMO", HEAD + b"".join(b"Nr" + struct.pack("<I", at) for at in range(1100))),
        ("MOST_DEPTH", HEAD + b"(" * 1100),
    ],
)
def test_limits(limit: str, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_opcodes, limit, 1000)
    with pytest.raises(UnreadableEvidence, match="nccl_trace_rank_0"):
        record(data)


def test_many_spans_that_never_end_do_not_cost_their_square() -> None:
    """Entries that look like the template's and end differently: it gives up."""
    dump = wide(4).pickle()
    start = dump.index(b"}(X\x06\x00\x00\x00frames")
    second = dump.index(b"}(h", start)
    body = dump[second : second + 7] + b"h\x01" * 4000
    begin = time.process_time()
    record(dump[:second] + (body + b"eN") * 60)
    assert time.process_time() - begin < 5


def test_pickletools_agrees_on_the_opcodes() -> None:
    """The bytes that the reader calls opcodes are those of Python's own table."""
    steps, forbidden = flight_opcodes._STEPS, flight_opcodes.FORBIDDEN
    known = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
    assert all(known[code] == name for code, name in forbidden.items())
    assert set(steps) <= set(known) and not set(steps) & set(forbidden)


# JSON


def test_json_says_the_same_but_for_the_places() -> None:
    dump = jobs.in_subgroup()[6]
    [found] = read_json(Document(path="x.json", data=dump.json(), origin=origin_of_name("rank_6.json")))
    wanted = record(dump.pickle(), "nccl_trace_rank_6")
    replace = msgspec.structs.replace
    bare = [
        replace(group, operations=tuple(replace(item, place=()) for item in group.operations))
        for group in wanted.groups
    ]
    assert list(found.groups) == bare and found.origin == wanted.origin


def test_json_is_recognised_by_its_first_key() -> None:
    assert recognise_json(jobs.lagging()[0].json()) and recognise_json(b'{"pg_status": {}}')
    assert recognise_json(b'[{"record_id": 1, "profiling_name": "nccl:barrier"}]')
    assert not recognise_json(b'{"level": "INFO", "message": "profiling_name"}\n{"pg_config": "x"}')


def test_json_of_no_entries() -> None:
    [found] = read_json(Document(path="x", data=b'{"pg_config": {}, "pg_status": {}, "version": "2.10"}'))
    assert found.groups == () and found.entries == 0


@pytest.mark.parametrize(
    "data", [b"{}", b"[", b'{"entries": 3}', b"[1, 2]", b"[" * 100_000, b'{"entries": [{"a": ']
)
def test_json_that_is_none(data: bytes) -> None:
    try:
        found = read_json(Document(path="x", data=data))
    except UnreadableEvidence:
        return
    assert found[0].entries == 0


def test_json_before_the_cut() -> None:
    data = wide().json()
    [found] = read_json(Document(path="x", data=data[: len(data) // 2]))
    assert 100 < found.entries < 200 and found.partial

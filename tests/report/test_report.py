"""Every format renders every kind of verdict, on one screen, and shows what matters first."""

import json
import pathlib
import typing

import jsonschema
import pytest

import hangscope.report
from hangscope.errors import UsageError
from hangscope.model.verdict import (
    Action,
    ChainLink,
    EvidenceLine,
    IndependentFinding,
    Kind,
    MissingFact,
    NextStep,
    RootEntry,
    Verdict,
)
from hangscope.report import FORMATS, Style, render
from hangscope.report.headline import headline, stuck_for
from hangscope.report.schema import SCHEMA_FILE, verdict_schema


def flagship(**changes: typing.Any) -> Verdict:
    fields: dict[str, typing.Any] = {
        "job": "train",
        "kind": "rank-blocked",
        "initiators": (2,),
        "cause": "host-memory-limit",
        "confidence": "high",
        "why_not_higher": None,
        "coverage": "4/4",
        "world_size": 4,
        "waiting": (0, 1, 3),
        "stuck_since": "2026-01-01T10:00:00Z",
        "stuck_since_source": "mtime of the ranks' output",
        "captured_wall": 1767262440.0,
        "roots": (
            RootEntry(
                type="rank",
                rank=2,
                node="node-a",
                pid=4711,
                tid=4733,
                thread="offload",
                role="rank",
                state="D",
                wait="host-memory",
                at="train.py:14",
                gpu="2",
                impact=3,
            ),
        ),
        "chain": (
            ChainLink(ranks=(0, 1, 3), waits_for="all_gather, not joined by rank 2", at="train.py:40"),
            ChainLink(ranks=(2,), waits_for="thread offload", at="train.py:31", certainty="inferred"),
        ),
        "evidence": (EvidenceLine(text="memory 64.0/64.0 GiB", artifact="shards/a!s0/memory", line=3),),
        "action": Action(kind="fix-config", safe_to_kill=True, text="raise --mem"),
        "next": (NextStep(text="look at the limit", command="cat /sys/fs/cgroup/memory.max"),),
        "deciding_fact": "thread offload in D at mem_cgroup_oom; memory 64.0/64.0 GiB",
        "samples": 2,
        "observed_seconds": 2.1,
    }
    return Verdict(**{**fields, **changes})


def test_the_first_three_lines_say_who_why_and_what_to_do() -> None:
    lines = render(flagship(), "text", Style(saved="x.tar")).splitlines()
    assert lines[0] == "rank 2 · node-a · pid 4711 · GPU 2 started it; ranks 0-1,3 wait; stuck 14 min"
    assert lines[1] == (
        "host-memory-limit: thread offload in D at mem_cgroup_oom; memory 64.0/64.0 GiB [high]"
    )
    assert lines[2] == "evidence saved to x.tar, safe to kill; raise --mem"


@pytest.mark.parametrize("kind", typing.get_args(Kind))
def test_every_kind_renders_in_every_format_within_one_screen(kind: Kind) -> None:
    named = kind in ("rank-absent", "rank-blocked", "cycle", "mismatch", "rank-diverged")
    many = tuple(EvidenceLine(text=f"fact {number} " + "x" * 300) for number in range(40))
    verdict = flagship(
        kind=kind,
        initiators=(2,) if named else (),
        evidence=many,
        against=many,
        ruled_out=many,
        missing=(MissingFact(what="recorder", why="not armed", command="export TORCH_FR_BUFFER_SIZE=2000"),),
        why_not_higher="one inferred edge",
        stragglers=(3,) if kind == "slow" else (),
        unresolved=("mystery (a.py)",),
        independent=(
            IndependentFinding(kind="rank-blocked", initiators=(7,), cause=None, roots=(), text="rank 7 too"),
        ),
    )
    for name, _ in FORMATS:
        assert render(verdict, name).strip()
    text = render(verdict, "text", Style(width=90)).splitlines()
    assert len(text) <= 45
    body = [
        line for line in text[3:] if not line.startswith(("confidence", "next", "      export", "      cat"))
    ]
    assert max(len(line) for line in body) <= 90
    assert ("rank 2" in text[0]) == named


def test_a_long_line_is_folded_below_itself_and_a_command_is_not() -> None:
    fact = "a fact that is told in so many words " * 4
    command = "cat " + "/sys/fs/cgroup/memory" * 9
    verdict = flagship(evidence=(EvidenceLine(text=fact),), next=(NextStep(text="look", command=command),))
    rows = render(verdict, "text", Style(width=90)).splitlines()
    first = next(index for index, row in enumerate(rows) if row.startswith("  - a fact"))
    assert rows[first + 1].startswith("      ") and "many words" in rows[first + 1]
    assert f"      {command}" in rows


def test_undecided_says_who_is_excluded_and_which_fact_is_missing() -> None:
    verdict = flagship(
        kind="undecided",
        initiators=(),
        cause=None,
        confidence="low",
        deciding_fact=None,
        unknown=(2,),
        missing=(MissingFact(what="flight recorder", why="no worker server", command="export A=1"),),
        action=Action(kind="collect-more", safe_to_kill=False, text="get the recorder"),
    )
    who, why, what = headline(verdict)
    assert who == "undecided: nobody can be named; ranks 0-1,3 wait; rank 2 unknown; stuck 14 min"
    assert why == "missing: flight recorder (no worker server) [low]"
    assert what == "do not kill it yet; get the recorder"


def test_roots_that_are_no_rank_and_cycles_have_their_own_first_line() -> None:
    mount = RootEntry(type="mount", label="/data (nfs4)", node="node-a", impact=4)
    assert headline(flagship(initiators=(), roots=(mount,)))[0].startswith("mount /data (nfs4) · node-a; ")
    assert headline(flagship(kind="cycle", initiators=(0, 1)))[0].startswith("ranks 0-1 wait for one another")
    worker = RootEntry(type="process", rank=2, node="a", pid=9, role="dataloader", impact=3)
    assert headline(flagship(roots=(worker,)))[0].startswith("rank 2 · a · dataloader pid 9 started it")
    assert headline(flagship(kind="slow", initiators=(), stragglers=(1,)))[0] == (
        "slow, not stuck: the job moves; rank 1 come last"
    ).replace("come", "comes")
    assert headline(flagship(provisional=True))[0].startswith("provisional: rank 2")


def test_age_comes_from_the_capture_not_from_today_and_bad_dates_are_left_out() -> None:
    assert stuck_for(flagship()) == "stuck 14 min"
    assert stuck_for(flagship(stuck_since="yesterday")) is None
    assert stuck_for(flagship(stuck_since="2026-01-01T10:00:00")) == "stuck 14 min"


def test_json_is_the_contract_and_matches_the_schema() -> None:
    document = json.loads(render(flagship(), "json", Style(saved="x.tar")))
    jsonschema.validate(document, verdict_schema())
    assert document["format"] == "hangscope-verdict/1"
    assert document["roots"][0]["tid"] == 4733
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "kind": "guilty"}, verdict_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(
            {key: value for key, value in document.items() if key != "roots"}, verdict_schema()
        )


def test_the_schema_file_is_the_schema_of_the_type() -> None:
    path = pathlib.Path(hangscope.report.__file__).with_name(SCHEMA_FILE)
    assert json.loads(path.read_text()) == json.loads(json.dumps(verdict_schema()))


def test_hostile_evidence_cannot_reach_the_terminal_or_become_markup() -> None:
    evil = "\x1b[2J\u202eevil\r\n<script>alert(1)</script> `x` [a](b)"
    verdict = flagship(
        evidence=(EvidenceLine(text=evil, artifact=evil),),
        deciding_fact=evil,
        chain=(ChainLink(ranks=(1,), waits_for=evil, at=evil, source=evil),),
    )
    for name in ("text", "markdown"):
        output = render(verdict, name)
        assert "\x1b" not in output
        assert "\u202e" not in output
    assert "\x1b" not in render(verdict, "json")
    outside = "".join(part for i, part in enumerate(render(verdict, "markdown").split("``")) if i % 2 == 0)
    assert "<script>" not in outside


def test_colour_only_when_asked() -> None:
    assert "\x1b[" in render(flagship(), "text", Style(color=True))
    assert "\x1b[" not in render(flagship(), "text", Style(color=False))


def test_an_unknown_format_is_a_usage_error_that_lists_the_known() -> None:
    with pytest.raises(UsageError, match="text, json, markdown"):
        render(flagship(), "yaml")

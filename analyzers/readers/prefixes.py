r"""What launchers, frameworks and log collectors put in front of a line, taken off and kept as its origin.

Prefixes stand one behind the other in any order, and as often as they like:

>>> take = Prefixes([]).take
>>> text, origin = take("[pod/llama-1/main] [rank3]:[rank3]: Traceback (most recent call last):")
>>> text, origin.rank, origin.node
('Traceback (most recent call last):', 3, 'llama-1')
>>> take("(Trainer[rank=9] pid=41, ip=10.0.0.7) [2025-03-02 10:11:12,500] [INFO] step")[1].wall
1740910272.5

Only these are taken off. A glog or c10 head (``E0325 …]``, ``[E814 13:15:55.5 ProcessGroupNCCL.cpp:607]``), a
kernel's or Slurm's line of the system's log, a kernel's clock and a bracket with more than a date in it stay
where they are; a time in them is kept.
``[default3]:`` is torchrun's role and *local* rank (torch/distributed/elastic/multiprocessing/tail_log.py);
``[rank3]:`` is the global one (c10/util/Logging.cpp). The number before a line of ``srun -l`` is a task,
which may be a node: it becomes a rank only where lines that name their rank agree.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

from hangscope.model.loose import NOBODY, Origin

from .clocks import MONTHS, dated, undated

MOST_PREFIXES = 8
_DATE = r"\d{4}[-/]\d\d[-/]\d\d[T _]{1,2}\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:[ ]?Z|[+-]\d\d:?\d\d)?"
_CLOCK = r"\d\d:\d\d:\d\d"
_PREFIX = re.compile(
    rf"""
    (?P<rank>\[rank(?P<rank_n>\d{{1,6}})\]:[ ]?)
  | (?P<role>\[(?:default|trainer|worker|actor)_?(?P<role_n>\d{{1,5}})\]:)
  | (?P<lightning>\[rank:[ ](?P<lightning_n>\d{{1,6}})\][ ]?)
  | (?P<mpi>\[(?:\d{{1,6}},)?(?P<mpi_n>\d{{1,6}})\]<std(?:out|err|diag)>:(?:[ ](?=\S))?)
  | (?P<actor>\((?P<actor_name>[A-Za-z_][\w.:+<>-]{{0,80}})?(?P<actor_fields>
        (?:[\[ ,]{{0,2}}\b(?:pid|ip|rank)=[\w.:-]{{1,64}}\]?){{1,4}})\)[ ]?)
  | (?P<nemo>\[NeMo[ ][A-Z][ ](?P<nemo_date>{_DATE})
        (?:[ ]rank(?P<nemo_n>\d{{1,6}}))?[ ][^\s\]]{{1,120}}\][ ]?)
  | (?P<composer>rank(?P<composer_n>\d{{1,6}})\[(?P<composer_pid>\d{{1,7}})\]\[[^\]\n]{{1,60}}\]:[ ])
  | (?P<pod>\[pod/(?P<pod_name>[a-z0-9.-]{{1,253}})/[a-z0-9.-]{{1,63}}\][ ]?)
  | (?P<cri>(?P<cri_date>{_DATE})[ ](?:stdout|stderr)[ ][FP][ ]?)
  | (?P<date>(?P<date_date>{_DATE})(?:[ ]?(?:[-|:,]|::)[ ]|[ ]|$))
  | (?P<boxed>\[(?P<boxed_date>{_DATE})\][ ]?)
  | (?P<clock>(?:{_CLOCK}[.,]\d{{1,9}}|\[{_CLOCK}(?:[.,]\d{{1,9}})?\])[ ](?:[-|][ ])?)
  | (?P<syslog>(?P<syslog_month>[A-Z][a-z]{{2}})[ ]{{1,2}}(?P<syslog_day>\d{{1,2}})[ ]
        (?P<syslog_clock>{_CLOCK}(?:\.\d{{1,9}})?)[ ](?P<syslog_host>[\w.-]{{1,253}})[ ]
        (?P<syslog_name>[\w./()-]{{1,60}})(?:\[(?P<syslog_pid>\d{{1,7}})\])?:[ ]?)
  """,
    re.VERBOSE,
)
_INSIDE = re.compile(
    rf"\[?[EWIFVCD](?P<month>\d{{1,2}})(?P<day>\d\d) (?P<clock>{_CLOCK}\.\d{{1,9}}) "
    rf"|\[(?P<date>{_DATE}) "
    rf"|\[[A-Z][a-z]{{2}} (?P<word>[A-Z][a-z]{{2}}) {{1,2}}(?P<dmesg>\d{{1,2}} {_CLOCK} \d{{4}})\]"
)
_STARTS = frozenset("[(r0123456789JFMASOND")
"""Beginnings of prefixes; a line may begin with another one of _INSIDE_STARTS."""
_INSIDE_STARTS = frozenset("[EWIFVCD")
_RANKS = frozenset(("rank", "lightning", "nemo", "composer"))
_DATES = frozenset(("nemo", "cri", "date", "boxed"))
_FIELD = re.compile(r"(pid|ip|rank)=([\w.:-]+)")
_TASK = re.compile(r" {0,5}(?P<task>(?P<task_n>\d{1,5}):(?: |$))")
_NUMBER = re.compile(r"(?P<number>\[(?P<number_n>\d{3,7})\](?: |(?=\[)|$))")
_TASK_RANK = re.compile(r" {0,5}(\d{1,5}): [^\n]{0,60}?\[rank(\d{1,6})\]:")
_MPI_RANK = re.compile(r"\[(?:\d{1,6},)?(\d{1,6})\]<std\w{3,4}>:[^\n]{0,60}?\[rank(\d{1,6})\]:")
_SAMPLE = 4000
"""Lines that are looked at to tell whether a launcher numbered the lines of a text."""

_Who = dict[str, Any]


class Prefixes:
    """The prefixes of one text's rows. ``mtime`` (seconds since the epoch) dates stamps without a year."""

    def __init__(self, rows: Sequence[str], mtime: float | None = None) -> None:
        sample = [row for row in rows[:_SAMPLE] if row.strip()]
        self._mtime = mtime
        self._numbering = next((form for form in (_TASK, _NUMBER) if _numbers(form, sample)), None)
        self._starts = _STARTS | {" "} if self._numbering is _TASK else _STARTS
        self._tasks_are_ranks = self._numbering is _TASK and _agree(_TASK_RANK, rows, proof=True)
        from_mpi = any("]<std" in row[:40] for row in sample)
        self._mpi_is_rank = from_mpi and _agree(_MPI_RANK, rows, proof=False)

    def take(self, text: str) -> tuple[str, Origin]:
        """The line without its prefixes, and what they told."""
        starts = self._starts
        if text[:1] not in starts and text[:1] not in _INSIDE_STARTS:
            return text, NOBODY
        who: _Who = {}
        place = 0
        for _ in range(MOST_PREFIXES):
            if text[place : place + 1] not in starts:
                break
            match = _PREFIX.match(text, place)
            if match is None and self._numbering is not None:
                match = self._numbering.match(text, place)
            if match is None or match.lastgroup is None:
                break
            place = match.end()
            if self._learn(match, match.lastgroup, who):
                place = match.start()
                break
        if text[place : place + 1] in _INSIDE_STARTS:
            self._look_inside(text, place, who)
        who.pop("exact", None)
        return (text[place:], Origin(**who)) if who else (text[place:], NOBODY)

    def _learn(self, match: re.Match[str], kind: str, who: _Who) -> bool:
        """Puts what a prefix tells into ``who``; True for one that must stay."""
        if kind in _RANKS:
            _rank(who, match[f"{kind}_n"])
        if kind in _DATES:
            _date(who, match[f"{kind}_date"])
        if kind == "role":
            who["local_rank"] = int(match["role_n"])
        elif kind == "composer":
            who["pid"] = int(match["composer_pid"])
        elif kind == "actor":
            _actor(match, who)
        elif kind == "pod":
            who["node"] = match["pod_name"]
        elif kind == "mpi":
            self._numbered(who, "mpi", match["mpi_n"], self._mpi_is_rank)
        elif kind == "task":
            self._numbered(who, "srun", match["task_n"], self._tasks_are_ranks)
        elif kind == "number":
            who["label"] = match["number_n"]
        elif kind == "syslog":
            return self._syslog(match, who)
        return False

    def _numbered(self, who: _Who, launcher: str, number: str, is_rank: bool) -> None:
        who.setdefault("label", f"{launcher} {int(number)}")
        if is_rank:
            _rank(who, number)

    def _syslog(self, match: re.Match[str], who: _Who) -> bool:
        month = MONTHS.get(match["syslog_month"], "0")
        self._dateless(who, month, match["syslog_day"], match["syslog_clock"])
        who.setdefault("node", match["syslog_host"])
        name = match["syslog_name"]
        if name.startswith(("kernel", "slurm")):
            return True
        if match["syslog_pid"] is not None:
            who.setdefault("pid", int(match["syslog_pid"]))
        return False

    def _look_inside(self, text: str, place: int, who: _Who) -> None:
        """Takes the time from a head that stays in the line."""
        match = _INSIDE.match(text, place)
        if match is None:
            return
        if match["date"] is not None:
            _date(who, match["date"])
        elif match["word"] is not None:
            day, clock, year = match["dmesg"].split(" ")
            _date(who, f"{year}-{MONTHS.get(match['word'], '0'):0>2}-{day:0>2} {clock}")
        else:
            self._dateless(who, match["month"], match["day"], match["clock"])

    def _dateless(self, who: _Who, month: str, day: str, clock: str) -> None:
        if "wall" not in who:
            wall = undated(month, day, clock, self._mtime)
            if wall is not None:
                who["wall"] = wall


def _rank(who: _Who, digits: str | None) -> None:
    """The innermost prefix that names the global rank wins: it stands nearest to the writer."""
    if digits is not None:
        who["rank"], who["source"] = int(digits), "prefix"


def _date(who: _Who, text: str) -> None:
    """The first time counts, unless a later one comes with its zone."""
    stamp = dated(text)
    if stamp is not None and ("wall" not in who or (stamp.exact and not who.get("exact"))):
        who["wall"], who["exact"] = stamp


def _actor(match: re.Match[str], who: _Who) -> None:
    if match["actor_name"]:
        who["label"] = match["actor_name"]
    for key, value in _FIELD.findall(match["actor_fields"]):
        if key == "ip":
            who["node"] = value
        elif value.isdecimal() and len(value) < 10:
            if key == "rank":
                _rank(who, value)
            else:
                who["pid"] = int(value)


def _numbers(form: re.Pattern[str], sample: list[str]) -> bool:
    """Whether the lines of a text are numbered so by a launcher: nearly all of them, and not one by one."""
    found = [match for match in map(form.match, sample) if match is not None]
    if len(found) < 2 or len(found) < 0.8 * len(sample):
        return False
    group = "task_n" if form is _TASK else "number_n"
    numbers = [int(match[group]) for match in found]
    counted = all(left < right for left, right in itertools.pairwise(numbers))
    return not (counted and len(numbers) >= 10)


def _agree(form: re.Pattern[str], rows: Sequence[str], proof: bool) -> bool:
    """Whether the launcher's number is the rank, by lines with both. ``proof``: some line must say so."""
    said = [(int(match[1]), int(match[2])) for match in map(form.match, rows) if match is not None]
    if any(number != rank for number, rank in said):
        return False
    return not proof or any(rank > 0 for _, rank in said)

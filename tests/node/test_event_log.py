"""Events: a closed list, each with its fields; few lines, one each, whatever strangers send."""

from __future__ import annotations

import ast
import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kraftfast.node import event_log
from kraftfast.node.event_log import (
    ERROR,
    INFO,
    KINDS,
    LEVELS,
    LINE_BYTES_MAX,
    LINES_A_SECOND_MAX,
    REPEAT_S,
    WARNING,
    Entry,
    EventLog,
    entry,
    line,
)
from kraftfast.node.processes.supervisor import READY_BYTES_MAX
from tests.style.sources import ROOT

TELLERS = {"tell": 0, "_tell": 0, "entry_now": 0}
"""Functions that take the name of an event, and fields by keyword."""
ADDED = {"_tell": {"offset", "epoch"}, "entry_now": {"node_id"}}


class Clock:
    """Seconds that a test sets."""

    s = 100.0

    def ns(self) -> int:
        return int(self.s * 1e9)

    def ms(self) -> int:
        return 1_700_000_000_000 + int(self.s * 1000)


class Told:
    """A log of events and what it showed."""

    def __init__(self) -> None:
        self.clock, self.shown = Clock(), list[Entry]()
        self.log = EventLog(3, self.shown.append, self.clock.ns, self.clock.ms)
        self.tell = self.log.tell

    def take(self) -> list[str]:
        """What was shown since the last call: event and message."""
        found, self.shown[:] = [f"{each.event}: {each.message}" for each in self.shown], []
        return found


@pytest.fixture
def told() -> Told:
    return Told()


def calls() -> list[tuple[str, str, set[str], bool]]:
    """(place, event, keywords, whether there are more by ``**``) of each place that tells one."""
    found = []
    for path in sorted((ROOT / "kraftfast").rglob("*.py")):
        text = path.read_text()
        told = any(f"{name}(" in text for name in TELLERS)
        for node in ast.walk(ast.parse(text)) if told else ():
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            first = node.args[0]
            if name not in TELLERS or not isinstance(first, ast.Constant):
                continue
            if not isinstance(first.value, str):
                continue
            keywords = {each.arg for each in node.keywords if each.arg is not None}
            more = any(each.arg is None for each in node.keywords)
            place = f"{path.relative_to(ROOT)}:{node.lineno}"
            found.append((place, first.value, keywords | ADDED.get(name, set()), more))
    return found


def test_every_event_is_told_with_its_fields() -> None:
    """And none is listed that nobody tells."""
    seen = set()
    for place, event, keywords, more in calls():
        assert event in KINDS, f"{place}: {event} is not listed"
        fields = set(KINDS[event].fields)
        missing = fields - keywords - {"traceback"}
        assert more or not missing, f"{place}: {event} lacks {missing}"
        assert keywords <= fields | {"node_id"}, f"{place}: {event} has no {keywords - fields}"
        seen.add(event)
    assert KINDS.keys() - seen == set()


def test_no_field_is_another_part_of_a_line_or_of_a_log_record() -> None:
    taken = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "event", "node_id"}
    for name, kind in KINDS.items():
        assert not taken & set(kind.fields), name
        assert not {"time", "level", "cut"} & set(kind.fields), name
        assert kind.level in LEVELS


def test_the_page_lists_every_event() -> None:
    text = (ROOT / "docs" / "reference" / "events.md").read_text()
    rows = [each.split(" | ") for each in text.splitlines() if each.startswith("| `")]
    listed = {
        row[0].strip("| `"): (row[1], {each.strip("` |") for each in row[2].split(",")} - {"none"})
        for row in rows
    }
    assert listed == {name: (LEVELS[kind.level], set(kind.fields)) for name, kind in KINDS.items()}


def test_a_line_as_text_and_as_json(told: Told) -> None:
    told.tell("connection_refused", host="10.0.0.7", why="max.connections=3 are open")
    (shown,) = told.shown
    assert line(shown) == (
        "2023-11-14T22:15:00.000Z WARNING kraftfast replica 3: connection_refused: a connection "
        "from 10.0.0.7 is refused: max.connections=3 are open"
    )
    assert json.loads(line(shown, "json")) == {
        "time": "2023-11-14T22:15:00.000Z",
        "level": "warning",
        "node_id": 3,
        "event": "connection_refused",
        "message": "a connection from 10.0.0.7 is refused: max.connections=3 are open",
        "host": "10.0.0.7",
        "why": "max.connections=3 are open",
    }


@pytest.mark.parametrize("form", event_log.FORMATS)
def test_what_strangers_send_makes_no_second_line(told: Told, form: str) -> None:
    """Nor does it draw on a terminal, or fill one."""
    told.tell("connection_closed", who="a\nreplica 1: all is well", why="\x1b[2J\0\r\u2028" * 9999)
    text = line(told.shown[0], form)
    assert "\n" not in text and "\x1b" not in text and "\r" not in text and text.isprintable()
    assert len(text.encode()) <= LINE_BYTES_MAX


def test_a_line_of_wide_characters_is_cut_to_what_a_pipe_takes_at_once(told: Told) -> None:
    told.tell("connection_closed", who="\U0001d11e" * 5000, why="\U0001d11e" * 5000)
    found = json.loads(line(told.shown[0], "json"))
    assert found["cut"] and len(line(told.shown[0], "json").encode()) <= LINE_BYTES_MAX
    assert len(line(told.shown[0]).encode()) <= LINE_BYTES_MAX


def test_a_traceback_is_behind_the_line_or_in_the_document() -> None:
    fields = {"why": "no", "traceback": "Traceback:\n  in apply\n"}
    made = entry(0, "state_machine_failed", 1, fields)
    assert line(made).splitlines()[1:] == ["  Traceback:", "    in apply"]
    assert json.loads(line(made, "json"))["traceback"] == "Traceback:\n  in apply"
    assert "\n" not in line(made, "json")


FORGED = "2026-11-27T04:52:19.583Z ERROR kraftfast replica 1: disk_full: all is lost"


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028"])
def test_no_line_of_a_traceback_looks_like_an_event(end: str) -> None:
    """What it quotes may come out of a record: it was printed as it stood."""
    quoted = f"ValueError: no{end}{FORGED}\x1b[2J\x9b2J\x7f\ud800"
    made = entry(0, "state_machine_failed", 1, {"why": "no", "traceback": quoted})
    head, *more = re.split("\n|\r", line(made))
    assert more == ["  ValueError: no", f"  {FORGED}?[2J?2J??"]
    assert all(each.isprintable() for each in (head, *more))
    (document,) = line(made, "json").splitlines()
    assert document.isprintable() and json.loads(document)["event"] == "state_machine_failed"


def test_a_text_within_a_list_is_printable_too() -> None:
    made = entry(0, "reassignment_begun", -1, {"target": [1, f"2\n{FORGED}\x9b\u2028"]})
    (document,) = line(made, "json").splitlines()
    assert document.isprintable() and json.loads(document)["target"] == [1, f"2 {FORGED}?"]


def test_lines_of_one_event_are_few(told: Told) -> None:
    """A stranger who is hung up on a thousand times writes no thousand lines."""
    for number in range(1000):
        told.tell("connection_closed", who="somebody", why=f"line {number}")
    told.tell("disk_has_room")  # another event is told all the same
    assert len(told.take()) == LINES_A_SECOND_MAX + 1
    told.clock.s += 1
    told.tell("connection_closed", who="another", why="no")
    left_out = "left_out: and 990 more of connection_closed were left out"
    assert told.take() == [left_out, "connection_closed: another: no -> closed"]


@pytest.mark.parametrize(
    ("of", "level"), [("snapshot_written", INFO), ("defect", ERROR), ("events", WARNING)]
)
def test_what_was_left_out_is_as_grave_as_it_is(of: str, level: int) -> None:
    """A queue that keeps little of a fast log wrote a warning each second, for good news."""
    told = entry(0, "left_out", 1, {"count": 3, "of": of})
    assert told.level == level
    assert f" {LEVELS[level].upper()} " in line(told)
    assert json.loads(line(told, "json"))["level"] == LEVELS[level]


def test_the_same_line_again_is_left_out(told: Told) -> None:
    """A client that comes again and again wrote ten lines a second for as long as it came."""
    for _ in range(2 * REPEAT_S + 1):
        for _ in range(10):
            told.tell("search_failed", why="no")
        told.clock.s += 1
    text = "search_failed: a search by time in the log: no"
    counted = "left_out: and 99 more of search_failed were left out"
    assert told.take() == [text, counted, text, counted, text]


def test_a_warning_that_was_left_out_is_told_when_it_comes_again(told: Told) -> None:
    """It was held for told: the next ten seconds left it out as a repetition."""
    for number in range(LINES_A_SECOND_MAX):
        told.tell("search_failed", why=f"line {number}")
    told.tell("search_failed", why="new")
    told.take()
    told.clock.s += 1
    told.tell("search_failed", why="new")
    left_out = "left_out: and 1 more of search_failed were left out"
    assert told.take() == [left_out, "search_failed: a search by time in the log: new"]
    told.tell("search_failed", why="new")
    assert told.take() == []


def test_what_was_left_out_is_told_though_nothing_follows(told: Told) -> None:
    for _ in range(5):
        told.tell("search_failed", why="no")
    told.log.tend()
    assert len(told.take()) == 1
    told.clock.s += REPEAT_S
    told.log.tend()
    told.log.tend()
    assert told.take() == ["left_out: and 4 more of search_failed were left out"]
    told.tell("search_failed", why="no")
    told.tell("search_failed", why="no")
    told.log.tend(at_once=True)
    assert told.take()[1:] == ["left_out: and 1 more of search_failed were left out"]


@pytest.mark.parametrize(
    ("roles", "events"),
    [
        ([("unattached", 0, -1)], ["role_changed"]),
        ([("unattached", 0, -1), ("prospective", 0, -1)], ["role_changed", "election_begun"]),
        ([("prospective", 0, -1), ("candidate", 1, -1)], ["election_begun", "role_changed"]),
        ([("candidate", 1, -1), ("leader", 1, 3)], ["election_begun", "leader_elected"]),
        ([("leader", 1, 3), ("resigned", 1, -1)], ["leader_elected", "leader_resigned"]),
        (
            [("leader", 1, 3), ("follower", 2, 1)],
            ["leader_elected", "leader_resigned", "leader_followed"],
        ),
        (
            [("follower", 1, 2), ("prospective", 1, -1)],
            ["leader_followed", "leader_lost", "election_begun"],
        ),
        ([("follower", 1, 2), ("unattached", 2, -1)], ["leader_followed", "role_changed"]),
        (
            [("follower", 1, 2), ("unattached", 1, -1)],
            ["leader_followed", "leader_lost", "role_changed"],
        ),
        ([("follower", 1, 2), ("follower", 1, 2)], ["leader_followed"]),
        ([("follower", 1, 2), ("follower", 2, 1)], ["leader_followed"] * 2),
    ],
)
def test_roles(told: Told, roles: list[tuple[str, int, int]], events: list[str]) -> None:
    for each in roles:
        told.log.role_changed(*each)
    assert [each.event for each in told.shown] == events


UNHEARD = "follower", False


@pytest.mark.parametrize(
    ("roles", "events"),
    [
        # a leader that is dead is followed again after each pre-vote that is lost
        (
            [("follower", True), ("prospective", True), UNHEARD, ("prospective", True), UNHEARD],
            ["leader_followed", "leader_lost", "election_begun"],
        ),
        ([UNHEARD, ("follower", True)], ["leader_followed"]),
        (
            [("follower", True), ("prospective", True), UNHEARD, ("follower", True)],
            ["leader_followed", "leader_lost", "election_begun", "leader_followed"],
        ),
        (
            [("leader", True), UNHEARD, ("follower", True)],
            ["leader_elected", "leader_resigned", "leader_followed"],
        ),
    ],
)
def test_a_leader_is_told_once_it_has_answered(
    told: Told, roles: list[tuple[str, bool]], events: list[str]
) -> None:
    for role, heard in roles:
        told.log.role_changed(role, 1, 2, heard)
    assert [each.event for each in told.shown] == events


def test_voters(told: Told) -> None:
    told.log.voters_changed({1, 2, 3}, {2, 3, 4}, 1)
    assert told.take() == [
        "voters_changed: the voters are [2, 3, 4]: added [4], removed [1], kraft.version 1"
    ]


def test_it_runs_where_logging_was_never_imported(tmp_path: Path) -> None:
    """A worker imports none of it: that takes time at each start."""
    source = (ROOT / "kraftfast" / "node" / "event_log.py").read_text()
    imported = {
        each.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import)
        for each in node.names
    }
    assert "logging" not in imported


def test_fields_that_are_numbers_stay_numbers(told: Told) -> None:
    told.tell("slow_flush", duration_ms=812)
    found: dict[str, Any] = json.loads(line(told.shown[0], "json"))
    assert found["duration_ms"] == 812


@pytest.mark.parametrize("each", ["x", "\u00e9", "\U0001f600", '"', "\\", "\ud800", "\n"])
def test_every_event_fits_one_message_to_the_supervisor(each: str) -> None:
    """What does not is cut by the socket, and the supervisor would hear no more of the worker."""
    made = entry(0, "state_machine_failed", 1, {"why": each * 99_999, "traceback": each * 99_999})
    data = msgspec.json.encode({"told": made})
    assert len(data) < READY_BYTES_MAX
    assert msgspec.convert(msgspec.json.decode(data)["told"], Entry) == made


def test_what_a_forked_child_raised_forges_no_line() -> None:
    """It may quote a record, as what a state machine raises does."""
    program = (
        "from kraftfast.node.threads import held\n"
        "try:\n"
        "    raise ValueError('bad: x\\n2026-01-01 ERROR kraftfast replica 2: forged')\n"
        "except ValueError:\n"
        "    held._end_child()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    first, *rest = done.stderr.splitlines()
    assert done.returncode == 1 and "child_failed: process" in first
    assert any("forged" in each for each in rest) and all(each.startswith("  ") for each in rest)

"""The commit timeline of made-up events: which batch a slice holds, lanes, and slow commits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kraftfast.bench.profiling.event_collector import LAYOUT, Recorded, Recording
from kraftfast.bench.profiling.slow import slow_commits
from kraftfast.bench.profiling.timeline import Timeline, TimelineSlice, timeline
from kraftfast.bench.profiling.trace_file import lanes
from kraftfast.link.timed_events import KINDS

Event = tuple[str, int, int, int, int]
"""Kind, begin, end, offset, count."""


def recorded(name: str, id: int, *events: Event, lost: int = 0) -> Recorded:
    rows = [(end, began, offset, KINDS[kind], count) for kind, began, end, offset, count in events]
    return Recorded(name, id, 100 + id, np.array(rows, LAYOUT), lost, "leader" if id == 1 else "")


LEADER = (
    ("queue", 110, 120, 10, 5), ("append", 120, 130, 10, 5),
    ("queue", 112, 131, 15, 3), ("append", 131, 140, 15, 3),
    ("send", 2, 150, 10, 8),
    ("acknowledge", 90, 95, 10, 2),  # what follows was acknowledged up to 10 before
    ("acknowledge", 300, 310, 15, 2), ("acknowledge", 400, 410, 18, 2),
    ("commit", 130, 320, 10, 5), ("high_watermark", 0, 320, 15, 0),
    ("flush", 410, 500, 18, 0), ("commit", 140, 510, 15, 3), ("role", 0, 600, 5, 0),
)  # fmt: skip
FOLLOWER = (
    ("travel", 150, 160, 10, 5), ("copy", 160, 170, 10, 5), ("flush", 180, 290, 15, 0),
    ("travel", 150, 175, 15, 3), ("copy", 175, 185, 15, 3), ("flush", 300, 390, 18, 0),
)  # fmt: skip
PRODUCER = (
    ("answer", 320, 330, 10, 5), ("resolve", 100, 335, 10, 5),
    ("answer", 510, 520, 15, 3), ("resolve", 101, 525, 15, 3),
)  # fmt: skip


def whole() -> Timeline:
    processes = [
        recorded("replica 1", 1, *LEADER),
        recorded("replica 2", 2, *FOLLOWER),
        recorded("producer", 0, *PRODUCER),
    ]
    return timeline(Recording(processes, 100, 700))


def test_each_batch_is_followed_through_all_stages() -> None:
    found = {
        base: [(each.stage, each.process, each.began_ns, each.ended_ns) for each in slices]
        for base, slices in whole().by_batch().items()
    }
    assert found[10] == [
        ("claim", "producer", 100, 110),
        ("resolve", "producer", 100, 335),
        ("queue", "replica 1", 110, 120),
        ("append", "replica 1", 120, 130),
        ("commit", "replica 1", 130, 320),
        ("send", "replica 1", 150, 150),
        ("travel", "replica 2", 150, 160),
        ("copy", "replica 2", 160, 170),
        ("flush", "replica 2", 180, 290),
        ("acknowledge", "replica 1", 300, 310),
        ("answer", "producer", 320, 330),
        ("flush", "replica 1", 410, 500),
    ]
    assert [stage for stage, *_ in found[15]].count("flush") == 2
    assert ("acknowledge", "replica 1", 400, 410) in found[15]


def test_a_flush_holds_what_was_in_the_log_when_it_began() -> None:
    """The second batch was copied at 185, after the first flush began."""
    flushes = [each for each in whole().slices if each.stage == "flush"]
    of = {(each.process, each.began_ns): each.bases for each in flushes}
    assert of == {
        ("replica 2", 180): (10,),
        ("replica 2", 300): (15,),
        ("replica 1", 410): (10, 15),
    }


def test_an_acknowledgement_of_nothing_new_is_none() -> None:
    found = [each for each in whole().slices if each.stage == "acknowledge"]
    assert [(each.offset, each.bases, each.peer) for each in found] == [
        (15, (10,), 2),
        (18, (15,), 2),
    ]


def test_marks() -> None:
    found = [(mark.kind, mark.ns, mark.text) for mark in whole().marks]
    assert found == [("high_watermark", 320, "15"), ("role", 600, "resigned")]


def test_a_time_that_cannot_be_is_left_out() -> None:
    """What a producer says of when it sent is on trust."""
    odd = [("queue", 500, 120, 10, 5), ("queue", 0, 120, 15, 5)]
    made = timeline(Recording([recorded("replica 1", 1, *odd)], 0, 1000))
    assert made.slices == []
    assert timeline(Recording([recorded("replica 1", 1)], 0, 1)).slices == []


@pytest.mark.parametrize("spans, expected", [
    ([(0, 5), (5, 9), (9, 9)], 1),
    ([(0, 5), (1, 2), (3, 9), (4, 6)], 3),
    ([], 0),
])  # fmt: skip
def test_slices_of_a_lane_do_not_overlap(spans: list[tuple[int, int]], expected: int) -> None:
    made = [TimelineSlice("replica 1", "queue", began, end, 0, 1) for began, end in spans]
    found = list(lanes(made))
    assert len(found) == expected and sum(map(len, found)) == len(spans)
    for lane in found:
        for one, other in zip(lane, lane[1:]):
            assert one.ended_ns <= other.began_ns


def test_slow_commits_tell_their_stages_and_the_flushes_meanwhile() -> None:
    assert slow_commits(whole(), 0.000424) == []
    (slow,) = slow_commits(whole(), 0.000235)
    assert (slow.offset, slow.records, slow.ms) == (15, 3, pytest.approx(0.000424))
    held = {(each.process, each.began_ns): 15 in each.bases for each in slow.flushes}
    assert held == {
        ("replica 2", 180): False,
        ("replica 2", 300): True,
        ("replica 1", 410): True,
    }
    text = "\n".join(slow.lines())
    assert text.startswith("offset 15, 3 records: 0.000 ms\n")
    assert "replica 2  flush up to 15, without it (median 0 us)" in text
    assert "replica 1  send to replica 2" in text and "acknowledge of replica 2" in text
    said: dict[str, Any] = slow.as_dict()
    assert [each["holds_it"] for each in said["flushes"]].count(True) == 2
    assert len(slow_commits(whole(), 0.0)) == 2


def test_what_came_over_a_socket_is_in_no_flush_that_is_known() -> None:
    events = [each for each in LEADER if each[0] == "flush"]
    processes = [recorded("replica 1", 1, *events), recorded("producer", 0, *PRODUCER)]
    slow = slow_commits(timeline(Recording(processes, 0, 700)), 0.0)[0]
    assert [slow.holds(each) for each in slow.flushes] == [None]
    assert "without it" not in "\n".join(slow.lines())


def test_without_a_producer_a_commit_begins_in_its_ring() -> None:
    processes = [recorded("replica 1", 1, *LEADER), recorded("replica 2", 2, *FOLLOWER)]
    slow = slow_commits(timeline(Recording(processes, 0, 700)), 0.0)
    assert [(each.offset, each.began_ns, each.ended_ns) for each in slow] == [
        (15, 112, 510),
        (10, 110, 320),
    ]

"""What happened between two looks: rates, quantiles, and what cannot be known."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from kraftfast.live.pages import SILENT_S_MAX, Sample
from kraftfast.live.view import view
from tests.live.kit import sample, stage

NS = 1_000_000_000


def later(it: Sample, seconds: float = 2, **changed: Any) -> Sample:
    """The same process, looked at again; ``words``: of its page, by how much they grew."""
    words = {name: it.words[name] + grown for name, grown in changed.pop("words", {}).items()}
    noted = changed.pop("noted", {})
    return dataclasses.replace(
        it,
        at_ns=it.at_ns + int(seconds * NS),
        words=dict(it.words) | words,
        noted=dict(it.noted) | {"noted_ns": it.at_ns + int(seconds * NS)} | noted,
        **changed,
    )


def test_rates_are_by_the_time_between_the_looks() -> None:
    leader, follower = sample(1, role="leader", epoch=3), sample(2, epoch=3)
    grown = {"high_watermark": 1000, "end_offset": 1100, "bytes": 500, "batches": 10, "flushes": 8}
    assert follower.process is not None
    busier = dataclasses.replace(follower.process, cpu_s=follower.process.cpu_s + 1)
    it = view(
        [leader, follower],
        [
            later(leader, words=grown),
            later(follower, words={"flushes": 4, "end_offset": 900}, process=busier,
                  noted={"leader_high_watermark": 1005}),
        ],
    )  # fmt: skip
    assert (it.seconds, it.leader_id, it.epoch, it.high_watermark) == (2, 1, 3, 1005)
    assert (it.records_per_s, it.bytes_per_s, it.batches_per_s) == (500, 250, 5)
    first, second = it.replicas
    assert (first.flushes_per_s, second.flushes_per_s) == (4, 2)
    assert (first.lag_records, second.lag_records) == (0, 100)
    assert (first.unflushed_records, first.cpu, second.cpu) == (1105, 0, 0.5)
    assert json.loads(json.dumps(it.as_dict()))["replicas"][1]["id"] == 2


def test_quantiles_are_of_what_came_between_the_looks() -> None:
    before = sample(1, (5_000_000,) * 1000, role="leader")
    after = later(before, stages={"commit": stage([5_000_000] * 1000 + [1000] * 99 + [70_000])})
    it = view([before], [after]).stages["commit"]
    assert it.count == 100
    assert it.p50_us == it.p99_us == pytest.approx(1.0, rel=0.02)
    assert it.p999_us == it.max_us == pytest.approx(70.0, rel=0.02)
    assert view([before], [after]).stages["queue"].p99_us is None


def test_the_stages_of_all_replicas_are_together() -> None:
    before = [sample(2), sample(3)]
    slow = {2: [1000] * 10, 3: [9000] * 10}
    after = [later(each, stages={"follower_flush": stage(slow[each.id])}) for each in before]
    it = view(before, after)
    assert it.stages["follower_flush"].count == 20
    assert [each.flush_p99_us for each in it.replicas] == [
        pytest.approx(1, rel=0.02), pytest.approx(9, rel=0.02)
    ]  # fmt: skip


def test_a_replica_that_was_started_again_has_no_rates_yet() -> None:
    before = sample(1, flushes=1000, pid=1)
    after = later(before, pid=2, words={"flushes": -990})
    (replica,) = view([before], [after]).replicas
    assert replica.flushes_per_s is None and replica.cpu is None and replica.up


def test_one_that_is_down_has_nothing_but_its_reason() -> None:
    before = sample(1)
    after = later(before, up=False, error="it was killed", process=None)
    it = view([before], [after])
    assert it.leader_id == -1 and it.records_per_s is None and it.stages == {}
    (replica,) = it.replicas
    assert replica.why_not_ready == "it does not run: it was killed"
    assert replica.lag_records is None and replica.producers is None


def test_nothing_is_known_of_one_look() -> None:
    once = [sample(1)]
    it = view(once, once)
    assert it.seconds == 0 and it.records_per_s is None and it.replicas[0].flushes_per_s is None
    assert view([], []).leader_id == -1


def test_a_leader_that_hangs_leads_no_more() -> None:
    """Its page says what it last said, that it leads; the one that is left has lost it."""
    stopped = sample(1, role="leader", leader_id=1)
    stopped = dataclasses.replace(stopped, at_ns=int(stopped.at_ns + (SILENT_S_MAX + 1) * NS))
    assert stopped.hangs
    assert view([], [stopped, sample(3, leader_id=-1)]).leader_id == -1
    assert view([], [sample(1, leader_id=1), sample(3, leader_id=-1)]).leader_id == 1


def test_who_is_in_a_later_epoch_says_who_leads() -> None:
    old, new = sample(1, epoch=3, leader_id=1), sample(2, epoch=4, leader_id=2)
    assert view([], [old, new]).leader_id == view([], [new, old]).leader_id == 2

"""What Prometheus is told: names, types, and numbers that are those of the pages."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kraftfast.link.stats import ROLES, STAGES, TROUBLES
from kraftfast.live.families import BOUNDS_NS, registry
from kraftfast.live.pages import Sample
from tests.live.kit import sample

STAGE = "kraftfast_stage_duration_seconds"


def exported(*samples: Sample) -> dict[tuple[str, frozenset[str]], float]:
    """Value by name and values of the labels, as Prometheus's own parser reads the text."""
    text = generate_latest(registry(lambda: list(samples), "its-cluster")).decode()
    return {
        (each.name, frozenset(each.labels.values())): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


def value(found: dict[tuple[str, frozenset[str]], float], name: str, *labels: str) -> float:
    return found[f"kraftfast_{name}", frozenset(labels)]


def test_words_arrive_under_their_names() -> None:
    found = exported(
        sample(
            2, epoch=7, leader_id=1, high_watermark=90, end_offset=95, flushed_end_offset=93,
            log_start_offset=3, leader_high_watermark=99, flushes=11, records=12, batches=13,
            bytes=14, elections=15, leaderships=16, producers=17, watchers=18, connections=19,
            other_flushes=20, truncations=21, snapshot_end_offset=22, prepared_bytes=23,
            noted_ns=10**9, at_ns=3 * 10**9,
        )
    )  # fmt: skip
    wanted = {
        "epoch": 7, "leader_id": 1, "high_watermark": 90, "log_end_offset": 95,
        "log_flushed_end_offset": 93, "log_start_offset": 3, "lag_records": 4, "flushes_total": 11,
        "ring_records_total": 12, "ring_batches_total": 13, "ring_bytes_total": 14,
        "elections_total": 15, "leaderships_total": 16, "producers": 17, "watchers": 18,
        "connections": 19, "other_flushes_total": 20, "truncations_total": 21,
        "snapshot_end_offset": 22, "log_prepared_bytes": 23, "loop_age_seconds": 2, "up": 1,
        "ready": 1, "voters": 3, "voter": 1, "process_cpu_seconds_total": 1.5,
        "process_written_bytes_total": 9, "log_bytes": 1000, "log_segments": 2,
        "disk_free_bytes": 3000, "disk_size_bytes": 4000,
    }  # fmt: skip
    assert {name: value(found, name, "2") for name in wanted} == wanted
    assert value(found, "quorum_info", "its-cluster") == 1


def test_a_bucket_counts_what_is_not_longer_than_its_bound() -> None:
    times = (1, 1023, 1025, 500_000, 2**34 - 1, 2**34 + 1, 2**50)
    found = exported(sample(times_ns=times))
    for bound in BOUNDS_NS:
        counted = value(found, "stage_duration_seconds_bucket", str(bound / 1e9), "1", "commit")
        assert counted == sum(each <= bound for each in times), bound
    assert value(found, "stage_duration_seconds_bucket", "+Inf", "1", "commit") == len(times)
    assert value(found, "stage_duration_seconds_count", "1", "commit") == len(times)
    total = value(found, "stage_duration_seconds_sum", "1", "commit")
    assert total == pytest.approx(sum(times) / 1e9)


def test_one_role_and_the_troubles_are_1() -> None:
    found = exported(sample(role="candidate", troubles=0b101))
    roles = {role: value(found, "role", "1", role) for role in ROLES}
    assert roles == dict.fromkeys(ROLES, 0) | {"candidate": 1}
    troubles = {name: value(found, "trouble", "1", name) for name in TROUBLES}
    assert troubles == {"in_doubt": 1, "refuses_leader": 0, "no_room": 1}


def test_a_replica_that_was_never_seen_is_down_and_nothing_else() -> None:
    found = exported(Sample(3, 0, False, "no one is there"))
    of_three = {name: each for (name, labels), each in found.items() if "3" in labels}
    assert of_three == {"kraftfast_up": 0, "kraftfast_ready": 0}


def test_names_are_those_of_the_conventions() -> None:
    text = generate_latest(registry(lambda: [sample()], "")).decode()
    families = list(text_string_to_metric_families(text))
    assert len(families) > 30
    for family in families:
        assert re.fullmatch(r"kraftfast_[a-z_]+", family.name) and family.documentation
        assert "bytes" not in family.name or family.name.endswith("bytes"), family.name
        assert not re.search(r"_(ms|us|ns|milliseconds|kib|mb)\b", family.name), family.name
        for each in family.samples:
            assert set(each.labels) <= {
                "replica", "role", "trouble", "stage", "le", "version", "cluster_id"
            }  # fmt: skip
    kinds = {family.name: family.type for family in families}
    assert kinds[STAGE] == "histogram" and kinds["kraftfast_flushes"] == "counter"
    assert len([each for each in families if each.name == STAGE][0].samples) == len(STAGES) * (
        len(BOUNDS_NS) + 3
    )


def test_what_is_not_known_is_left_out() -> None:
    """A lag of 0 of a replica that copies a snapshot, a leader that hangs, an old page."""
    copies = exported(sample(leader_high_watermark=-1))
    assert "lag_records" not in {name.removeprefix("kraftfast_") for name, _ in copies}
    old = exported(sample(noted_ns=0, at_ns=10**12))
    assert "loop_age_seconds" not in {name.removeprefix("kraftfast_") for name, _ in old}
    hangs = exported(sample(role="leader", noted_ns=1, at_ns=10**11))
    assert value(hangs, "role", "1", "leader") == 0

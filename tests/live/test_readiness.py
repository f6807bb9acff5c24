"""When a replica is ready, and what is said of one that is not."""

from __future__ import annotations

from typing import Any

import pytest

from kraftfast.live.pages import Sample
from kraftfast.live.readiness import BEHIND_RECORDS_MAX, SILENT_S_MAX, readiness, why_not_ready
from tests.live.kit import sample

NS = 1_000_000_000


@pytest.mark.parametrize(
    "changed, said",
    [
        ({}, ""),
        ({"role": "leader", "leader_high_watermark": 10**6}, ""),
        ({"up": False, "error": "gone"}, "it does not run: gone"),
        ({"role": "resigned"}, "it is resigned"),
        ({"leader_id": -1}, "it knows no leader"),
        ({"troubles": 1}, "it is in doubt about the end of its log"),
        ({"troubles": 6}, "it refuses its leader; its disk is full"),
        ({"leader_high_watermark": 5 + BEHIND_RECORDS_MAX}, ""),
        ({"leader_high_watermark": 6 + BEHIND_RECORDS_MAX}, "it is 10001 records behind"),
        ({"noted_ns": 0, "at_ns": int(SILENT_S_MAX * NS)}, ""),
        ({"noted_ns": 0, "at_ns": 9 * NS}, "its loop has not turned for 9 s"),
    ],
)
def test_each_reason(changed: dict[str, Any], said: str) -> None:
    found = why_not_ready(sample(**changed))
    assert found.startswith(said) and bool(found) == bool(said)


def test_more_than_half_must_be_ready() -> None:
    good, bad = sample(1), Sample(2, 0, False, "gone")
    assert readiness([good, sample(3), bad])[0]
    assert not readiness([good, bad])[0]
    assert not readiness([])[0]
    assert readiness([good, bad])[1] == "replica 1: ready\nreplica 2: it does not run: gone\n"

"""When a replica is ready, and what is said of one that is not."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

import kraftfast
from kraftfast.live.pages import SILENT_S_MAX, Pages, Sample
from kraftfast.live.readiness import BEHIND_RECORDS_MAX, readiness, why_not_ready
from tests.live.kit import SMALL, TIMEOUT_S, sample

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
        ({"noted_ns": NS, "at_ns": int((1 + SILENT_S_MAX) * NS)}, ""),
        ({"noted_ns": NS, "at_ns": 10 * NS}, "its loop has not turned for 9 s"),
        ({"noted_ns": 0, "at_ns": 9 * NS}, "it has not told yet how it is"),
        ({"role": "unattached"}, "it is unattached: it follows no leader"),
        ({"role": "prospective"}, "it is prospective"),
        ({"leader_high_watermark": -1}, "its leader has not told it what is committed"),
        ({"role": "leader", "leader_high_watermark": -1}, ""),
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


@pytest.mark.processes
def test_a_replica_that_lost_its_leader_is_not_ready(tmp_path: Any) -> None:
    """Two of three hang: the third asks for votes in vain, and follows the old leader between."""
    with kraftfast.LocalQuorum(tmp_path / "quorum", voters=3, **SMALL) as quorum:
        leader = quorum.wait_leader()
        first, last = (id for id in quorum.directories if id != leader)
        pages = Pages(str(quorum.path))
        try:
            until = time.monotonic() + TIMEOUT_S
            while why_not_ready(sample_of(pages, last)) and time.monotonic() < until:
                time.sleep(0.05)
            assert not why_not_ready(sample_of(pages, last))
            for id in (leader, first):
                quorum.kill(id, signal.SIGSTOP)
            while not why_not_ready(sample_of(pages, last)) and time.monotonic() < until:
                time.sleep(0.05)
            told = [bool(why_not_ready(sample_of(pages, last))) for _ in range(40) if pause()]
            assert all(told), "it was ready again meanwhile"
            elections = sample_of(pages, last).noted["elections"]
            pause(3.0)
            assert sample_of(pages, last).noted["elections"] == elections, "nobody was elected"
        finally:
            pages.close()
            for id in (leader, first):
                quorum.kill(id, signal.SIGCONT)


def pause(seconds: float = 0.05) -> bool:
    time.sleep(seconds)
    return True


def sample_of(pages: Pages, id: int) -> Sample:
    """What is seen of one replica now."""
    pages.look()
    return next((each for each in pages.samples() if each.id == id), Sample(id, 0, False, "unseen"))

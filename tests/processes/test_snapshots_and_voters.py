"""Voters of a log whose beginning is gone: they stand in its snapshots, which newcomers fetch."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftfast.log.disk import Disk
from kraftfast.log.snapshots.snapshot_files import snapshot_ids
from kraftfast.log.snapshots.snapshot_reader import open_snapshot
from kraftfast.types import KRaftVersion, KRaftVoters
from tests.processes.kit import PATIENCE_S, a_quorum, go_on, loads, log_path, wait_until
from tests.processes.test_snapshots import (
    KEPT,
    TRANSPORTS,
    fill,
    same_from_the_latest_start,
    starts,
)

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_newcomers_learn_who_votes_from_a_snapshot(tmp_path: Path, transport: str) -> None:
    """They begin with it, take over altogether, and know each other at the next start."""
    path = tmp_path / "q"
    settings = {**KEPT, "transport": transport}
    with a_quorum(path, kraft_version=1, **settings) as quorum:
        with loads(quorum) as running:
            fill(quorum, 40)
            wait_until(lambda: min(starts(quorum).values()) > 0)
            quorum.reassign((4, 5, 6), timeout=PATIENCE_S)
            assert min(starts(quorum)[id] for id in (4, 5, 6)) > 0, "they began with a snapshot"
            go_on(running)
            fill(quorum, 40)  # until a snapshot holds the voters of now
            at = quorum.describe().high_watermark
            fill(quorum, 30)
            wait_until(lambda: min(starts(quorum).values()) >= at)
            go_on(running)
        same_from_the_latest_start(quorum)
    for id in (1, 4, 5, 6):
        log = log_path(quorum, id)
        with open_snapshot(Disk(), log, snapshot_ids(Disk(), log)[-1]) as snapshot:
            version, voters = snapshot.controls
        assert version == KRaftVersion(1) and isinstance(voters, KRaftVoters)
        assert [voter.id for voter in voters.voters] == [4, 5, 6]
    with a_quorum(path, **settings) as quorum:
        assert quorum.describe(timeout=PATIENCE_S).voter_ids == (4, 5, 6)
        quorum.transfer(timeout=PATIENCE_S)
        fill(quorum, 1)

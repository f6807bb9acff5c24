"""Pages of a quorum that runs: found, lost when a replica ends, and found again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftfast.errors import KraftfastError
from kraftfast.live.pages import Pages, Sample
from kraftfast.quorum import LocalQuorum
from tests.live.kit import SMALL, wait_until

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalQuorum]:
    with LocalQuorum(tmp_path_factory.mktemp("quorum"), voters=3, **SMALL) as quorum:
        with quorum.producer() as producer:
            for _ in range(20):
                producer.append_wait(b"x" * 100, timeout=20)
        yield quorum


@pytest.fixture
def pages(quorum: LocalQuorum) -> Iterator[Pages]:
    with Pages(quorum.path) as pages:
        wait_until(lambda: all(each.up for each in pages.samples()))
        yield pages


def of(pages: Pages, id: int) -> Sample:
    return next(each for each in pages.samples() if each.id == id)


def test_what_the_replicas_have_done(quorum: LocalQuorum, pages: Pages) -> None:
    leader = quorum.wait_leader()

    def used() -> bool:  # it is counted in hundredths of a second
        return all(each.process and each.process.cpu_s > 0 for each in pages.samples())

    wait_until(used)
    samples = pages.samples()
    assert [each.id for each in samples] == [1, 2, 3]
    assert [each.id for each in samples if each.role == "leader"] == [leader]
    assert pages.cluster_id == quorum.cluster_id
    for each in samples:
        assert each.pid == quorum.supervisor.pid(each.id)
        assert each.process is not None and each.process.resident_bytes > 1 << 20
        assert 0 < each.process.cpu_s < 1000 and each.process.threads > 1
        assert abs(each.process.started_s - os.stat(quorum.path).st_ctime) < 3600
        assert each.place is not None and each.place.segments == 1
        assert 0 < each.place.log_bytes < each.place.size_bytes
        assert each.words["end_offset"] >= 20 and each.loop_age_s < 60


def test_what_is_noted_now_and_then_arrives(quorum: LocalQuorum, pages: Pages) -> None:
    leader = quorum.wait_leader()
    noted = wait_until(lambda: of(pages, leader).noted["elections"] and of(pages, leader).noted)
    assert (noted["voters"], noted["is_voter"]) == (3, 1)
    assert noted["leaderships"] == noted["elections"] == 1 and noted["watchers"] >= 1
    status = quorum.status(leader)
    assert noted["other_flushes"] == status["other_flushes"] and noted["troubles"] == 0
    with quorum.producer():
        wait_until(lambda: of(pages, leader).noted["producers"] == 1)
    wait_until(lambda: of(pages, leader).noted["producers"] == 0)
    follower = next(id for id in quorum.directories if id != leader)
    end = quorum.status(leader)["high_watermark"]
    wait_until(lambda: of(pages, follower).noted["leader_high_watermark"] == end)


def test_a_replica_that_hangs_keeps_nobody_from_looking(quorum: LocalQuorum, pages: Pages) -> None:
    id = next(id for id in quorum.directories if id != quorum.wait_leader())
    quorum.supervisor.kill(id, signal.SIGSTOP)
    try:
        wait_until(lambda: of(pages, id).loop_age_s > 2)
        assert of(pages, id).up and of(pages, id).words["end_offset"] >= 20
    finally:
        quorum.supervisor.kill(id, signal.SIGCONT)
    wait_until(lambda: of(pages, id).loop_age_s < 2)


def test_a_replica_that_is_killed_is_down_and_found_again(tmp_path: Path) -> None:
    with LocalQuorum(tmp_path, voters=1, restart=False, **SMALL) as quorum:
        with Pages(str(tmp_path)) as pages:
            wait_until(lambda: of(pages, 1).up)
            quorum.kill(1)
            wait_until(lambda: not of(pages, 1).up)
            assert of(pages, 1).role == "stopped" and of(pages, 1).error
            assert of(pages, 1).words["leader_id"] == 1, "what it said last is kept"
    with Pages(str(tmp_path)) as pages:
        assert not of(pages, 1).up and not of(pages, 1).words
        with LocalQuorum(tmp_path, **SMALL) as quorum:
            wait_until(lambda: of(pages, 1).up)
            before = of(pages, 1).pid
            quorum.kill(1)
            wait_until(lambda: of(pages, 1).up and of(pages, 1).pid != before)


def test_the_directory_of_one_replica(quorum: LocalQuorum) -> None:
    with Pages(quorum.directories[2]) as pages:
        assert [each.id for each in pages.samples()] == [2]


def test_what_is_no_quorum_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KraftfastError):
        Pages(str(tmp_path))

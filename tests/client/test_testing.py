"""``kraftfast.testing``: what the tests of other programs use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kraftfast import testing
from kraftfast.errors import InvalidOption, NoQuorum, TimedOut, VerificationFailed
from kraftfast.testing import QuorumUnderTest, batch
from kraftfast.testing import quorum as quorum  # the fixture, instead of that of conftest.py

MIB = 1 << 20


@pytest.mark.processes
def test_the_leader_is_killed(quorum: QuorumUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    with quorum.producer() as producer:
        first = producer.append_wait(b"before", timeout=30)
        blocks = sum(each.stat().st_blocks * 512 for each in Path(quorum.path).rglob("*"))
        assert blocks <= MIB, "it is light"
        epoch, pids = quorum.status(quorum.wait_leader())["epoch"], pids_of(quorum)
        leader = quorum.kill_leader()
        assert quorum.status(leader)["epoch"] > epoch
        assert sum(pids_of(quorum)[id] != pids[id] for id in pids) == 1
        last = producer.append_wait(b"after", timeout=30)
    values = [record.value for record in quorum.consumer(first).read(2)]
    assert values == [b"before", b"after"] and last > first
    assert quorum.verify() > 0
    monkeypatch.setattr(testing, "compare_replicas", lambda *_: (0, "replicas 1 and 2 differ"))
    with pytest.raises(VerificationFailed, match="replicas 1 and 2 differ"):
        quorum.verify()
    monkeypatch.undo()


def pids_of(quorum: QuorumUnderTest) -> dict[int, int | None]:
    return {id: quorum.supervisor.pid(id) for id in quorum.directories}


@pytest.mark.processes
@pytest.mark.parametrize("quorum", [{"fetch_timeout_ms": 1000}], indirect=True)
def test_links_are_cut_and_healed(quorum: QuorumUnderTest) -> None:
    leader = quorum.wait_leader()
    epoch = quorum.status(leader)["epoch"]
    with quorum.cut_off(leader):
        with pytest.raises(TimedOut, match=f"replica {leader} are cut"):
            quorum.status(leader)
        assert quorum.wait_next_leader(epoch) != leader
        assert leader not in quorum.statuses()
    assert quorum.status(leader)["node_id"] == leader
    for id in quorum.directories:
        quorum.cut(id)
    with pytest.raises(NoQuorum, match=f"above {2**30}"):
        quorum.wait_next_leader(2**30, timeout=0.05)
    assert quorum.verify() > 0, "it heals all of them"
    quorum.cut(leader)
    quorum.kill(leader)
    assert quorum.wait_next_leader(epoch) in quorum.directories
    with pytest.raises(InvalidOption):
        quorum.cut(9)


def test_a_batch_for_a_state_machine() -> None:
    made = batch([b"a", b"b"], keys=[None, b"k"], base_offset=7, timestamp_ms=5000)
    assert (made.base_offset, made.last_offset, made.max_timestamp) == (7, 8, 5000)
    told = [(each.offset, each.timestamp, each.key, each.value) for each in made.records()]
    assert told == [(7, 5000, None, b"a"), (8, 5000, b"k", b"b")]
    for values, options in (([], {}), ([b"a"], {"keys": []}), ([b"a"], {"base_offset": -1})):
        with pytest.raises(InvalidOption):
            batch(values, **options)  # type: ignore[arg-type]


def test_pytest_is_needed_for_the_fixture_alone() -> None:
    code = "import sys; sys.modules['pytest'] = None; from kraftfast.testing import"
    done = subprocess.run([sys.executable, "-c", f"{code} QuorumUnderTest, batch"])
    assert done.returncode == 0
    done = subprocess.run([sys.executable, "-c", f"{code} quorum"], capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert (
        last == "ImportError: the fixture kraftfast.testing.quorum needs pytest, which is missing"
    )

"""``kraftfast.testing``: what the tests of other programs use."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kraftfast.bench import same_logs
from kraftfast.errors import Closed, InvalidOption, NoQuorum, TimedOut, VerificationFailed
from kraftfast.testing import QuorumUnderTest, batch
from kraftfast.testing import quorum as quorum  # the fixture, instead of that of conftest.py

MIB = 1 << 20


@pytest.mark.processes
def test_the_leader_is_killed(quorum: QuorumUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    with quorum.producer() as producer:
        first = producer.append_wait(b"before", timeout=30)
        blocks = 0
        for each in Path(quorum.path).rglob("*"):
            with suppress(FileNotFoundError):  # a draft takes its name meanwhile
                blocks += each.stat().st_blocks * 512
        assert blocks <= MIB, "it is light"
        epoch, pids = quorum.status(quorum.wait_leader())["epoch"], pids_of(quorum)
        leader = quorum.kill_leader()
        assert quorum.status(leader)["epoch"] > epoch
        assert sum(pids_of(quorum)[id] != pids[id] for id in pids) == 1
        last = producer.append_wait(b"after", timeout=30)
    values = [record.value for record in quorum.consumer(first).read(2)]
    assert values == [b"before", b"after"] and last > first
    assert quorum.verify() > 0
    monkeypatch.setattr(same_logs, "compare_replicas", lambda *_: (0, "replicas 1 and 2 differ"))
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


@pytest.mark.processes
def test_a_replica_that_hangs_is_asked_no_longer_than_a_call_may_take(
    quorum: QuorumUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took seconds of its own, whatever the timeout."""
    asked: list[float] = []
    ask = QuorumUnderTest._status

    def status(self: QuorumUnderTest, id: int, timeout: float) -> dict[str, Any]:
        asked.append(timeout)
        return ask(self, id, timeout)

    leader = quorum.wait_leader()
    follower = next(id for id in quorum.directories if id != leader)
    quorum.kill(follower, signal.SIGSTOP)
    monkeypatch.setattr(QuorumUnderTest, "_status", status)
    with pytest.raises(NoQuorum):
        quorum.wait_next_leader(2**30, timeout=0.1)
    with pytest.raises(VerificationFailed):
        quorum.verify(timeout=0.1)
    quorum.kill(follower, signal.SIGCONT)
    monkeypatch.undo()
    assert asked and max(asked) <= 0.1


SOCKETS = {"transport": "socket", "fetch_timeout_ms": 1000}


@pytest.mark.processes
@pytest.mark.parametrize("quorum", [SOCKETS], indirect=True)
def test_single_links_are_cut_and_healed(quorum: QuorumUnderTest) -> None:
    leader = quorum.wait_leader()
    epoch = quorum.status(leader)["epoch"]
    one, other = (id for id in quorum.directories if id != leader)
    quorum.cut_link(leader, one)
    quorum.cut_link(leader, other)
    assert quorum.wait_next_leader(epoch) in (one, other)
    assert quorum.status(leader)["epoch"] == epoch, "it runs, and hears of no other"
    quorum.heal_link(leader, one)
    wait_until(lambda: quorum.status(leader)["epoch"] > epoch)
    quorum.heal()
    assert quorum.verify() > 0


@pytest.mark.processes
@pytest.mark.parametrize("quorum", [SOCKETS], indirect=True)
def test_a_link_is_cut_one_way(quorum: QuorumUnderTest) -> None:
    leader = quorum.wait_leader()
    epoch = quorum.status(leader)["epoch"]
    deaf, other = (id for id in quorum.directories if id != leader)
    with quorum.producer() as producer, quorum.link_cut(leader, deaf, both=False):
        offset = producer.append_wait(b"by the other two", timeout=30)
        wait_until(lambda: quorum.status(deaf)["role"] == "prospective")
        assert quorum.status(deaf)["end_offset"] <= offset
        assert quorum.status(leader)["epoch"] == epoch, "the others hear the leader"
    wait_until(lambda: quorum.status(deaf)["high_watermark"] > offset)
    assert quorum.leader() == leader and quorum.status(leader)["epoch"] == epoch


@pytest.mark.processes
def test_which_links_can_be_cut(tmp_path: Path) -> None:
    with QuorumUnderTest(tmp_path / "rings", 1) as quorum:
        with pytest.raises(InvalidOption, match='transport="socket"'):
            quorum.cut_link(1, 2)
    with QuorumUnderTest(tmp_path / "sockets", 2, transport="socket") as quorum:
        for source, target in ((1, 3), (1, 1), (-1, 2)):
            with pytest.raises(InvalidOption):
                quorum.cut_link(source, target)
    with pytest.raises(Closed):
        quorum.cut_link(1, 2)
    with pytest.raises(InvalidOption, match="there is no file"):
        QuorumUnderTest(tmp_path / "none", transport="socket", state_machine="absent.py:Machine")
    assert "kraftfast-links" not in {each.name for each in threading.enumerate()}


def wait_until(holds: Callable[[], object], timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_batch_for_a_state_machine() -> None:
    made = batch([b"a", b"b"], keys=[None, b"k"], base_offset=7, timestamp_ms=5000)
    assert (made.base_offset, made.last_offset, made.max_timestamp) == (7, 8, 5000)
    told = [(each.offset, each.timestamp, each.key, each.value) for each in made.records()]
    assert told == [(7, 5000, None, b"a"), (8, 5000, b"k", b"b")]
    apart = memoryview(b"abcd")[::2]
    assert [(each.key, each.value) for each in batch([apart], keys=[apart]).records()] == [
        (b"ac", b"ac")
    ]
    wrong: list[tuple[Any, dict[str, Any]]] = [
        ([], {}), ([b"a"], {"keys": []}), ([b"a"], {"base_offset": -1}), (5, {}), ("abc", {}),
        (b"abc", {}), ([5], {}), ([b"a"], {"keys": 5}), ([b"a"], {"keys": ["k"]}),
    ]  # fmt: skip
    for values, options in wrong:
        with pytest.raises(InvalidOption):
            batch(values, **options)


def test_pytest_is_needed_for_the_fixture_alone() -> None:
    code = "import sys; sys.modules['pytest'] = None; from kraftfast.testing import"
    done = subprocess.run([sys.executable, "-c", f"{code} QuorumUnderTest, batch"])
    assert done.returncode == 0
    done = subprocess.run([sys.executable, "-c", f"{code} quorum"], capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert (
        last == "ImportError: the fixture kraftfast.testing.quorum needs pytest, which is missing"
    )


def test_a_quorum_that_is_closed_wrongly_or_is_closed(tmp_path: Path) -> None:
    wrong: Any = "x"
    with QuorumUnderTest(tmp_path / "q", 1, transport="socket") as quorum:
        with pytest.raises(InvalidOption):
            quorum.close(timeout=wrong)
        assert not quorum.is_closed and quorum.verify() > 0
    for call in (quorum.heal, quorum.verify):
        with pytest.raises(Closed):
            call()


@pytest.mark.processes
def test_a_test_that_closes_its_quorum_is_told_that_nothing_was_compared(
    tmp_path: Path,
) -> None:
    tests = tmp_path / "test_of_a_user.py"
    tests.write_text(
        "import pytest\n"
        "pytest_plugins = ['kraftfast.testing']\n"
        "@pytest.mark.parametrize('quorum', [{'voters': 1}], indirect=True)\n"
        "@pytest.mark.parametrize('verified', [False, True])\n"
        "def test_it(quorum, verified):\n"
        "    assert not verified or quorum.verify() >= 0\n"
        "    quorum.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", tmp_path, tests],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert "2 passed, 1 warning" in done.stdout, done.stdout
    assert "the replicas were not compared" in done.stdout and "test_it[False-" in done.stdout


def test_a_start_without_time_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(TimedOut):
        for attempt in range(20):  # a replica that runs when it is first asked has its time
            QuorumUnderTest(tmp_path / f"q{attempt}", 1, timeout=0.001).close()

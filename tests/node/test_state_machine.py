"""What a state machine is told, on every replica: all that is committed, once, and who leads."""

from __future__ import annotations

import functools
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftfast.errors import InvalidOption, PeerGone
from kraftfast.node.state_machine import METHODS, StateMachine, check_class, makes_snapshots
from kraftfast.node.threads.held import Calls
from kraftfast.quorum import LocalQuorum
from tests.node.inside import Inside

SMALL = {"segment_bytes": 8 << 20, "stride_bytes": 2 << 20, "prepare_bytes": 1 << 20}
SLOW_S = 0.02
TIMEOUT_S = 60.0


class Recorder(StateMachine):
    """Notes every call. A value that begins with ``slow`` takes its time, ``poison`` raises."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.batches: list[tuple[int, int, int]] = []  # base offset, last offset, epoch
        self.leaders: list[tuple[int, int, int]] = []  # leader, epoch, applied until then

    def apply(self, batch: Any) -> None:
        found = [bytes(record.value) for record in batch.records()]
        if found[0].startswith(b"slow"):
            time.sleep(SLOW_S)
        if found[0] == b"poison":
            raise RuntimeError("what no state machine foresaw")
        self.values += found
        self.batches.append((batch.base_offset, batch.last_offset, batch.leader_epoch))

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        applied = self.batches[-1][1] + 1 if self.batches else 0
        self.leaders.append((leader_id, epoch, applied))

    def query(self) -> Any:
        return {"values": self.values, "batches": self.batches, "leaders": self.leaders}


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[LocalQuorum]:
    machine = f"{__file__}:Recorder"
    with LocalQuorum(
        str(tmp_path), voters=3, state_machine=machine, fetch_timeout_ms=500, **SMALL
    ) as quorum:
        yield quorum


def seen(quorum: LocalQuorum, id: int, at_least: int = -1) -> dict[str, Any]:
    """What a replica's machine was told, once it runs and has applied so much."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            found: dict[str, Any] = quorum.query(id, at_least=at_least, timeout=TIMEOUT_S)
            return found
        except PeerGone:
            assert time.monotonic() < deadline, f"replica {id} does not come back"
            time.sleep(0.01)


def wait_for_leader(quorum: LocalQuorum, but: int = -1) -> int:
    deadline = time.monotonic() + TIMEOUT_S
    while (leader := quorum.leader()) in (None, but):
        assert time.monotonic() < deadline, "nobody leads"
        time.sleep(0.01)
    assert leader is not None
    return leader


def append(quorum: LocalQuorum, values: list[bytes]) -> int:
    """The offset behind the last of them."""
    with quorum.producer(timeout=TIMEOUT_S) as producer:
        return max(producer.append_wait(value, timeout=TIMEOUT_S) for value in values) + 1


# covers: testListenerCommitCallbackAfterLeaderWrite
# covers: testHandleCommitCallbackFiresAfterFollowerHighWatermarkAdvances
# covers: testHandleLeaderChangeFiresAfterListenerReachesEpochStartOffsetOnEmptyLog
def test_each_machine_gets_what_is_committed_once_and_in_order(quorum: LocalQuorum) -> None:
    leader = wait_for_leader(quorum)
    values = [b"value %d" % i for i in range(40)]
    end = append(quorum, values)
    epochs = set()
    for id in quorum.directories:
        told = seen(quorum, id, end)
        assert told["values"] == values
        batches = told["batches"]
        assert all(a[1] < b[0] and a[2] <= b[2] for a, b in zip(batches, batches[1:], strict=False))
        assert [leader_id for leader_id, _, _ in told["leaders"]][-1] == leader
        epochs.add(told["leaders"][-1][1])
        assert told["leaders"] == sorted(told["leaders"], key=lambda each: each[1])
        assert len(set(map(tuple, told["leaders"]))) == len(told["leaders"]), "told twice"
    assert len(epochs) == 1


# covers: testHandleLeaderChangeFiresAfterListenerReachesEpochStartOffset
# covers: testLateRegisteredListenerCatchesUp, testHandleLeaderChangeFiresAfterFollowerRegistration
def test_a_new_leader_has_applied_all_before_its_epoch_when_it_is_told(quorum: LocalQuorum) -> None:
    old = wait_for_leader(quorum)
    end = append(quorum, [b"slow %d" % i for i in range(20)])
    quorum.kill(old)
    new = wait_for_leader(quorum, old)
    after = append(quorum, [b"next"])
    told = seen(quorum, new, end)
    mine = next(each for each in told["leaders"] if each[0] == new)
    assert mine[2] == end, "what was committed before it led"
    assert told["values"][:20] == [b"slow %d" % i for i in range(20)]
    again = seen(quorum, old, after)
    assert again["values"] == [*told["values"][:20], b"next"], "from the first record on"
    assert again["leaders"][-1][0] == new


# covers: testHandleCommitCallbackFiresInVotedState, testHandleCommitCallbackFiresInCandidateState
def test_what_is_known_to_be_committed_is_applied_without_a_leader(quorum: LocalQuorum) -> None:
    leader = wait_for_leader(quorum)
    alone = next(id for id in quorum.directories if id != leader)
    values = [b"slow %d" % i for i in range(50)]
    end = append(quorum, values)
    deadline = time.monotonic() + TIMEOUT_S
    while quorum.status(alone)["high_watermark"] < end:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    others = [id for id in quorum.directories if id != alone]
    try:
        for id in others:
            quorum.kill(id, signal.SIGSTOP)
        assert seen(quorum, alone, end)["values"] == values
        deadline = time.monotonic() + TIMEOUT_S
        while quorum.status(alone)["role"] == "follower":
            assert time.monotonic() < deadline, "it still hears a leader"
            time.sleep(0.01)
        assert seen(quorum, alone, end)["values"] == values
    finally:
        for id in others:
            quorum.kill(id, signal.SIGCONT)


# covers: testUncaughtException
def test_a_machine_that_raises_ends_its_replica(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whenever it comes by that record: a state that missed one is worse than none."""
    machine = f"{__file__}:Recorder"
    with LocalQuorum(str(tmp_path), voters=1, state_machine=machine, **SMALL) as quorum:
        end = append(quorum, [b"good"])
        assert seen(quorum, 1, end)["values"] == [b"good"]
        with quorum.producer(timeout=TIMEOUT_S) as producer:
            producer.append(b"poison")
            deadline = time.monotonic() + TIMEOUT_S
            while caplog.text.count("the state machine failed; the replica ends") < 2:
                assert time.monotonic() < deadline, caplog.text
                time.sleep(0.02)
    failed = [each for each in caplog.records if vars(each)["event"] == "state_machine_failed"]
    for record in failed:
        assert f"offset {end}, epoch 1: RuntimeError: what no state" in record.getMessage()
        assert (vars(record)["offset"], vars(record)["epoch"]) == (end, 1)
        assert "in apply" in vars(record)["traceback"]


@pytest.mark.parametrize("limit", ["retention_bytes", "retention_ms"])
@pytest.mark.parametrize("value", [0, 1])
def test_the_log_of_a_machine_without_snapshots_is_not_deleted(
    tmp_path: Path, limit: str, value: int
) -> None:
    """It needs all of the log at every start: a limit of 0 is a limit."""
    settings: dict[str, Any] = {limit: value, "state_machine": f"{__name__}:Recorder"}
    with pytest.raises(InvalidOption, match=f"{limit}={value} cannot delete the log"):
        Inside(tmp_path / "q", **settings)
    Inside(tmp_path / "p", **settings | {limit: -1}).close()


def test_an_orderly_end_leaves_kafkas_files(tmp_path: Path) -> None:
    """The machine's thread holds the segment that it reads: it ends before the log is trimmed."""
    replica = Inside(tmp_path / "q", state_machine=f"{__name__}:Recorder")
    node = replica.node
    replica.until(lambda: node.applier.applied == node.log.end_offset)
    replica.loop._close_doors()
    node.close()
    log_path = Path(node.directory.log_path)
    (segment,) = log_path.glob("*.log")
    assert segment.stat().st_size < 4096 and segment.with_suffix(".index").exists()


class Half(StateMachine):
    def snapshot(self, writer: Any) -> None:
        pass


class Whole(Half):
    def restore(self, reader: Any) -> None:
        pass


def test_a_machine_has_both_or_neither() -> None:
    assert makes_snapshots(Whole()) and not makes_snapshots(StateMachine())
    with pytest.raises(InvalidOption, match="only one of"):
        makes_snapshots(Half())


def generator(*_args: Any) -> Any:
    yield


async def coroutine(*_args: Any) -> None:
    pass


async def both(*_args: Any) -> Any:
    yield


NOT_RUN = [generator, coroutine, both]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("method", NOT_RUN)
def test_a_method_that_a_call_does_not_run_is_refused(name: str, method: Any) -> None:
    """All records counted as applied to a state that stayed empty; so did its snapshots."""
    for each in (method, functools.partial(method), staticmethod(functools.partial(method))):
        machine = type("Machine", (Recorder,), {name: each})
        with pytest.raises(InvalidOption, match=rf"{name}\(\) must not use yield or async"):
            check_class(machine, "Machine")


@pytest.mark.parametrize("method", NOT_RUN)
def test_what_a_method_returns_and_nothing_runs_ends_the_replica(method: Any) -> None:
    """A lambda, or one behind a decorator, is seen when it is called only."""
    made: list[Any] = []

    def apply(*args: Any) -> Any:
        made.append(method(*args))
        return made[0]

    with pytest.raises(TypeError, match=r"apply\(\) returned a \w+, which nothing runs"):
        Calls().run(apply, None)
    if method is coroutine:
        made[0].close()  # else it warns that it was never awaited


def test_a_machine_may_run_what_it_writes_with_async() -> None:
    """Its wrapper is an ordinary method."""

    def run(method: Any) -> Any:
        @functools.wraps(method)
        def wrapper(*args: Any) -> None:
            method(*args).close()

        return wrapper

    check_class(type("Machine", (Recorder,), {"apply": run(coroutine)}), "Machine")

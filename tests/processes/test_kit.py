"""The checks of ``kit`` are planted broken: each tells what it is there to tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.client.producer.tickets import TicketedBatch
from kraftfast.errors import CorruptLog, UnknownOutcome
from tests.histories import COMMITTED, Append
from tests.log.kit import Home, append, batch
from tests.processes import kit

# --- answers --------------------------------------------------------------------------------------


class StubProducer:
    """Takes appends, and resolves what it is told to."""

    def __init__(self) -> None:
        self.taken = 0
        self.tell: Callable[[TicketedBatch], None] = lambda _batch: None

    def on_commit(self, call: Callable[[TicketedBatch], None]) -> None:
        self.tell = call

    def append(self, _value: bytes, timeout: float) -> int:
        self.taken += 1
        return self.taken - 1

    def close(self, timeout: float) -> None:
        pass


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> kit.Load:
    """One that has handed over three records and is told to stop."""
    monkeypatch.setattr(kit, "producer_of", lambda _quorum, _over: StubProducer())
    made = kit.Load(SimpleNamespace(), "p0", "own", pause=0.0)  # type: ignore[arg-type]
    made._stop_now.set()
    for _ in range(3):
        made._append()
    made.start()
    return made


def told(load: kit.Load, *batches: TicketedBatch) -> None:
    for each in batches:
        load.producer.tell(each)  # type: ignore[attr-defined]


def test_a_load_that_was_told_everything_once_is_good(load: kit.Load) -> None:
    told(load, TicketedBatch(0, 2, 5, None), TicketedBatch(2, 3, -1, UnknownOutcome("gone")))
    load.stop()
    assert [each.offset for each in load.appends] == [5, 6, -1]


def test_an_append_without_an_answer_is_told(load: kit.Load) -> None:
    told(load, TicketedBatch(0, 2, 5, None))
    with pytest.raises(AssertionError, match=r"p0 never got an answer for \[2\]"):
        load.stop()


@pytest.mark.parametrize(
    "again", [TicketedBatch(1, 2, 9, None), TicketedBatch(1, 2, -1, UnknownOutcome("late"))]
)
def test_a_second_answer_is_told(load: kit.Load, again: TicketedBatch) -> None:
    told(load, TicketedBatch(0, 3, 5, None), again)
    with pytest.raises(AssertionError, match="answers 1 again"):
        load.stop()
    assert load.appends[1].offset == 6, "the first answer stays"


def test_an_answer_to_nothing_is_told(load: kit.Load) -> None:
    told(load, TicketedBatch(0, 4, 5, None))
    with pytest.raises(AssertionError, match="answers 3 again, or too early"):
        load.stop()


# --- logs -----------------------------------------------------------------------------------------

VALUES = [b"p0-%d-" % number for number in range(20)]


def replicas(root: Path) -> Any:
    """The logs of two replicas that hold the same, as of a quorum that has ended."""
    for id in (1, 2):
        write(root, id, VALUES)
    return SimpleNamespace(
        directories={id: str(root / str(id)) for id in (1, 2)},
        description=SimpleNamespace(topic="__cluster_metadata"),
    )


def write(root: Path, id: int, values: list[bytes]) -> None:
    home = Home(root / str(id))
    log = home.open()
    for offset, value in enumerate(values, log.end_offset):
        append(log, batch([value], base_offset=offset, epoch=1))
    home.close()


def history() -> Any:
    made = [
        Append("p0", number, value, float(number), COMMITTED, number + 0.5, number)
        for number, value in enumerate(VALUES)
    ]
    return [SimpleNamespace(appends=made, name="p0")]


def change(path: Path, value: bytes, other: bytes) -> None:
    path.write_bytes(path.read_bytes().replace(value, other))


def test_equal_logs_pass(tmp_path: Path) -> None:
    assert len(kit.verify(replicas(tmp_path), 20, history())) == 20


def test_a_log_with_another_record_differs(tmp_path: Path) -> None:
    quorum = replicas(tmp_path)
    for id, value in ((1, b"one"), (2, b"two")):
        write(tmp_path, id, [value])
    kit.verify(quorum, 20, history())
    with pytest.raises(AssertionError, match="logs differ"):
        kit.verify(quorum, 21, history())


@pytest.mark.parametrize("damaged", [(2,), (1, 2)])
def test_damage_is_told_even_if_all_have_it(tmp_path: Path, damaged: tuple[int, ...]) -> None:
    """A batch whose bytes are the same everywhere, and whose checksum is wrong."""
    quorum = replicas(tmp_path)
    for id in damaged:
        (path,) = Path(kit.log_path(quorum, id)).glob("*.log")
        change(path, VALUES[7], VALUES[3])
    with pytest.raises((AssertionError, CorruptLog)):
        kit.verify(quorum, 20, history())


def test_a_log_that_is_too_short_is_told(tmp_path: Path) -> None:
    quorum = replicas(tmp_path)
    write(tmp_path, 1, [b"one more"])
    with pytest.raises((AssertionError, CorruptLog)):
        kit.verify(quorum, 21, history())


@pytest.mark.parametrize("what", ["lost", "moved", "twice"])
def test_the_history_is_held_against_the_log(tmp_path: Path, what: str) -> None:
    quorum, (load,) = replicas(tmp_path), history()
    end = 20
    if what == "lost":
        load.appends.append(Append("p0", 20, b"p0-20-", 20.0, COMMITTED, 20.5, 20))
    elif what == "moved":
        load.appends[5].offset = 6
    else:
        end = 21
        for id in (1, 2):
            write(tmp_path, id, [VALUES[4]])
    with pytest.raises(AssertionError, match="twice" if what == "twice" else "lost"):
        kit.verify(quorum, end, [load])

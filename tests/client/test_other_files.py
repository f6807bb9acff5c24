"""A consumer whose files are not those of the replica that it watches, or are damaged."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftfast.errors import (
    CorruptLog,
    DirectoryMoved,
    InconsistentClusterId,
    KraftfastError,
    NoQuorum,
)
from kraftfast.quorum import LocalQuorum
from tests.client.conftest import SMALL
from tests.damaging import flip

pytestmark = pytest.mark.processes

PATIENCE_S = 20.0
LAST_OFFSET_DELTA, RECORD_COUNT = 23, 57
"""Where they stand in a batch."""


def outcome(call: Callable[[], Any]) -> Any:
    """Return what a call returns or raises; None if it goes on for ever."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except KraftfastError as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return found[0] if found else None


@pytest.mark.parametrize("follow", [True, False], ids=["that follows", "that reads"])
@pytest.mark.parametrize("share_batch", [True, False], ids=["one batch", "several batches"])
def test_another_quorum_at_the_path_is_not_read(
    tmp_path: Path, follow: bool, share_batch: bool
) -> None:
    """It was: its records were handed out, or a batch beyond the end was looked at for ever."""
    path = tmp_path / "quorum"
    with LocalQuorum(path, **{**SMALL, "voters": 1}) as quorum, quorum.producer() as producer:
        first = producer.append_wait(b"first")
        consumer = quorum.consumer(first, follow=follow)
        assert consumer.read(1, timeout=PATIENCE_S)[0].value == b"first"
        path.rename(tmp_path / "moved")
        with LocalQuorum(path, **{**SMALL, "voters": 1}) as other, other.producer() as another:
            count = 1 if share_batch else 20
            for _ in range(count):
                another.append_many([b"of another quorum"] * (20 // count))
            producer.append_wait(b"second")
            if follow:
                found = outcome(lambda: next(iter(consumer)))
            else:
                found = outcome(lambda: consumer.read(1, timeout=2.0))
        assert isinstance(found, (DirectoryMoved, InconsistentClusterId, NoQuorum)), found
        consumer.close()


@pytest.mark.parametrize("follow", [True, False], ids=["that follows", "that reads"])
def test_a_batch_that_seems_to_end_beyond_what_is_committed_is_damage(
    tmp_path: Path, follow: bool
) -> None:
    """It was looked at again and again, for ever, whatever the timeout."""
    with LocalQuorum(tmp_path, **{**SMALL, "voters": 1}) as quorum, quorum.producer() as producer:
        producer.append_wait(b"before")
        offset = producer.append_wait(b"damaged")
        (path,) = (tmp_path / "1").glob("*/*.log")
        position = path.read_bytes().index(struct.pack(">q", offset))
        with path.open("r+b") as file:
            os.pwrite(file.fileno(), struct.pack(">i", 1), position + LAST_OFFSET_DELTA)
            os.pwrite(file.fileno(), struct.pack(">i", 2), position + RECORD_COUNT)
        consumer = quorum.consumer(offset, follow=follow)
        if follow:
            found = outcome(lambda: next(iter(consumer)))
        else:
            found = outcome(lambda: consumer.read(1, timeout=2.0))
        assert isinstance(found, CorruptLog), found
        assert (found.offset, Path(found.path).name) == (offset, path.name)


def test_what_is_damaged_in_one_log_is_read_in_another(tmp_path: Path) -> None:
    """It was refused, though the others have it (L5)."""
    with LocalQuorum(tmp_path, **SMALL) as quorum, quorum.producer() as producer:
        offset = producer.append_wait(b"first of all")
        producer.append_wait(b"second")
        logs = [next(path.glob("*/*.log")) for path in map(Path, quorum.directories.values())]
        places = [(log, log.read_bytes().index(b"first of all")) for log in logs]
        consumer = quorum.consumer(offset, follow=True)
        watched = quorum.leader()
        flip(*places[watched - 1])
        values = [each.value for each in consumer.read(2, timeout=PATIENCE_S)]
        assert values == [b"first of all", b"second"]
        for place in places:
            if place != places[watched - 1]:
                flip(*place)
        again = quorum.consumer(offset)
        found = outcome(lambda: again.read(2, timeout=PATIENCE_S))
        assert isinstance(found, CorruptLog), found
        for each in (consumer, again):
            each.close()

"""``kraftfast append`` beside other producers: each of its batches is a stretch of its own."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from kraftfast.bench.loads import inputs
from kraftfast.bench.loads.load import LoadSettling
from kraftfast.cli import reach
from kraftfast.cli.append import append
from kraftfast.client.producer.latency import Latencies
from kraftfast.errors import DiskFull, ErrorCode
from tests.client.test_outcomes import Model

LINES = 70_000  # more than the 65,536 stretches that are known at most
RECORDS_A_CHUNK = 500


class AmongOthers:
    """A producer whose every record is a batch, behind one of another producer."""

    def __init__(self, refused: int = -1) -> None:
        self.model, self.refused = Model(), refused
        self.outcomes, self.latencies = self.model.outcomes, Latencies()

    def append(self, value: Any, *, key: Any, timeout: float) -> None:
        if self.outcomes.next_ticket == self.refused:
            self.model.fail(1, ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            self.model.commit(1, 1)

    def append_many_nowait(self, values: Any, offsets: Any, *, timeout: float) -> None:
        for _ in range(len(offsets) - 1):
            self.append(None, key=None, timeout=timeout)

    def flush(self, *, timeout: float) -> None:
        assert self.outcomes.resolved == self.outcomes.next_ticket

    def close(self, *, timeout: float) -> None:
        """Do nothing: all is resolved."""


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(inputs, "CHUNK_BYTES", 4 * RECORDS_A_CHUNK)
    path = tmp_path / "lines"
    path.write_bytes(b"k=v\n" * LINES)
    return path


def run(monkeypatch: pytest.MonkeyPatch, producer: AmongOthers, *arguments: str) -> Any:
    monkeypatch.setattr(reach, "producer", lambda *_arguments, **_options: producer)
    return CliRunner().invoke(append, [*arguments, "--json"], catch_exceptions=True)


@pytest.mark.parametrize("keyed", [False, True])
def test_what_was_committed_is_told_however_long_it_took(
    lines: Path, monkeypatch: pytest.MonkeyPatch, keyed: bool
) -> None:
    """It ended with exit code 13: a caller that tries again appends all of it twice."""
    producer = AmongOthers()
    first = producer.model.replica.offset + 1
    more = ("--key-separator", "=") if keyed else ()
    done = run(monkeypatch, producer, str(lines), *more)
    assert done.exit_code == 0, done.exception
    assert producer.outcomes.first_known > 0, "the first ones are forgotten"
    told = {"records": LINES, "first_offset": first, "last_offset": first + 2 * (LINES - 1)}
    assert json.loads(done.output) == told


def test_a_failure_that_is_forgotten_since_is_told(
    lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = AmongOthers(refused=7)
    done = run(monkeypatch, producer, str(lines))
    assert isinstance(done.exception, DiskFull)
    assert 7 < producer.outcomes.next_ticket < LINES, "those behind it in its piece, no others"


def test_what_is_not_resolved_yet_is_looked_at_later() -> None:
    model = Model()
    sender: Any = model.replica.sender
    assert sender.append(b"of before") == 0
    settling = LoadSettling(SimpleNamespace(outcomes=model.outcomes))
    assert sender.append(b"the first") == 1
    settling.look()
    assert settling.first_offset == -1
    sender.seal()
    batches, base = model.replica.look(), model.replica.offset
    model.replica.release()
    model.replica.acknowledge(len(batches))
    sender.poll()
    settling.look()
    assert (settling.first_offset, settling.failure) == (base + 1, None)

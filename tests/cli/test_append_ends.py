"""What ``kraftfast append`` says where it ends early: Ctrl-C, or a line that was not appended."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kraftfast.bench.loads.inputs import Chunk
from kraftfast.bench.loads.load import SPANS_MAX, LoadSettling, Spans, append_all
from kraftfast.cli import append
from kraftfast.cli.append import LAST_WAIT_S, letting_go, telling_committed
from kraftfast.cli.root import Terminated
from kraftfast.client.producer.latency import Latencies
from kraftfast.errors import (
    DiskFull,
    ErrorCode,
    InputError,
    KraftfastError,
    NoQuorum,
    TimedOut,
    UnknownOutcome,
)
from tests.cli.kit import TIMEOUT_S, command, environment, run
from tests.client.test_outcomes import Model

CHUNK = Chunk(b"abcde", list(range(6)), 5, 5)


class Scripted:
    """A producer that does the next step for each chunk; ``closed``: the timeouts of closes."""

    def __init__(self, *steps: Any) -> None:
        self.model, self.steps = Model(), list(steps)
        self.outcomes, self.latencies = self.model.outcomes, Latencies()
        self.closed: list[float] = []

    def append_many_nowait(self, _values: Any, _offsets: Any, *, timeout: float) -> None:
        self.steps.pop(0)(self.model)

    def flush(self, *, timeout: float) -> None:
        assert self.outcomes.resolved == self.outcomes.next_ticket

    def close(self, *, timeout: float) -> None:
        self.closed.append(timeout)
        self.outcomes.fail_rest(UnknownOutcome("closed before the answer came"))


def commit(model: Model) -> None:
    model.commit(5, 100)


def hand_over(model: Model) -> None:
    for _ in range(3):
        model.replica.sender.append(b"v")


def refuse(model: Model) -> None:
    model.commit(1, 0)
    model.fail(2, ErrorCode.KAFKA_STORAGE_ERROR)
    model.commit(2, 0)


def fails_with(error: BaseException) -> Any:
    def step(_model: Model) -> None:
        raise error

    return step


def ended(producer: Scripted, timeout: float = 5) -> BaseException:
    """What it ends with where it is to append as many chunks as there are steps."""
    settling, chunks = LoadSettling(producer), [CHUNK] * len(producer.steps)
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - the caller looks at it
        with telling_committed(settling, timeout), letting_go(producer, timeout):
            append_all(producer, chunks, timeout=timeout, settling=settling)
    return caught.value


@pytest.mark.parametrize(
    "error, how",
    [(KeyboardInterrupt(), "interrupted"), (Terminated(), "told to end")],
)
def test_an_interruption_says_what_is_committed_and_what_is_not_known(
    error: BaseException, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    producer = Scripted(commit, hand_over, fails_with(error))
    first = producer.model.replica.offset + 100
    assert ended(producer, 30) is error
    assert producer.closed == [LAST_WAIT_S], "it does not wait as long as for a quorum"
    assert capsys.readouterr().err == (
        f"kraftfast: {how}; committed or not: lines 6 to 8; nothing behind line 8 was handed over; "
        f"5 lines are committed all the same, offsets {first} to {first + 4}\n"
    )


def test_an_interruption_before_the_first_line_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    ended(Scripted(fails_with(KeyboardInterrupt())))
    assert capsys.readouterr().err == "kraftfast: interrupted; nothing is appended\n"


def test_what_a_close_did_not_resolve_is_in_doubt(capsys: pytest.CaptureFixture[str]) -> None:
    """Another thread of the producer waits for a leader's answer."""
    producer = Scripted(hand_over, fails_with(KeyboardInterrupt()))
    producer.close = lambda *, timeout: None  # type: ignore[method-assign]
    ended(producer)
    assert "committed or not: lines 1 to 3; nothing behind line 3" in capsys.readouterr().err


@pytest.mark.parametrize("keyed", [False, True])
def test_it_stops_at_a_line_that_was_refused(keyed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller can then go on from there; it went on to the end, and left a hole."""
    producer = Scripted(commit, refuse, commit, commit)
    first = producer.model.replica.offset + 100
    if keyed:
        monkeypatch.setattr(append, "LOOK_RECORDS", 5)
        steps, chunk = producer.steps, Chunk(b"a=b" * 5, np.arange(0, 16, 3), 5, 15)
        at_fifth = iter(range(1, 100))

        def append_one(_value: Any, *, key: Any, timeout: float) -> None:
            if next(at_fifth) % 5 == 0:
                steps.pop(0)(producer.model)

        producer.append = append_one  # type: ignore[attr-defined]
        settling = LoadSettling(producer)
        with pytest.raises(DiskFull) as caught:
            with telling_committed(settling, 5), letting_go(producer, 5):
                append.append_keyed(producer, [chunk] * 4, b"=", "file", 5, settling)
        error: BaseException = caught.value
    else:
        error = ended(producer)
    assert len(producer.steps) == 2, "the chunks behind it are not handed over"
    assert isinstance(error, DiskFull)
    assert producer.closed == [5], "what is under way behind it is waited for"
    assert str(error) == (
        "no space left at the leader, or it cannot extend its log; "
        "not appended: lines 7 to 8; nothing behind line 10 was handed over; "
        f"8 lines are committed all the same, offsets {first} to {first + 7}"
    )


@pytest.mark.parametrize("error", [TimedOut("no room"), NoQuorum("no leader")])
def test_lines_in_doubt_are_an_unknown_outcome(error: KraftfastError) -> None:
    """The exit codes of these say that nothing was appended: a script would append it again."""
    producer = Scripted(hand_over, fails_with(error))
    said = str(error)
    found = ended(producer)
    assert isinstance(found, UnknownOutcome) and found.exit_code == 13
    assert str(found) == (
        f"{said}; committed or not: lines 1 to 3; nothing behind line 3 was handed over"
    )
    assert producer.closed == [LAST_WAIT_S], "the quorum had its time"


def test_a_failure_of_the_input_waits_for_the_lines_before_it() -> None:
    producer = Scripted(commit, fails_with(InputError("cannot read it")))
    first = producer.model.replica.offset + 100
    found = ended(producer)
    said = f"cannot read it; 5 lines before it were appended, offsets {first} to {first + 4}"
    assert (type(found), str(found), producer.closed) == (InputError, said, [5])


def test_spans_are_bounded() -> None:
    spans = Spans()
    for first in range(0, 100, 2):
        spans.add(range(first, first + 1))
    spans.add(range(99, 100))
    assert spans.count == 51 and len(spans.runs) == SPANS_MAX
    assert append.lines_of(spans.runs, spans.count).endswith(", 15 and 43 more")


@pytest.mark.processes
def test_ctrl_c_while_it_waits_for_input(quorum_dir: Path) -> None:
    def records() -> int:
        return run("consume", "--dir", quorum_dir).stdout.count(b"by hand")

    before = records()
    process = subprocess.Popen(
        command("append", "--dir", quorum_dir),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdin is not None
    process.stdin.write(b"by hand\nby hand\n")
    process.stdin.flush()
    deadline = time.monotonic() + TIMEOUT_S
    while records() < before + 2:
        assert time.monotonic() < deadline
    process.send_signal(2)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (130, b"")
    assert err.startswith(b"kraftfast: interrupted; 2 lines are committed all the same, offsets ")

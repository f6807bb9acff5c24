"""Real quorums of worker processes under load, and what is checked after each blow."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kraftfast
from kraftfast.bench.same_logs import while_starts_move
from kraftfast.client.local_connector import LocalConnector
from kraftfast.client.producer.producer import Producer
from kraftfast.client.producer.tickets import TicketedBatch
from kraftfast.errors import KraftfastError, PeerGone, TimedOut, UnknownOutcome
from kraftfast.log.reading.reader import LogReader
from kraftfast.quorum import LocalQuorum
from tests import histories
from tests.histories import COMMITTED, FAILED, UNKNOWN, Append

SMALL: dict[str, Any] = {
    "segment_bytes": 8 << 20,
    "stride_bytes": 2 << 20,
    "prepare_bytes": 1 << 20,
}
"""Segments that roll within a test."""
BATCH_BYTES, WINDOW_BATCHES = 4096, 64
PATIENCE_S = 90.0
"""How long anything may take on a machine that is busy with other things."""


@contextmanager
def a_quorum(path: Path, **settings: Any) -> Iterator[LocalQuorum]:
    """A quorum whose workers are gone at the end, whatever happened."""
    quorum = kraftfast.LocalQuorum(
        path, **{"voters": 3, "timeout": PATIENCE_S, **SMALL, **settings}
    )
    try:
        yield quorum
    finally:
        for id in quorum.directories:
            quorum.kill(id, signal.SIGCONT)
        quorum.close(timeout=PATIENCE_S)


def producer_of(quorum: LocalQuorum, over: str) -> Producer:
    """A producer over a ring, or over what the replicas use among themselves (``own``)."""
    if over == "ring":
        return Producer(LocalConnector(quorum.directories, BATCH_BYTES, WINDOW_BATCHES))
    return quorum.producer(batch_bytes=BATCH_BYTES, window=WINDOW_BATCHES)


def wait_until(what: Callable[[], Any], pause: float = 0.01) -> Any:
    """What ``what`` returns once it is true. Fails when patience is at its end."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = what()
        if found:
            return found
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {PATIENCE_S} s: {what}")
        time.sleep(pause)


class Load(threading.Thread):
    """One producer that appends unique values, ``pause`` apart, and notes what it sees."""

    # appends: the history, in the order of tickets.
    # commits: (time, offset) of each acknowledgement.
    # refused: errors of appends that were not handed over. refusals: of those that were.
    # answered: tickets that were resolved. wrong: what no true answer can be.

    def __init__(
        self,
        quorum: LocalQuorum,
        name: str,
        over: str,
        pause: float = 0.0005,
        size: int = 40,
        timeout: float = PATIENCE_S / 3,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.producer = producer_of(quorum, over)
        self.pause, self.size, self.timeout = pause, size, timeout
        self.refused: list[KraftfastError] = []
        self.refusals: list[KraftfastError] = []
        self.appends: list[Append] = []
        self.commits: list[tuple[float, int]] = []
        self.answered: set[int] = set()
        self.wrong: list[str] = []
        self.error: BaseException | None = None
        self._stop_now = threading.Event()
        self.producer.on_commit(self._resolved)

    def run(self) -> None:
        try:
            while not self._stop_now.is_set():
                self._append()
                time.sleep(self.pause)
            self.producer.close(timeout=PATIENCE_S / 3)
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            self.error = error

    def _append(self) -> None:
        number = len(self.appends)
        value = f"{self.name}-{number}-".encode().ljust(self.size, b".")
        append = Append(self.name, number, value, time.monotonic())
        self.appends.append(append)  # before its ticket: an answer may be quicker than we are
        try:
            ticket = self.producer.append(value, timeout=self.timeout)
        except KraftfastError as error:
            self.appends.pop()  # not handed over
            self.refused.append(error)
            return
        assert ticket == number, "tickets count what was handed over"

    def _resolved(self, batch: TicketedBatch) -> None:
        now = time.monotonic()
        for place, ticket in enumerate(range(batch.first_ticket, batch.end_ticket)):
            if ticket in self.answered or ticket >= len(self.appends):
                self.wrong.append(f"{self.name}: {batch} answers {ticket} again, or too early")
                continue
            self.answered.add(ticket)
            append = self.appends[ticket]
            if batch.error is None:
                append.outcome, append.acked = COMMITTED, now
                append.offset = batch.base_offset + place
            else:
                unknown = isinstance(batch.error, UnknownOutcome)
                append.outcome = UNKNOWN if unknown else FAILED
        if batch.error is None:
            self.commits.append((now, batch.base_offset))
        else:
            self.refusals.append(batch.error)

    def stop(self) -> None:
        """No more appends; what is under way is waited for."""
        self._stop_now.set()
        self.join(PATIENCE_S)
        assert not self.is_alive(), "the producer hangs"
        if self.error is not None:
            raise self.error
        silent = [each.sequence for each in self.appends if each.sequence not in self.answered]
        assert not silent, f"{self.name} never got an answer for {silent[:10]}"
        assert not self.wrong, "\n".join(self.wrong[:10])

    @property
    def acknowledged(self) -> int:
        """How many appends were acknowledged so far."""
        return len(self.commits)

    def go_on(self, appends: int = 20) -> None:
        """Wait until so many of the appends that begin from now on are acknowledged."""
        begin = len(self.appends)

        def done() -> bool:
            return sum(append.outcome == COMMITTED for append in self.appends[begin:]) >= appends

        wait_until(done)


@contextmanager
def loads(quorum: LocalQuorum, *over: str, **settings: Any) -> Iterator[list[Load]]:
    """Producers at work, one for each of ``over``: two, one of them over a ring in any case."""
    running = [
        Load(quorum, f"p{number}", kind, **settings)
        for number, kind in enumerate(over or ("own", "ring"))
    ]
    for load in running:
        load.start()
    try:
        for load in running:
            load.go_on()
        yield running
    finally:
        for load in running:
            load.stop()


def go_on(running: list[Load], appends: int = 20) -> None:
    """Wait until every producer gets its appends acknowledged again."""
    for load in running:
        load.go_on(appends)


def pid_of(quorum: LocalQuorum, id: int) -> int:
    """The process id of a worker that runs."""
    return int(wait_until(lambda: quorum.supervisor.pid(id)))


def leader_of(quorum: LocalQuorum) -> int:
    """The leader's id, once there is one that can commit."""
    return quorum.wait_leader(PATIENCE_S)


def followers_of(quorum: LocalQuorum) -> list[int]:
    """The ids of all others."""
    leader = leader_of(quorum)
    return [id for id in quorum.directories if id != leader]


def status_of(quorum: LocalQuorum, id: int) -> dict[str, Any] | None:
    """What a replica says of itself, None while it does not."""
    try:
        return quorum.status(id)
    except (PeerGone, TimedOut):
        return None


def wait_back(quorum: LocalQuorum, id: int, old_pid: int) -> None:
    """Until a worker runs again and holds everything that is committed."""

    def back() -> bool:
        return quorum.supervisor.pid(id) not in (None, old_pid) and keeps_up(quorum, id)

    wait_until(back)


def keeps_up(quorum: LocalQuorum, id: int) -> bool:
    """Whether a worker holds what is committed, but for the last records under load."""
    mine = status_of(quorum, id)
    if mine is None or mine["high_watermark"] < 0:
        return False
    others = [status_of(quorum, other) for other in quorum.directories if other != id]
    return all(s is None or mine["high_watermark"] + 500 >= s["high_watermark"] for s in others)


def settled(quorum: LocalQuorum, ids: Sequence[int] = ()) -> int:
    """Wait until every replica (of ``ids``) has everything, committed: the high watermark."""

    def same() -> int:
        found = [status_of(quorum, id) for id in ids or quorum.directories]
        if None in found:
            return 0
        ends = {(s["end_offset"], s["flushed_end_offset"], s["high_watermark"]) for s in found if s}
        if quorum.description.durability == "memory":
            ends = {(end, end, watermark) for end, _, watermark in ends}
        one = len(ends) == 1 and len({s["epoch"] for s in found if s}) == 1
        end, flushed, watermark = next(iter(ends))
        return int(watermark) if one and end == flushed == watermark > 0 else 0

    return int(wait_until(same))


def log_path(quorum: LocalQuorum, id: int) -> str:
    """Where a replica's segments are."""
    return os.path.join(quorum.directories[id], f"{quorum.description.topic}-0")


def committed_bytes(path: str, end_offset: int) -> str:
    """The digest of all batches below ``end_offset``, as they stand on disk."""
    digest = hashlib.sha256()
    with LogReader(path) as reader:
        reached = reader.log_start_offset
        for span in reader.spans(reached, end_offset):
            digest.update(memoryview(span.buffer)[span.position : span.end])
            reached = span.end_offset
    assert reached == end_offset, f"{path} ends at {reached}, not {end_offset}"
    return digest.hexdigest()


def data_records(path: str, end_offset: int) -> list[tuple[int, bytes]]:
    """(offset, value) of every data record below ``end_offset``."""

    def read() -> list[tuple[int, bytes]]:
        with LogReader(path) as reader:
            return [
                (r.offset, bytes(r.value or b""))
                for r in reader.records(reader.log_start_offset, end_offset)
            ]

    return while_starts_move(read)


def verify(
    quorum: LocalQuorum, end_offset: int, running: list[Load], ids: Sequence[int] = ()
) -> list[tuple[int, bytes]]:
    """All logs (of ``ids``) hold the same bytes, and the history is a good one: the records."""
    paths = [log_path(quorum, id) for id in ids or quorum.directories]
    assert len({committed_bytes(path, end_offset) for path in paths}) == 1, "logs differ"
    log = data_records(paths[0], end_offset)
    appends = [append for load in running for append in load.appends]
    found = histories.check(appends, log)
    assert not found, "\n".join(found[:10])
    return log

"""The thread that applies the committed log to a state machine, off the path of acknowledgements.

It reads the replica's own segments below the high watermark (D11, I19), in offset order, and
answers questions between two batches. Where the log begins behind what was applied, the newest
snapshot comes first; now and then one is made here. A machine that is busy in Python delays the
loop little; one call that does not let go of the interpreter stops it for as long (``held``).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kraftfast.core import effects as fx
from kraftfast.errors import (
    CorruptLog,
    FlushFailed,
    InvalidOption,
    OffsetOutOfRange,
    StorageError,
)
from kraftfast.log.reading.held_segment import OwnerBusy
from kraftfast.log.reading.reader import LogReader
from kraftfast.log.snapshots.snapshot_reader import open_snapshot
from kraftfast.node.snapshots.state_machine_snapshots import Making, newest_is_trim, newest_snapshot
from kraftfast.node.state_machine import StateMachine, makes_snapshots
from kraftfast.node.threads.held import Calls
from kraftfast.types import NO_NODE, OffsetAndEpoch

if TYPE_CHECKING:
    from kraftfast.link.host_ports import Joinable
    from kraftfast.node.node import Node
    from kraftfast.node.ports import Host

QUESTION_S_MAX = 60.0  # I25: the caller has gone by then
NO_RESTORE = "but its state machine has no snapshot(writer) and restore(reader)"
WAIT_S = 0.5


class Question:
    """What decodes its arguments, and what takes the answer.

    ``at_least``: how far the log must have been applied before. ``until``: when it is given up, by
    the host's clock, seconds.
    """

    __slots__ = ("args", "at_least", "answer", "until")

    def __init__(
        self,
        args: Callable[[], list[Any]],
        at_least: int,
        answer: Callable[[dict[str, Any]], None],
        until: float,
    ) -> None:
        self.args, self.at_least, self.answer, self.until = args, at_least, answer, until


class Applier:
    """Runs one state machine. ``applied``: the exclusive end of what it has seen.

    ``making``: when and how snapshots are made, None if the machine makes none.
    """

    # machine: the user's; calls: of it. host: where the replica runs. log_path: its segments.
    # fail: called in the loop with an error of the storage, which ends the replica there. applied:
    # read by others, written here; loaded: the snapshot that was taken over last, likewise.
    # _committed: the high watermark; _beyond: what it was when the next batch reached beyond it;
    # _changes: (after offset, leader id, epoch), in order, which
    # _lock guards. error: of the storage, which has ended the thread. _at: where the batch begins
    # that is applied at the moment.
    # _questions: waiting, in order. _news: set when any of these changed.

    def __init__(
        self,
        machine: StateMachine,
        host: Host,
        log_path: str,
        fail: Callable[[StorageError], None],
        making: Making | None = None,
    ) -> None:
        self.machine, self.host, self.log_path, self.making = machine, host, log_path, making
        self.fail = fail
        self.calls = Calls(host.monotonic_ns)
        self.applied = 0
        self.loaded: OffsetAndEpoch | None = None
        self._at: OffsetAndEpoch | None = None
        self._committed = self._beyond = -1
        self._changes: deque[tuple[int, int, int]] = deque()
        self._lock = threading.Lock()
        self.error: FlushFailed | CorruptLog | None = None
        self._questions: deque[Question] = deque()
        self._news = host.threads.event()
        self.ending = False
        self._thread: Joinable | None = None

    @property
    def makes_snapshots(self) -> bool:
        """Whether the log may be given up below one."""
        return self.making is not None

    def start(self) -> None:
        self._thread = self.host.threads.start(self._run, "kraftfast-applier")

    # --- told by the loop -------------------------------------------------------------------------

    def committed(self, offset: int) -> None:
        """Record that the high watermark moved."""
        self._committed = offset
        self._news.set()

    def leader_changed(self, leader_id: int, epoch: int, after_offset: int) -> None:
        """Pass a new leader on, once everything below ``after_offset`` was applied."""
        with self._lock:
            while self._changes and self._changes[-1][2] < epoch:
                self._changes.pop()  # what it waits for may be cut: it would wait for ever
            self._changes.append((after_offset, leader_id, epoch))
        self._news.set()

    def ask(
        self,
        args: Callable[[], list[Any]],
        at_least: int,
        answer: Callable[[dict[str, Any]], None],
    ) -> None:
        """Put a question to the machine; the applier's thread calls ``args`` and ``answer``."""
        until = self.host.threads.monotonic() + QUESTION_S_MAX
        self._questions.append(Question(args, at_least, answer, until))
        self._news.set()

    def end(self) -> None:
        """Apply nothing more. Raises what has ended the thread, if the storage has (D9)."""
        self.close()
        if self.error is not None:
            raise self.error

    def close(self, timeout_s: float = 2.0) -> None:
        """Apply nothing more."""
        self.ending = True
        self._news.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with self._reader() as reader:
                self._restore()
                while not self.ending:
                    self._turn(reader)
            self.calls.run(self.machine.begin_shutdown)
        except (FlushFailed, CorruptLog) as error:  # of the replica: final, as any of them (D9)
            self.error = error
            self.fail(error)
        except BaseException as error:  # noqa: BLE001 - the machine's, or what a fresh start mends
            self.host.state_machine_failed(error, self._at)

    def _reader(self) -> LogReader:
        return LogReader(self.log_path, disk=self.host.disk, waits=self.host.threads)

    def _turn(self, reader: LogReader) -> None:
        """Do all that there is to do, then wait for more."""
        self._news.clear()
        if self._has_more():
            self._read(reader)
        wait_s = WAIT_S
        if self.making is not None:
            self.making.look(self)
            wait_s = min(self.making.wait_s(), WAIT_S)
        self._pass_on_changes()
        self._answer_questions()
        if not self._has_more() and not self.ending:
            self._news.wait(wait_s)

    def _has_more(self) -> bool:
        return self._committed > max(self.applied, self._beyond)

    def _read(self, reader: LogReader) -> None:
        """Apply what is committed, or go on from a snapshot that has taken the log's place.

        While this replica trims a segment on a slow disk, it is asked for again.
        """
        try:
            self._apply(reader)
        except OwnerBusy:
            return
        except (OffsetOutOfRange, CorruptLog) as error:
            if not self._restore():
                raise error

    def _restore(self) -> bool:
        """Take the newest snapshot over if it is ahead of what was applied; False if none is."""
        newest = newest_snapshot(self.host.disk, self.log_path)
        if newest is None or newest.offset <= self.applied:
            return False
        if self.making is None:
            if self.applied == 0 and self._reader().log_start_offset == 0:
                return False  # all of the log is there
            raise InvalidOption(f"the log begins at a snapshot, {NO_RESTORE}")
        try:
            snapshot = open_snapshot(self.host.disk, self.log_path, newest)
        except FileNotFoundError:  # a newer one took its place
            return self._restore()
        with snapshot:
            self.making.restore(self, snapshot)
        self.applied, self.loaded = newest.offset, newest
        return True

    def _apply(self, reader: LogReader) -> None:
        committed, found = self._committed, False
        for batch in reader.batches(self.applied, committed):
            found = True
            assert batch.base_offset <= self.applied, "I19: none left out"
            if not batch.is_control:
                self._at = OffsetAndEpoch(batch.base_offset, batch.leader_epoch)
                self.calls.run(self.machine.apply, batch)
                self._at = None
            self.applied = batch.last_offset + 1
            if self.making is not None:
                self.making.applied(self, batch)
            if self._changes or self._questions:
                self._pass_on_changes()
                self._answer_questions()
            if self.ending:
                return
        if not found and self.applied < committed:
            if self._beyond > self.applied:  # no batch reaches over two high watermarks
                raise reader.beyond(self.applied, committed)
            self._beyond = committed  # L7: not looked for again until more is committed

    def _pass_on_changes(self) -> None:
        while (change := self._due_change()) is not None:
            self.calls.run(self.machine.leader_changed, *change)

    def _due_change(self) -> tuple[int, int] | None:
        with self._lock:
            if self._changes and self._changes[0][0] <= self.applied:
                return self._changes.popleft()[1:]
        return None

    def _answer_questions(self) -> None:
        for _ in range(len(self._questions)):
            question = self._questions.popleft()
            if question.at_least > self.applied:
                if self.host.threads.monotonic() < question.until:
                    self._questions.append(question)
                else:
                    question.answer({"error": f"only {self.applied} records were applied in time"})
                continue
            try:
                value = self.calls.make(lambda: self.machine.query(*question.args()))
                answer = {"value": value, "applied": self.applied}
            except BaseException as error:  # noqa: BLE001 - the caller gets it, also SystemExit
                answer = {"error": f"{type(error).__name__}: {error}"}
            self.calls.make(question.answer, answer)


def embed(node: Node, machine: StateMachine) -> None:
    """Have a thread apply what a node commits to ``machine``.

    Raises InvalidOption for one that would need records which are gone.
    """
    log, config = node.log, node.config
    making = Making(node) if makes_snapshots(machine) else None  # restores only, at a witness
    if making is None:
        if log.log_start_offset > 0:
            raise InvalidOption(f"the log begins at {log.log_start_offset}, {NO_RESTORE}")
        for name, limit in (("bytes", config.retention_bytes), ("ms", config.retention_ms)):
            if limit is not None and limit >= 0:
                raise InvalidOption(f"retention_{name}={limit} cannot delete the log, {NO_RESTORE}")
    elif newest_is_trim(node.disk, node.directory.log_path):
        raise InvalidOption("the newest snapshot holds no state: it was made without a machine")
    told = (-1, 0)

    def fail(error: StorageError) -> None:
        node.background.tell(lambda: _raise(error))

    applier = Applier(machine, node.host, node.directory.log_path, fail, making)

    def role_changed(effect: fx.RoleChanged) -> None:
        nonlocal told
        found = effect.leader_id, effect.epoch
        lost = effect.leader_id == NO_NODE and effect.epoch == told[1]  # while it asks for votes
        if found != told and not lost and effect.role != "resigned":
            told = found
            applier.leader_changed(*told, max(node.core.epoch_start_offset, 0))

    node.attach_applier(applier)
    node.on_role.append(role_changed)
    applier.start()


def _raise(error: Exception) -> None:
    raise error

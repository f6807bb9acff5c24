"""The thread that applies the committed log to a state machine, off the path of acknowledgements.

It reads the replica's own segments below the high watermark (D11, I19), in offset order, and
answers questions between two batches. Where the log begins behind what was applied, the newest
snapshot comes first; now and then one is made here. A machine that is busy in Python delays the
loop little; one call that does not let go of the interpreter stops it for as long (``held``).
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

from kraftfast.core import effects as fx
from kraftfast.errors import CorruptLog, InvalidOption, OffsetOutOfRange
from kraftfast.log.disk import Disk
from kraftfast.log.reading.held_segment import OwnerBusy
from kraftfast.log.reading.reader import LogReader
from kraftfast.log.snapshots.snapshot_reader import open_snapshot
from kraftfast.node.held import Calls
from kraftfast.node.snapshots.state_machine_snapshots import Making, newest_is_trim, newest_snapshot
from kraftfast.node.state_machine import StateMachine, load_class, makes_snapshots

FAILED_EXIT_CODE = 72
QUESTION_S_MAX = 60.0  # I25: the caller has gone by then
NO_RESTORE = "but its state machine has no snapshot(writer) and restore(reader)"
SWITCH_INTERVAL_S = 0.0005  # the loop gets the interpreter back this soon


class Question:
    """What decodes its arguments, and what takes the answer.

    ``at_least``: how far the log must have been applied before. ``until``: when it is given up
    (``time.monotonic``).
    """

    __slots__ = ("args", "at_least", "answer", "until")

    def __init__(
        self,
        args: Callable[[], list[Any]],
        at_least: int,
        answer: Callable[[dict[str, Any]], None],
    ) -> None:
        self.args, self.at_least, self.answer = args, at_least, answer
        self.until = time.monotonic() + QUESTION_S_MAX


class Applier:
    """Runs one state machine. ``applied``: the exclusive end of what it has seen.

    ``making``: when and how snapshots are made, None if the machine makes none.
    """

    # machine: the user's; calls: of it. log_path: the replica's segments. applied: read by others,
    # written here.
    # _committed: the high watermark; _changes: (after offset, leader id, epoch), in order.
    # _questions: waiting, in order. _news: set when any of these changed.

    def __init__(self, machine: StateMachine, log_path: str, making: Making | None = None) -> None:
        self.machine, self.log_path, self.making = machine, log_path, making
        self.calls = Calls()
        self.applied = 0
        self._committed = -1
        self._changes: deque[tuple[int, int, int]] = deque()
        self._questions: deque[Question] = deque()
        self._news = threading.Event()
        self.ending = False
        self._thread = threading.Thread(target=self._run, name="kraftfast-applier", daemon=True)
        sys.setswitchinterval(SWITCH_INTERVAL_S)

    @property
    def makes_snapshots(self) -> bool:
        """Whether the log may be given up below one."""
        return self.making is not None

    def start(self) -> None:
        self._thread.start()

    # --- told by the loop -------------------------------------------------------------------------

    def committed(self, offset: int) -> None:
        """Note that the high watermark moved."""
        self._committed = offset
        self._news.set()

    def leader_changed(self, leader_id: int, epoch: int, after_offset: int) -> None:
        """Pass a new leader on, once everything below ``after_offset`` was applied."""
        self._changes.append((after_offset, leader_id, epoch))
        self._news.set()

    def ask(
        self,
        args: Callable[[], list[Any]],
        at_least: int,
        answer: Callable[[dict[str, Any]], None],
    ) -> None:
        """Put a question to the machine; the applier's thread calls ``args`` and ``answer``."""
        self._questions.append(Question(args, at_least, answer))
        self._news.set()

    def close(self, timeout_s: float = 2.0) -> None:
        """Apply nothing more."""
        self.ending = True
        self._news.set()
        self._thread.join(timeout_s)

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            reader: LogReader | None = None
            self._restore()
            while not self.ending:
                self._news.clear()
                if reader is None and self._committed > self.applied:
                    reader = LogReader(self.log_path)
                if reader is not None:
                    self._read(reader)
                if self.making is not None:
                    self.making.look(self, time.monotonic())
                self._pass_on_changes()
                self._answer_questions()
                if self._committed <= self.applied and not self.ending:
                    self._news.wait(0.5)
            self.machine.begin_shutdown()
            if reader is not None:
                reader.close()
        except BaseException:
            traceback.print_exc()
            print(
                "kraftfast: the state machine failed; the replica ends", file=sys.stderr, flush=True
            )
            os._exit(FAILED_EXIT_CODE)

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
        newest = newest_snapshot(Disk(), self.log_path)
        if newest is None or newest.offset <= self.applied:
            return False
        if self.making is None:
            if self.applied == 0 and LogReader(self.log_path).log_start_offset == 0:
                return False  # all of the log is there
            raise InvalidOption(f"the log begins at a snapshot, {NO_RESTORE}")
        try:
            with open_snapshot(Disk(), self.log_path, newest) as snapshot:
                self.calls.make(self.making.restore, self.machine, snapshot)
        except FileNotFoundError:  # a newer one took its place
            return self._restore()
        self.applied = newest.offset
        return True

    def _apply(self, reader: LogReader) -> None:
        for batch in reader.batches(self.applied, self._committed):
            assert batch.base_offset <= self.applied, "I19: none left out"
            if not batch.is_control:
                self.calls.make(self.machine.apply, batch)
            self.applied = batch.last_offset + 1
            if self.making is not None:
                self.making.applied(self, batch)
            if self._changes or self._questions:
                self._pass_on_changes()
                self._answer_questions()
            if self.ending:
                return

    def _pass_on_changes(self) -> None:
        while self._changes and self._changes[0][0] <= self.applied:
            _, leader_id, epoch = self._changes.popleft()
            self.calls.make(self.machine.leader_changed, leader_id, epoch)

    def _answer_questions(self) -> None:
        for _ in range(len(self._questions)):
            question = self._questions.popleft()
            if question.at_least > self.applied:
                if time.monotonic() < question.until:
                    self._questions.append(question)
                else:
                    question.answer({"error": f"only {self.applied} records were applied in time"})
                continue
            try:
                value = self.calls.make(lambda: self.machine.query(*question.args()))
                answer = {"value": value, "applied": self.applied}
            except BaseException as error:  # noqa: BLE001 - who asked is told, also of SystemExit
                answer = {"error": f"{type(error).__name__}: {error}"}
            self.calls.make(question.answer, answer)


def embed(node: Any, state_machine: str) -> None:
    """Have a thread apply what a node commits to the user's state machine.

    Raises InvalidOption for one that would need records which are gone.
    """
    log, config = node.log, node.config
    machine = load_class(state_machine)()
    making = Making(node) if makes_snapshots(machine) else None  # restores only, at a witness
    if making is None:
        if log.log_start_offset > 0:
            raise InvalidOption(f"the log begins at {log.log_start_offset}, {NO_RESTORE}")
        for name, limit in (("bytes", config.retention_bytes), ("ms", config.retention_ms)):
            if limit is not None and limit >= 0:
                raise InvalidOption(f"retention_{name}={limit} cannot delete the log, {NO_RESTORE}")
    elif newest_is_trim(Disk(), node.directory.log_path):
        raise InvalidOption("the newest snapshot holds no state: it was made without a machine")
    applier = Applier(machine, node.directory.log_path, making)
    told = (-1, 0)

    def role_changed(effect: fx.RoleChanged) -> None:
        nonlocal told
        if (effect.leader_id, effect.epoch) != told and effect.role != "resigned":
            told = (effect.leader_id, effect.epoch)
            applier.leader_changed(*told, max(node.core.epoch_start_offset, 0))

    node.applier = applier
    node.on_commit.append(applier.committed)
    node.on_role.append(role_changed)
    applier.start()

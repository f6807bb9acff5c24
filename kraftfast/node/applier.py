"""The thread that applies the committed log to a state machine, off the path of acknowledgements.

It reads the replica's own segments below the high watermark (D11, I19), in offset order, and
answers questions between two batches. A slow state machine delays nobody but itself.
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
from kraftfast.log.reader import LogReader
from kraftfast.node.state_machine import StateMachine, load_class

FAILED_EXIT_CODE = 72
QUESTION_S_MAX = 60.0  # I25: whoever asks has gone by then
SWITCH_INTERVAL_S = 0.0005  # the loop gets the interpreter back this soon


class Question:
    """Arguments, how far the log must have been applied before, and where the answer goes.

    ``until``: when it is given up (``time.monotonic``).
    """

    __slots__ = ("args", "at_least", "answer", "until")

    def __init__(
        self, args: list[Any], at_least: int, answer: Callable[[dict[str, Any]], None]
    ) -> None:
        self.args, self.at_least, self.answer = args, at_least, answer
        self.until = time.monotonic() + QUESTION_S_MAX


class Applier:
    """Runs one state machine. ``applied``: the exclusive end of what it has seen."""

    # machine: the user's. log_path: the replica's segments. applied: read by others, written here.
    # _committed: the high watermark; _changes: (after offset, leader id, epoch), in order.
    # _questions: waiting, in order. _news: set when any of these changed.

    def __init__(self, machine: StateMachine, log_path: str, log_start_offset: int) -> None:
        self.machine, self.log_path = machine, log_path
        self.applied = log_start_offset
        self._committed = -1
        self._changes: deque[tuple[int, int, int]] = deque()
        self._questions: deque[Question] = deque()
        self._news = threading.Event()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="kraftfast-applier", daemon=True)
        sys.setswitchinterval(SWITCH_INTERVAL_S)

    def start(self) -> None:
        self._thread.start()

    # --- told by the loop -------------------------------------------------------------------------

    def committed(self, offset: int) -> None:
        """The high watermark moved."""
        self._committed = offset
        self._news.set()

    def leader_changed(self, leader_id: int, epoch: int, after_offset: int) -> None:
        """To be passed on once everything below ``after_offset`` was applied."""
        self._changes.append((after_offset, leader_id, epoch))
        self._news.set()

    def ask(self, args: list[Any], at_least: int, answer: Callable[[dict[str, Any]], None]) -> None:
        """A question to the machine; ``answer`` is called from the applier's thread."""
        self._questions.append(Question(args, at_least, answer))
        self._news.set()

    def close(self, timeout_s: float = 2.0) -> None:
        """Nothing more is applied."""
        self._ending = True
        self._news.set()
        self._thread.join(timeout_s)

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            reader: LogReader | None = None
            while not self._ending:
                self._news.clear()
                if reader is None and self._committed > self.applied:
                    reader = LogReader(self.log_path)
                if reader is not None:
                    self._apply(reader)
                self._pass_on_changes()
                self._answer_questions()
                if self._committed <= self.applied and not self._ending:
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

    def _apply(self, reader: LogReader) -> None:
        for batch in reader.batches(self.applied, self._committed):
            assert batch.base_offset <= self.applied, "I19: none left out"
            if not batch.is_control:
                self.machine.apply(batch)
            self.applied = batch.last_offset + 1
            if self._changes or self._questions:
                self._pass_on_changes()
                self._answer_questions()
            if self._ending:
                return

    def _pass_on_changes(self) -> None:
        while self._changes and self._changes[0][0] <= self.applied:
            _, leader_id, epoch = self._changes.popleft()
            self.machine.leader_changed(leader_id, epoch)

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
                answer = {"value": self.machine.query(*question.args), "applied": self.applied}
            except Exception as error:  # noqa: BLE001 - the asker's to know
                answer = {"error": f"{type(error).__name__}: {error}"}
            question.answer(answer)


def embed(node: Any, state_machine: str) -> None:
    """Have a thread apply what a node commits to the user's state machine."""
    log = node.log
    applier = Applier(load_class(state_machine)(), node.directory.log_path, log.log_start_offset)
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

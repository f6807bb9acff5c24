"""The threads that a producer has of its own, as soon as there is something for them to do.

One sends what nobody waits for, the other calls back; both sleep otherwise.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from kraftfast.client.ledger import Ledger
from kraftfast.client.sender import Sender
from kraftfast.client.tickets import Batch, resolved_batches
from kraftfast.errors import Closed, KraftfastError

SLEEP_S_MAX = 0.5
PAUSE_S = 0.005  # between two looks for a leader
LINGER_S = 0.001
DOUBT_S = 1.0  # without an answer, until other replicas are asked who leads


class OwnThreads:
    """A part of :class:`~kraftfast.client.producer.Producer`, whose fields these are."""

    ledger: Ledger
    sender: Sender | None
    caller_sleeps: bool
    keeper_sleeps: bool
    _closed: bool
    _exchange: Any
    _callbacks: list[Callable[[Batch], None]]
    _called_back: int
    _keeper: threading.Thread | None
    _caller: threading.Thread | None
    _wanted: threading.Condition
    _check_open: Callable[[], None]
    _pump: Callable[[Sender, int, float], None]
    reconnect: Callable[[float], Sender]

    def on_commit(self, callback: Callable[[Batch], None]) -> None:
        """Call ``callback(batch)`` for every run of records that is resolved from now on, in order.

        Calls come from one thread of the producer, never from the path of an acknowledgement; an
        exception in a callback is printed and does not stop the others. A callback may append, but
        not wait for what it appended.
        """
        self._check_open()  # before the lock: in a forked child nobody would release it
        with self._exchange:
            self._check_open()
            if not self._callbacks:
                self._called_back = self.ledger.resolved
            self._callbacks.append(callback)
            if self._caller is None:
                self._caller = self._start_thread(self._call_back_for_ever, "kraftfast-callbacks")

    def _tell_threads(self, sender: Sender) -> None:
        if self.caller_sleeps or (self.keeper_sleeps and (sender.has_open or sender.has_backlog)):
            self.wake_threads()

    def wake_threads(self) -> None:
        """See to it that what is open leaves, and that callbacks are called, if nobody waits."""
        if self._keeper is None:
            with self._wanted:
                if self._keeper is None and not self._closed:
                    self._keeper = self._start_thread(self._keep, "kraftfast-keeper")
        with self._wanted:
            self.keeper_sleeps = self.caller_sleeps = False
            self._wanted.notify_all()

    def _start_thread(self, run: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def _keep(self) -> None:
        """Send what stays open, find a leader for what has none; sleep while there is neither."""
        while not self._closed:
            sender = self.sender
            if sender is None or sender.broken is not None:
                self._try_reconnect()
            elif sender.has_open or sender.has_backlog:
                time.sleep(LINGER_S)
                sender.poll()
                sender.seal()
            else:
                with self._wanted:
                    self.keeper_sleeps = True
                    if not (
                        sender.has_open or sender.has_backlog
                    ):  # looked at again after it was said
                        self._wanted.wait_for(lambda: not self.keeper_sleeps or self._closed)
                    self.keeper_sleeps = False

    def _call_back_for_ever(self) -> None:
        ledger = self.ledger
        while True:
            if ledger.resolved > self._called_back:
                self._call_back()
            elif self._closed:
                return
            elif ledger.next_ticket > ledger.resolved:
                sender = self.sender
                if sender is None or sender.broken is not None:
                    self._try_reconnect()
                else:
                    # After the sleep there must be time left to ask others who leads (doubt).
                    deadline = time.monotonic() + SLEEP_S_MAX + DOUBT_S
                    self._pump(sender, self._called_back, deadline)
            else:
                with self._wanted:
                    self.caller_sleeps = True
                    if ledger.next_ticket == self._called_back:  # looked at again after it was said
                        self._wanted.wait_for(lambda: not self.caller_sleeps or self._closed)
                    self.caller_sleeps = False

    def _try_reconnect(self) -> None:
        try:
            self.reconnect(time.monotonic() + SLEEP_S_MAX)
        except Closed:
            pass
        except KraftfastError:
            time.sleep(PAUSE_S)  # whoever waits learns of it

    def _call_back(self) -> None:
        """Give the callbacks what was resolved, in order."""
        for batch in resolved_batches(self.ledger, self._called_back):
            for callback in list(self._callbacks):
                try:
                    callback(batch)
                except Exception:  # noqa: BLE001 - a user's callback may raise anything
                    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), self._caller)))
            self._called_back = batch.end_ticket

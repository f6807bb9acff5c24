"""The threads that a producer has of its own, as soon as there is something for them to do.

One sends what no thread waits for, the other calls back; both sleep otherwise. Asleep they hold no
reference to the producer: one without other references is collected, and wakes them.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from kraftfast.arguments import function
from kraftfast.client.client_host import ClientHost
from kraftfast.client.producer.appender import DEFAULT_TIMEOUT, SLEEP_S_MAX
from kraftfast.client.producer.latency import Latencies
from kraftfast.client.producer.news import HeldNews, News
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.client.producer.sender import Sender
from kraftfast.client.producer.tickets import TicketedBatch, resolved_batches
from kraftfast.client.search import Pause
from kraftfast.errors import KraftfastError
from kraftfast.link.host_ports import Thread

PAUSE_S = 0.005  # between two looks for a leader
LINGER_S = 0.001
LEADER_SILENCE_S = 1.0  # without an answer, until other replicas are asked who leads


class OwnThreads:
    """A part of :class:`~kraftfast.client.producer.producer.Producer`, whose fields these are."""

    host: ClientHost
    outcomes: Outcomes
    latencies: Latencies
    sender: Sender | None
    caller_sleeps: bool
    keeper_sleeps: bool
    _closed: bool
    _ended: bool
    _exchange: Any
    _callbacks: list[Callable[[TicketedBatch], None]]
    _called_back: int
    _keeper: Thread | None
    _caller: Thread | None
    _pause: Pause
    _starting: Any
    _wanted: News
    _check_open: Callable[[], None]
    check_fenced: Callable[[], None]
    pump: Callable[[Sender, int, float], None]
    reconnect: Callable[[float], Sender]

    def on_commit(self, callback: Callable[[TicketedBatch], None]) -> None:
        """Call ``callback(batch)`` for every run of records that is resolved from now on, in order.

        Calls come from one thread of the producer, never from the path of an acknowledgement; an
        exception in a callback is printed and does not stop the others. A callback may append, but
        not wait for what it appended. Raises InvalidOption for what
        cannot be called, NoQuorum where another thread looks for a leader.
        """
        function("callback", callback)
        self._check_open()  # before the lock: in a forked child no thread would release it
        deadline = self.host.monotonic() + DEFAULT_TIMEOUT
        with HeldNews(self._exchange, deadline, self.host.monotonic):
            self._check_open()
            if not self._callbacks:
                self._called_back = self.outcomes.resolved
            self._callbacks.append(callback)
            with self._starting:
                if self._caller is None or not self._caller.is_alive():
                    self._caller = _thread(_call_back_for_ever, "kraftfast-callbacks", self)
                    self._caller.start()

    def _tell_threads(self, sender: Sender) -> None:
        if self.caller_sleeps or (self.keeper_sleeps and (sender.has_open or sender.backlog)):
            self.wake_threads()

    def wake_threads(self) -> None:
        """Have open batches sent, and callbacks called, even if no thread waits."""
        if self._keeper is None or not self._keeper.is_alive():  # a start may be interrupted
            with self._starting:
                if not self._closed and (self._keeper is None or not self._keeper.is_alive()):
                    self._keeper = _thread(_keep_for_ever, "kraftfast-keeper", self)
                    self._keeper.start()
        self.keeper_sleeps = self.caller_sleeps = False
        self._wanted.tell()

    def _keep(self) -> bool:
        """Send what stays open, find a leader for what has none; False if it may sleep."""
        try:
            return self._keep_once()
        except Exception:  # noqa: BLE001 - no memory, say; no other thread does its work
            self._report(self._keeper)
            return True

    def _keep_once(self) -> bool:
        sender = self.sender
        if self.has_nothing_to_do():
            self.keeper_sleeps = True
            return False
        if sender is None or sender.broken is not None:
            self._try_reconnect()
        elif sender.has_open or sender.backlog:
            self.host.sleep(LINGER_S)
            sender.poll()
            sender.seal()
        else:
            self.keeper_sleeps = True
            return False
        return True

    def _keeper_is_needed(self) -> bool:
        """Return whether there is something for it to do; if so, it does not sleep."""
        sender = self.sender
        if sender is not None:
            busy = bool(sender.has_open or sender.backlog)
        else:
            busy = not self.has_nothing_to_do()
        if not self.keeper_sleeps or self._closed or busy:
            self.keeper_sleeps = False
            return True
        return False

    def has_nothing_to_do(self) -> bool:
        """Return whether everything is resolved, and nothing can be handed over ever again (L7)."""
        if self.sender is not None or self.outcomes.next_ticket > self.outcomes.resolved:
            return False
        try:
            self.check_fenced()
        except KraftfastError:
            return True
        return False

    def _has_callbacks(self) -> bool:
        """Return whether anything is to be called back, or may be later."""
        return not self._ended or self.outcomes.resolved > self._called_back  # in this order

    def _call_back(self) -> bool:
        """Give the callbacks what was resolved, wait for what is not; False if it may sleep."""
        try:
            return self._call_back_once()
        except Exception:  # noqa: BLE001 - as above
            self._report(self._caller)
            return True

    def _call_back_once(self) -> bool:
        outcomes = self.outcomes
        if outcomes.resolved > self._called_back:
            self._call_all_back()
        elif outcomes.next_ticket > outcomes.resolved:
            sender = self.sender
            if sender is None or sender.broken is not None:
                self._try_reconnect()
            else:
                # After the sleep there must be time left to ask others who leads (doubt).
                deadline = self.host.monotonic() + SLEEP_S_MAX + LEADER_SILENCE_S
                self.pump(sender, self._called_back, deadline)
        else:
            self.caller_sleeps = True
            return False
        return True

    def _caller_is_needed(self) -> bool:
        """Return whether there is something for it to do; if so, it does not sleep."""
        below = self.outcomes.next_ticket
        if not self.caller_sleeps or self._ended or below > self._called_back:
            self.caller_sleeps = False
            return True
        return False

    def _try_reconnect(self) -> None:
        """Look for a leader; pause if there is none, longer each time where the search is refused.

        A thread that waits for a record learns of it by itself.
        """
        try:
            self.reconnect(self.host.monotonic() + SLEEP_S_MAX)
            self._pause = Pause(PAUSE_S, SLEEP_S_MAX)
        except KraftfastError as error:
            self.host.sleep(self._pause.after(error))

    def _call_all_back(self) -> None:
        """Give the callbacks what was resolved, in order."""
        for batch in resolved_batches(self.outcomes, self._called_back):
            began_ns = self.latencies.began_ns()
            for callback in list(self._callbacks):
                try:
                    callback(batch)
                except BaseException:  # noqa: BLE001 - also sys.exit(): it ends this call alone
                    _print(self._caller)
            self._called_back = batch.end_ticket
            if batch.error is None:
                records = batch.end_ticket - batch.first_ticket
                self.latencies.called_back(batch.base_offset, records, began_ns)

    def _report(self, thread: Thread | None) -> None:
        """Print the exception at hand, and leave whatever it came from some time."""
        _print(thread)
        self.host.sleep(SLEEP_S_MAX)


def _print(thread: Thread | None) -> None:
    kind, error, trace = sys.exc_info()
    if kind is SystemExit:  # the hook would say nothing
        kind, error = RuntimeError, RuntimeError(f"sys.exit({error}) in a thread of a producer")
    threading.excepthook(threading.ExceptHookArgs((kind, error, trace, thread)))


Known = weakref.ref[OwnThreads]


def _keep_for_ever(known: Known) -> None:
    while (producer := known()) is not None and not producer._closed:
        wanted = None if producer._keep() else producer._wanted
        del producer
        if wanted is not None:
            wanted.wait(lambda: _is_needed(known, OwnThreads._keeper_is_needed))


def _call_back_for_ever(known: Known) -> None:
    while (producer := known()) is not None and producer._has_callbacks():
        wanted = None if producer._call_back() else producer._wanted
        del producer
        if wanted is not None:
            wanted.wait(lambda: _is_needed(known, OwnThreads._caller_is_needed))


def _is_needed(known: Known, needed: Callable[[OwnThreads], bool]) -> bool:
    producer = known()
    return producer is None or needed(producer)


def _thread(run: Callable[[Known], None], name: str, producer: OwnThreads) -> Thread:
    known = weakref.ref(producer)
    return producer.host.thread(lambda: run(known), name)

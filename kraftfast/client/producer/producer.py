"""The blocking producer; its ``append`` and ``wait`` are in ``appender.pyx``.

>>> with quorum.producer() as producer:
...     offset = producer.append_wait(b"hello", timeout=5)    # committed: durable on a majority
...     ticket = producer.append(b"hello")                    # an integer
...     producer.wait(ticket, timeout=5) - offset
...     producer.append_many([b"one", b"two"])                # a range of offsets
1
range(...)

Thread-safe: any number of threads may append and wait. A record is handed over in the order of
the calls. When the leader changes, what has no answer is handed to the next one, and what that has
already is not appended again. Without ``idempotent``, what the old one took and did not acknowledge
raises :class:`~kraftfast.errors.UnknownOutcome` for its tickets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kraftfast import forks, limits
from kraftfast.arguments import flag, header_pairs, whole_number
from kraftfast.client.connector import Connector
from kraftfast.client.producer.appender import DEFAULT_TIMEOUT, SLEEP_S_MAX, Appender
from kraftfast.client.producer.init_producer_id import Identities, Standing
from kraftfast.client.producer.latency import Latencies
from kraftfast.client.producer.news import HeldNews, News
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.client.producer.own_threads import PAUSE_S, OwnThreads
from kraftfast.client.producer.refusals import QuorumClosed
from kraftfast.client.producer.sender import RECORD_BYTES_MAX, Sender
from kraftfast.client.producer.silent_leader import SilentLeader
from kraftfast.client.producer.tickets import (
    TicketedBatch,
    add_tickets,
    cut_short,
    naming,
    offsets_of,
    raise_left,
)
from kraftfast.client.producer.unclosed import Collected, run_in_background
from kraftfast.client.search import SEARCH_GOES_ON, Pause, Search
from kraftfast.client.timing import FOREVER_S, deadline_after
from kraftfast.errors import (
    Closed,
    InvalidOption,
    KraftfastError,
    LocalError,
    NoQuorum,
    PeerGone,
    ProducerFenced,
    RecordTooLarge,
    TimedOut,
    UnknownOutcome,
    WouldBlock,
    WrongProcess,
)
from kraftfast.link.host_ports import Thread
from kraftfast.record.builder import Values
from kraftfast.record.compression import compressor_of

CALLBACKS_S = 2.0  # a close waits for callbacks for so long, at least


class Producer(OwnThreads, SilentLeader, Collected, Appender):
    """Append records to a quorum. Make one with ``quorum.producer()``, not from a ``connector``.

    ``append``, ``wait`` and the like are in the base class ``Appender``, which is compiled.
    ``timeout``: seconds until there must be a leader; NoQuorum if there is none. ``idempotent``:
    what is sent twice is appended once; None: where the window allows it, as Kafka's default.
    ``name``: see :meth:`last_sequence`. ``connect`` False: the first append looks for the leader.
    ``record_bytes``: be ready for records of this size. ``compression``: its name and level.
    Close it: one that is forgotten warns (ResourceWarning), and is closed once it is collected.
    """

    # latencies: how long batches took, of all senders so far.
    # _backlog: what a sender gave back and no other took over yet; empty while there is a sender.
    # _record_bytes: of the largest record that needed a larger sender. _exchange: held to get one.
    # _progress_at: when a ticket was last resolved, or the sender last doubted.
    # _keeper: the thread that sends what stays open. _caller: the one that calls back.
    # _pause: of the two, after a search for a leader that has failed.
    # _called_back: tickets below were. _wanted: wakes the two. _starting: held to start one.
    # _closed: calls raise refusal. _ended: nothing is resolved either. _lost: no quorum is left.
    # left_from: the first ticket of which nothing was known or raised when a close began.

    def __init__(
        self,
        connector: Connector,
        timeout: float = DEFAULT_TIMEOUT,
        record_bytes: int = 0,
        idempotent: bool | None = None,
        name: str | None = None,
        connect: bool = True,
        compression: tuple[str | None, int | None] = (None, None),
    ) -> None:
        deadline = self._deadline(timeout)
        record_bytes = whole_number("record_bytes_max", record_bytes, 0, RECORD_BYTES_MAX)
        flag("connect", connect)
        self._connector = connector
        if idempotent is None:
            idempotent = name is not None or connector.window <= limits.PRODUCER_BATCHES
        flag("idempotent", idempotent)
        if name is not None and not idempotent:
            raise InvalidOption("a producer with a name is idempotent")
        self._identities = Identities(connector, name) if idempotent else None
        self.outcomes, self.latencies = Outcomes(), Latencies()
        self._backlog: list[tuple[bytes, int, int, int]] = []
        self._record_bytes, self._compression = record_bytes, compression
        self._exchange = self.host.reentrant_lock()
        self._progress_at = (0, self.host.monotonic())
        self._callbacks: list[Callable[[TicketedBatch], None]] = []
        self._called_back = 0
        self._keeper: Thread | None = None
        self._caller: Thread | None = None
        self._pause = Pause(PAUSE_S, SLEEP_S_MAX)
        self._starting, self._wanted = self.host.lock(), News(self.host.lock)
        self._closed = self._ended = self._lost = False
        self.left_from: int | None = None
        self.refusal: LocalError = Closed("the producer is closed")
        self.keeper_sleeps = True
        forks.own(self)
        if connect:
            try:
                self.reconnect(deadline)
            except BaseException:
                self._closed = True  # no caller gets it
                raise

    # --- appending; append(), wait() and the like are the Appender's ------------------------------

    def append_waiting(
        self,
        value: Any,
        key: Any,
        headers: Iterable[tuple[str, Any]],
        timestamp: int | None,
        timeout: float,
    ) -> int:
        """Do the rest of :meth:`append`: without room or a leader, or with more than a value."""
        deadline = self._deadline(timeout)
        headers = header_pairs(headers)
        while True:
            sender = self._ready_sender(deadline)
            try:
                ticket = sender.append_record(value, key, headers, timestamp)
            except RecordTooLarge as error:
                self.enlarge(error.record_bytes, deadline)
                continue
            if ticket >= 0:
                self._tell_threads(sender)
                return ticket
            self._wait_room(sender, deadline)

    def try_append(
        self,
        value: Any,
        *,
        key: Any = None,
        headers: Iterable[tuple[str, Any]] = (),
        timestamp: int | None = None,
    ) -> int:
        """Append as :meth:`append`, or raise WouldBlock where that would wait: also for a leader.

        Raises RecordTooLarge also for a record that needs a larger ring: ``append`` makes one.
        """
        self._check_open()
        sender, ticket = self.sender, -1
        if sender is not None:
            ticket = sender.append_record(value, key, header_pairs(headers), timestamp)
        if sender is None or ticket < 0:
            self.check_fenced()
            raise WouldBlock("no room in the window at the moment, or no leader")
        self._tell_threads(sender)
        return ticket

    def append_many(
        self,
        values: Any,
        offsets: Any = None,
        *,
        size: int | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> range | list[int]:
        """Append many records and wait until all are committed; returns their offsets in order.

        ``values``: a list of bytes; a buffer with ``offsets`` (n + 1 integers) or with ``size``;
        a two-dimensional numpy array of bytes; an Arrow binary column. The result is a ``range``
        where the records follow each other in the log, as they mostly do.

        Raises as :meth:`append_many_nowait`; the failure of the first record if all failed and none
        was appended; UnknownOutcome if only some did, or in doubt: its ``tickets`` can be asked.
        """
        deadline = self._deadline(timeout)
        tickets = self.append_many_nowait(values, offsets, size=size, timeout=timeout)
        with naming(tickets):
            self.wait_resolved(tickets[-1].stop - 1 if tickets else -1, deadline)
        return offsets_of(self.outcomes, tickets)

    def append_many_nowait(
        self,
        values: Any,
        offsets: Any = None,
        *,
        size: int | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> list[range]:
        """Hand over many records; returns their tickets, waiting only for room.

        ``values``, ``offsets``, ``size``: as of :meth:`append_many`. Tickets come as ranges, mostly
        one: a second one where other threads append meanwhile.
        Raises InvalidOption, RecordTooLarge, RecordsRefused, TimedOut or NoQuorum if nothing was
        handed over; UnknownOutcome if the time ran out in the middle: then ``handed_over`` of the
        exception says how many records were, the first ones, and ``tickets`` which theirs are.
        """
        deadline = self._deadline(timeout)
        column = values if isinstance(values, Values) else Values(values, offsets, size=size)
        tickets: list[range] = []
        done, checked = 0, False
        try:
            while done < len(column):
                sender = self._ready_sender(deadline)
                if not checked:
                    largest, checked = sender.check_values(column), True
                if largest > sender.record_bytes_max:
                    self.enlarge(largest, deadline)
                    continue
                first, taken = sender.append_values(column, done)
                done += taken
                add_tickets(tickets, first, taken)
                if done < len(column):
                    self._wait_room(sender, deadline)
        except KraftfastError as error:
            if not done:
                raise
            raise cut_short(tickets, len(column), error) from None
        if tickets:
            self._tell_threads(sender)
        return tickets

    # --- waiting ----------------------------------------------------------------------------------

    def _deadline(self, timeout: Any) -> float:
        return deadline_after(timeout, now=self.host.monotonic)

    def last_sequence(self, *, timeout: float = DEFAULT_TIMEOUT, never_used: bool = False) -> int:
        """Return the number of the last record of this producer that is committed, from 0, or -1.

        With a ``name`` the numbers go on where the last producer of that name ended: a program that
        begins again skips as many records of its source, and nothing is appended twice. The one
        before can append nothing more (ProducerFenced). A record that was refused has no number
        and is not counted: a program that ends before it learns of one, with others handed over
        behind it, cannot tell which one is missing. What is still under way is not counted either,
        and may be committed later: :meth:`flush` first. Where an outcome is unknown the quorum is
        asked: NoQuorum, ProducerFenced, Closed. Raises InvalidOption where not idempotent, and
        UnknownOutcome for a name that may be forgotten; ``never_used``: the caller knows better.
        """
        deadline, never_used = self._deadline(timeout), flag("never_used", never_used)
        if isinstance(self.refusal, WrongProcess):
            raise self.refusal.again()
        if self._identities is None:
            raise InvalidOption("a producer that is not idempotent has no sequence")
        if self._identities.identity.uncertain:
            self.reconnect(deadline)
        return self._identities.certain_sequence(self.outcomes, never_used)

    @property
    def standing(self) -> Standing:
        """What the quorum knew of this producer's name at first. Raises InvalidOption."""
        if self._identities is None or self._identities.identity.name is None:
            raise InvalidOption("a producer without a name has no earlier records")
        return self._identities.standing

    def end_at_refusal(self) -> None:
        """Append nothing behind a record that is refused, but raise ProducerFenced."""
        assert self._identities is not None, "an idempotent producer"
        self._identities.ends_at_refusal = True

    def flush(self, *, timeout: float = DEFAULT_TIMEOUT) -> None:
        """Wait until everything handed over so far is resolved.

        Raises UnknownOutcome where the time runs out; where the producer was closed, what became of
        the records that had no answer then: UnknownOutcome, or Closed if none of them ever left.
        """
        if isinstance(self.refusal, WrongProcess):
            raise self.refusal.again()
        last = self.outcomes.next_ticket - 1
        self.wait_resolved(last, self._deadline(timeout))
        raise_left(self.outcomes, self.left_from, last)

    # --- the sender -------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise self.refusal.again()

    def _ready_sender(self, deadline: float) -> Sender:
        """Return the sender to the leader, found if there is none. Raises NoQuorum, Closed."""
        self._check_open()
        sender = self.sender
        if sender is not None and sender.broken is None:
            return sender
        return self.reconnect(deadline)

    def reconnect(self, deadline: float) -> Sender:
        """Find the leader; what the last one never looked at is handed to it first.

        Raises NoQuorum when the deadline passes without one, or soon if it has no slot for one more
        producer; OutOfResources before the first record; RequestRefused, ProducerFenced, Closed.
        """
        with HeldNews(self._exchange, deadline, self.host.monotonic):
            self._give_up_broken()
            search = Search(deadline, self.outcomes.next_ticket > 0, self.host.monotonic)
            problem = ""  # as text: the error holds this frame, and what it tried
            while self.sender is None:
                self._check_open()
                try:
                    self.check_fenced()
                    until = max(deadline, self.host.monotonic() + PAUSE_S)
                    sender = self._connector.connect(self.outcomes, self._record_bytes, until)
                    sender.share(self.latencies)
                    try:
                        sender.compressor = compressor_of(*self._compression)  # for one thread
                        self._hand_over_to(sender, until)
                        self._check_open()  # closed meanwhile: nothing may be sent
                    except BaseException:
                        sender.close()
                        raise
                except SEARCH_GOES_ON as error:
                    if search.is_over(error):
                        if search.tells(error):
                            raise
                        # The one before had more time to find out.
                        raise NoQuorum(f"no leader could be found: {problem or error}") from None
                    problem = str(error)
                    self.host.sleep(search.pause_s(error, PAUSE_S))
                except (ProducerFenced, QuorumClosed) as error:
                    self._fail_rest(error)
                    self.news.tell()
                    raise
                else:
                    self._progress_at = (self.outcomes.resolved, self.host.monotonic())
                    # Only now, and before anything of it leaves: whatever is raised from here on,
                    # we know which leader may have its records (D24). Others append behind them.
                    self.sender, self._backlog = sender, []
                    sender.poll()
                    self._tell_threads(sender)
            return self.sender

    def check_fenced(self) -> None:
        """Raise ProducerFenced or Closed if this producer can append nothing more."""
        if self._lost:
            raise QuorumClosed
        if self._identities is not None:
            self._identities.check()

    def _hand_over_to(self, sender: Sender, deadline: float) -> None:
        """Send the producer's identity, then what the last sender gave back."""
        if self._identities is None:
            sender.take_over(self._backlog)
        else:
            self._identities.enlist(sender, self.outcomes, self._backlog, deadline)

    def _give_up_broken(self) -> None:
        sender = self.sender
        if sender is not None and sender.broken is not None:
            why = f"the leader was lost after it took the record: {sender.broken}"
            self._backlog = sender.give_up(UnknownOutcome(why))  # the same if interrupted before
            if isinstance(sender.broken, ProducerFenced):
                self._fail_rest(sender.broken)
            self.sender = None
            self.news.tell()
            if isinstance(sender.broken, TimedOut):
                self.host.sleep(PAUSE_S)  # it leads, and did not take all: not at once again

    def _fail_rest(self, unsent: KraftfastError) -> None:
        """Fail what was not sent: nothing more is."""
        self._backlog = []
        if self.outcomes.next_ticket == self.outcomes.resolved:
            return
        if self._identities is not None:
            self._identities.fail_rest(self.outcomes, unsent)
        elif self.outcomes.next_ticket > self.outcomes.resolved:
            self.outcomes.fail_rest(unsent)

    def enlarge(self, record_bytes: int, deadline: float) -> None:
        """Exchange the sender for one that takes such a record. Raises RecordTooLarge, TimedOut."""
        if record_bytes > RECORD_BYTES_MAX:
            raise RecordTooLarge(
                f"a record of {record_bytes} bytes; at most {RECORD_BYTES_MAX} can be sent"
            )
        with HeldNews(self._exchange, deadline, self.host.monotonic):
            self._record_bytes = max(record_bytes, self._record_bytes)
            while (sender := self.reconnect(deadline)).record_bytes_max < record_bytes:
                try:
                    sender.hold(True)  # nothing may be under way while it is exchanged
                    while sender.broken is None and (sender.under_way or sender.backlog):
                        if self.host.monotonic() >= deadline:
                            raise TimedOut(
                                "what is under way was not acknowledged in time to make room"
                            )
                        self.pump(sender, self.outcomes.resolved, deadline)
                    sender.fail(PeerGone("it takes no records as large as wanted"))
                finally:
                    sender.hold(False)

    # --- waiting for what comes back --------------------------------------------------------------

    def _wait_room(self, sender: Sender, deadline: float) -> None:
        """Wait until something was taken or resolved."""
        if self.host.monotonic() >= deadline:
            raise TimedOut("no room: the quorum does not keep up, or has no majority")
        if sender.broken is None:
            sender.want_room()
            self.pump(sender, self.outcomes.resolved, deadline)

    # --- end --------------------------------------------------------------------------------------

    def close(self, *, timeout: float = 5.0) -> None:
        """Wait until everything is resolved, then let go.

        What is not acknowledged within ``timeout`` seconds has an unknown outcome (UnknownOutcome),
        except what no leader ever looked at (Closed): :meth:`wait` and :meth:`flush` raise it, and
        callbacks are called for all of it. Where another thread still waits for a leader's answer,
        that is told when it has it. A ``with`` block closes with the default, and raises it itself
        unless another exception leaves the block: close before its end to wait less for a leader
        that hangs, or longer, and to raise nothing. A callback that does not return is waited for
        at least 2 seconds. Raises InvalidOption for what is no ``timeout``.
        """
        deadline = self._deadline(timeout)
        if isinstance(self.refusal, WrongProcess):
            return
        self.begin_close()
        try:
            while not self._closed:
                sender = self.sender
                if sender is not None and sender.broken is None:
                    sender.hold()  # else other threads hand over more while this one waits
                if self.outcomes.next_ticket == self.outcomes.resolved:
                    break
                self.wait_resolved(self.outcomes.next_ticket - 1, deadline)
        except KraftfastError:
            pass  # said below, ticket by ticket
        finally:
            self._end(deadline)

    def begin_close(self) -> None:
        """Note which records have no outcome yet, and no call raised that: a flush does."""
        if self.left_from is None:
            self.left_from = max(self.outcomes.resolved, self.reported_to)

    def _end(self, deadline: float) -> None:
        self._closed = True
        try:
            with HeldNews(self._exchange, deadline, self.host.monotonic):
                self._resolve_rest()
        except NoQuorum:  # another thread waits for a leader's answer: it sends nothing after that
            run_in_background(lambda: self.close(timeout=FOREVER_S), self.host)
            return
        for thread, least_s in ((self._keeper, 0.1), (self._caller, CALLBACKS_S)):
            # One whose start is under way ends by itself: it finds the producer closed.
            if thread is not None and thread.is_alive() and not self.host.is_current(thread):
                thread.join(max(least_s, deadline - self.host.monotonic()))

    def _resolve_rest(self) -> None:
        """Let the sender go, and tell what becomes of all that has no answer; _exchange is held."""
        sender = self.sender
        if sender is not None:
            reason = UnknownOutcome("the producer was closed before the answer came")
            self._backlog = sender.give_up(reason)
        self._fail_rest(Closed("the producer was closed; the record never left"))
        self.sender = None
        self._ended = True  # only now: callbacks are called for all of that, too
        self.news.tell()
        self._wanted.tell()

    def lose_quorum(self) -> None:
        """Hand over nothing more: the quorum was closed, and its replicas have ended."""
        self._lost = True
        sender = self.sender
        if sender is not None:
            sender.fail(PeerGone("the quorum was closed"))
        self.news.tell()

    def disown(self) -> None:
        """Leave the sender, its sequence and all tickets to the parent, in a forked child."""
        self._closed, self.refusal = True, forks.refusal("producer")
        sender, self.sender = self.sender, None
        self.outcomes = self.outcomes.unresolved()  # so that a wait for any of them is refused
        if sender is not None:
            sender.disown()

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: object, *_exc: object) -> None:
        was_closed = self._closed
        self.close()
        if kind is None and not was_closed:
            self.flush(timeout=0.0)

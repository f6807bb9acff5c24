"""Read barriers: one question at a time, for all threads that wait.

Any replica can be asked: one that does not lead asks its leader. So the replica that led last is
asked at once, and the leader is looked for only where it gives no answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from kraftfast.client.admin.admin_ways import ATTEMPT_S, Reached, Way
from kraftfast.client.client_host import HOST, ClientHost
from kraftfast.client.producer.news import News, call_alone
from kraftfast.client.timing import deadline_after
from kraftfast.errors import (
    ErrorCode,
    InconsistentClusterId,
    KraftfastError,
    RequestRefused,
    TimedOut,
    UnsupportedVersion,
)
from kraftfast.wire import messages as wire
from kraftfast.wire.messages import ApiKey

if TYPE_CHECKING:
    from kraftfast.client.admin.admin_ways import Reached

PAUSE_S = 0.05
MILLISECONDS_MAX = 2**31 - 1
TRY_AGAIN = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
"""Refusals that may be over in a moment."""


class ReadBarriers:
    """Asks for all callers of one way to a quorum. Thread-safe.

    A caller waits for a question that is put after its call began, never for the one under way:
    that one may be answered with what was committed before. So while one is under way all others
    wait for the next, and share it.
    """

    # ask: puts one question, until a deadline. asked: questions that were begun. answered: the
    # newest one that was answered, and its offset. _asking: held while one is under way, by the
    # thread that changes the two above. news: told when none is under way.

    def __init__(self, ask: Callable[[float], int], host: ClientHost) -> None:
        self.ask, self.host = ask, host
        self.asked = 0
        self.answered = (0, -1)
        self._asking = host.lock()
        self.news = News(host.lock)

    def read(self, deadline: float) -> int:
        """Return the offset; ``deadline``: by the clock of its host.

        Raises TimedOut, and what asking raises. A question that fails fails for its asker alone.
        """
        wanted = self.asked + 1
        while True:
            call_alone(self._asking, self.news, lambda: self._ask(wanted, deadline))
            number, offset = self.answered
            if number >= wanted:
                return offset
            left = deadline - self.host.monotonic()
            if left <= 0:
                raise TimedOut("no read barrier in time: others are asked for")
            self.news.wait(lambda: self.answered[0] >= wanted or not self._asking.locked(), left)

    def _ask(self, wanted: int, deadline: float) -> None:
        """Put one question, unless another thread has just had the answer to a ``wanted`` one."""
        if self.answered[0] < wanted:
            number = self.asked = self.asked + 1
            self.answered = number, self.ask(deadline)


def likely_barrier(way: Way, deadline: float) -> int | None:
    """Return a read barrier by the word of the replica that led last; None if it gives none.

    Raises TimedOut if there is no time left to ask another one.
    """
    until = min(deadline, way.host.monotonic() + ATTEMPT_S)
    try:
        replica = way.likely(until)
        if replica is None:
            return None
        with contextlib.closing(replica):
            return said_by(replica, until, way, way.host)
    except KraftfastError as error:
        if isinstance(error, TimedOut) and until == deadline:
            raise
        return None


def barrier_by(replica: Reached, deadline: float, host: ClientHost = HOST) -> int:
    """Return a read barrier by one replica's word. Raises NoQuorum, TimedOut, PeerGone."""
    return said_by(replica, deadline, None, host)


def said_by(replica: Reached, deadline: float, way: Way | None, host: ClientHost) -> int:
    """Do as :func:`barrier_by`; ``way`` learns which replica leads."""
    try:
        return barrier_of(replica, deadline, way, host)
    except RequestRefused as refusal:
        if refusal.code not in TRY_AGAIN:
            raise
        raise TimedOut(f"no read barrier in time: {refusal}") from None


def barrier_of(replica: Reached, deadline: float, way: Way | None, host: ClientHost) -> int:
    """Return a read barrier by one replica's word, which asks its leader if it does not lead.

    ``way`` learns which replica leads, so that the next question goes there.
    Raises RequestRefused, TimedOut, PeerGone, UnsupportedVersion for one that knows none.
    """
    kind = wire.DescribeQuorumRequest
    left_ms = max(1, milliseconds(deadline - host.monotonic()))
    body = kind(topics=[], read_barrier=kind.ReadBarrier(timeout_ms=left_ms))
    answer = replica.ask(ApiKey.DESCRIBE_QUORUM, body, deadline + PAUSE_S)
    check(answer.error_code, answer.error_message or "a majority was not reached in time")
    if answer.barrier_offset < 0:
        raise UnsupportedVersion("this replica knows no read barrier")
    if way is not None:
        way.learn_leader(answer.barrier_leader_id)
    return int(answer.barrier_offset)


def check(code: int, message: str | None) -> None:
    """Raise what a refusal is here, with what the server said."""
    if code == ErrorCode.NONE:
        return
    name = ErrorCode(code).name if code in set(ErrorCode) else f"error {code}"
    if code == ErrorCode.INCONSISTENT_CLUSTER_ID:
        raise InconsistentClusterId(message or name)
    raise RequestRefused(f"{name}: {message}" if message else name, code)


def milliseconds(seconds: float) -> int:
    """Return a timeout for a request's field, which holds 24 days. Raises InvalidOption."""
    left = deadline_after(seconds, now=lambda: 0.0)
    return min(MILLISECONDS_MAX, max(0, round(left * 1000)))

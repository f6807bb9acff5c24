"""How a producer gets its identity from the leader, and another one when it needs it."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple

from kraftfast import limits
from kraftfast.arguments import text
from kraftfast.client.producer.identity import Identity
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.errors import (
    ErrorCode,
    InvalidOption,
    MalformedFrame,
    NoQuorum,
    NotLeader,
    ProducerFenced,
    RequestRefused,
    TimedOut,
    UnknownOutcome,
    UnsupportedVersion,
)
from kraftfast.wire.messages import ApiKey, InitProducerIdRequest

if TYPE_CHECKING:
    from kraftfast.client.connector import Connector
    from kraftfast.client.producer.sender import Sender
    from kraftfast.wire.frame import WireMessage

FORGOTTEN = (
    "the quorum has forgotten this producer's name, so it is not known which of its "
    "records are committed (it remembers a bounded number: kraftfast.producers.max)"
)
BEHIND_A_REFUSAL = "a record before it was refused: this producer appends nothing behind that"
NO_TRANSACTION_MS = 60_000  # Kafka wants to know, here nothing comes of it
AGAIN = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT})
Entry = tuple[bytes, int, int, int]
"""Of a backlog: batch, first ticket, records, and when the first was handed over."""


class Standing(NamedTuple):
    """What the leader said of a name when this producer took it over.

    ``records``: so many are committed under it, the last at ``last_offset``, by ``producer_id``
    or, where that ran out of epochs, ids before it. ``names_since``: a name that was used at this
    offset or later would be known; -1: the leader does not tell.
    """

    producer_id: int
    records: int
    last_offset: int
    names_since: int


class Identities:
    """Gives every sender of a producer its identity. Used under the producer's lock.

    ``name``: None for a producer that is never continued. ``ends_at_refusal``: nothing is sent
    behind a record that was refused, so that what is stored is always the first records.
    """

    # identity: of the producer. standing: of its name at first. _connector: the way to the leader.
    # _before: records of a producer without a name that were numbered in earlier epochs.

    def __init__(self, connector: Connector, name: str | None) -> None:
        if name is not None:
            name = text("a producer's name", name, limits.PRODUCER_NAME_BYTES_MAX)
        self.identity = Identity(name)
        self._connector = connector
        self._before = 0
        self.ends_at_refusal = False
        self.standing = Standing(-1, 0, -1, -1)

    def enlist(
        self, sender: Sender, outcomes: Outcomes, backlog: list[Entry], deadline: float
    ) -> None:
        """Give a fresh sender its identity, and what the one before gave back.

        Raises ProducerFenced, InvalidOption; NotLeader, PeerGone, TimedOut or NoQuorum if another
        leader has to be found. The sender is closed then.
        """
        identity = self.identity
        try:
            self.check()
            if identity.id < 0 or identity.spent:
                identity.fail_doubtful(outcomes)
                failed = identity.spent and identity.missing_from < outcomes.resolved
                if failed and self.ends_at_refusal:  # behind a gap alone all goes again
                    identity.fence(ProducerFenced(BEHIND_A_REFUSAL))
                    self.check()
                backlog[:] = [entry for entry in backlog if entry[1] >= outcomes.resolved]
                self._begin(sender, outcomes, deadline)
            if sender.window > limits.PRODUCER_BATCHES:
                raise InvalidOption(
                    "an idempotent producer has at most "
                    f"{limits.PRODUCER_BATCHES} batches under way: so many are remembered"
                )
            sender.identity = identity
        except BaseException:
            sender.close()
            raise
        sender.take_over(backlog)

    def check(self) -> None:
        """Raise ProducerFenced if another producer has the name, or the quorum forgot it."""
        if self.identity.fenced is not None:
            raise copy.copy(self.identity.fenced)

    def _begin(self, sender: Sender, outcomes: Outcomes, deadline: float) -> None:
        """Take a new id, or the next epoch of the one at hand: it fences copies on their way."""
        identity = self.identity
        if identity.name is None and 0 <= identity.id and not self._used_up():
            self._before = self.last_sequence(outcomes) + 1
            identity.begin(identity.id, identity.epoch + 1, outcomes.resolved, 0)
            return
        expected = (-1, -1) if identity.name is None else (identity.id, identity.epoch)
        grant = self._ask(sender, expected, deadline)
        if grant.error_code != ErrorCode.NONE:
            refused = self._refused(grant.error_code)
            if isinstance(refused, ProducerFenced):
                identity.fence(refused)  # final: another request would be refused, too
            raise refused
        number = grant.last_sequence + 1
        if identity.id < 0:
            self.standing = Standing(
                grant.producer_id, number, grant.last_offset, grant.names_since
            )
        if identity.name is None:
            self._before = self.last_sequence(outcomes) + 1
        identity.begin(grant.producer_id, grant.producer_epoch, outcomes.resolved, number)

    def _used_up(self) -> bool:
        """Return whether the next epoch of the id at hand cannot be used.

        Where an id was forgotten, those of its epochs that may have been used are refused, and the
        log knows only the highest epoch of all that it forgot.
        """
        return self.identity.forgotten or self.identity.epoch >= limits.PRODUCER_EPOCH_LAST

    def _ask(self, sender: Sender, expected: tuple[int, int], deadline: float) -> WireMessage:
        id, epoch = expected
        name = self.identity.name
        body = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=NO_TRANSACTION_MS,
            producer_id=id,
            producer_epoch=epoch,
            resumes=name is not None,
        )
        try:
            reached = self._connector.reach(sender, deadline)
            try:
                return reached.ask(ApiKey.INIT_PRODUCER_ID, body, deadline)
            finally:
                reached.close()
        except (UnsupportedVersion, MalformedFrame) as error:
            raise NoQuorum(f"the leader gives no producer ids: {error}") from None

    def _refused(self, code: int) -> Exception:
        if code == ErrorCode.NOT_COORDINATOR:
            return NotLeader("the replica no longer leads")
        if code in AGAIN:
            return TimedOut("the leader did not write down the producer's name in time")
        if code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
            return ProducerFenced("another producer with this name has begun")
        if code == ErrorCode.UNKNOWN_PRODUCER_ID:
            return ProducerFenced(FORGOTTEN)
        return RequestRefused(f"the leader gives no producer id (error {code})", code)

    def certain_sequence(self, outcomes: Outcomes, never_used: bool) -> int:
        """Return the last sequence, -1 if nothing was appended.

        Raises UnknownOutcome if the quorum may have forgotten the name, unless it was never used.
        """
        last, named = self.last_sequence(outcomes), self.identity.name is not None
        if last < 0 and named and self.standing.names_since > 0 and not never_used:
            raise UnknownOutcome(
                f"the quorum does not know the name {self.identity.name!r}, and may have forgotten "
                "it: more names are in use than kraftfast.producers.max. If no producer ever had "
                "it, say so: last_sequence(never_used=True)"
            )
        return last

    def last_sequence(self, outcomes: Outcomes) -> int:
        """Return the number of the last record that is committed, from 0; -1 if there is none.

        A record that was refused has no number. While the identity is ``uncertain``, only the
        quorum knows.
        """
        return self._before + self.identity.numbered_end(outcomes) + self.identity.delta - 1

    def fail_rest(self, outcomes: Outcomes, unsent: Exception) -> None:
        """Resolve everything, as nothing more is sent: by ``unsent`` what certainly never left."""
        self.identity.fail_rest(outcomes, unsent)

"""InitProducerId: ids for idempotent producers, and names that stand for them.

An id for a producer without a name costs the log nothing: the leader's epoch and a number that
counts up in it (``log/small_files/id_ranges.py``). Kafka's clients ask any replica; one that does
not lead asks its leader (``ids_of_leader.py``).

A name stands for an id by a record in the log (``log/idempotence/producers.pyx``). Asked again, it
gets the same id and the next epoch, by another record, which fences the producer before. Both are
told only when that record is committed: then everything before it is, too.

A producer that asks for its next epoch names the one it has, and gets the epoch behind it; one that
names none gets the epoch after that. So if a producer asks again because no answer came, its own
epoch being followed by the next one proves that its first request was granted and no other came in
between: it gets the same answer again (KIP-360 remembers the last epoch for this).

While there is no leader all are told COORDINATOR_LOAD_IN_PROGRESS, at which Java, librdkafka,
kafka-python and aiokafka ask again; they report CLUSTER_AUTHORIZATION_FAILED (of a witness).
Sources: KIP-98, KIP-360; Kafka's ``TransactionCoordinator.handleInitProducerId``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from kraftfast import limits
from kraftfast.core import events as ev
from kraftfast.errors import ErrorCode
from kraftfast.log.idempotence.producer_records import ProducerName, name_batch
from kraftfast.log.small_files.id_ranges import NUMBER_LAST, leader_id
from kraftfast.node.requests.ids_of_leader import IdsOfLeader
from kraftfast.wire import messages as wire

if TYPE_CHECKING:
    from kraftfast.core.effects import RoleChanged
    from kraftfast.log.idempotence.producers import Producers
    from kraftfast.log.log import Log
    from kraftfast.node.node import Node
    from kraftfast.node.ports import Asking

WAITING_MAX = 1024  # I25: a request for a name beyond that must be repeated
WAIT_MS_MAX = 30_000
EPOCHS_OF_ONE_THAT_CONTINUES, EPOCHS_OF_ANOTHER = 1, 2
"""How far a name's epoch moves, by the kind of request: both must be distinguishable later."""
FENCED_VERSION, TAGS_VERSION = 4, 2
"""Of InitProducerId: that know PRODUCER_FENCED, and that have tagged fields."""


class Asked(Struct, frozen=True):
    """What a client asks for.

    ``name``: None for a fresh id. ``expected``: the (id, epoch) that it claims, or (-1, -1).
    ``resumes``: the sequences of the name go on (Kafka's begin with 0 in every epoch).
    """

    name: str | None
    expected: tuple[int, int] = (-1, -1)
    resumes: bool = False


class Granted(Struct, frozen=True):
    """The answer. Of a name that resumes: the number of its last record, from 0, and its offset.

    ``names_since``: a name that was used at this offset or later is still known.
    """

    error: ErrorCode
    id: int = -1
    epoch: int = -1
    last_sequence: int = -1
    last_offset: int = -1
    names_since: int = -1


class Waiting(Struct):
    """A request for a name that is not in the log yet, or not committed."""

    asked: Asked
    answer: Callable[[Granted], None]
    deadline_ms: int
    granted: Granted | None = None
    end_offset: int = -1


class ProducerIds:
    """Hands out producer ids, and names that stand for them."""

    # node: whose. wall_ms: says when a record is made. queued: to be written. written: to be
    # committed, by offset.
    # _committed: everything below may be acknowledged; a taken name counts as its last record for
    # that, so that durability=all waits for all voters here too.
    # of_leader: requests that went on to the leader.
    # _epoch, _number: of the last id that was made.

    def __init__(self, node: Node, wall_ms: Callable[[], int]) -> None:
        self.node, self.wall_ms = node, wall_ms
        self.queued: deque[Waiting] = deque()
        self.written: deque[Waiting] = deque()
        self._epoch, self._number = -1, 0
        self._committed = -1
        self.of_leader = IdsOfLeader(node)
        self.took = self.of_leader.took
        node.on_role.append(self._role_changed)

    def ask(self, asked: Asked, answer: Callable[[Granted], None]) -> None:
        """Call ``answer`` with an id, now or when the name is committed."""
        if asked.name is None:
            self._ask_nameless(answer)
            return
        if not 0 < len(asked.name.encode()) <= limits.PRODUCER_NAME_BYTES_MAX:
            answer(Granted(ErrorCode.INVALID_REQUEST))
        elif self.node.witness:  # a name is a record in the log
            answer(Granted(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        elif self.node.core.role != "leader":
            answer(Granted(ErrorCode.NOT_COORDINATOR))
        elif len(self.queued) + len(self.written) >= WAITING_MAX:
            answer(Granted(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            deadline_ms = self.node.now_ms() + WAIT_MS_MAX
            self.queued.append(Waiting(asked, answer, deadline_ms))
            self.node.step(ev.AppendsQueued())

    def _ask_nameless(self, answer: Callable[[Granted], None], from_replica: bool = False) -> None:
        """Make an id here as the leader, or have the leader make it."""
        if self.node.core.role == "leader":
            answer(self._fresh())
        elif self.node.witness:  # takes no records; its leader may be Kafka's, and make no ids
            answer(Granted(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        elif from_replica:
            answer(Granted(ErrorCode.NOT_COORDINATOR))
        else:
            self.of_leader.ask(lambda error, id: answer(Granted(ErrorCode(error), id, 0)))

    def _fresh(self, named: bool = False) -> Granted:
        """Return, as leader, an id that no producer has, larger than those given before."""
        core = self.node.core
        if core.epoch != self._epoch:  # not from 1: a restored copy of this log leads in it again
            chance = Random(self.node.seed ^ core.epoch)
            self._epoch, self._number = core.epoch, chance.randrange(NUMBER_LAST // 2)
        if self._number == NUMBER_LAST:  # the next epoch has more
            return Granted(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self._number += 1
        return Granted(ErrorCode.NONE, leader_id(self._epoch, self._number, named), 0)

    def drain(self, log: Log, epoch: int) -> None:
        """Append the names that were asked for, as leader of ``epoch``."""
        while self.queued:
            entry = self.queued[0]
            granted, is_new = self._grant(entry.asked, log.producers)
            if granted.error is ErrorCode.NONE and is_new:
                name, resumes = entry.asked.name or "", entry.asked.resumes
                record = ProducerName(granted.id, granted.epoch, resumes, name)
                batch = name_batch(record, timestamp=self.wall_ms(), leader_epoch=epoch)
                if not log.append(batch, epoch, True):
                    return  # no room yet
            self.queued.popleft()
            if granted.error is ErrorCode.NONE:
                entry.granted, entry.end_offset = granted, log.end_offset
                self.written.append(entry)
            else:
                entry.answer(granted)
        self.commit(self._committed)  # what is granted again may be committed already

    def _grant(self, asked: Asked, producers: Producers) -> tuple[Granted, bool]:
        """Return the next epoch of a name as the log stands now, and whether to write it down."""
        known, continues = producers.named(asked.name), asked.expected != (-1, -1)
        if known is None:
            if continues:
                return Granted(ErrorCode.UNKNOWN_PRODUCER_ID), False
            fresh = replace(self._fresh(named=True), names_since=producers.names_since)
            return fresh, True
        id, epoch = known.id, known.epoch
        is_new = not continues or asked.expected == (id, epoch)
        if is_new:
            epoch += EPOCHS_OF_ONE_THAT_CONTINUES if continues else EPOCHS_OF_ANOTHER
            if epoch > limits.PRODUCER_EPOCH_LAST:
                fresh = self._fresh(named=True)
                if fresh.error is not ErrorCode.NONE:
                    return fresh, False
                id, epoch = fresh.id, 0
        elif epoch == 0 or asked.expected != (id, epoch - EPOCHS_OF_ONE_THAT_CONTINUES):
            return Granted(ErrorCode.PRODUCER_FENCED), False
        if not asked.resumes:
            return Granted(ErrorCode.NONE, id, epoch), is_new
        last, since = known.records - 1, producers.names_since
        return Granted(ErrorCode.NONE, id, epoch, last, known.last_offset, since), is_new

    def commit(self, offset: int) -> None:
        """Answer the requests whose names may be acknowledged."""
        self._committed = offset
        while self.written and self.written[0].end_offset <= offset:
            entry = self.written.popleft()
            assert entry.granted is not None
            entry.answer(entry.granted)

    def _role_changed(self, effect: RoleChanged) -> None:
        """Refuse what waits: it may be committed or not, and a new request gets the next epoch."""
        self.of_leader.give_up()
        if effect.role == "leader":
            return
        entries = [*self.written, *self.queued]
        self.written.clear()
        self.queued.clear()
        for entry in entries:
            entry.answer(Granted(ErrorCode.NOT_COORDINATOR))

    def tend(self, now_ms: int) -> None:
        """Refuse requests that have waited too long, and retry what had no room in the log."""
        for waiting in (self.queued, self.written):
            while waiting and waiting[0].deadline_ms <= now_ms:
                waiting.popleft().answer(Granted(ErrorCode.REQUEST_TIMED_OUT))
        self.of_leader.tend(now_ms)
        if self.queued:
            self.node.step(ev.AppendsQueued())

    # --- requests -----------------------------------------------------------------------------

    def serve(self, request: Asking, message: wire.InitProducerIdRequest) -> None:
        """Answer an InitProducerId."""
        if message.transactional_id is not None and message.transaction_timeout_ms <= 0:
            request.respond(
                wire.InitProducerIdResponse(error_code=ErrorCode.INVALID_TRANSACTION_TIMEOUT)
            )
            return
        expected = (message.producer_id, message.producer_epoch)
        asked = Asked(message.transactional_id, expected, message.resumes)

        def answer(granted: Granted) -> None:
            try:
                request.respond(to_message(granted, request.version))
            except Exception as error:
                request.failed(error)

        if message.from_replica and asked.name is None:
            self._ask_nameless(answer, from_replica=True)
        else:
            self.ask(asked, answer)


def to_message(granted: Granted, version: int) -> wire.InitProducerIdResponse:
    """Return the InitProducerId response; clients before version 4 do not know PRODUCER_FENCED."""
    error = granted.error
    if error is ErrorCode.PRODUCER_FENCED and version < FENCED_VERSION:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    response = wire.InitProducerIdResponse(
        error_code=error, producer_id=granted.id, producer_epoch=granted.epoch
    )
    if version >= TAGS_VERSION:
        response.last_sequence, response.last_offset = granted.last_sequence, granted.last_offset
        response.names_since = granted.names_since
    return response

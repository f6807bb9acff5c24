"""The identity of a producer in its quorum, so that a batch that is sent twice is appended once.

Its records are numbered without a gap: the number of a record is its ticket plus ``delta``, its
sequence that modulo 2^31. It outlives senders, as outcomes do: what one leader may have taken goes
to the next with the same sequences.

A leader refuses a batch where one before it is missing. After a batch that was finally refused,
the others need other sequences; they get them under a higher epoch, so that no copy that is still
on its way can be appended too. What may already be in a log from before (``doubtful_end``) gets no
other sequence: its outcome is unknown.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kraftfast.client.producer.outcomes cimport Outcomes
from kraftfast.record.encode cimport BatchSettings
from kraftfast.record.judge cimport (
    KF_BATCH_OK, kf_batch_crc_holds, kf_batch_header, kf_batch_read_header, kf_batch_seal,
)

from kraftfast.client.producer.refusals import REFUSALS, refusal
from kraftfast.errors import ErrorCode, ProducerFenced, UnknownOutcome

cdef enum:
    SEQUENCE_MASK = 0x7FFFFFFF

FENCES = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
GAPS = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
"""The leader lacks an earlier batch of the producer, so it does not have this one either."""


cdef bint is_whole(const uint8_t *batch, int64_t size, int64_t records,
                   kf_batch_header *header) noexcept:
    return (kf_batch_read_header(batch, size, header) == KF_BATCH_OK and header.size == size
            and header.record_count == records and kf_batch_crc_holds(batch, header))


cdef class Identity:
    """Its fields: ``identity.pxd``. Changed only while no sender uses it."""

    def __init__(self, name=None):
        self.name, self.id, self.epoch = name, -1, -1

    def begin(self, int64_t id, int epoch, int64_t ticket, int64_t number):
        """Begin with this id and epoch; the record with ``ticket`` is number ``number``."""
        self.id, self.epoch, self.delta = id, epoch, number - ticket
        self.spent = self.uncertain = self.forgotten = False

    def fence(self, fenced not None):
        """Send nothing more under this name: ``fenced`` says why."""
        self.fenced = fenced

    cdef void stamp(self, BatchSettings *settings, int64_t ticket) noexcept:
        """Stamp a batch whose first record has this ticket."""
        settings.producer_id, settings.producer_epoch = self.id, <short>self.epoch
        settings.base_sequence = <int32_t>((ticket + self.delta) & SEQUENCE_MASK)

    cdef bint stamped(self, const kf_batch_header *header, int64_t ticket) noexcept:
        """Return whether a batch carries what :meth:`stamp` would set."""
        cdef BatchSettings now
        self.stamp(&now, ticket)
        return (header.producer_id == now.producer_id
                and header.producer_epoch == now.producer_epoch
                and header.base_sequence == now.base_sequence)

    cdef int restamp(self, uint8_t *batch, int64_t size, int64_t ticket) except -1:
        """Stamp a batch that was closed before and seal it again, unless it is stamped so."""
        cdef kf_batch_header header
        cdef BatchSettings now
        assert kf_batch_read_header(batch, size, &header) == KF_BATCH_OK
        if self.stamped(&header, ticket):
            return 0
        assert kf_batch_crc_holds(batch, &header), "a fresh CRC must not hide damage (D24)"
        self.stamp(&now, ticket)
        header.producer_id, header.producer_epoch = now.producer_id, now.producer_epoch
        header.base_sequence = now.base_sequence
        kf_batch_seal(batch, &header)
        return 0

    cdef bint may_be_appended(self, bint silent, bint denied, int32_t code):
        """Return whether a batch that the leader looked at may be in its log.

        ``silent``: it has no answer; ``denied``: the leader said that it is not; ``code``: else
        Kafka's error.
        Behind a batch that was refused there is a gap, and nothing was appended; unless that batch
        was in the log already, from an earlier leader: then the next ones follow it there.
        """
        if silent:
            return not self.spent or self.uncertain
        return not denied and (code == 0 or code not in REFUSALS)

    cdef void doubt(self, int64_t end_ticket) noexcept:
        """Record that tickets below this one may be in a log."""
        self.doubtful_end = max(self.doubtful_end, end_ticket)

    cdef void skip(self, int64_t first_ticket, int64_t end_ticket) noexcept:
        """Send nothing of these tickets again: the bytes of a batch are damaged (D24)."""
        self.doubt(end_ticket)
        self.spend(first_ticket)

    cdef void spend(self, int64_t first_ticket) noexcept:
        """Use no more sequences of this epoch: there is a gap from this ticket on."""
        if not self.spent:
            self.spent, self.missing_from = True, first_ticket

    def fail_doubtful(self, Outcomes outcomes):
        """Resolve what may be in a log, and cannot be sent again: its outcome is unknown."""
        self.fail_until(outcomes, min(self.doubtful_end, outcomes.next_ticket),
                        UnknownOutcome("it may be committed, and cannot be sent again"))

    def fail_rest(self, Outcomes outcomes, unsent not None):
        """Resolve everything, as nothing more is sent: by ``unsent`` what certainly never left."""
        self.fail_until(
            outcomes, min(self.doubtful_end, outcomes.next_ticket),
            self.fenced or UnknownOutcome("the producer was closed before the answer came"))
        self.spend(outcomes.resolved)
        outcomes.fail_rest(self.fenced or unsent)

    cdef int fail_until(self, Outcomes outcomes, int64_t end_ticket, unknown) except -1:
        if outcomes.resolved < end_ticket:
            self.spend(outcomes.resolved)
            self.uncertain = True
            outcomes.fail_until(end_ticket, unknown)
        return 0

    def numbered_end(self, Outcomes outcomes) -> int:
        """Return the ticket behind the last one that has a number and is resolved."""
        return self.missing_from if self.spent else outcomes.resolved

    cdef object failure_of(self, bint unknown, int32_t code, int64_t first_ticket):
        """Return what the tickets fail with of a batch that was refused with a code of Kafka's.

        None: nothing, it goes again; under another epoch if it is ``spent``.
        """
        cdef bint doubtful = first_ticket < self.doubtful_end
        if code in FENCES:
            self.fenced = ProducerFenced(
                "another producer with this name has begun: what this one had under way may or "
                "may not be committed")
            self.spend(first_ticket)
            self.uncertain = True
            return self.fenced
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return UnknownOutcome("it is committed, but its offset is no longer known")
        if unknown or code not in REFUSALS or (doubtful and code == ErrorCode.KAFKA_STORAGE_ERROR):
            return None
        self.spend(first_ticket)
        self.forgotten = self.forgotten or code == ErrorCode.UNKNOWN_PRODUCER_ID
        if doubtful:
            self.uncertain = True
            return UnknownOutcome(f"it may be committed: the next leader refused it ({code})")
        return None if code in GAPS else refusal(code)

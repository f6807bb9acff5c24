"""What travels on rings: the kinds of messages and the fixed layouts of the hot ones.

All integers are in the machine's byte order: both ends are on one host. Cold messages are Kafka's
own frames without their length (kinds REQUEST and RESPONSE). The CRC in a message's header is that
of its payload between replicas, of an ANSWER without the batches, which have their own; between a
producer and a replica it is 0.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef enum:
    # between replicas
    REQUEST = 1      # a Kafka request, header and body
    RESPONSE = 2     # its response, header and body
    FETCH = 3        # FetchMessage: opens a stream, or moves its ack and its read offset
    ANSWER = 4       # AnswerMessage, then `length` bytes of record batches, a part of them, or none
    # from a producer to a replica
    BATCH = 16       # BatchMessage, then one record batch
    # from a replica to a producer
    ACK = 17         # AckMessage: batches are committed
    REFUSED = 18     # RefusedMessage: batches were not appended now
    NOT_LEADER = 19  # LeaderMessage: nothing more is taken from this ring


cdef enum:
    FETCH_OPENS = 1
    FETCH_IN_MEMORY = 2
    FETCH_BYTES_ONLY = 4     # a reference could not be read: send that segment's rest as bytes


cdef struct FetchMessage:
    uint32_t stream
    int32_t epoch
    int64_t fetch_offset     # the acknowledgement, never unflushed (D3)
    int64_t read_offset
    int64_t high_watermark
    int32_t last_fetched_epoch
    int32_t max_wait_ms
    int32_t max_bytes
    uint32_t flags
    uint64_t sent_ns


cdef enum:
    ANSWER_DIVERGING = 1
    ANSWER_REFERENCE = 2     # the records are in a segment of the leader, not in the message
    ANSWER_SNAPSHOT = 4
    ANSWER_TOP_LEVEL = 8     # the error is the response's, not the partition's
    ANSWER_PART = 16         # of one batch of `length` bytes, from `position` in it on


cdef struct AnswerMessage:
    uint32_t stream
    int32_t leader_epoch
    int32_t leader_id
    int16_t error
    int16_t flags
    int64_t high_watermark
    int64_t log_start_offset
    int64_t other_offset     # of divergence or snapshot
    int32_t other_epoch
    uint32_t length          # bytes of records, inline or referred to
    int64_t segment_base     # of a reference: which segment,
    uint64_t segment_inode   # which file, so that a name used again is noticed,
    uint64_t position        # where in it (of a part: where in its batch),
    uint64_t generation      # and under which generation it was whole; 0: trimmed, none (D20)
    uint64_t sent_ns


cdef struct BatchMessage:
    uint64_t sent_ns
    uint64_t reserved        # zero: keeps the batch 16-byte aligned


cdef struct AckMessage:
    uint64_t first_batch     # counted from 0 over the ring's life
    uint64_t batches
    int64_t base_offset      # of the first; the batches follow each other in the log
    int64_t end_offset
    uint64_t sent_ns


cdef struct RefusedMessage:
    uint64_t first_batch
    uint64_t batches
    int32_t error            # Kafka's code; DUPLICATE_SEQUENCE_NUMBER: committed already
    int32_t reserved         # zero


cdef struct LeaderMessage:
    int32_t leader_id        # who may lead, -1: unknown

"""What every way to a leader has in common: see sender.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kraftfast.client.clock cimport Clock
from kraftfast.client.producer.identity cimport Identity
from kraftfast.client.producer.latency cimport Latencies
from kraftfast.client.producer.outcomes cimport Outcomes
from kraftfast.record.encode cimport BatchSettings, OpenBatch


cdef enum SentState:
    SENT = 0          # no answer yet
    COMMITTED = 1
    NOT_APPENDED = 2  # the replica said so, or never looked at it: the next leader may have it
    REFUSED_BATCH = 3  # was not appended and will not be
    UNKNOWN = 4       # may or may not be in the log


# A batch that is under way.
cdef struct Sent:
    int64_t first_ticket
    int64_t records
    int64_t size
    int64_t base_offset   # once COMMITTED
    uint64_t began_ns     # when its first record was handed over
    uint64_t place        # the sender's own
    uint8_t *batch        # must stay as it is until its tickets are resolved (D24)
    int32_t state         # a SentState
    int32_t error         # Kafka's code, with it


cdef class Sender(Latencies):
    cdef readonly Outcomes outcomes         # outlives the sender
    cdef readonly int node_id, epoch        # the presumed leader, and since when
    cdef public Identity identity           # of an idempotent producer; set before it sends
    cdef readonly object broken             # why nothing more can be sent, or None
    cdef readonly int64_t batch_bytes       # a batch is closed when it is about this large
    cdef readonly int64_t batch_bytes_max   # of one record's own batch
    cdef readonly int64_t window            # batches that may be under way
    cdef readonly uint64_t bytes_sent

    # ready: appends are taken; implies none of broken, gone, held, busy, leaving, no backlog.
    # busy: a thread encodes or compresses, and gives the interpreter's lock up meanwhile.
    # polling: a thread takes answers in. gone: given up or closed. held: hold() was called.
    # leaving: the replica leads no more; wait for the answers to what was sent, then break.
    cdef bint ready, busy, polling, gone, held, leaving
    cdef bint kafka_raft
    cdef public object compressor           # of batches (``compression.Compressor``), or None

    cdef readonly bint has_open             # a batch is being built, in claimed memory
    cdef readonly bint gathering            # threads that were woken may append to it: it waits
    cdef OpenBatch batch
    cdef BatchSettings settings
    cdef uint64_t stamped_ns                # when settings.timestamp was taken
    cdef int64_t open_first                 # its first ticket
    cdef uint64_t open_began
    cdef int countdown                      # appends until the next look at what came back

    # Batches [sent_tail, sent_head) are under way, number n in sent[n & sent_mask].
    cdef Sent *sent
    cdef uint64_t sent_mask, sent_head, sent_tail
    cdef readonly object backlog            # deque of what no leader looked at yet, in order
    cdef list given_up                      # what give_up() returned, None before

    cdef object host
    cdef Clock clock                        # the host's
    cdef object epoll                       # everything that this sender has to attend to
    cdef int wake_fd                        # an eventfd or a pipe among it: ends a sleep
    cdef int users                          # threads that are using descriptors

    cdef int set_up(self, host, Outcomes outcomes, int64_t batch_bytes, int64_t batch_bytes_max,
                    int64_t window, int wake_fd) except -1

    # --- what a kind of sender does; claim, abandon, commit, publish and waiting run no Python
    # code, nor do they make objects that would start a garbage collection, except to fail.
    # Memory for a batch of up to `capacity` bytes; NULL: no room now, or it failed.
    cdef uint8_t *claim(self, int64_t capacity) except? NULL
    # Give the claimed memory back.
    cdef void abandon(self) noexcept
    # The first entry.size bytes claimed are a batch: the next publish sends it. Has nothing to do
    # with the commit of records.
    cdef int commit(self, Sent *entry) except -1
    cdef int publish(self) except -1
    # Whether something came back.
    cdef bint waiting(self) noexcept nogil
    # Receive answers: set the state of the batches that they are for.
    cdef int receive(self) except -1
    # The tickets of batch `number`, the oldest under way, are resolved: its bytes may be used for
    # others (D24).
    cdef int release(self, uint64_t number) except -1
    # Number of the first batch that the replica never looked at, and never will.
    cdef uint64_t untouched(self)
    # Show the other side that this process sleeps; set what else epoll watches for.
    cdef int announce_sleep(self) except -1
    # Whether something came, or found room, since the sleep was announced (R12).
    cdef bint must_stay_awake(self) except -1
    # Something that epoll watches is ready.
    cdef int attend_to(self, int fd, int events) except -1
    cdef int close_files(self) except -1

    # --- for them
    cpdef int fail(self, exception) except -1
    cdef Sent *batch_number(self, uint64_t number) noexcept

    # --- for the producer
    cdef int64_t append_value(self, value) except -2
    cpdef bint poll(self) except -1

    # --- private
    cdef void review(self) noexcept
    cdef bint window_full(self) noexcept
    cdef int begin(self, int64_t capacity) except -1
    cdef int open_for(self, int64_t size) except -1
    cdef int send_open(self) except -1
    cdef int send(self, uint8_t *batch, int64_t size, int64_t first_ticket, int64_t records,
                  uint64_t began_ns) except -1
    cdef int64_t appended(self) except -2
    cdef int64_t put(self, bytes value, bytes key, bytes headers, int32_t header_count,
                     int64_t timestamp, bint stamped) except -2
    cdef int settle(self) except -1
    cdef int nudge(self) except -1
    cdef int end_use(self) except -1
    cdef int hand_over(self) except -1
    cdef object failure_of(self, Sent *entry)
    cdef int64_t close_open(self) noexcept
    cdef int64_t pack(self, uint8_t *batch, int64_t size) except -1
    cdef list resolve(self, uint64_t untouched, exception)
    cdef bytes copy_of(self, Sent *entry)
    cdef tuple entry_of(self, Sent *entry)
    cdef list take_back(self, uint64_t untouched)

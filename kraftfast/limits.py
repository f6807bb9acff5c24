"""Bounds that several files share, or that Kafka sets; their relations are checked at import.

Sizes are bytes, times milliseconds unless a name says otherwise.
"""

from __future__ import annotations

if not __debug__:  # assertions are part of the safety argument (docs/explanation/conditions.md)
    from kraftfast.errors import InvalidOption

    raise InvalidOption("kraftfast keeps its assertions: start Python without -O, PYTHONOPTIMIZE")

# --- record batches (Kafka's DefaultRecordBatch) ---
BATCH_HEADER_BYTES = 61
BATCH_BYTES_LEAST = BATCH_HEADER_BYTES + 64  # of a producer: room for one empty record
BATCH_OVERHEAD_BYTES = 12  # base offset and length, which the length itself does not count
BATCH_BYTES_MAX = 8 * 1024 * 1024  # KafkaRaftClient.MAX_BATCH_SIZE_BYTES
RECORDS_PER_BATCH_MAX = 1 << 22
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024  # S9: cap on the output of one batch
DECOMPRESSION_RATIO_MAX = 1024  # S9: and on its growth, above 1 MiB of output
ZSTD_WINDOW_BYTES_MAX = 128 * 1024 * 1024  # ZSTD_WINDOWLOG_LIMIT_DEFAULT: of level 22
HEADERS_PER_RECORD_MAX = 1 << 16

# --- wire (S6, S7) ---
FRAME_BYTES_MAX = 100 * 1024 * 1024  # socket.request.max.bytes
FRAME_BYTES_MAX_BEFORE_API_VERSIONS = 8 * 1024  # unless its first bytes are a request of ours
TAGGED_FIELDS_MAX = 64
TAGGED_FIELD_BYTES_MAX = 128 * 1024
SCHEMA_DEPTH_MAX = 16
MESSAGE_ELEMENTS_MAX = 1 << 14  # array elements of a message: as objects they outgrow their bytes
MESSAGE_TEXT_BYTES_MAX = 1024 * 1024  # strings of a message: as objects up to four times as large

CONNECTIONS_MAX = 1000  # max.connections, unless configured otherwise
CONNECTIONS_PER_ADDRESS_MAX = 250  # max.connections.per.ip
REQUESTS_OF_A_CONNECTION = 64  # that a server has taken and not answered yet
WINDOW_BATCHES_MAX = 1 << 15  # batches of a producer that are under way

# --- replication ---
TURN_BYTES_MAX = 1024 * 1024  # what one turn of the loop copies or hands over at most
FETCH_MAX_BYTES = 1024 * 1024  # controller.quorum.fetch.max.bytes
FETCH_MAX_WAIT_MS = 500
DOWNLOAD_PAUSE_MS_MAX = 10_000  # until a snapshot is fetched again that this disk refused
EPOCH_MAX = 2**31 - 1
EPOCH_JUMP_MAX = 1 << 20  # how far answers move the epoch, before the rate below counts
EPOCHS_ASKED_MAX = 1000  # how far requests, which any process may send, move it before
EPOCHS_PER_S = 4
UNFLUSHED_BYTES_MAX = 64 * 1024 * 1024  # D14
UNFLUSHED_AGE_MS_MAX = 50  # D14: a flush starts at the latest then
HELD_AGE_MS_MAX = 500  # D14: none while the oldest unflushed record is older
INLINE_FLUSH_BYTES_MAX = 64 * 1024  # a leader flushes inside its loop up to here
# A follower has nothing else to do meanwhile.
FOLLOWER_INLINE_FLUSH_BYTES_MAX = 4 * 1024 * 1024
VOTERS_MAX = 64
KRAFT_VERSION_MIN = 0  # kraft.version: what this code speaks
KRAFT_VERSION_MAX = 1
STREAM_PUSHES_MAX = 4  # answers with records under way on one stream
READ_BARRIERS_MAX = 4096  # I25: readers that wait at one replica; above it they are refused
SNAPSHOT_SLICES_MAX = 2  # slices of snapshots that a leader sends at once
SNAPSHOT_GRACE_MS = 60_000  # internal.metadata.delete.delay.millis: of one that is being fetched
SNAPSHOT_LEASE_MS_MAX = 3600 * 1000  # a snapshot that is being fetched is kept so long at most
SNAPSHOT_LEASES_MAX = 64  # I25: for so many replicas at once
LEASED_SNAPSHOTS_MAX = 3  # no more are made while one of so many is being fetched
OBSERVERS_MAX = 1024  # I25: replicas that a leader remembers beside the voters
OBSERVER_AGE_MS_MAX = 300 * 1000  # LeaderState.OBSERVER_SESSION_TIMEOUT_MS
PARKED_FETCHES_MAX = 4096  # I25: above it a Fetch is answered at once

# --- the loop ---
IDLE_SPIN_US = {"block": 0, "hybrid": 300, "spin": 2_000, "poll": 300}
"""How long the loop looks around before it blocks, while something was in flight, microseconds.

With ``poll`` no processor halts for as long (``cext/stay_awake.h``)."""

# --- state machines ---
QUERY_BYTES_MAX = 16 * 1024 * 1024  # of a question or an answer, packed
QUERY_INLINE_BYTES_MAX = 32 * 1024  # above it they travel as memory files

# --- log ---
SEGMENT_BYTES = 1024 * 1024 * 1024  # metadata.log.segment.bytes
SEGMENT_BYTES_MIN = 8 * 1024 * 1024
SEGMENT_MS = 7 * 24 * 3600 * 1000  # metadata.log.segment.ms
INDEX_INTERVAL_BYTES = 4096
INDEX_BYTES_MAX = 10 * 1024 * 1024
PREPARE_STRIDE_BYTES = 64 * 1024 * 1024
PREPARE_PIECE_BYTES = 64 * 1024
PREPARE_BYTES = 1024 * 1024  # with zeros, before a replica starts
PAGE_BYTES = 4096
SEGMENT_BYTES_MAX = 2**31 - 2 * PAGE_BYTES
"""Positions in an index have 31 bits, and the last page comes behind."""

# --- idempotent producers ---
PRODUCERS = 1024  # that the log knows, unless configured otherwise
PRODUCERS_MAX = 4096  # so many fit a snapshot's footer, whatever they did
PRODUCER_EPOCH_LAST = 2**15 - 2  # as in Kafka: behind it comes another id
PRODUCER_BATCHES = 64  # of each, whose offsets are remembered; Kafka: 5
PRODUCER_NAME_BYTES_MAX = 255

assert BATCH_BYTES_MAX <= SEGMENT_BYTES_MIN, "a batch must fit a segment"
assert FETCH_MAX_BYTES <= BATCH_BYTES_MAX, "a fetch may always return one whole batch"
assert INLINE_FLUSH_BYTES_MAX <= FOLLOWER_INLINE_FLUSH_BYTES_MAX < UNFLUSHED_BYTES_MAX
assert TURN_BYTES_MAX <= UNFLUSHED_BYTES_MAX
assert UNFLUSHED_AGE_MS_MAX <= HELD_AGE_MS_MAX
assert PREPARE_STRIDE_BYTES % PREPARE_PIECE_BYTES == 0
assert PREPARE_PIECE_BYTES % PAGE_BYTES == 0

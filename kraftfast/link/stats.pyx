"""Counters and histograms in shared memory: where a replica is, and where the time went.

The words are plain 64-bit stores by one writer; readers load them with acquire. Everything below
the high watermark word may be read from the replica's segments (D11).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint64_t

from kraftfast.buffer cimport Hold, hold
from kraftfast.link.timed_events cimport (
    E_EPOCH, E_FLUSH, E_HIGH_WATERMARK, E_ROLE, Events, kf_events_note, kf_events_now,
    kf_events_on,
)

from kraftfast.errors import PeerGone
from kraftfast.link.memory_file import MemoryFile


cdef extern from *:
    """
    #define KF_LOAD(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
    #define KF_STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
    """
    uint64_t KF_LOAD(const uint64_t *p) nogil
    void KF_STORE(uint64_t *p, uint64_t v) nogil


cdef uint64_t MAGIC = 0x3153544154534B46
cdef size_t WORDS_BYTES = 4096
FILE_BYTES = WORDS_BYTES + S_COUNT * sizeof(kf_histogram)
PAGES_BYTES = -(-FILE_BYTES // 4096) * 4096

ROLES = (
    "unattached", "prospective", "candidate", "leader", "follower", "resigned", "observer",
    "stopped",
)
STAGES = ("queue", "append", "travel", "follower_flush", "leader_flush", "commit")
WORDS = {
    "high_watermark": W_HIGH_WATERMARK,
    "epoch": W_EPOCH,
    "end_offset": W_END_OFFSET,
    "flushed_end_offset": W_FLUSHED_END_OFFSET,
    "log_start_offset": W_LOG_START_OFFSET,
    "leader_id": W_LEADER_ID,
    "role": W_ROLE,
    "records": W_RECORDS,
    "batches": W_BATCHES,
    "bytes": W_BYTES,
    "flushes": W_FLUSHES,
    "prepared_bytes": W_PREPARED,
}
NOTED = {
    "noted_ns": W_NOTED_NS,
    "leader_high_watermark": W_LEADER_HIGH_WATERMARK,
    "elections": W_ELECTIONS,
    "leaderships": W_LEADERSHIPS,
    "voters": W_VOTERS,
    "is_voter": W_IS_VOTER,
    "producers": W_PRODUCERS,
    "watchers": W_WATCHERS,
    "connections": W_CONNECTIONS,
    "other_flushes": W_OTHER_FLUSHES,
    "truncations": W_TRUNCATIONS,
    "troubles": W_TROUBLES,
    "snapshot_end_offset": W_SNAPSHOT_END_OFFSET,
    "ring_fill_permille": W_RING_FILL,
}
"""Words that a replica stores a few times a second; ``noted_ns``: its monotonic time then."""
TROUBLES = ("in_doubt", "refuses_leader", "no_room")
"""What the bits of the word ``troubles`` mean, from the lowest on."""

MARKS = {"high_watermark": E_HIGH_WATERMARK, "role": E_ROLE, "epoch": E_EPOCH}


cdef class Stats:
    """The writer's side, in a sealed memory file (``file``) of ``local``, or of this host."""

    def __init__(self, local=None):
        make = MemoryFile if local is None else local.memory_file
        self.file = make("kraftfast-stats", PAGES_BYTES)
        cdef Hold held = hold(self.file.memory, writable=True)
        self.words = <uint64_t *>held.data
        self.stages = <kf_histogram *>(held.data + WORDS_BYTES)
        KF_STORE(&self.words[W_HIGH_WATERMARK], <uint64_t>-1)
        KF_STORE(&self.words[W_LEADER_ID], <uint64_t>-1)
        KF_STORE(&self.words[W_MAGIC], MAGIC)

    cdef void set(self, int word, int64_t value) noexcept nogil:
        KF_STORE(&self.words[word], <uint64_t>value)

    cdef void add(self, int word, int64_t value) noexcept nogil:
        KF_STORE(&self.words[word], self.words[word] + <uint64_t>value)

    cdef void sample(self, int stage, uint64_t ns, uint64_t n) noexcept nogil:
        kf_histogram_add_n(&self.stages[stage], ns, n)

    def put(self, str word, int64_t value):
        """Set a word by its name."""
        self.set(WORDS[word], value)
        if kf_events_on(self.events) and word in MARKS:
            kf_events_note(self.events, MARKS[word], value, 0, 0, kf_events_now())

    def note(self, dict values):
        """Set words of ``NOTED``."""
        for name, value in values.items():
            self.set(NOTED[name], value)

    def record(self) -> Events:
        """Record events for one reader more, until ``end`` of what this returns.

        Raises OSError without memory.
        """
        if self.recorder is None:
            self.recorder = Events()
            self.events = self.recorder.ring
        self.recorder.begin()
        return self.recorder

    def flushed(self, str stage, uint64_t began_ns, uint64_t ns, int64_t flushed_end_offset):
        """Record when a flush began, how long it took, and how much of the log is on disk now."""
        if kf_events_on(self.events):
            kf_events_note(self.events, E_FLUSH, flushed_end_offset, 0, began_ns, began_ns + ns)
        self.sample(STAGES.index(stage), ns, 1)
        self.add(W_FLUSHES, 1)

    cpdef ends(self, int64_t end_offset, int64_t flushed_end_offset, int64_t prepared):
        """Record where the log ends, how much of it is on disk, and the bytes prepared ahead."""
        self.set(W_END_OFFSET, end_offset)
        self.set(W_FLUSHED_END_OFFSET, flushed_end_offset)
        self.set(W_PREPARED, prepared)

    def mark(self, str stage) -> bytes:
        """Return what a stage's histogram holds now, for :meth:`since`."""
        return PyBytes_FromStringAndSize(
            <const char *>&self.stages[STAGES.index(stage)], sizeof(kf_histogram))

    def since(self, str stage, bytes mark not None) -> tuple[int, float, float]:
        """Return what came to a stage since then: how often, mean and largest in microseconds."""
        cdef const kf_histogram *h = &self.stages[STAGES.index(stage)]
        cdef const kf_histogram *before = <const kf_histogram *>PyBytes_AS_STRING(mark)
        assert len(mark) == sizeof(kf_histogram)
        count, mean_ns = h.count - before.count, 0.0
        if count:
            mean_ns = <double>(h.sum_ns - before.sum_ns) / count
        return count, mean_ns / 1000, kf_histogram_max_since(h, before) / 1000

    def view(self) -> StatsView:
        """Return a reader of these very words."""
        return StatsView(self.file.memory)


cdef class StatsView:
    """A reader, over the map of a replica's memory file. Raises PeerGone if it is none."""

    def __init__(self, memory):
        cdef Hold held = hold(memory)
        cdef const uint64_t *words = <const uint64_t *>held.data
        if held.size < <int64_t>FILE_BYTES or KF_LOAD(words + W_MAGIC) != MAGIC:
            raise PeerGone("not the counters of a replica of this version")
        self.memory = held
        self.words = words
        self.stages = <const kf_histogram *>(held.data + WORDS_BYTES)

    cdef int64_t get(self, int word) noexcept nogil:
        return <int64_t>KF_LOAD(&self.words[word])

    @property
    def high_watermark(self) -> int:
        """Records below this offset are committed; -1 while unknown."""
        return self.get(W_HIGH_WATERMARK)

    def __getitem__(self, str word) -> int:
        return self.get(WORDS[word])

    def as_dict(self) -> dict:
        """Return every word by its name; ``role`` as text."""
        found = {name: self.get(word) for name, word in WORDS.items()}
        found["role"] = ROLES[found["role"]]
        return found

    def noted(self) -> dict:
        """Return every word of ``NOTED``, by its name; all are 0 before the first."""
        return {name: self.get(word) for name, word in NOTED.items()}

    def stage(self, str name) -> dict:
        """Return count, mean, quantiles and maximum of a stage, microseconds."""
        return quantiles(&self.stages[STAGES.index(name)])

    def total(self, str name) -> tuple[int, int]:
        """Return how often a stage was passed, and the sum of its times in nanoseconds."""
        cdef const uint64_t *head = <const uint64_t *>&self.stages[STAGES.index(name)]
        return KF_LOAD(head), KF_LOAD(head + 1)

    def buckets(self, str name) -> bytes:
        """Return the counts of a stage's histogram; :func:`bucket_tops` has their times."""
        cdef const kf_histogram *h = &self.stages[STAGES.index(name)]
        return PyBytes_FromStringAndSize(<const char *>h.buckets, sizeof(h.buckets))

    def stages_dict(self) -> dict:
        """Return every stage by its name."""
        return {name: self.stage(name) for name in STAGES}


def bucket_tops() -> list[int]:
    """Return the longest time of each bucket, nanoseconds."""
    cdef int i
    return [kf_histogram_bucket_top(i) for i in range(KF_HISTOGRAM_BUCKETS)]


cdef dict quantiles(const kf_histogram *h):
    cdef const uint64_t *head = <const uint64_t *>h  # count, sum, max come first
    count = KF_LOAD(head)
    return {
        "count": count,
        "mean_us": KF_LOAD(head + 1) / count / 1000 if count else 0.0,
        "p50_us": kf_histogram_quantile(h, 0.50) / 1000,
        "p99_us": kf_histogram_quantile(h, 0.99) / 1000,
        "p999_us": kf_histogram_quantile(h, 0.999) / 1000,
        "max_us": KF_LOAD(head + 2) / 1000,
    }

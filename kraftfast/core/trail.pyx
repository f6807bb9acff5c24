"""The epoch trail: epoch -> start offset, all that the core knows of a log's content.

Kafka's leader-epoch cache (``LeaderEpochFileCache``). Looking up where an epoch ends, which
validates every Fetch, is a binary search in C; ``tests/core`` holds the plain-Python oracle.
"""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, realloc

from kraftfast.types import OffsetAndEpoch

cdef int64_t EPOCH_MAX = 2**31 - 1
cdef int64_t OFFSET_MAX = 2**63 - 1


cdef class EpochTrail:
    """Where each epoch of a log begins.

    Invariants: epochs and start offsets both strictly ascend; epochs are 0 to 2^31-1 and offsets
    not negative. An epoch may have no records yet: its start is then the log's end.
    """

    def __cinit__(self):
        self._epochs = NULL
        self._starts = NULL
        self._count = 0
        self._room = 0

    def __init__(self, entries=()):
        """``entries``: pairs (epoch, start offset) in order.

        Raises ``ValueError`` where they do not ascend.
        """
        for epoch, start_offset in entries:
            if self._count and (
                epoch <= self._epochs[self._count - 1]
                or start_offset <= self._starts[self._count - 1]
            ):
                raise ValueError(f"the epoch trail does not ascend at {(epoch, start_offset)}")
            self.assign(epoch, start_offset)

    def __dealloc__(self):
        free(self._epochs)
        free(self._starts)

    cdef int _grow(self) except -1:
        cdef Py_ssize_t room = self._room * 2 if self._room else 8
        cdef int32_t* epochs = <int32_t*>realloc(self._epochs, room * sizeof(int32_t))
        if epochs == NULL:
            raise MemoryError
        self._epochs = epochs
        cdef int64_t* starts = <int64_t*>realloc(self._starts, room * sizeof(int64_t))
        if starts == NULL:
            raise MemoryError
        self._starts = starts
        self._room = room
        return 0

    @property
    def last_epoch(self):
        """The latest epoch, 0 for an empty trail (what KRaft calls the last fetched epoch)."""
        return self._epochs[self._count - 1] if self._count else 0

    @property
    def entries(self):
        """All (epoch, start offset) in order, as a tuple."""
        return tuple([(self._epochs[i], self._starts[i]) for i in range(self._count)])

    def __len__(self):
        return self._count

    def __repr__(self):
        return f"EpochTrail({list(self.entries)})"

    cpdef bint assign(self, int64_t epoch, int64_t start_offset) except -1:
        """Let ``epoch`` begin at ``start_offset``; True if that changed the trail.

        An epoch that is already the latest keeps its start. Entries that began at or after
        ``start_offset`` had no records and give way. Raises ``ValueError`` for an epoch below the
        latest that has records, and outside 0 to 2^31-1.
        """
        if not 0 <= epoch <= EPOCH_MAX or start_offset < 0:
            raise ValueError(f"no epoch {epoch} can start at offset {start_offset}")
        cdef Py_ssize_t count = self._count
        if count and self._epochs[count - 1] == epoch and self._starts[count - 1] <= start_offset:
            return False
        while count and self._starts[count - 1] >= start_offset:
            count -= 1
        if count and self._epochs[count - 1] >= epoch:
            raise ValueError(
                f"epoch {epoch} cannot start at offset {start_offset}: epoch "
                f"{self._epochs[count - 1]} starts at {self._starts[count - 1]}"
            )
        if count == self._room:
            self._grow()
        self._epochs[count] = <int32_t>epoch
        self._starts[count] = start_offset
        self._count = count + 1
        return True

    cdef Py_ssize_t _epoch_position(self, int64_t epoch) noexcept:
        """Return how many epochs are at most ``epoch``."""
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self._count
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) >> 1
            if self._epochs[middle] <= epoch:
                low = middle + 1
            else:
                high = middle
        return low

    cdef Py_ssize_t _offset_position(self, int64_t offset) noexcept:
        """Return how many epochs start at or before ``offset``."""
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self._count
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) >> 1
            if self._starts[middle] <= offset:
                low = middle + 1
            else:
                high = middle
        return low

    cdef void end_of(
        self, int64_t epoch, int64_t log_end_offset, int64_t* end_offset, int64_t* end_epoch
    ) noexcept:
        """``end_offset_for`` without Python objects."""
        cdef Py_ssize_t position
        if self._count == 0:
            end_offset[0] = log_end_offset
            end_epoch[0] = 0
            return
        position = self._epoch_position(epoch)
        if position == self._count:
            end_offset[0] = log_end_offset
            end_epoch[0] = self._epochs[position - 1]
        elif position == 0:
            end_offset[0] = self._starts[0]
            end_epoch[0] = epoch
        else:
            end_offset[0] = self._starts[position]
            end_epoch[0] = self._epochs[position - 1]

    def end_offset_for(self, int64_t epoch, int64_t log_end_offset):
        """Return where records of the largest epoch not above ``epoch`` end: ``OffsetAndEpoch``.

        Kafka's ``endOffsetForEpoch``: the latest epoch, and any above it, ends at the log's end;
        one below all known ends, as itself, where the first known begins; one in a gap is answered
        by the largest known below it; an empty trail answers epoch 0 and the log's end.
        """
        cdef int64_t end_offset, end_epoch
        self.end_of(epoch, log_end_offset, &end_offset, &end_epoch)
        return OffsetAndEpoch(end_offset, end_epoch)

    cpdef int64_t epoch_at(self, int64_t offset) except? -2:
        """Return the epoch of the record at ``offset``; -1 below the trail's first start."""
        cdef Py_ssize_t position = self._offset_position(offset)
        return self._epochs[position - 1] if position else -1

    cpdef int truncate_to(self, int64_t end_offset) except -1:
        """Forget the epochs that start at or after ``end_offset``."""
        if end_offset <= 0:
            self._count = 0
        else:
            self._count = self._offset_position(end_offset - 1)
        return 0

    cpdef int truncate_from_start(self, int64_t start_offset) except -1:
        """Forget the epochs that end at or before ``start_offset``.

        The one that reaches across it starts there from now on.
        """
        cdef Py_ssize_t position = self._offset_position(start_offset)
        cdef Py_ssize_t i
        if position == 0:
            return 0
        self._starts[position - 1] = start_offset
        for i in range(position - 1, self._count):
            self._epochs[i - position + 1] = self._epochs[i]
            self._starts[i - position + 1] = self._starts[i]
        self._count -= position - 1
        return 0

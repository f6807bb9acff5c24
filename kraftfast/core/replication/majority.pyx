"""Which offset a majority has reached: the arithmetic of the high watermark.

The same function serves the leader and the benchmark of the kernel; ``tests/core`` holds the
plain-Python oracle. Offsets are exclusive ends, -1 stands for a voter whose end is unknown.
"""

from libc.stdint cimport int64_t

from kraftfast import limits

cdef int VOTERS_MAX = 64
cdef int64_t OFFSET_MAX = 2**63 - 1

assert limits.VOTERS_MAX == VOTERS_MAX


cdef int64_t reached_by(const int64_t* offsets, int count, int needed) noexcept nogil:
    """Return the largest offset that at least ``needed`` of ``count`` have reached.

    OFFSET_MAX if none are needed; -1 if more are needed than there are.
    """
    cdef int64_t found[64]
    cdef int first = 0
    cdef int last = count - 1
    cdef int i, j
    cdef int64_t pivot
    if needed <= 0:
        return OFFSET_MAX
    if needed > count:
        return -1
    for i in range(count):
        found[i] = offsets[i]
    while first < last:  # Hoare's FIND: only the part that holds place needed - 1 is sorted on
        pivot = found[(first + last) // 2]
        i, j = first, last
        while i <= j:
            while found[i] > pivot:
                i += 1
            while found[j] < pivot:
                j -= 1
            if i <= j:
                found[i], found[j] = found[j], found[i]
                i += 1
                j -= 1
        if needed - 1 <= j:
            last = j
        elif needed - 1 >= i:
            first = i
        else:
            break
    return found[needed - 1]


cdef class Acknowledged:
    """How far each voter of the set in force is known to hold the log on disk (D3, D16).

    Invariants: -1 or an offset per voter, at most 64 voters. The leader's own entry, if it is a
    voter, is its flushed end (D1, I12).
    """

    def __init__(self, voter_ids):
        self.voter_ids = tuple(sorted(voter_ids))
        if len(self.voter_ids) > VOTERS_MAX or len(set(self.voter_ids)) != len(self.voter_ids):
            raise ValueError(f"not a set of at most {VOTERS_MAX} voters: {self.voter_ids}")
        self._count = len(self.voter_ids)
        cdef int i
        for i in range(self._count):
            self._offsets[i] = -1

    cpdef int slot(self, int voter_id) except -2:
        """Return the place of a voter, -1 for a replica that is none."""
        cdef int i
        for i in range(self._count):
            if <int>self.voter_ids[i] == voter_id:
                return i
        return -1

    cpdef int put(self, int slot, int64_t offset) except -1:
        """Record how far a voter is. Lower than before is allowed: it may have lost its log."""
        if not 0 <= slot < self._count:
            raise IndexError(f"no voter has slot {slot}")
        self._offsets[slot] = offset
        return 0

    cpdef int64_t get(self, int slot) except? -2:
        """Return the acknowledged end of a voter, -1 if unknown."""
        if not 0 <= slot < self._count:
            raise IndexError(f"no voter has slot {slot}")
        return self._offsets[slot]

    cpdef int64_t by_majority(self) noexcept:
        """Return the largest offset that more than half of the voters have reached."""
        return reached_by(self._offsets, self._count, self._count // 2 + 1)

    cpdef int64_t by_all(self) noexcept:
        """Return the offset that every voter has reached."""
        return reached_by(self._offsets, self._count, self._count)

    cpdef int64_t by_others(self, int slot, int needed) noexcept:
        """Return the largest offset that ``needed`` voters other than ``slot`` have reached."""
        cdef int64_t others[64]
        cdef int count = 0
        cdef int i
        for i in range(self._count):
            if i != slot:
                others[count] = self._offsets[i]
                count += 1
        return reached_by(others, count, needed)

    def __len__(self):
        return self._count

    def __repr__(self):
        pairs = ", ".join([f"{id}: {self._offsets[i]}" for i, id in enumerate(self.voter_ids)])
        return f"Acknowledged({{{pairs}}})"

"""The segment nursery: files are made ahead of the log's end, so that appends never allocate.

A C thread does the work (cext/nursery.h); the policy here says what next: blocks for the end, the
file of the next segment, and zeros or pages ahead of a log that is slow enough to gain from them.
How far ahead grows with what arrives: a log that takes little costs little. A file that retention
freed is used again as it is (``log/used_again.pyx``).
ARCHITECTURE.md, "Where the bytes land".
"""

import errno
import os
import time

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from kraftfast.errors import DiskFull, FlushFailed, OutOfResources, StorageError
from kraftfast.limits import PAGE_BYTES, PREPARE_PIECE_BYTES
from kraftfast.log.segment_file import storage_failure
from kraftfast.log.spare import Spare, page_end
from kraftfast.log.segment cimport KF_KEY_MAX
from kraftfast.log.segment_file cimport SegmentFile


cdef extern from "nursery.h":
    ctypedef struct kf_doorbell_page:
        pass
    ctypedef struct kf_nursery:
        int fd
        uint8_t *map
        uint64_t start "from"
        uint64_t end "to"
        int what
        uint32_t piece
        int error
    int kf_nursery_start(kf_nursery *n, const kf_doorbell_page *doorbell, int doorbell_fd)
    void kf_nursery_ask(kf_nursery *n) nogil
    int kf_nursery_take(kf_nursery *n) nogil
    int kf_nursery_busy(const kf_nursery *n) nogil
    uint64_t kf_nursery_done(const kf_nursery *n) nogil
    uint64_t kf_nursery_flushes(const kf_nursery *n) nogil
    void kf_nursery_pause(kf_nursery *n, uint32_t pause_us) nogil
    void kf_nursery_cancel(kf_nursery *n) nogil
    void kf_nursery_halt(kf_nursery *n) nogil
    void kf_nursery_stop(kf_nursery *n) nogil

WORK = ("reserve", "zero", "populate", "sync", "cached")
"""As in cext/nursery.h."""
RECYCLED_MAX = 2  # so many freed files wait to be used again, however large they are
RECYCLED_BYTES = 256 * 1024 * 1024  # of more, at most: retention may free several at once
RETRY_MS = 500
"""After preparing failed, until it is tried again."""
GROWTH = 8
"""The stride is so many times what was appended since the start, until it is whole."""
ZERO_PAUSE_US = 2000
"""Between pieces of zeros: one-record commits beside them stay quick."""
POPULATE_BYTES = 4 * 1024 * 1024
"""Pages that are made at once: a cut of the file waits for them."""
PACE_MS = 200
"""How long the log is watched to tell its pace."""
AHEAD_PACE_MAX = 8 * 1024 * 1024
"""Bytes a second. Ahead of a slower log zeros are written, so that its flushes need no journal, or
pages are made, so that its stores cause no faults. A faster log would wait for that work."""


cdef class PreparerThread:
    """The C thread that prepares one range of a file at a time.

    ``doorbell`` and ``doorbell_fd`` are what it rings when a range is done.
    """

    cdef kf_nursery *thread
    cdef object file      # keeps the range's file mapped while the thread works on it

    def __init__(self, size_t doorbell, int doorbell_fd):
        self.thread = <kf_nursery *>calloc(1, sizeof(kf_nursery))
        if self.thread == NULL:
            raise MemoryError("nursery thread")
        if kf_nursery_start(self.thread, <const kf_doorbell_page *>doorbell, doorbell_fd):
            free(self.thread)
            self.thread = NULL
            raise OutOfResources("cannot start the nursery thread")
        kf_nursery_pause(self.thread, ZERO_PAUSE_US)

    def ask(self, SegmentFile file, str what, uint64_t start, uint64_t end):
        """Have one of ``WORK`` done with the file. One at a time."""
        assert self.thread != NULL and not self.busy()
        self.file = file
        self.thread.fd, self.thread.map = file.fd, file.base
        self.thread.start, self.thread.end = start, end
        self.thread.what, self.thread.piece = WORK.index(what), PREPARE_PIECE_BYTES
        kf_nursery_ask(self.thread)

    cpdef bint busy(self):
        return kf_nursery_busy(self.thread)

    def done(self) -> int:
        """Return how far the range at hand is done."""
        return kf_nursery_done(self.thread)

    def flushes(self) -> int:
        """Return how often the thread has synced a file."""
        return kf_nursery_flushes(self.thread) if self.thread != NULL else 0

    def take(self):
        """Return the errno of a range that ended (0: done, ECANCELED: given up), or None."""
        if not kf_nursery_take(self.thread):
            return None
        self.file = None
        return self.thread.error

    def halt(self):
        """Give up the range at hand: no zeros are written from now on, though it may end later."""
        with nogil:
            kf_nursery_halt(self.thread)

    def cancel(self):
        """Give up the range at hand and wait until the thread has let go of its file."""
        if self.file is None:
            return
        kf_nursery_cancel(self.thread)
        while self.busy():  # it ends after the piece at hand
            time.sleep(0.0005)
        self.take()

    def close(self):
        if self.thread != NULL:
            with nogil:
                kf_nursery_stop(self.thread)
            free(self.thread)
            self.thread = NULL
            self.file = None

    def __dealloc__(self):
        self.close()


class Nursery:
    """What is prepared next, and the spare file that becomes the next segment."""

    # disk, path: where spare files lie. preparer: a PreparerThread, or the simulator's.
    # segment_bytes: where segments roll. capacity: bytes of batches a file has room for; a batch
    # larger than segment_bytes stands alone. stride_max: how far ahead of the end it works under
    # load. first: how far at the start, bytes. appended: bytes since then, as tend was told.
    # spare: a Spare, or None. wanted_bytes: what an append waits for. spare_wanted: a roll does.
    # error: why preparing failed last; None once it goes on. retry_at_ms: not before.
    # recycled: (file, whether it has its page) of segments that retention freed and that wait to be
    # used again, locked against others.
    # pace: bytes a second that were appended lately.

    def __init__(self, disk, path, preparer, settings):
        self.disk, self.path, self.preparer, self.how = disk, path, preparer, settings.how
        self.segment_bytes, self.capacity = settings.segment_bytes, settings.capacity
        self.stride_max = min(settings.stride_bytes, self.capacity)
        self.first = min(self.stride_max, max(settings.prepare_bytes, PREPARE_PIECE_BYTES))
        self.appended = self.pace = 0
        self.spare = None
        self.wanted_bytes, self.spare_wanted = 0, False
        self.recycled = []
        self.error = None
        self.retry_at_ms = 0
        self._working_on = self._work = None  # the Segment or Spare at hand, and what is done to it
        self._paced = 0, 0  # bytes appended at a time, in ms
        self._serial = 0

    def open(self):
        """Drop what an earlier process left half done."""
        self.disk.make_directory(self.path)
        for name in self.disk.list_directory(self.path):
            self.disk.unlink(os.path.join(self.path, name))

    @property
    def stride(self) -> int:
        """How far ahead of the end to work now."""
        return min(self.stride_max, max(self.first, GROWTH * self.appended))

    def tend(self, active, appended, now_ms):
        """Record progress and ask for the next range. True while a range is being worked on.

        ``appended``: bytes that the log took since it was opened. Raises FlushFailed for an I/O
        error, which is final (D9).
        """
        self._note_pace(appended, now_ms)
        if self._working_on is not None:
            self._note_progress(active, now_ms)
        if active.prepared - active.position >= self.wanted_bytes:
            self.wanted_bytes = 0
        if self._working_on is None and now_ms >= self.retry_at_ms:
            try:
                self._ask_next(active)
            except FlushFailed:
                raise
            except StorageError as error:  # no space, no descriptors: refuse work, and go on later
                self.note_error(error, now_ms)
        return self._working_on is not None

    @property
    def is_busy(self) -> bool:
        """Whether the log takes so much that it would wait for work that is not for it."""
        return self.pace > AHEAD_PACE_MAX

    @property
    def flushes(self) -> int:
        """How often files were synced while they were prepared."""
        return self.preparer.flushes()

    def make_way(self, active):
        """Stop writing zeros ahead where an append needs the room."""
        if self._working_on is active and self._work == "zero":
            self.preparer.halt()
            self._note_zeros(active)
            self._work = "given up"
        active.hold_back(active.reserved)

    def take_spare(self):
        """Return the next segment's file; None if it is not ready: it is made first of all then."""
        if self.spare is None or self.spare.stage != Spare.READY:
            self.spare_wanted = True
            return None
        if self._working_on is self.spare:  # zeros ahead
            self.preparer.halt()
            self._work = "given up"
        spare, self.spare, self.spare_wanted = self.spare, None, False
        return spare

    def spare_now(self):
        """Return the next segment's file, prepared here if it is not ready. Raises DiskFull."""
        if self.spare is None:
            self._make_spare()
        self.release(self.spare)
        self.spare.finish()
        return self.take_spare()

    def prepare_now(self, segment, ahead):
        """Prepare ``ahead`` bytes beyond the end (and the spare) before going on; for start-up.

        What was prepared earlier is reserved again: a power cut may have taken it, and where a full
        disk does not give it back, appends have to wait. Raises DiskFull.
        """
        try:
            segment.file.reserve(segment.position, segment.reserved)
        except DiskFull:
            segment.note_reserved(segment.position)
            raise
        limit = min(segment.capacity, page_end(max(self.segment_bytes, segment.position)))
        end = min(limit, page_end(segment.position + max(ahead, self.stride)))
        if segment.used and segment.reserved == segment.capacity:
            end = segment.capacity
        segment.file.reserve(max(segment.position, segment.reserved), end)
        segment.note_reserved(end, segment.capacity if segment.used else 0)
        if segment.zeroed < end:
            segment.file.prepare(segment.position, end, self.how)
            segment.zeroed = end
        left = ahead - (min(segment.prepared, limit) - segment.position)
        if left > 0:
            if self.spare is None:
                self._make_spare()
            self.spare.prepare_up_to(min(self.segment_bytes, max(left, self.stride)), self.how)

    def release(self, what):
        """Let go of a segment (or spare) that is to be trimmed, cut, removed or finished here.

        Its file counts: what is written ahead in a spare goes on for a while when it is a segment.
        """
        at_hand = self._working_on
        if at_hand is not None and what is not None and at_hand.file is what.file:
            self.preparer.cancel()
            if self._work == "zero" and what is not self.spare:
                what.hold_back(what.reserved)
            self._working_on = None

    def takes(self, file) -> bool:
        """Return whether a freed segment's file may wait to be used again: it keeps its size."""
        sizes = [max(each.size, self.capacity) for each, _ in self.recycled]
        if len(sizes) < RECYCLED_MAX:
            return True
        return sum(sizes) + max(file.size, self.capacity) <= RECYCLED_BYTES

    def recycle(self, segment):
        """Take in a freed segment's file that no process maps: it keeps its blocks.

        Raises StorageError.
        """
        self._serial += 1
        segment.file.rename(self.disk, os.path.join(self.path, f"recycled-{self._serial}"))
        paged = segment.has_page and segment.capacity == self.capacity
        self.recycled.append((segment.file, paged))

    def close(self):
        """Stop the thread; give up spare files."""
        self.preparer.close()
        self._working_on = None
        if self.spare is not None:
            self._drop(self.spare.file)
            self.spare = None
        self._drop_recycled()

    def _drop(self, file):
        file.close()
        self.disk.unlink(file.path)

    def _drop_recycled(self):
        while self.recycled:
            self._drop(self.recycled.pop()[0])

    def _note_pace(self, appended, now_ms):
        self.appended = appended
        before, since_ms = self._paced
        if now_ms - since_ms >= PACE_MS:
            self.pace = (appended - before) * 1000 // (now_ms - since_ms) if since_ms else 0
            self._paced = appended, now_ms

    def _note_zeros(self, what):
        """Record up to where the zeros at hand have come: appends may follow there."""
        what.zeroed = max(what.zeroed, self.preparer.done())

    def _note_progress(self, active, now_ms):
        what, work = self._working_on, self._work
        if work == "zero" and what is active:
            self._note_zeros(active)
            active.hold_back(active.zeroed)
        code = self.preparer.take()
        if code is None:
            return
        self._working_on = None
        if what is active:
            active.hold_back(active.reserved)
        if code in (errno.ECANCELED, 0) and work == "given up":
            return
        if code:
            error = storage_failure("cannot prepare the log in", self.path, code)
            if code == errno.EIO:  # D9: the log's own pages may be among those that failed
                raise FlushFailed(str(error))
            if what is self.spare and work == "sync":  # another one would find nothing to write
                self._drop(what.file)
                self.spare = None
            self.note_error(error, now_ms)
            return
        if what is self.spare:
            if what.stage == Spare.READY:
                self._note_zeros(what)
            else:
                what.advance(self.preparer.done())
        elif what is active and work == "reserve":
            active.note_reserved(self.preparer.done())
        elif what is active and work == "populate":
            active.zeroed = max(active.zeroed, self.preparer.done())
        self.error = None

    def put_back(self, spare, error, now_ms):
        """Take back a spare that could not become a segment; it is tried again later."""
        assert self.spare is None
        self.spare = spare
        self.note_error(error, now_ms)

    def note_error(self, error, now_ms):
        """Try again later; on a full disk files that only wait to be used make room first."""
        self.error, self.retry_at_ms = error, now_ms + RETRY_MS
        if self.make_way_for(error):
            self.retry_at_ms = now_ms

    def make_way_for(self, error) -> bool:
        """Give the blocks of files that wait to be used again back if ``error`` is of a full disk.

        Whatever met it on this disk: they wait for a log that may take nothing before a snapshot,
        an index or an epoch has found room. Return whether there were any.
        """
        if not isinstance(error, DiskFull) or not self.recycled:
            return False
        self._drop_recycled()
        return True

    def give_up_spare(self, now_ms) -> bool:
        """Give the blocks of the spare back to a full disk; it is made again later."""
        if self.spare is None:
            return False
        self.release(self.spare)
        file, self.spare = self.spare.file, None
        self._drop(file)
        self.retry_at_ms = now_ms + RETRY_MS
        return True

    def _ask_next(self, active):
        """Ask for room first, then the next file, then what makes flushes or stores quick."""
        head, stride = active.position, self.stride
        assert head <= active.prepared, "nothing stands where zeros are written"
        limit = min(active.capacity, page_end(max(self.segment_bytes, head + self.wanted_bytes)))
        room = active.reserved - head
        if active.reserved < limit and room < max(stride // 2, self.wanted_bytes):
            end = head + max(stride, self.wanted_bytes, PREPARE_PIECE_BYTES)
            self._ask(active, active.file, "reserve", active.reserved, min(limit, page_end(end)))
            return
        early = self.segment_bytes // 2 if stride == self.stride_max else 0
        near_end = self.segment_bytes < head + max(2 * stride, early)
        if near_end or self.spare_wanted:
            if self.spare is None:
                self._make_spare()
            if self.spare.stage != Spare.READY:
                self._ask(self.spare, self.spare.file, *self.spare.next_work())
                return
        if self.is_busy:
            return
        start, end = self._ahead(active, head, stride)
        if self.how == "mapped":
            if start < end:
                self._ask(active, active.file, "populate", start, min(end, start + POPULATE_BYTES))
        elif start < end:
            active.hold_back(start)
            self._ask(active, active.file, "zero", start, end)
        elif near_end and self.spare is not None:
            start, end = self._ahead(self.spare, 0, stride)
            if start < end:
                self._ask(self.spare, self.spare.file, "zero", start, end)

    def _ahead(self, what, head, stride):
        """Return the next range ahead of the end that needs blocks written, or pages made."""
        start = max(what.zeroed, -(-head // PREPARE_PIECE_BYTES) * PREPARE_PIECE_BYTES)
        return start, start if start - head >= stride // 2 else min(what.reserved, head + stride)

    def _ask(self, what, file, work, start, end):
        self._working_on, self._work = what, work
        self.preparer.ask(file, work, start, end)

    def _make_spare(self):
        key, used, paged = 0, bool(self.recycled), False
        if used or self.how == "mapped":  # with a key from its first life on it needs no sync later
            key = self.disk.secret(KF_KEY_MAX)
        if used:
            file, paged = self.recycled[0]
            file.resize(self.capacity + PAGE_BYTES)
            self.recycled.pop(0)
        else:
            self._serial += 1
            path = os.path.join(self.path, f"spare-{self._serial}")
            file = self.disk.create_segment(path, self.capacity + PAGE_BYTES)
        generation = self.disk.new_generation()
        self.spare = Spare(
            file, self.capacity, self.stride, generation, self.how, key, used, paged)

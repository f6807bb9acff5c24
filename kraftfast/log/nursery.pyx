"""The segment nursery: files are written ahead of the log's head, so that appends never allocate.

A C thread does the work (cext/nursery.h); the policy here says what next: first keep the active
segment prepared a stride ahead of its head, then have the first stride of the next segment ready.
design.md, "Where the bytes land".
"""

import os
import time

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from kraftfast.errors import DiskFull, StorageError
from kraftfast.limits import PAGE_BYTES, PREPARE_PIECE_BYTES
from kraftfast.log.segment_file cimport SegmentFile


cdef extern from "nursery.h":
    ctypedef struct kf_doorbell_page:
        pass
    ctypedef struct kf_nursery:
        int fd
        uint8_t *map
        uint64_t start "from"
        uint64_t end "to"
        int how
        uint32_t piece
        int error
    enum:
        KF_PREPARE_WRITE
        KF_PREPARE_MAPPED
    int kf_nursery_start(kf_nursery *n, const kf_doorbell_page *doorbell, int doorbell_fd)
    void kf_nursery_ask(kf_nursery *n) nogil
    int kf_nursery_take(kf_nursery *n) nogil
    int kf_nursery_busy(const kf_nursery *n) nogil
    uint64_t kf_nursery_done(const kf_nursery *n) nogil
    void kf_nursery_want(kf_nursery *n, uint64_t upto) nogil
    void kf_nursery_pause(kf_nursery *n, uint32_t pause_us) nogil
    void kf_nursery_cancel(kf_nursery *n) nogil
    void kf_nursery_stop(kf_nursery *n) nogil

LEISURE_PAUSE_US = 2000
"""Between pieces while the log is far behind: one-record commits beside it stay quick."""


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
            raise StorageError("cannot start the nursery thread")

    def ask(self, SegmentFile file, uint64_t start, uint64_t end, str how):
        """Prepare [start, end) of the file. One at a time."""
        assert not self.busy()
        self.file = file
        self.thread.fd, self.thread.map = file.fd, file.base
        self.thread.start, self.thread.end = start, end
        self.thread.how = KF_PREPARE_MAPPED if how == "mapped" else KF_PREPARE_WRITE
        self.thread.piece = PREPARE_PIECE_BYTES
        kf_nursery_ask(self.thread)

    cpdef bint busy(self):
        return kf_nursery_busy(self.thread)

    def done(self) -> int:
        """How far the range at hand is prepared and flushed."""
        return kf_nursery_done(self.thread)

    def take(self):
        """The errno of a range that ended (0: prepared), or None if none has."""
        if not kf_nursery_take(self.thread):
            return None
        self.file = None
        return self.thread.error

    def pause(self, uint32_t pause_us):
        """How long to wait after each piece, from now on."""
        kf_nursery_pause(self.thread, pause_us)

    def want(self, uint64_t upto):
        """Ring the doorbell as soon as the range at hand is prepared up to here."""
        kf_nursery_want(self.thread, upto)

    def cancel(self):
        """Give up the range at hand and wait until the thread has let go of its file."""
        if self.file is None:
            return
        kf_nursery_cancel(self.thread)
        while self.busy():  # it ends after the piece at hand: a flush of 4 MiB at most
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
    # capacity: bytes of batches a segment may hold. stride: how far ahead of the head it works.
    # spare, spare_prepared: the next segment's file, and how much of it is ready.
    # error: the last DiskFull; cleared when preparing goes on. retry_at_ms: not before.
    # recycled: files that retention freed, waiting to be zeroed and used again.

    def __init__(self, disk, path, preparer, capacity, stride, how):
        self.disk, self.path, self.preparer = disk, path, preparer
        self.capacity, self.stride, self.how = capacity, min(stride, capacity), how
        self.spare = None
        self.spare_prepared = 0
        self.recycled = []
        self.error = None
        self.retry_at_ms = 0
        self._working_on = None  # the Segment or the spare's SegmentFile of the range at hand
        self._serial = 0

    def open(self):
        """Drop what an earlier process left half done."""
        self.disk.make_directory(self.path)
        for name in self.disk.list_directory(self.path):
            self.disk.unlink(os.path.join(self.path, name))

    def tend(self, active, now_ms):
        """Note progress and ask for the next range. Returns True while a range is being worked on."""
        if self._working_on is not None:
            self._note_progress(active, now_ms)
        if self._working_on is None and now_ms >= self.retry_at_ms:
            self._ask_next(active)
        if self._working_on is not None:
            ahead = active.prepared - active.position
            hurry = ahead < self.stride // 4 and active.prepared < active.capacity
            self.preparer.pause(0 if hurry or self._spare_is_late(active) else LEISURE_PAUSE_US)
        return self._working_on is not None

    def take_spare(self):
        """The next segment's file and how much of it is prepared, or None if it is not ready."""
        if self.spare is None or self.spare_prepared < self.stride or self._working_on is self.spare:
            return None
        spare, prepared = self.spare, self.spare_prepared
        self.spare, self.spare_prepared = None, 0
        return spare, prepared

    def prepare_now(self, segment, ahead):
        """Prepare ``ahead`` bytes beyond the head (and the spare) before going on; for start-up."""
        end = min(segment.capacity, segment.position + max(ahead, self.stride))
        if segment.prepared < end:
            segment.file.prepare(segment.prepared, end, self.how)
            segment.note_prepared(end)
        left = ahead - (segment.prepared - segment.position)
        if left > 0 and self.spare is None:
            self._make_spare()
        if self.spare is not None:
            end = min(self.capacity, max(left, self.stride))
            if self.spare_prepared < end:
                self.spare.prepare(self.spare_prepared, end, self.how)
                self.spare_prepared = end

    def release(self, what):
        """Let go of a segment (or file) that is to be trimmed, cut or removed."""
        if self._working_on is what:
            self.preparer.cancel()
            self._working_on = None

    def recycle(self, file):
        """Take in a segment file that retention freed and that nobody maps; it keeps its blocks."""
        self._serial += 1
        file.rename(os.path.join(self.path, f"recycled-{self._serial}"))
        self.recycled.append(file)

    def close(self):
        """Stop the thread; give up spare files."""
        self.preparer.close()
        for file in [*self.recycled, *([self.spare] if self.spare is not None else [])]:
            file.close()
            self.disk.unlink(file.path)
        self.spare, self.recycled = None, []

    def _spare_is_late(self, active):
        near_end = active.capacity - active.position < self.stride // 2
        return near_end and self.spare_prepared < self.stride

    def _note_progress(self, active, now_ms):
        done = self.preparer.done()
        if self._working_on is self.spare:
            self.spare_prepared = max(self.spare_prepared, done)
        elif self._working_on is active and done > active.prepared:
            active.note_prepared(done)
        error = self.preparer.take()
        if error is None:
            return
        self._working_on = None
        if error:
            text = f"no space left to prepare the log in {self.path}: {os.strerror(error)}"
            self.error, self.retry_at_ms = DiskFull(text), now_ms + 500
        else:
            self.error = None

    def _ask_next(self, active):
        head, prepared = active.position, active.prepared
        if prepared < active.capacity and prepared - head < self.stride // 2:
            end = min(active.capacity, head + self.stride)
            self._ask(active, active.file, prepared, max(end, min(prepared + PREPARE_PIECE_BYTES, active.capacity)))
        elif active.capacity - head < max(2 * self.stride, active.capacity // 2):
            if self.spare is None:
                try:
                    self._make_spare()
                except DiskFull as error:
                    self.error = error
                    return
            if self.spare_prepared < self.stride:
                self._ask(self.spare, self.spare, self.spare_prepared, self.stride)

    def _ask(self, what, file, start, end):
        self._working_on = what
        self.preparer.ask(file, start, end, self.how)

    def _make_spare(self):
        if self.recycled:
            self.spare = self.recycled.pop(0)
            self.spare.resize(self.capacity + PAGE_BYTES)
        else:
            self._serial += 1
            path = os.path.join(self.path, f"spare-{self._serial}")
            self.spare = self.disk.create_segment(path, self.capacity + PAGE_BYTES)
        self.spare_prepared = 0

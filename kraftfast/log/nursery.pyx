"""The segment nursery: files are written ahead of the log's head, so that appends never allocate.

A C thread does the work (cext/nursery.h); the policy here says what next: first keep the active
segment prepared a stride ahead of its head, then have the first stride of the next segment ready.
A stride is short at first and grows with what arrives: a log that takes little costs little.
ARCHITECTURE.md, "Where the bytes land".
"""

import errno
import os
import time

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from kraftfast.errors import DiskFull, FlushFailed, StorageError
from kraftfast.limits import PAGE_BYTES, PREPARE_PIECE_BYTES
from kraftfast.log.segment_file import storage_failure
from kraftfast.log.segment cimport Segment
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
    uint64_t kf_nursery_flushes(const kf_nursery *n) nogil
    void kf_nursery_want(kf_nursery *n, uint64_t upto) nogil
    void kf_nursery_pause(kf_nursery *n, uint32_t pause_us) nogil
    void kf_nursery_cancel(kf_nursery *n) nogil
    void kf_nursery_stop(kf_nursery *n) nogil

LEISURE_PAUSE_US = 2000
"""Between pieces while the log is far behind: one-record commits beside it stay quick."""
RETRY_MS = 500
"""After preparing failed, until it is tried again."""
GROWTH = 8
"""The stride is so many times what was appended since the start, until it is whole."""


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
        assert self.thread != NULL and not self.busy()
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

    def flushes(self) -> int:
        """How often the thread has synced a file."""
        return kf_nursery_flushes(self.thread) if self.thread != NULL else 0

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


class Spare:
    """The next segment's file on its way: its last page first, then its first stride.

    The page is on disk before its magic is stored, and the magic before the file gets a segment's
    name: so a file among the segments that has no page was trimmed, or is Kafka's (D10).
    """

    # file: a SegmentFile in the nursery. prepared: bytes from the start that may be stored into.
    # stage: which of the three ranges is next; 3 when it is ready.

    PAGE, FIRST, REST, READY = range(4)

    def __init__(self, file, capacity, stride, generation):
        self.file, self.capacity, self.stride = file, capacity, stride
        self.generation = generation
        self.prepared = 0
        self.stage = Spare.PAGE

    def next_range(self):
        """(start, end) of what has to be prepared next."""
        if self.stage == Spare.PAGE:
            return self.capacity, self.capacity + PAGE_BYTES
        return self.prepared, self.stride // 2 if self.stage == Spare.FIRST else self.stride

    def advance(self):
        """The range is prepared and flushed, and with it what was stored into the page before."""
        cdef Segment segment
        self.prepared = 0 if self.stage == Spare.PAGE else self.next_range()[1]
        if self.stage == Spare.PAGE:
            segment = Segment(self.file, 0, self.capacity)
            segment.draft_page(0, 0, self.generation)
        elif self.stage == Spare.FIRST:
            segment = Segment(self.file, 0, self.capacity)
            segment.seal_page()
        self.stage += 1

    def finish(self, how):
        """Prepare what is left, now. Raises DiskFull."""
        while self.stage != Spare.READY:
            self.file.prepare(*self.next_range(), how)
            self.advance()

    def prepare_up_to(self, end, how):
        """More than the first stride, for start-up."""
        self.finish(how)
        self.file.prepare(self.prepared, end, how)
        self.prepared = max(self.prepared, end)


class Nursery:
    """What is prepared next, and the spare file that becomes the next segment."""

    # disk, path: where spare files lie. preparer: a PreparerThread, or the simulator's.
    # segment_bytes: where segments roll. capacity: bytes of batches a file has room for; a batch
    # larger than segment_bytes stands alone. stride_max: how far ahead of the head it works under
    # load. first: how far at the start, bytes. appended: bytes since then, as tend was told.
    # spare: a Spare, or None. wanted_bytes: what an append waits for. spare_wanted: a roll does.
    # error: why preparing failed last; None once it goes on. retry_at_ms: not before.
    # recycled: files that retention freed, locked against others, to be zeroed and used again.

    def __init__(self, disk, path, preparer, settings):
        self.disk, self.path, self.preparer, self.how = disk, path, preparer, settings.how
        self.segment_bytes, self.capacity = settings.segment_bytes, settings.capacity
        self.stride_max = min(settings.stride_bytes, self.capacity)
        self.first = min(self.stride_max, max(settings.prepare_bytes, PREPARE_PIECE_BYTES))
        self.appended = 0
        self.spare = None
        self.wanted_bytes, self.spare_wanted = 0, False
        self.recycled = []
        self.error = None
        self.retry_at_ms = 0
        self._working_on = None  # the Segment or the Spare of the range at hand
        self._serial = 0

    def open(self):
        """Drop what an earlier process left half done."""
        self.disk.make_directory(self.path)
        for name in self.disk.list_directory(self.path):
            self.disk.unlink(os.path.join(self.path, name))

    @property
    def stride(self) -> int:
        """How far ahead of the head to work now."""
        return min(self.stride_max, max(self.first, GROWTH * self.appended))

    def tend(self, active, appended, now_ms):
        """Note progress and ask for the next range. True while a range is being worked on.

        ``appended``: bytes that the log took since it was opened. Raises FlushFailed for an I/O
        error, which is final (D9).
        """
        self.appended = appended
        if self._working_on is not None:
            self._note_progress(active, now_ms)
        ahead = active.prepared - active.position
        if ahead >= self.wanted_bytes:
            self.wanted_bytes = 0
        if self._working_on is None and now_ms >= self.retry_at_ms:
            try:
                self._ask_next(active)
            except FlushFailed:
                raise
            except StorageError as error:  # no space, no descriptors: refuse work, and go on later
                self.note_error(error, now_ms)
        if self._working_on is not None:
            hurry = ahead < self.stride // 4 and active.prepared < active.capacity
            self.preparer.pause(0 if hurry or self._spare_is_late(active) else LEISURE_PAUSE_US)
        return self._working_on is not None

    @property
    def flushes(self) -> int:
        """How often files were synced while they were prepared."""
        return self.preparer.flushes()

    def take_spare(self):
        """The next segment's file, or None if it is not ready: then it is made first of all."""
        if self.spare is None or self.spare.stage != Spare.READY:
            self.spare_wanted = True
            return None
        spare, self.spare, self.spare_wanted = self.spare, None, False
        return spare

    def spare_now(self):
        """The next segment's file, prepared here if it is not ready. Raises DiskFull."""
        if self.spare is None:
            self._make_spare()
        self.release(self.spare)
        self.spare.finish(self.how)
        return self.take_spare()

    def prepare_now(self, segment, ahead):
        """Prepare ``ahead`` bytes beyond the head (and the spare) before going on; for start-up."""
        limit = min(segment.capacity, max(self.segment_bytes, segment.position))
        end = min(limit, segment.position + max(ahead, self.stride))
        if segment.prepared < end:
            segment.file.prepare(segment.prepared, end, self.how)
            segment.note_prepared(end)
        left = ahead - (min(segment.prepared, limit) - segment.position)
        if left > 0:
            if self.spare is None:
                self._make_spare()
            self.spare.prepare_up_to(min(self.segment_bytes, max(left, self.stride)), self.how)

    def release(self, what):
        """Let go of a segment (or spare) that is to be trimmed, cut, removed or finished here."""
        if self._working_on is what and what is not None:
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
        self._working_on = None
        for file in [*self.recycled, *([self.spare.file] if self.spare is not None else [])]:
            file.close()
            self.disk.unlink(file.path)
        self.spare, self.recycled = None, []

    def _spare_is_late(self, active):
        near_end = self.segment_bytes < active.position + self.stride // 2
        return (near_end or self.spare_wanted) and self._working_on is self.spare

    def _note_progress(self, active, now_ms):
        if self._working_on is active:
            done = self.preparer.done()
            if done > active.prepared:
                active.note_prepared(done)
        code = self.preparer.take()
        if code is None:
            return
        done_with, self._working_on = self._working_on, None
        if code:
            error = storage_failure("cannot prepare the log in", self.path, code)
            if code == errno.EIO:  # D9: the log's own pages may be among those that failed
                raise FlushFailed(str(error))
            self.note_error(error, now_ms)
            return
        if done_with is self.spare:
            self.spare.advance()
        self.error = None

    def put_back(self, spare, error, now_ms):
        """Take back a spare that could not become a segment; it is tried again later."""
        assert self.spare is None
        self.spare = spare
        self.note_error(error, now_ms)

    def note_error(self, error, now_ms):
        """Try again later; on a full disk files that only wait to be used make room first."""
        self.error, self.retry_at_ms = error, now_ms + RETRY_MS
        if isinstance(error, DiskFull) and self.recycled:
            for file in self.recycled:
                file.close()
                self.disk.unlink(file.path)
            self.recycled = []
            self.retry_at_ms = now_ms

    def give_up_spare(self, now_ms) -> bool:
        """Give the blocks of the spare back to a full disk; it is made again later."""
        if self.spare is None:
            return False
        self.release(self.spare)
        file, self.spare = self.spare.file, None
        file.close()
        self.disk.unlink(file.path)
        self.retry_at_ms = now_ms + RETRY_MS
        return True

    def _ask_next(self, active):
        head, prepared, stride = active.position, active.prepared, self.stride
        assert head <= prepared, "what is prepared is zeroed: never under batches"
        limit = min(active.capacity, max(self.segment_bytes, head + self.wanted_bytes))
        if prepared < limit and prepared - head < max(stride // 2, self.wanted_bytes):
            end = max(head + max(stride, self.wanted_bytes), prepared + PREPARE_PIECE_BYTES)
            self._ask(active, active.file, prepared, min(limit, end))
            return
        early = self.segment_bytes // 2 if stride == self.stride_max else 0
        near_end = self.segment_bytes < head + max(2 * stride, early)
        if not near_end and not self.spare_wanted:
            return
        if self.spare is None:
            self._make_spare()
        if self.spare.stage != Spare.READY:
            self._ask(self.spare, self.spare.file, *self.spare.next_range())

    def _ask(self, what, file, start, end):
        self._working_on = what
        self.preparer.ask(file, start, end, self.how)

    def _make_spare(self):
        generation = 1
        if self.recycled:
            file = self.recycled[0]
            generation += Segment(file, 0, max(file.size, PAGE_BYTES) - PAGE_BYTES).generation()
            file.resize(self.capacity + PAGE_BYTES)
            self.recycled.pop(0)
        else:
            self._serial += 1
            path = os.path.join(self.path, f"spare-{self._serial}")
            file = self.disk.create_segment(path, self.capacity + PAGE_BYTES)
        self.spare = Spare(file, self.capacity, self.stride, generation)

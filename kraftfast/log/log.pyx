"""The log of one replica.

Batches come in two ways: a leader stamps what a producer encoded (:meth:`Log.append_batch`), a
follower copies what its leader has (:meth:`Log.copy_fetched`). Both read the source once, check
the CRC on the way and store the header last (D20). What is on disk is known by
``flushed_end_offset`` alone, and only a flush that began after the bytes were there moves it (D1).
"""

import os
from bisect import bisect_right

from libc.errno cimport ENOENT
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kraftfast.errors import DiskFull, FlushFailed, RecordTooLarge
from kraftfast.log import cutting, trimming
from kraftfast.log.segment import LOG_SUFFIX, segment_name
from kraftfast.log.small_files import epoch_checkpoint
from kraftfast.record.shapes import FAULT_TEXTS
from kraftfast.buffer cimport Hold, hold
from kraftfast.log.idempotence.producers cimport Producers
from kraftfast.log.segment cimport *
from kraftfast.record.judge cimport *

CLOSE_WAIT_S = 0.5  # a close waits that long for processes that still map the last segment

cdef enum:
    RELATIVE_OFFSET_ROLL = RELATIVE_OFFSET_MAX - KF_BATCH_RECORDS_MAX  # one more batch fits


def install_guard():
    """Survive a SIGBUS inside copies that this extension makes from others' files (R10)."""
    if kf_guard_install():
        raise OSError("cannot handle SIGBUS")


cdef inline int changed(const uint8_t *page, uint64_t generation) noexcept nogil:
    """Return the fault of a segment that its owner cut or reused since ``generation`` (D20)."""
    cdef uint64_t now
    if kf_guarded_generation(&now, page):
        return KF_BATCH_UNREADABLE
    return KF_BATCH_OK if now == generation else KF_BATCH_STALE


cdef class Log:
    """The log over already recovered segments (``recovery.open_log`` makes it).

    Invariants: segments are contiguous, the first begins at or before ``log_start_offset``;
    ``log_start_offset <= flushed_end_offset <= end_offset``; ``epochs`` rises in both columns, from
    the first segment on, and its last entry is at or below ``end_offset``.
    """

    def __init__(self, disk, str path, nursery, list segments, list epochs, settings,
                 durable_end, start, Producers producers):
        self.disk, self.path, self.nursery = disk, path, nursery
        self.durable_end, self.producers = durable_end, producers
        self.segments, self.epochs = segments, epochs
        self.segment_bytes, self.segment_ms = settings.segment_bytes, settings.segment_ms
        self.active = segments[-1]
        self.log_start_offset, self.start_epoch = start
        self.end_offset, self.flushed_end_offset = self.active.end_offset, self.log_start_offset
        self.last_epoch = epochs[-1][0] if epochs else self.start_epoch
        self.checkpoint_path = os.path.join(path, epoch_checkpoint.NAME)
        self.directory_fd = disk.open_directory(path)
        self.trims, self.names_dirty = trimming.Trims(), True
        self.flush_target, self.flush_segments = -1, []
        self.writes = settings.how == "written"
        if kf_stage_open(&self.staged, KF_BATCH_BYTES_MAX):
            raise MemoryError("stage of the log")
        self.go_on_in(self.active)

    def __dealloc__(self):
        kf_stage_close(&self.staged, KF_BATCH_BYTES_MAX)

    # --- append -------------------------------------------------------------------------------

    cdef int make_room(self, uint32_t size, int64_t timestamp, int32_t epoch) except -1:
        """Return whether ``size`` bytes may be stored at the end; roll if due, never allocate."""
        cdef Segment active = self.active
        cdef bint full, old
        if self.failed is not None:
            raise self.failed  # D9; what a failed write left may hold a header (D20)
        if epoch != self.last_epoch and self.now_ms < self.retry_ms:
            return 0  # the disk was full when that epoch was to begin
        if active.position:
            full = (active.position + size > self.segment_bytes
                    or active.position + size > active.capacity
                    or self.end_offset - active.base_offset > RELATIVE_OFFSET_ROLL)
            old = is_old(active, timestamp, self.segment_ms, self.now_ms - self.active_since_ms)
            if full or old:
                if self.roll():
                    active = self.active
                elif full:  # one that is only old goes on until the next one is ready
                    return 0
        if active.position + size <= active.prepared:
            return 1
        if active.position + size <= active.reserved:
            self.nursery.make_way(active)
            return 1
        if size > active.capacity:
            raise RecordTooLarge(f"{size} bytes do not fit a segment of {active.capacity}")
        self.nursery.wanted_bytes = size
        return 0

    cdef int append_batch(self, const uint8_t *source, size_t available, int32_t epoch,
                          bint control=False, bint unseen=False) except -1:
        """Append a producer's batch as leader of ``epoch``: 1 taken, 0 no room yet or refused.

        ``fault`` (KF_BATCH_RECORDS: of ``unseen`` records) and ``refusal`` tell why; without them
        the nursery is behind. What is refused by DUPLICATE_SEQUENCE_NUMBER is in the log already.
        """
        cdef uint8_t header[KF_BATCH_HEADER]
        cdef kf_batch_header h
        self.refusal = 0
        with nogil:
            self.fault = kf_batch_take_header(source, available, header, &h)
            if self.fault == KF_BATCH_OK and h.size != available:
                self.fault = KF_BATCH_LENGTH
            if self.fault == KF_BATCH_OK:  # control records are the leader's own
                self.fault = kf_batch_judge_append(&h, control, unseen)
        if self.fault == KF_BATCH_OK and h.producer_id != -1:
            self.refusal = self.producers.check(&h, epoch)
        if self.fault or self.refusal or not self.make_room(h.size, h.max_timestamp, epoch):
            return 0
        cdef uint8_t *dst = self.place(h.size)
        with nogil:
            self.fault = kf_batch_take_records(dst, source, header, &h, unseen)
        if self.fault != KF_BATCH_OK:
            self.active.reject(self.stage, h.size)
            self.scrub()
            return 0
        return self.accept(dst, header, &h, self.end_offset, epoch)

    def append(self, batch, int32_t epoch, bint control=False) -> bool:
        """Append a batch that this process holds. False: no room yet, or ``refusal`` says why.

        Raises ValueError for a batch that does not check, RecordTooLarge.
        """
        cdef Hold held = hold(batch)
        self.fault = KF_BATCH_INCOMPLETE
        if held.size and self.append_batch(held.data, held.size, epoch, control):
            return True
        if self.fault != KF_BATCH_OK:
            raise ValueError(f"not a batch for this log: {self.fault_text()}")
        return False

    cdef int64_t copy_fetched(self, const uint8_t *source, size_t available, int32_t epoch_max,
                              const uint8_t *page, uint64_t generation) except -1:
        """Append batches that a leader already stamped; returns how many bytes were taken.

        Stops, with ``fault`` set, at the first batch that does not check: framing, CRC, an offset
        that does not follow, an epoch below the log's last or above ``epoch_max`` (KAFKA-18723),
        a source that was cut or reused meanwhile (``page`` and ``generation`` of a reference).
        KF_BATCH_INCOMPLETE is the cut end of an answer, KF_BATCH_OK that room ran out or all is in.
        """
        cdef uint8_t header[KF_BATCH_HEADER]
        cdef kf_batch_header h
        cdef size_t taken = 0
        cdef uint8_t *dst
        self.fault = KF_BATCH_OK
        while taken < available:
            with nogil:
                self.fault = KF_BATCH_OK if page == NULL else changed(page, generation)
                if self.fault == KF_BATCH_OK:
                    self.fault = kf_batch_take_header(source + taken, available - taken, header, &h)
                if self.fault == KF_BATCH_OK:
                    if h.base_offset != self.end_offset:
                        self.fault = KF_BATCH_OFFSET
                    elif h.leader_epoch < self.last_epoch or h.leader_epoch > epoch_max:
                        self.fault = KF_BATCH_EPOCH
            if self.fault != KF_BATCH_OK:
                break
            if not self.make_room(h.size, h.max_timestamp, h.leader_epoch):
                break
            dst = self.place(h.size)
            with nogil:
                self.fault = kf_batch_take_body(dst, source + taken, header, &h)
                if self.fault == KF_BATCH_OK and page != NULL:
                    self.fault = changed(page, generation)
            if self.fault != KF_BATCH_OK:
                self.active.reject(self.stage, h.size)
                break
            if not self.accept(dst, header, &h, h.base_offset, h.leader_epoch):
                break
            taken += h.size
        if self.fault not in (KF_BATCH_OK, KF_BATCH_INCOMPLETE):
            self.scrub()
        return taken

    def copy(self, source, int32_t epoch_max) -> int:
        """Do as :meth:`copy_fetched` for bytes that came with an answer; returns bytes taken."""
        cdef Hold held = hold(source)
        return self.copy_fetched(held.data, held.size, epoch_max, NULL, 0) if held.size else 0

    cdef int accept(self, uint8_t *dst, uint8_t *header, kf_batch_header *h, int64_t base_offset,
                    int32_t epoch) except -1:
        """Store a batch that was judged: 1, or 0 if its epoch cannot begin on a full disk."""
        if epoch != self.last_epoch or not self.epochs:
            if not self.begin_epoch(epoch, base_offset, h.size):
                return 0
        h.leader_epoch = epoch
        kf_batch_accept(dst, header, base_offset, epoch)  # D20: the header is stored last
        self.store(h.size)
        if h.producer_id != -1 or h.attributes & KF_ATTRIBUTE_CONTROL:
            self.producers.note(h, base_offset, dst)
        self.active.note_batch(h, base_offset)
        self.active.mark_end()
        self.end_offset = self.active.end_offset
        self.bytes_appended += h.size
        self.control_batches += (h.attributes & KF_ATTRIBUTE_CONTROL) != 0
        return 1

    cdef int begin_epoch(self, int32_t epoch, int64_t start_offset, uint32_t size) except -1:
        """Begin an epoch; its checkpoint is durable first (D18). 0 on a full disk: again later."""
        assert epoch >= self.last_epoch
        epochs = [entry for entry in self.epochs if entry[1] < start_offset]  # others were empty
        if not epochs or epochs[-1][0] < epoch:
            epochs.append((epoch, start_offset))
        try:
            self.rewrite(self.checkpoint_path, epoch_checkpoint.encode(epochs))
        except BaseException as error:  # not taken: its body stands where a header will (D20)
            self.active.reject(self.stage, size)
            self.scrub()
            if not isinstance(error, DiskFull):
                raise
            self.nursery.make_way_for(error)
            self.space_error, self.retry_ms = error, self.now_ms + trimming.RETRY_MS
            return 0
        self.epochs, self.last_epoch, self.space_error = epochs, epoch, None
        return 1

    cdef uint8_t *place(self, uint32_t size) noexcept:
        """Return where the next batch is put together; the one rule for how (profiles/README.md).

        A memory log stores batches where pages were made, or a used file has them; else it writes.
        """
        cdef uint64_t made = self.active.cached if self.active.used else self.active.zeroed
        cdef bint written = self.writes or self.active.position + size > made
        self.stage = &self.staged if written else NULL
        return self.active.place(self.stage)

    cdef int store(self, uint32_t size) except -1:
        """Put the batch at hand into its file. A failure, in the middle perhaps, is the last."""
        try:
            self.active.store(self.stage, size)
        except BaseException as error:
            self.failed = error
            raise
        return 0

    cdef int scrub(self) except -1:
        """Write zeros over what a refused copy left, durably, before a header may follow (D20)."""
        if self.active.clear_dirt():
            self.sync_file(self.active.file)
        return 0

    def cut_off(self) -> bool:
        """Return whether the last copy ended in a part of a batch: an answer that was cut."""
        return self.fault == KF_BATCH_INCOMPLETE

    def damaged(self) -> bool:
        """Return whether the last copy met a batch that does not check."""
        return self.fault != KF_BATCH_OK and self.fault != KF_BATCH_INCOMPLETE

    def fault_text(self) -> str:
        """Return why the last batch was not taken."""
        return FAULT_TEXTS[self.fault]

    # --- segments -----------------------------------------------------------------------------

    def roll(self) -> bool:
        """Go on in a fresh segment that starts at ``end_offset``. False: none is ready yet."""
        assert self.active.position, "an empty segment has the name that the next one would get"
        spare = self.nursery.take_spare()
        if spare is None:
            return False
        try:
            self.start_segment(spare)
        except DiskFull as error:
            self.nursery.put_back(spare, error, self.now_ms)
            return False
        return True

    @property
    def error(self):
        """Why appends wait: the DiskFull or StorageError that the log met last, or None."""
        return self.now_ms < self.retry_ms and self.space_error or self.nursery.error

    def start_segment(self, spare):
        cdef Segment segment = Segment(spare.file, self.end_offset, spare.capacity)
        assert segment.page != NULL
        name = segment_name(segment.base_offset) + LOG_SUFFIX
        segment.file.rename(self.disk, os.path.join(self.path, name))
        segment.note_spare(spare)
        segment.file.readmit()
        self.names_dirty = True  # the next flush covers the directory (D18)
        self.segments.append(segment)
        self.go_on_in(segment)
        self.producers.mark(self.end_offset)

    cdef int go_on_in(self, Segment segment) except -1:
        self.active, self.staged.map = segment, NULL  # the stage may hold bytes that were cut
        self.active_since_ms = self.now_ms
        return 0

    def tend(self, int64_t now_ms) -> bool:
        """Continue nursery work and trims; call now and then. True while a range is being prepared.

        Raises FlushFailed, finally, after an I/O error (D9).
        """
        self.now_ms = now_ms
        if self.segments[0] is not self.active:
            self.trims.tend(self, now_ms)
        try:
            return self.nursery.tend(self.active, self.bytes_appended, now_ms)
        except FlushFailed as error:
            self.failed = error
            raise

    def retire(self) -> int:
        """Trim rolled segments that are on disk and that no follower maps; returns how many."""
        self.trims.stop()
        return trimming.retire(self)

    def segment_of(self, int64_t offset):
        """Return the segment that holds ``offset``, the active one for the end; None below."""
        if not self.log_start_offset <= offset <= self.end_offset:
            return None
        if offset >= self.active.base_offset:
            return self.active
        index = bisect_right(self.segments, offset, key=lambda segment: segment.base_offset)
        return self.segments[index - 1]

    def locate(self, int64_t offset, uint32_t bytes_max, int64_t end_offset=-1):
        """Return (segment, position, length) of whole batches from the one that holds ``offset``.

        At least one batch, at most ``bytes_max`` beyond it, all of one segment and below
        ``end_offset`` (default: the log's end). None if there is nothing there.
        """
        cdef Segment segment = self.segment_of(offset)
        position, base_offset = (-1, -1) if segment is None else segment.place_of(offset)
        if position < 0:
            return None
        length = self.span(segment, position, base_offset, bytes_max, end_offset)[0]
        return (segment, position, length) if length else None

    def span(self, Segment segment, uint64_t position, int64_t base_offset, uint64_t bytes_max,
             int64_t end_offset=-1):
        """Return (length, end offset) of whole batches from ``position`` within ``bytes_max``."""
        cdef uint64_t at = position
        cdef int64_t follows = base_offset, below = segment.end_offset
        cdef kf_batch_header h
        if 0 <= end_offset < below:
            below = end_offset
        elif segment.position - position <= bytes_max:
            return segment.position - position, below
        while at < segment.position \
                and not kf_batch_parse(segment.file.base + at, segment.position - at, &h) \
                and (at == position or at + h.size - position <= bytes_max) \
                and follows + h.record_count <= below:  # D10: no header's offset is believed
            at += h.size
            follows += h.record_count
        return at - position, follows

    def splits_batch(self, int64_t offset) -> bool:
        """Return whether a cut at ``offset`` would lie within a batch."""
        return cutting.boundary(self.segment_of(offset), offset) == -1

    # --- flush --------------------------------------------------------------------------------

    cdef int fill_flush(self, kf_flush_job *job) except -1:
        """Fill in what to sync so that everything appended by now is on disk, oldest first.

        The target is sampled here, before the sync call (D1). Returns the number of files.
        """
        cdef Segment segment
        cdef kf_flush_file *file
        cdef Py_ssize_t first = len(self.segments) - 1, i
        if self.failed is not None:
            raise self.failed
        job.count = 0
        self.flush_segments = []
        self.flush_target = self.flushed_end_offset  # raised by what this job covers (D1)
        self.flush_truncations = self.truncations
        if self.names_dirty:  # D18: the names of new segments, before anything in them counts
            job.files[0].fd, job.files[0].page = self.directory_fd, NULL
            job.count = 1
            self.names_dirty = False
        while first > 0:  # those that are on disk come first
            segment = self.segments[first - 1]
            if segment.flushed_position >= segment.position:
                break
            first -= 1
        for i in range(first, len(self.segments)):
            segment = self.segments[i]
            if segment.flushed_position < segment.position:
                if job.count == KF_FLUSH_FILES_MAX:
                    break
                file = &job.files[job.count]
                file.fd, file.page = segment.file.fd, segment.page
                file.target = kf_mark(segment.end_offset, segment.last_epoch, 0)
                file.voucher, file.map = segment.voucher, NULL if self.writes else segment.file.base
                file.end = min(segment.position + KF_STAGE_ZEROS, segment.capacity)
                job.count += 1
                self.flush_segments.append((segment, segment.position, file.target.offset,
                                            file.target.epoch, file.voucher))
            self.flush_target = max(self.flush_target, segment.end_offset)
        return job.count

    cdef int flush_done(self, int error) except -1:
        """Record the end of the flush that ``fill_flush`` described; FlushFailed is final (D9)."""
        cdef bint covers = self.flush_truncations == self.truncations
        if covers and any([each[0].file.is_removed() for each in self.flush_segments]):
            error = ENOENT  # no start would find it (D18)
        if error:
            self.failed = FlushFailed(f"fsync of {self.path} failed: {os.strerror(error)}")
            raise self.failed
        if not covers:
            return 0  # D2: what it covered was cut meanwhile; the cut has synced for itself
        for segment, position, _, _, _ in self.flush_segments:
            segment.note_flushed(position)
        self.flush_segments = []
        if self.flush_target > self.flushed_end_offset:
            self.flushed_end_offset = self.flush_target
        return 0

    def flush(self) -> int:
        """Put all that was appended on disk, in as many jobs as it takes (D18); returns its end."""
        while True:
            self.begin_flush()
            self.sync_files()
            if self.end_flush() >= self.end_offset:
                return self.flushed_end_offset

    def begin_flush(self) -> int:
        """Sample the target of a flush; for callers that sync in steps (the simulator)."""
        cdef kf_flush_job job
        self.fill_flush(&job)
        return self.flush_target

    def sync_files(self):
        """Sync what ``begin_flush`` sampled, through the disk, as kf_flush_run does."""
        cdef Segment segment
        self.sync_names()
        for segment, _, end_offset, epoch, voucher in self.flush_segments:
            self.settle(segment, end_offset, epoch, voucher)

    def end_flush(self) -> int:
        """Count what ``sync_files`` put on disk; returns the flushed end offset."""
        self.flush_done(0)
        return self.flushed_end_offset

    def settle(self, Segment segment, int64_t end_offset, int32_t epoch, uint64_t voucher):
        """Sync a segment that ends at ``end_offset``, between the two words of its page (D10)."""
        segment.aim_watermark(end_offset, epoch, voucher)
        self.sync_file(segment.file)
        segment.reach_watermark()

    def _final(self, call, *arguments):
        """Call it; a FlushFailed is final (D9)."""
        self.syncs += 1
        try:
            call(*arguments)
        except FlushFailed as error:
            self.failed = error
            raise

    def sync_file(self, file):
        """Call fdatasync."""
        self._final(file.sync)

    def sync_names(self):
        """Make the names in the log's directory durable."""
        self._final(self.disk.sync_directory, self.path)

    def replace(self, str path, bytes data):
        """Write a small file, durably."""
        self._final(self.disk.replace_file, path, data)

    def rewrite(self, str path, bytes data):
        """Do as :meth:`replace`, on a full disk too once it was done before."""
        self._final(self.disk.rewrite_file, path, data)

    # --- cut and close ------------------------------------------------------------------------

    def truncate(self, int64_t end_offset):
        """Cut the log between batches, durably (D8). Raises DiskFull, and then nothing was cut."""
        cutting.truncate(self, end_offset)

    def close(self, double wait_s=CLOSE_WAIT_S):
        """Flush, leave every segment as Kafka would, give the files back.

        What processes map after ``wait_s`` seconds stays prepared; the next start trims it.
        """
        trimming.close(self, wait_s)

    def abandon(self):
        """Let go of the files as they are (after a failed flush, or as a crash does)."""
        trimming.abandon(self)

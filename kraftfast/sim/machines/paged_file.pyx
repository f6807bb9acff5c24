"""Files page by page: what processes see (the page cache), and what is on the disk.

``PagedFile`` is the file itself, which outlives processes; ``SimSegmentFile`` is one process's
mapping of it and does what :class:`kraftfast.log.segment_file.SegmentFile` does, call for call.
A page that was stored into reaches the disk at a sync, at any moment before it, or never; at a
power cut every such page is kept, lost, or torn at a sector, as with a real page cache.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from kraftfast.errors import StorageError
from kraftfast.buffer cimport Hold, hold
from kraftfast.log.log cimport Log
from kraftfast.log.segment cimport *
from kraftfast.log.segment_file cimport SegmentFile
from kraftfast.record.judge cimport *
from kraftfast.record.shapes import FAULT_TEXTS
from kraftfast.sim.machines.page_memory cimport give_back, note_held, zeros

cdef enum:
    PAGE = 4096
    SECTOR = 512


cdef inline uint64_t pages_in(uint64_t size) noexcept:
    """Return the pages that hold so many bytes, the last one perhaps in part."""
    return (size + PAGE - 1) // PAGE


cdef class PagedFile:
    """A file as its file system holds it.

    Invariants: both images have room for ``room`` bytes; bytes at or beyond a size are zero, and
    so are pages that never had a block; ``resizes`` are the lengths given since ``stable_size`` was
    last true, oldest first.
    """

    cdef readonly uint64_t number       # inode
    cdef public int64_t modified_ms     # when it was last written, as far as calls say
    cdef readonly uint64_t room         # what it can grow to
    cdef readonly uint64_t size         # as processes see it
    cdef readonly uint64_t stable_size  # as a power cut leaves it
    cdef readonly list resizes
    cdef public int sharers             # processes that hold its shared lock
    cdef public bint excluded           # its owner holds the lock alone
    cdef readonly int errors            # failed syncs so far: each descriptor gets each once
    cdef uint8_t *cache                 # what processes see
    cdef uint8_t *stable                # what is on the disk
    cdef uint8_t *allocated             # one byte a page: it has a block
    cdef uint8_t *touched               # one byte a page: it has had one, in either image
    cdef uint8_t *held                  # one byte a page: see ``look``
    cdef dict given_up                  # page -> bytes: its write failed, and it counts as clean
    cdef dict syncing                   # page -> bytes as they were when the sync began

    def __cinit__(self, uint64_t number, uint64_t room):
        self.number, self.room = number, pages_in(room) * PAGE
        self.cache, self.stable = zeros(self.room), zeros(self.room)
        self.allocated = <uint8_t *>calloc(self.room // PAGE, 1)
        self.touched = <uint8_t *>calloc(self.room // PAGE, 1)
        self.held = <uint8_t *>calloc(self.room // PAGE, 1)
        if not (self.allocated and self.touched and self.held):
            raise MemoryError("simulated file")
        self.resizes = []
        self.given_up, self.syncing = {}, {}

    def __dealloc__(self):
        if self.cache != NULL:
            give_back(self.cache, self.room)
        if self.stable != NULL:
            give_back(self.stable, self.room)
        free(self.allocated)
        free(self.touched)
        free(self.held)

    # --- pages --------------------------------------------------------------------------------

    cdef look(self, uint64_t pages):
        """Note which of the first pages may hold something: the others are zero in both images."""
        memset(self.held, 0, pages)
        note_held(self.cache, pages, self.held)
        note_held(self.stable, pages, self.held)

    cdef bint differs(self, uint64_t page):
        return memcmp(self.cache + page * PAGE, self.stable + page * PAGE, PAGE) != 0

    cdef bytes copy_of(self, uint64_t page):
        return (<const uint8_t *>self.cache)[page * PAGE:(page + 1) * PAGE]

    cdef put(self, uint64_t page, bytes content):
        memcpy(self.stable + page * PAGE, <const uint8_t *>content, PAGE)
        self.given_up.pop(page, None)

    def plant(self, uint64_t page, bytes content) -> bool:
        """Have the disk hold ``content`` of an earlier life, unless the page was written since."""
        assert len(content) == PAGE
        if not self.differs(page):
            return False
        self.put(page, content)
        return True

    def dirty_pages(self) -> list[int]:
        """Return the pages that are not on the disk and that the kernel knows to be dirty."""
        cdef uint64_t page
        found = []
        self.look(pages_in(self.size))
        for page in range(pages_in(self.size)):
            if self.touched[page] and self.held[page] and self.differs(page) and not (
                page in self.given_up and self.given_up[page] == self.copy_of(page)
            ):
                found.append(page)
        return found

    def unallocated_stores(self) -> int:
        """Return the pages that hold something without a block: a SIGBUS on a full disk (R10)."""
        cdef uint64_t page, end
        cdef int found = 0
        for page in range(pages_in(self.size)):
            end = (page + 1) * PAGE
            if not self.allocated[page] and not kf_is_zero(self.cache, page * PAGE, end):
                found += 1
        return found

    def blocks(self) -> int:
        """Return how many pages have a block."""
        cdef uint64_t page, found = 0
        for page in range(self.room // PAGE):
            found += self.allocated[page]
        return found

    def blocks_missing(self, uint64_t start, uint64_t end) -> int:
        """Return how many blocks [start, end) still needs."""
        cdef uint64_t page, found = 0
        for page in range(start // PAGE, pages_in(end)):
            found += not self.allocated[page]
        return found

    def allocate(self, uint64_t start, uint64_t end):
        """Give [start, end) its blocks."""
        memset(self.allocated + start // PAGE, 1, pages_in(end) - start // PAGE)
        memset(self.touched + start // PAGE, 1, pages_in(end) - start // PAGE)

    def zero(self, uint64_t start, uint64_t end):
        """Write zeros, as the nursery does."""
        assert start <= end <= self.size
        self.look(pages_in(end))
        self.wipe(self.cache, start, end)

    def flip(self, uint64_t position, int bit):
        """Bit rot: one bit differs, on the disk and for its readers."""
        assert position < self.size
        self.cache[position] ^= 1 << bit
        if position < self.stable_size:
            self.stable[position] ^= 1 << bit

    # --- length -------------------------------------------------------------------------------

    def resize(self, uint64_t size):
        """Cut or extend, for processes at once, on the disk with the next sync or before it."""
        if size > self.room:
            raise StorageError(f"a simulated file of {self.room} bytes cannot grow to {size}")
        if size < self.size:
            self.clear(self.cache, size)
            self.free_blocks(size)
        self.size = size
        self.resizes.append(size)

    cdef clear(self, uint8_t *image, uint64_t size):
        """Clear everything from ``size`` on; pages that never had a block are zero already."""
        self.look(self.room // PAGE)
        self.wipe(image, size, self.room)

    cdef wipe(self, uint8_t *image, uint64_t start, uint64_t end):
        """Clear [start, end) of an image, after a ``look``: what was never stored into is zero."""
        cdef uint64_t page, first, last
        for page in range(start // PAGE, pages_in(end)):
            if self.held[page]:
                first, last = max(page * PAGE, start), min((page + 1) * PAGE, end)
                memset(image + first, 0, last - first)

    cdef free_blocks(self, uint64_t size):
        cdef uint64_t first = pages_in(size)
        memset(self.allocated + first, 0, self.room // PAGE - first)
        for pages in (self.given_up, self.syncing):
            for page in [page for page in pages if page >= first]:
                del pages[page]

    cdef settle_size(self, uint64_t size):
        if size < self.stable_size:
            self.clear(self.stable, size)
        self.stable_size = size

    cdef settle_sizes(self):
        cdef uint64_t size
        for size in self.resizes:
            self.settle_size(size)
        self.resizes.clear()

    # --- to the disk --------------------------------------------------------------------------

    def write_back(self, random, double share):
        """Write some dirty pages, as the kernel does by itself, and the length they need."""
        if dirty := self.dirty_pages():
            self.settle_sizes()
        for page in dirty:
            if random.random() < share:
                self.put(page, self.copy_of(page))
                self.syncing.pop(page, None)

    def begin_sync(self, random, *ranges):
        """Begin a sync of all, or of ranges (from, to): what is stored from now on may miss it."""
        self.syncing.clear()
        for page in self.dirty_pages():
            if not ranges or any([a // PAGE <= page and page * PAGE < b for a, b in ranges]):
                self.syncing[page] = self.copy_of(page)
        self.settle_sizes()
        for page in list(self.syncing):
            if random.random() < 0.5:  # these are written early, the others late
                self.put(page, self.syncing.pop(page))

    def end_sync(self, random):
        """End a sync with success: each page is on the disk as it was at some moment meanwhile."""
        for page, content in self.syncing.items():
            self.put(page, content if random.random() < 0.5 else self.copy_of(page))
        self.syncing.clear()

    def fail_sync(self, random):
        """Fail a sync: some pages are written, the others count as clean all the same.

        The next sync succeeds without them, and reads show them until the cache is dropped
        ("fsyncgate").
        """
        for page in self.dirty_pages():
            if random.random() < 0.3:
                self.put(page, self.copy_of(page))
            else:
                self.given_up[page] = self.copy_of(page)
        self.syncing.clear()
        self.errors += 1

    def lie_about_sync(self, random):
        """End a sync with a lost write: the disk reports success, and loses a page of it."""
        dirty = self.dirty_pages()
        lost = random.choice(dirty) if dirty else -1
        self.settle_sizes()
        for page in dirty:
            if page == lost:
                self.given_up[page] = self.copy_of(page)
            else:
                self.put(page, self.copy_of(page))
        self.syncing.clear()

    # --- power --------------------------------------------------------------------------------

    def lose_power(self, random, double kept, double torn):
        """Only the disk is left; each dirty page made it there, or not, or a part of its sectors.

        ``kept`` and ``torn``: how likely a page is written, and if not, that it is torn.
        """
        cdef uint64_t page, sector
        for page in self.dirty_pages():
            if random.random() < kept:
                self.put(page, self.syncing.get(page) if page in self.syncing and
                         random.random() < 0.5 else self.copy_of(page))
            elif random.random() < torn:
                for sector in range(page * PAGE, (page + 1) * PAGE, SECTOR):
                    if random.random() < 0.5:
                        memcpy(self.stable + sector, self.cache + sector, SECTOR)
        reached = random.randint(0, len(self.resizes))
        for size in self.resizes[:reached]:
            self.settle_size(size)
        self.clear(self.stable, self.stable_size)
        self.drop_cache()

    def drop_cache(self):
        """Drop the cache: what processes see is what is on the disk again."""
        cdef uint64_t page
        self.look(self.room // PAGE)
        for page in range(self.room // PAGE):
            if self.touched[page]:
                self.allocated[page] = 1
                if self.held[page]:
                    memcpy(self.cache + page * PAGE, self.stable + page * PAGE, PAGE)
        self.size = self.stable_size
        self.free_blocks(self.size)
        self.resizes.clear()
        self.given_up.clear()
        self.syncing.clear()

    # --- what tests and invariants look at ----------------------------------------------------

    def read(self, uint64_t start, uint64_t end) -> bytes:
        """Return the bytes as processes see them."""
        return (<const uint8_t *>self.cache)[start:end]

    def stable_batch(self, uint64_t position):
        """Return the batch that is whole on the disk at ``position``, or None."""
        cdef kf_batch_header h
        if position >= self.stable_size:
            return None
        if kf_batch_check(self.stable + position, self.stable_size - position, &h):
            return None
        return (
            h.base_offset, h.base_offset + h.record_count, h.leader_epoch, h.crc, position, h.size,
        )


cdef class SimSegmentFile(SegmentFile):
    """A simulated file, mapped by one process. ``disk`` is the SimDisk that it belongs to."""

    cdef readonly object disk
    cdef readonly PagedFile paged
    cdef bint shared

    def __init__(self, disk, PagedFile paged, str path, int fd, bint writable):
        self.disk, self.paged, self.path, self.fd = disk, paged, path, fd
        self.writable = writable
        self.adopt(<size_t>paged.cache, paged.size)

    cpdef uint64_t inode(self):
        return self.paged.number

    cpdef copy_pieces(self):
        """Do nothing: memory that is cut short raises no signal."""

    cpdef sync(self):
        self.disk.sync_file(self.fd, self.path)

    cdef int write(self, uint64_t at, const uint8_t *source, size_t n) except -1:
        try:
            self.disk.begin_write(self.path)
        except BaseException:  # the machine stops in the middle: pages reach the cache in order
            self.disk.cut_in_write(at, source[:n])
            done = <uint64_t>min(n, self.disk.random.randint(0, pages_in(n)) * PAGE)
            memcpy(self.base + at, source, done)
            raise
        memcpy(self.base + at, source, n)
        return 0

    cpdef reserve(self, uint64_t start, uint64_t end):
        if start < end:
            self.disk.reserve_file(self.fd, self.path, start, end)

    cpdef zero(self, uint64_t start, uint64_t end):
        if start < end:
            self.disk.zero_file(self.fd, self.path, start, end)

    cpdef populate(self, uint64_t start, uint64_t end):
        pass

    cpdef store_again(self, uint64_t start, uint64_t end):
        for page in range(start // PAGE, pages_in(end)):
            self.paged.given_up.pop(page, None)

    cpdef uint64_t data_end(self):
        cdef uint64_t end = max(self.size, PAGE) - PAGE
        end -= end % PAGE
        while end > 0 and not self.paged.allocated[end // PAGE - 1]:
            end -= PAGE
        return end

    cpdef resize(self, uint64_t size):
        self.disk.resize_file(self.paged, self.path, size)
        self.adopt(<size_t>self.paged.cache, size)

    cpdef bint share(self):
        if self.paged.excluded:
            return False
        if not self.shared:
            self.shared = True
            self.paged.sharers += 1
        return True

    cpdef bint exclude(self):
        if self.paged.sharers > <int>self.shared:
            return False
        self.paged.excluded = True
        return True

    cpdef readmit(self):
        self.paged.excluded = False

    cpdef close(self):
        if self.fd >= 0:
            self.disk.close_fd(self.fd)
        if self.shared:
            self.paged.sharers -= 1
        elif self.writable:
            self.paged.excluded = False
        self.shared = False
        self.base, self.fd = NULL, -1

    def __dealloc__(self):
        self.base, self.fd = NULL, -1  # the memory is the file's


# --- the log's doors without Python names -----------------------------------------------------


def is_plain(batch) -> bool:
    """Return whether the leader appends a whole batch from a ring without looking at it twice."""
    cdef Hold held = hold(batch)
    cdef kf_batch_header h
    if kf_batch_parse(held.data, held.size, &h) != KF_BATCH_OK:
        return False
    return kf_batch_is_plain(held.data, &h)


def append_batch(Log log, batch, int32_t epoch, bint unseen=False) -> bool:
    """Append a producer's batch as a leader does; False: no room yet, or ``log.fault``."""
    cdef Hold held = hold(batch)
    return log.append_batch(held.data, held.size, epoch, False, unseen) == 1


def copy_reference(Log log, SegmentFile source, uint64_t position, uint64_t length,
                   int32_t epoch_max, uint64_t generation) -> int:
    """Copy batches out of another replica's mapped segment (D20); return the bytes taken.

    Tests alone call it: replicas copy in ``node/rings/ring_fetch.pyx``.
    """
    cdef const uint8_t *page = NULL
    if source.base == NULL or position + length > source.size:
        raise ValueError(f"[{position}, {position + length}) is not mapped")
    if generation:
        page = source.base + source.size - PAGE
    return log.copy_fetched(source.base + position, length, epoch_max, page, generation)


def batches_of(
    Segment segment not None, int64_t offset, int64_t position=-1
) -> list[tuple[int, ...]]:
    """Return (base offset, end offset, epoch, CRC, position, size) of batches from one on, which
    begins at ``position`` if that is known: what stands before it may be damaged."""
    cdef kf_batch_header h
    if position < 0:
        position = segment.find(offset)
    found = []
    while 0 <= position < <int64_t>segment.position:
        fault = kf_batch_check(segment.file.base + position, segment.position - position, &h)
        if fault:
            raise AssertionError(
                f"I14: the log holds a bad batch at byte {position} of {segment.file.path}: "
                f"{FAULT_TEXTS[fault]}")
        found.append((h.base_offset, h.base_offset + h.record_count, h.leader_epoch, h.crc,
                      position, h.size))
        position += h.size
    return found


cdef class SteppedFlush:
    """A flush of the log as ``kf_flush_run`` does it, in steps between which anything may happen.

    ``truncations``: the log's counter when it began (D2). ``running``: between ask and the end.
    """

    cdef kf_flush_job job
    cdef readonly uint64_t truncations
    cdef readonly bint running
    cdef int at          # the file whose turn it is
    cdef bint begun      # its sync has begun

    def ask(self, Log log):
        """Sample what is to be flushed (D1). Raises FlushFailed after an earlier failure."""
        assert not self.running
        self.truncations = log.truncations
        log.fill_flush(&self.job)
        self.at, self.begun, self.running = 0, False, True

    def step(self, disk) -> int:
        """Take one step: 1 to go on, 0 when all is on disk, or a negative errno, final (D9)."""
        cdef kf_watermark w
        cdef kf_flush_file *file
        if self.at == self.job.count:
            return 0
        file = &self.job.files[self.at]
        if not self.begun:
            if file.page != NULL:
                if kf_watermark_load(file.page, &w):
                    return -5
                kf_watermark_store(
                    file.page, file.target, w.flushed, file.voucher, w.flushed_voucher)
            disk.begin_sync(file.fd, *self.ranges_of(file))
            self.begun = True
            return 1
        if error := disk.end_sync(file.fd):
            return -error
        if file.page != NULL:
            kf_watermark_store(file.page, file.target, file.target, file.voucher, file.voucher)
        self.at, self.begun = self.at + 1, False
        return self.at < self.job.count

    cdef tuple ranges_of(self, kf_flush_file *file):
        page = <uint64_t>(file.page - file.map)
        return ((0, file.end), (page, page + PAGE)) if file.page and file.map else ()

    def finish(self, Log log, int error):
        """Let the log count what is on disk. Raises FlushFailed, which is final (D9)."""
        self.running = False
        log.flush_done(error)

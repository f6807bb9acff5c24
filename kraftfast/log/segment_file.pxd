"""A file whose bytes are the log's memory: what a segment stands on, and what a simulator swaps."""

from libc.stdint cimport uint8_t, uint64_t


cdef class SegmentFile:
    cdef public str path                # its name now; changes with rename only
    cdef readonly int fd                # -1: not a real file, or closed
    cdef readonly bint writable
    cdef uint8_t *base                  # NULL while not mapped
    cdef readonly uint64_t size         # of the file; loads and stores stay below it
    cdef uint64_t mapped                # bytes mapped, at least size
    cdef uint64_t number                # inode, 0 while unknown
    cdef bint named                     # a name led to it when it was opened
    cdef public bint paged              # another process's: it had a last page when it was opened
    cdef bint copied                    # base is private memory that holds pieces of the file
    cdef uint64_t held_from, held_to    # the piece, but the last page, which is always there

    cpdef uint64_t inode(self)
    cpdef copy_pieces(self)
    cpdef copy_page(self)
    cdef int look(self, uint64_t start, uint64_t limit) except -1
    cdef int look_away(self) except -1
    cdef int _copy(self, uint64_t start, uint64_t end) except -1
    cpdef sync(self)
    cpdef reserve(self, uint64_t start, uint64_t end)
    cpdef zero(self, uint64_t start, uint64_t end)
    cpdef populate(self, uint64_t start, uint64_t end)
    cpdef store_again(self, uint64_t start, uint64_t end)
    cpdef uint64_t data_end(self)
    cpdef resize(self, uint64_t size)
    cpdef rename(self, disk, str path)
    cpdef bint is_removed(self)
    cpdef bint has_other_names(self)
    cpdef bint share(self)
    cpdef bint exclude(self)
    cpdef readmit(self)
    cpdef close(self)
    cdef int write(self, uint64_t at, const uint8_t *source, size_t n) except -1
    cdef adopt(self, size_t address, uint64_t size)
    cdef _unmap(self)

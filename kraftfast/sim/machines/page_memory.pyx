"""Memory of simulated files, and what the kernel knows of it.

A simulated file has room for megabytes and holds a few pages: to touch the others, even to read
their zeros, costs a page fault each.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memset

cdef extern from "fcntl.h":
    int open(const char *path, int flags) nogil
    enum:
        O_RDONLY
        O_CLOEXEC

cdef extern from "unistd.h":
    int close(int fd)
    int getpid()
    ssize_t pread(int fd, void *buffer, size_t count, int64_t offset)

cdef extern from "sys/mman.h":
    void *mmap(void *address, size_t length, int protection, int flags, int fd, int64_t offset)
    int munmap(void *address, size_t length)
    enum:
        PROT_READ
        PROT_WRITE
        MAP_PRIVATE
        MAP_ANONYMOUS
        MAP_NORESERVE
    void *MAP_FAILED

cdef enum:
    PAGE = 4096
    PAGES_AT_ONCE = 1024
    STATES = 62                # a page's bits from here on: whether it is swapped, or present

cdef int pagemap_fd = -1       # of the process that opened it: a child has memory of its own
cdef int pagemap_pid = 0


cdef uint8_t *zeros(size_t size) except NULL:
    """Return zeros that take memory only where they are touched, given back at once.

    ``calloc`` would not do: what was freed once it hands out again, and touches all of it.
    """
    cdef void *found = mmap(NULL, size, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
    if found == MAP_FAILED:
        raise MemoryError("simulated file")
    return <uint8_t *>found


cdef void give_back(uint8_t *image, size_t size) noexcept:
    """Give back what ``zeros`` returned."""
    munmap(image, size)


cdef int pagemap() noexcept:
    """Return a descriptor of what the kernel says of this process's pages, or -1."""
    global pagemap_fd, pagemap_pid
    cdef int pid = getpid()
    if pid != pagemap_pid:
        if pagemap_fd >= 0:
            close(pagemap_fd)
        pagemap_fd, pagemap_pid = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC), pid
    return pagemap_fd


cdef void note_held(const uint8_t *image, uint64_t pages, uint8_t *held) noexcept:
    """Set ``held`` for each page that may hold something: all others are zero.

    Exact, for no store escapes the kernel: a page of ``zeros`` that it neither has in memory nor
    has swapped out was never stored into.
    """
    cdef uint64_t[PAGES_AT_ONCE] states
    cdef uint64_t page = 0, count, index, first = <uint64_t>image // PAGE
    cdef int fd = pagemap()
    while page < pages:
        count = min(pages - page, <uint64_t>PAGES_AT_ONCE)
        if fd < 0 or pread(fd, states, count * 8, (first + page) * 8) != <ssize_t>(count * 8):
            memset(held + page, 1, pages - page)
            return
        for index in range(count):
            held[page + index] |= states[index] >> STATES != 0
        page += count

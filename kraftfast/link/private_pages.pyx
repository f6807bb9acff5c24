"""Shared memory that a child of ``fork`` must not write into."""

from libc.stddef cimport size_t

from kraftfast.buffer cimport Hold, hold

from kraftfast.errors import PeerGone


cdef extern from "sys/mman.h":
    void *mmap(void *address, size_t length, int protection, int flags, int fd, long offset)
    void *MAP_FAILED
    enum: PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS, MAP_FIXED


def make_private(memory):
    """Replace a mapped file, in this process alone, by zero pages of its own at the same address.

    The map stays valid: unlike after MADV_DONTFORK no other map can take its place, which the
    owner of this one would then unmap.
    """
    cdef Hold held = hold(memory, writable=True)
    if mmap(held.data, <size_t>held.size, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED:
        raise PeerGone("an inherited map cannot be replaced")

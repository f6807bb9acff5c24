"""Memory of simulated files. See ``page_memory.pyx``."""

from libc.stdint cimport uint8_t, uint64_t


cdef uint8_t *zeros(size_t size) except NULL
cdef void give_back(uint8_t *image, size_t size) noexcept
cdef void note_held(const uint8_t *image, uint64_t pages, uint8_t *held) noexcept

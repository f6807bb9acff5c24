# CRC-32C for other compiled modules, so that all of them run the same kernel (cext/crc32c.c).
from libc.stdint cimport uint32_t, uint8_t

# The CRC of the n bytes at p, continued from crc (0 to begin).
cdef uint32_t crc_extend(uint32_t crc, const uint8_t *p, size_t n) noexcept nogil

# Copies n bytes and returns the CRC, continued from crc, of exactly the bytes stored at dst, even
# while another process writes to src (D20).
cdef uint32_t crc_copy(uint32_t crc, uint8_t *dst, const uint8_t *src, size_t n) noexcept nogil

# The CRC of ab from the CRCs of a and b and the length of b.
cdef uint32_t crc_combine(uint32_t crc_a, uint32_t crc_b, size_t n_b) noexcept nogil

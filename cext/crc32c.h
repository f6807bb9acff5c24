/* CRC-32C (Castagnoli, reflected, polynomial 0x1EDC6F41), the checksum of record batches, and the
 * copy that computes it on the way. C11; no allocation, no state that changes after load, so every
 * function may be called from any thread. The fastest variant that the CPU runs is chosen at load.
 *
 * A CRC goes in and comes out finished (pre- and post-inverted): start with 0, and
 * crc(crc(0, a), b) == crc(0, ab). Any pointer alignment is fine; n may be 0.
 */
#ifndef KRAFTFAST_CRC32C_H
#define KRAFTFAST_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The CRC of the n bytes at p, continued from crc. */
uint32_t kf_crc32c(uint32_t crc, const void *p, size_t n);

/* Copies n bytes from src to dst and returns the CRC of exactly the bytes stored at dst, continued
 * from crc. Holds also while another process writes to src (D20): a byte of src is either loaded
 * once and both stored and summed from that register, or summed from dst after it was stored.
 * dst is the caller's alone during the call, and the two do not overlap. */
uint32_t kf_crc32c_copy(uint32_t crc, void *dst, const void *src, size_t n);

/* The CRC of ab from those of a and b and the length of b: O(log n_b). */
uint32_t kf_crc32c_combine(uint32_t crc_a, uint32_t crc_b, size_t n_b);

/* One way to compute the three functions above; they all give the same results. */
typedef struct {
    const char *name; /* "avx512", "avx2", "sse42", "armv8" or "portable" */
    uint32_t (*crc)(uint32_t crc, const void *p, size_t n);
    uint32_t (*copy)(uint32_t crc, void *dst, const void *src, size_t n);
    uint32_t (*combine)(uint32_t crc_a, uint32_t crc_b, size_t n_b);
} kf_crc32c_variant;

/* Number i (from 0, fastest first) of the variants that this CPU runs; NULL past the last, which is
 * always "portable". The functions above are those of number 0. */
const kf_crc32c_variant *kf_crc32c_variants(size_t i);

#endif

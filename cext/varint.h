/* Variable-length integers and big-endian words, as Kafka lays them out.
 *
 * Two families that must not be mixed up: record fields are zig-zag coded (kf_varint, kf_varlong),
 * lengths and tags of the flexible protocol are not (kf_uvarint).
 *
 * Readers take [p, end) and return the byte after the integer, or NULL if it is cut off, wider than
 * its type, or not the shortest form (S7); *value is then untouched. Writers take room enough:
 * KF_VARINT_MAX or KF_VARLONG_MAX bytes always suffice; they return the byte after what they wrote.
 */
#ifndef KRAFTFAST_VARINT_H
#define KRAFTFAST_VARINT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KF_VARINT_MAX 5
#define KF_VARLONG_MAX 10

/* ---- big-endian words at any alignment ---- */

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define KF_BIG16(v) __builtin_bswap16(v)
#define KF_BIG32(v) __builtin_bswap32(v)
#define KF_BIG64(v) __builtin_bswap64(v)
#else
#define KF_BIG16(v) (v)
#define KF_BIG32(v) (v)
#define KF_BIG64(v) (v)
#endif

static inline uint16_t kf_load16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return KF_BIG16(v);
}

static inline uint32_t kf_load32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return KF_BIG32(v);
}

static inline uint64_t kf_load64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return KF_BIG64(v);
}

static inline void kf_store16(uint8_t *p, uint16_t v) {
    v = KF_BIG16(v);
    memcpy(p, &v, sizeof v);
}

static inline void kf_store32(uint8_t *p, uint32_t v) {
    v = KF_BIG32(v);
    memcpy(p, &v, sizeof v);
}

static inline void kf_store64(uint8_t *p, uint64_t v) {
    v = KF_BIG64(v);
    memcpy(p, &v, sizeof v);
}

/* ---- zig-zag: small magnitudes of either sign become small unsigned numbers ---- */

static inline uint32_t kf_zigzag32(int32_t v) { return (uint32_t)v << 1 ^ (uint32_t)(v >> 31); }
static inline uint64_t kf_zigzag64(int64_t v) { return (uint64_t)v << 1 ^ (uint64_t)(v >> 63); }
static inline int32_t kf_unzigzag32(uint32_t v) { return (int32_t)(v >> 1 ^ (0u - (v & 1))); }
static inline int64_t kf_unzigzag64(uint64_t v) { return (int64_t)(v >> 1 ^ (0ull - (v & 1))); }

/* ---- sizes in bytes ---- */

static inline size_t kf_uvarint64_size(uint64_t v) {
    return (size_t)(70 - __builtin_clzll(v | 1)) / 7; /* ceil(bits / 7) */
}

static inline size_t kf_uvarint_size(uint32_t v) { return kf_uvarint64_size(v); }
static inline size_t kf_varint_size(int32_t v) { return kf_uvarint64_size(kf_zigzag32(v)); }
static inline size_t kf_varlong_size(int64_t v) { return kf_uvarint64_size(kf_zigzag64(v)); }

/* ---- writers ---- */

static inline uint8_t *kf_uvarint64_put(uint8_t *p, uint64_t v) {
    for (; v > 0x7f; v >>= 7) *p++ = (uint8_t)(v | 0x80);
    *p++ = (uint8_t)v;
    return p;
}

static inline uint8_t *kf_uvarint_put(uint8_t *p, uint32_t v) { return kf_uvarint64_put(p, v); }

static inline uint8_t *kf_varint_put(uint8_t *p, int32_t v) {
    return kf_uvarint64_put(p, kf_zigzag32(v));
}

static inline uint8_t *kf_varlong_put(uint8_t *p, int64_t v) {
    return kf_uvarint64_put(p, kf_zigzag64(v));
}

/* ---- readers ---- */

/* bits is 32 or 64, and a constant where this is called. */
static inline const uint8_t *kf_uvarint_get_bits(const uint8_t *p, const uint8_t *end,
                                                 uint64_t *value, int bits) {
    uint64_t v = 0;
    if (p < end && *p < 0x80) { /* most are one byte */
        *value = *p;
        return p + 1;
    }
    for (int shift = 0; shift < bits; shift += 7) {
        if (p >= end) return NULL;
        uint64_t byte = *p++;
        if (shift + 7 > bits && byte >> (bits - shift)) return NULL; /* wider than the type */
        v |= (byte & 0x7f) << shift;
        if (byte < 0x80) {
            if (byte == 0 && shift) return NULL; /* not the shortest form */
            *value = v;
            return p;
        }
    }
    return NULL;
}

static inline const uint8_t *kf_uvarint64_get(const uint8_t *p, const uint8_t *end,
                                              uint64_t *value) {
    return kf_uvarint_get_bits(p, end, value, 64);
}

static inline const uint8_t *kf_uvarint_get(const uint8_t *p, const uint8_t *end, uint32_t *value) {
    uint64_t wide;
    p = kf_uvarint_get_bits(p, end, &wide, 32);
    if (p) *value = (uint32_t)wide;
    return p;
}

static inline const uint8_t *kf_varint_get(const uint8_t *p, const uint8_t *end, int32_t *value) {
    uint64_t wide;
    p = kf_uvarint_get_bits(p, end, &wide, 32);
    if (p) *value = kf_unzigzag32((uint32_t)wide);
    return p;
}

static inline const uint8_t *kf_varlong_get(const uint8_t *p, const uint8_t *end, int64_t *value) {
    uint64_t wide;
    p = kf_uvarint_get_bits(p, end, &wide, 64);
    if (p) *value = kf_unzigzag64(wide);
    return p;
}

#endif

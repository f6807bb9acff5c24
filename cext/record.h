/* One record of a batch, and the one judge of its framing.
 *
 *   length varint (of what follows) | attributes i8 | timestamp delta varlong | offset delta varint
 *   key size varint, key | value size varint, value (size -1: null) | header count varint
 *   headers, each: key size varint, key (never null) | value size varint, value
 *
 * Readers take [p, end) and stay within, whatever the bytes say.
 */
#ifndef KF_RECORD_H
#define KF_RECORD_H

#include "batch_header.h"

/* The pointers are into the bytes that were read. */
typedef struct {
    int64_t timestamp_delta;
    int32_t offset_delta;
    int32_t key_size;   /* -1: null */
    int32_t value_size; /* -1: null */
    int32_t header_count;
    const uint8_t *key;
    const uint8_t *value;
    const uint8_t *headers; /* the first header; all of them lie within bounds */
    const uint8_t *end;     /* the first byte behind the record */
} kf_record;

/* A size and that many bytes (size -1: null, none): where they begin, or NULL and *fault. */
static inline const uint8_t *kf_bytes_get(const uint8_t *p, const uint8_t *end, int32_t *size,
                                          int *fault) {
    p = kf_varint_get(p, end, size);
    if (!p) {
        *fault = KF_RECORD_FIELD;
        return NULL;
    }
    if (*size < -1 || *size > end - p) {
        *fault = KF_RECORD_SIZE;
        return NULL;
    }
    return p;
}

/* The first byte behind the bytes that kf_bytes_get found. */
static inline const uint8_t *kf_bytes_end(const uint8_t *p, int32_t size) {
    return size > 0 ? p + size : p;
}

/* KF_RECORD_HEADERS unless `count` headers at p end exactly at `end`. */
static inline int kf_headers_check(const uint8_t *p, const uint8_t *end, int32_t count) {
    int32_t size;
    int fault;
    if (count < 0 || count > KF_RECORD_HEADERS_MAX) return KF_RECORD_HEADERS;
    while (count-- > 0) {
        p = kf_bytes_get(p, end, &size, &fault);
        if (!p || size < 0) return KF_RECORD_HEADERS; /* a key is never null */
        p = kf_bytes_get(p + size, end, &size, &fault);
        if (!p) return KF_RECORD_HEADERS;
        p = kf_bytes_end(p, size);
    }
    return p == end ? KF_BATCH_OK : KF_RECORD_HEADERS;
}

/* The record at p, which ends at or before `end`: a fault, or KF_BATCH_OK and r filled in. */
static inline int kf_record_get(const uint8_t *p, const uint8_t *end, kf_record *r) {
    int32_t length;
    int fault;
    if (!(p = kf_varint_get(p, end, &length))) return KF_RECORD_FIELD;
    if (length < KF_RECORD_BYTES_MIN - 1 || length > end - p) return KF_RECORD_LENGTH;
    r->end = end = p + length;
    p = kf_varlong_get(p + 1, end, &r->timestamp_delta); /* attributes have no meaning yet */
    if (!p || !(p = kf_varint_get(p, end, &r->offset_delta))) return KF_RECORD_FIELD;
    if (!(p = r->key = kf_bytes_get(p, end, &r->key_size, &fault))) return fault;
    p = kf_bytes_end(p, r->key_size);
    if (!(p = r->value = kf_bytes_get(p, end, &r->value_size, &fault))) return fault;
    p = kf_bytes_end(p, r->value_size);
    if (!(p = r->headers = kf_varint_get(p, end, &r->header_count))) return KF_RECORD_FIELD;
    if (!r->header_count) return p == end ? KF_BATCH_OK : KF_RECORD_HEADERS; /* as mostly */
    return kf_headers_check(p, end, r->header_count);
}

/* Whether base timestamp + delta is an int64. */
static inline int kf_timestamp_fits(const kf_batch_header *h, int64_t delta) {
    int64_t sum;
    return !__builtin_add_overflow(h->base_timestamp, delta, &sum);
}

/* As kf_record_get, of the record behind the one with *last_delta (-1: the first) in the batch of
 * h. Records may be missing, as from a batch that Kafka compacted. *last_delta becomes its own. */
static inline int kf_record_next(const uint8_t *p, const uint8_t *end, const kf_batch_header *h,
                                 int32_t *last_delta, kf_record *r) {
    int fault = kf_record_get(p, end, r);
    if (fault) return fault;
    if (r->offset_delta <= *last_delta || r->offset_delta > h->last_offset_delta)
        return KF_RECORD_OFFSET;
    if (!kf_timestamp_fits(h, r->timestamp_delta)) return KF_RECORD_TIMESTAMP;
    *last_delta = r->offset_delta;
    return KF_BATCH_OK;
}

#endif

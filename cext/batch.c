#include "batch.h"

#include <string.h>

#include "crc32c.h"
#include "mapping.h"

#define DELTA_PLAIN_MAX (1ll << 40) /* milliseconds: 34 years */
#define HEADERS_PLAIN_MAX 1000      /* limits.HEADERS_PER_RECORD_MAX is not less */

static const char *const fault_texts[KF_BATCH_FAULTS] = {
    "good",
    "incomplete batch",
    "no batch",
    "batch length out of bounds",
    "magic is not 2",
    "unknown codec or attribute bits",
    "record count does not fit the last offset delta",
    "CRC does not match",
    "base offset does not follow the log",
    "leader epoch does not follow the log",
    "source cannot be read",
    "source changed while it was read",
    "records that are not plain",
};

const char *kf_batch_fault_text(int fault) {
    return fault >= 0 && fault < KF_BATCH_FAULTS ? fault_texts[fault] : "unknown fault";
}

int kf_batch_parse(const uint8_t *b, size_t available, kf_batch_header *h) {
    int fault = kf_batch_read_header(b, available, h);
    if (fault && (fault != KF_BATCH_INCOMPLETE || available < KF_BATCH_HEADER)) return fault;
    return h->last_offset_delta == h->record_count - 1 ? fault : KF_BATCH_COUNT;
}

int kf_batch_crc_holds(const uint8_t *batch, const kf_batch_header *h) {
    return kf_crc32c(0, batch + KF_BATCH_CRC_AT, h->size - KF_BATCH_CRC_AT) == h->crc;
}

int kf_batch_check(const uint8_t *batch, size_t available, kf_batch_header *h) {
    int fault = kf_batch_parse(batch, available, h);
    if (fault) return fault;
    return kf_batch_crc_holds(batch, h) ? KF_BATCH_OK : KF_BATCH_CRC;
}

int kf_batch_take_header(const uint8_t *src, size_t available, uint8_t header[KF_BATCH_HEADER],
                         kf_batch_header *h) {
    if (available < KF_BATCH_HEADER) return KF_BATCH_INCOMPLETE;
    if (kf_guarded_copy(header, src, KF_BATCH_HEADER)) return KF_BATCH_UNREADABLE;
    return kf_batch_parse(header, available, h); /* the private copy, never the source again */
}

int kf_batch_take_body(uint8_t *dst, const uint8_t *src, const uint8_t header[KF_BATCH_HEADER],
                       const kf_batch_header *h) {
    uint32_t crc = kf_crc32c(0, header + KF_BATCH_CRC_AT, KF_BATCH_HEADER - KF_BATCH_CRC_AT);
    if (kf_guarded_crc_copy(&crc, dst + KF_BATCH_HEADER, src + KF_BATCH_HEADER,
                            h->size - KF_BATCH_HEADER))
        return KF_BATCH_UNREADABLE;
    return crc == h->crc ? KF_BATCH_OK : KF_BATCH_CRC;
}

/* kf_varint_get, quicker for two bytes. */
static inline const uint8_t *varint_at(const uint8_t *p, const uint8_t *end, int32_t *value) {
    if (end - p >= 2 && p[0] >= 0x80 && p[1] < 0x80 && p[1]) {
        *value = kf_unzigzag32((uint32_t)(p[0] & 0x7f) | (uint32_t)p[1] << 7);
        return p + 2;
    }
    return kf_varint_get(p, end, value);
}

/* A size of at least -1, behind which so many bytes stand (-1: null). */
static inline const uint8_t *bytes_at(const uint8_t *p, const uint8_t *end, int32_t *size) {
    p = varint_at(p, end, size);
    return p && *size >= -1 && *size <= end - p ? p : NULL;
}

static const uint8_t *skip_bytes(const uint8_t *p, const uint8_t *end) {
    int32_t size;
    p = bytes_at(p, end, &size);
    return p && size > 0 ? p + size : p;
}

/* Headers from their count on: a key is never null. */
static const uint8_t *skip_headers(const uint8_t *p, const uint8_t *end) {
    int32_t count, size;
    p = kf_varint_get(p, end, &count);
    if (!p || count < 0 || count > HEADERS_PLAIN_MAX) return NULL;
    while (p && count-- > 0) {
        p = bytes_at(p, end, &size);
        p = p && size >= 0 ? skip_bytes(p + size, end) : NULL;
    }
    return p;
}

int kf_batch_is_plain(const uint8_t *batch, const kf_batch_header *h) {
    const uint8_t *p = batch + KF_BATCH_HEADER, *batch_end = batch + h->size;
    if (h->attributes & KF_ATTRIBUTE_CODEC || h->base_timestamp < -DELTA_PLAIN_MAX ||
        h->base_timestamp > INT64_MAX - DELTA_PLAIN_MAX)
        return 0;
    for (int32_t i = 0; i < h->record_count; i++) {
        int32_t length, offset_delta;
        int64_t delta;
        p = bytes_at(p, batch_end, &length);
        if (!p || length < KF_RECORD_BYTES_MIN - 1) return 0;
        const uint8_t *end = p + length;
        p = kf_varlong_get(p + 1, end, &delta); /* behind the attributes */
        if (!p || delta < -DELTA_PLAIN_MAX || delta > DELTA_PLAIN_MAX) return 0;
        p = varint_at(p, end, &offset_delta);
        if (!p || offset_delta != i) return 0;
        if (!(p = skip_bytes(p, end)) || !(p = skip_bytes(p, end))) return 0;
        if (p < end && *p == 0) /* no headers, as mostly */
            p++;
        else if (!(p = skip_headers(p, end))) return 0;
        if (p != end) return 0;
    }
    return p == batch_end;
}

int kf_batch_take_records(uint8_t *dst, const uint8_t *src, const uint8_t header[KF_BATCH_HEADER],
                          const kf_batch_header *h, int unseen) {
    int fault = kf_batch_take_body(dst, src, header, h);
    return !fault && unseen && !kf_batch_is_plain(dst, h) ? KF_BATCH_RECORDS : fault;
}

void kf_batch_accept(uint8_t *dst, uint8_t header[KF_BATCH_HEADER], int64_t base_offset,
                     int32_t leader_epoch) {
    kf_store64(header, (uint64_t)base_offset);
    kf_store32(header + 12, (uint32_t)leader_epoch);
    memcpy(dst, header, KF_BATCH_HEADER);
}

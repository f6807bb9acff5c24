#include "batch.h"

#include <string.h>

#include "crc32c.h"
#include "mapping.h"

static uint64_t be64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return __builtin_bswap64(v);
}

static uint32_t be32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return __builtin_bswap32(v);
}

static uint16_t be16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }

static const char *const fault_texts[KF_BATCH_FAULTS] = {
    "good",
    "incomplete batch",
    "no batch",
    "batch length out of bounds",
    "magic is not 2",
    "unknown attribute bits",
    "record count does not fit the last offset delta",
    "CRC does not match",
    "base offset does not follow the log",
    "leader epoch does not follow the log",
    "source cannot be read",
    "source changed while it was read",
};

const char *kf_batch_fault_text(int fault) {
    return fault >= 0 && fault < KF_BATCH_FAULTS ? fault_texts[fault] : "unknown fault";
}

int kf_batch_parse(const uint8_t *b, size_t available, kf_batch_header *h) {
    if (available < KF_BATCH_HEADER) return KF_BATCH_INCOMPLETE;
    uint32_t length = be32(b + 8);
    if (length == 0 && b[16] == 0) return KF_BATCH_EMPTY;
    if (length < KF_BATCH_HEADER - KF_BATCH_OVERHEAD ||
        length > KF_BATCH_BYTES_MAX - KF_BATCH_OVERHEAD)
        return KF_BATCH_LENGTH;
    if (b[16] != 2) return KF_BATCH_MAGIC;
    h->base_offset = (int64_t)be64(b);
    h->size = length + KF_BATCH_OVERHEAD;
    h->leader_epoch = (int32_t)be32(b + 12);
    h->crc = be32(b + 17);
    h->attributes = (int16_t)be16(b + 21);
    h->last_offset_delta = (int32_t)be32(b + 23);
    h->base_timestamp = (int64_t)be64(b + 27);
    h->max_timestamp = (int64_t)be64(b + 35);
    h->producer_id = (int64_t)be64(b + 43);
    h->producer_epoch = (int16_t)be16(b + 51);
    h->base_sequence = (int32_t)be32(b + 53);
    h->record_count = (int32_t)be32(b + 57);
    if (h->attributes & KF_ATTRIBUTE_UNKNOWN) return KF_BATCH_ATTRIBUTES;
    /* A record is at least 7 bytes (uncompressed): an impossible count is refused unread. */
    uint32_t body = h->size - KF_BATCH_HEADER;
    if (h->record_count < 1 || h->record_count > KF_BATCH_RECORDS_MAX) return KF_BATCH_COUNT;
    if (h->last_offset_delta != h->record_count - 1) return KF_BATCH_COUNT;
    if (!(h->attributes & KF_ATTRIBUTE_CODEC) && (uint32_t)h->record_count > body / 7)
        return KF_BATCH_COUNT;
    if (h->base_offset < 0 || h->base_offset > INT64_MAX - h->record_count) return KF_BATCH_OFFSET;
    return h->size > available ? KF_BATCH_INCOMPLETE : KF_BATCH_OK;
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

void kf_batch_accept(uint8_t *dst, uint8_t header[KF_BATCH_HEADER], int64_t base_offset,
                     int32_t leader_epoch) {
    uint64_t offset = __builtin_bswap64((uint64_t)base_offset);
    uint32_t epoch = __builtin_bswap32((uint32_t)leader_epoch);
    memcpy(header, &offset, 8);
    memcpy(header + 12, &epoch, 4);
    memcpy(dst, header, KF_BATCH_HEADER);
}

#include "batch.h"

#include <string.h>

#include "crc32c.h"
#include "mapping.h"
#include "record.h"

#define CONTROL_LEADER_CHANGE 2
#define CONTROL_KRAFT_VOTERS 6

int kf_batch_parse(const uint8_t *b, size_t available, kf_batch_header *h) {
    int fault = kf_batch_read_header(b, available, h);
    if (fault && (fault != KF_BATCH_INCOMPLETE || available < KF_BATCH_HEADER)) return fault;
    return h->last_offset_delta == h->record_count - 1 ? fault : KF_BATCH_COUNT;
}

int kf_batch_crc_holds(const uint8_t *batch, const kf_batch_header *h) {
    return kf_crc32c(0, batch + KF_BATCH_CRC_AT, h->size - KF_BATCH_CRC_AT) == h->crc;
}

void kf_batch_seal(uint8_t *batch, kf_batch_header *h) {
    kf_batch_write_header(batch, h);
    h->crc = kf_crc32c(0, batch + KF_BATCH_CRC_AT, h->size - KF_BATCH_CRC_AT);
    kf_batch_write_header(batch, h);
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

/* What the rules of the record's batch say of it. */
static inline int check_record(const kf_record *r, const kf_batch_header *h, int rules) {
    int control = h->attributes & KF_ATTRIBUTE_CONTROL;
    if (!kf_timestamp_fits(h, r->timestamp_delta)) return KF_RECORD_TIMESTAMP;
    /* A version below 0 is refused, as in Kafka's ControlRecordType.parseTypeId. */
    if (control && (r->key_size < 4 || r->key[0] & 0x80)) return KF_BATCH_CONTROL_KEY;
    if (!(rules & KF_RULES_KAFKA_RAFT)) return KF_BATCH_OK;
    if (r->timestamp_delta) return KF_RECORD_HAS_TIMESTAMP_DELTA;
    if (r->header_count) return KF_RECORD_HAS_HEADERS;
    if (control) {
        if (r->value_size <= 0) return KF_BATCH_CONTROL_EMPTY;
        uint16_t type = kf_load16(r->key + 2);
        return type >= CONTROL_LEADER_CHANGE && type <= CONTROL_KRAFT_VOTERS
                   ? KF_BATCH_OK
                   : KF_BATCH_CONTROL_UNKNOWN;
    }
    if (r->key_size != -1) return KF_RECORD_HAS_KEY;
    return r->value_size > 0 ? KF_BATCH_OK : KF_RECORD_NO_VALUE;
}

int kf_batch_check_records(const uint8_t *p, size_t size, const kf_batch_header *h, int rules,
                           int64_t *number, int64_t *largest_timestamp) {
    const uint8_t *end = p + size;
    int64_t largest_delta = INT64_MIN;
    kf_record r;
    for (int32_t i = 0; i < h->record_count; i++) {
        int fault = kf_record_get(p, end, &r);
        if (!fault && r.offset_delta != i) fault = KF_RECORD_OFFSET;
        if (!fault) fault = check_record(&r, h, rules);
        if (fault) {
            *number = i;
            return fault;
        }
        if (r.timestamp_delta > largest_delta) largest_delta = r.timestamp_delta;
        p = r.end;
    }
    *number = -1;
    *largest_timestamp = h->record_count ? h->base_timestamp + largest_delta : -1;
    return p == end ? KF_BATCH_OK : KF_BATCH_TRAILING;
}

int kf_batch_check_whole(const uint8_t *batch, size_t available, int rules, kf_batch_header *h,
                         int64_t *number, int64_t *largest_timestamp) {
    *number = -1;
    int fault = kf_batch_check(batch, available, h);
    if (fault) return fault;
    if (rules & KF_RULES_NO_CONTROL && h->attributes & KF_ATTRIBUTE_CONTROL)
        return KF_BATCH_CONTROL_BATCH;
    if (h->attributes & KF_ATTRIBUTE_CODEC)
        return rules & KF_RULES_KAFKA_RAFT ? KF_BATCH_COMPRESSED : KF_BATCH_OK;
    return kf_batch_check_records(batch + KF_BATCH_HEADER, h->size - KF_BATCH_HEADER, h, rules,
                                  number, largest_timestamp);
}

int kf_batch_is_plain(const uint8_t *batch, const kf_batch_header *h) {
    int64_t number, largest_timestamp;
    return !(h->attributes & KF_ATTRIBUTE_CODEC) &&
           !kf_batch_check_records(batch + KF_BATCH_HEADER, h->size - KF_BATCH_HEADER, h,
                                   KF_RULES_ANY, &number, &largest_timestamp);
}

int kf_batch_take_records(uint8_t *dst, const uint8_t *src, const uint8_t header[KF_BATCH_HEADER],
                          const kf_batch_header *h, int unseen) {
    int fault = kf_batch_take_body(dst, src, header, h);
    return !fault && unseen && !kf_batch_is_plain(dst, h) ? KF_BATCH_RECORDS : fault;
}

#define PRIME ((1ULL << 61) - 1)

/* (a + b) * key modulo the prime; a below it, b and key below 2^63. */
static uint64_t fold(uint64_t a, uint64_t b, uint64_t key) {
    unsigned __int128 product = (unsigned __int128)((a + b % PRIME) % PRIME) * key;
    uint64_t sum = (uint64_t)(product & PRIME) + (uint64_t)(product >> 61);
    return sum >= PRIME ? sum - PRIME : sum;
}

uint64_t kf_batch_vouch(uint64_t voucher, uint64_t key, const kf_batch_header *h,
                        int64_t base_offset) {
    voucher = fold(voucher, (uint64_t)base_offset, key);
    voucher = fold(voucher, (uint64_t)h->size << 32 | h->crc, key);
    return fold(voucher, (uint32_t)h->leader_epoch + 1ULL, key);
}

void kf_batch_accept(uint8_t *dst, uint8_t header[KF_BATCH_HEADER], int64_t base_offset,
                     int32_t leader_epoch) {
    kf_batch_stamp(header, base_offset, leader_epoch);
    memcpy(dst, header, KF_BATCH_HEADER);
}

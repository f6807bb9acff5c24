#include "batch.h"

#include <string.h>

#include "crc32c.h"
#include "mapping.h"

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

void kf_batch_accept(uint8_t *dst, uint8_t header[KF_BATCH_HEADER], int64_t base_offset,
                     int32_t leader_epoch) {
    kf_store64(header, (uint64_t)base_offset);
    kf_store32(header + 12, (uint32_t)leader_epoch);
    memcpy(dst, header, KF_BATCH_HEADER);
}

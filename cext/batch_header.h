/* The 61 bytes in front of the records of a batch (magic 2), and the one judge of them: the log
 * (append, copy, recovery, walks) and the readers of records (consumers, snapshots, Spark) both ask
 * it, so that nothing is committed that a reader refuses.
 *
 *   0 base offset i64 | 8 length i32 (of what follows) | 12 partition leader epoch i32
 *   16 magic i8
 *   17 crc u32 (CRC-32C of 21..end) | 21 attributes i16 | 23 last offset delta i32
 *   27 base timestamp i64 | 35 max timestamp i64 | 43 producer id i64 | 51 producer epoch i16
 *   53 base sequence i32 | 57 record count i32 | 61 records
 */
#ifndef KF_BATCH_HEADER_H
#define KF_BATCH_HEADER_H

#include <stddef.h>
#include <stdint.h>

#include "varint.h"

#define KF_BATCH_HEADER 61
#define KF_BATCH_OVERHEAD 12
#define KF_BATCH_CRC_AT 21
#define KF_BATCH_BYTES_MAX (8u * 1024 * 1024)
#define KF_BATCH_RECORDS_MAX (1 << 22) /* also of a compressed batch, whose bytes bound nothing */
#define KF_RECORD_BYTES_MIN 7          /* length, five fields of one byte, header count */
#define KF_RECORD_HEADERS_MAX (1 << 16)

#define KF_ATTRIBUTE_CODEC 0x07
#define KF_ATTRIBUTE_APPEND_TIME 0x08
#define KF_ATTRIBUTE_TRANSACTIONAL 0x10
#define KF_ATTRIBUTE_CONTROL 0x20
#define KF_ATTRIBUTE_UNKNOWN 0xff80
#define KF_CODEC_MAX 4 /* zstd */

typedef struct {
    int64_t base_offset;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t producer_id;
    int32_t leader_epoch;
    int32_t last_offset_delta;
    int32_t base_sequence;
    int32_t record_count;
    uint32_t size; /* of the whole batch, bytes */
    uint32_t crc;
    int16_t attributes;
    int16_t producer_epoch;
} kf_batch_header;

/* Why a batch was not taken. shapes.Fault has the same names and numbers, and the words. */
enum {
    KF_BATCH_OK,
    /* The header, as kf_batch_read_header finds it. */
    KF_BATCH_INCOMPLETE, /* fewer bytes than the header says: a torn tail or a cut answer */
    KF_BATCH_EMPTY,      /* zeros where a header is expected: the prepared tail */
    KF_BATCH_LENGTH,
    KF_BATCH_MAGIC,
    KF_BATCH_ATTRIBUTES,
    KF_BATCH_COUNT,
    KF_BATCH_OFFSET_BOUNDS,
    KF_BATCH_EPOCH_BOUNDS,
    KF_BATCH_CRC,
    /* The log's own. */
    KF_BATCH_OFFSET,     /* not the log's next */
    KF_BATCH_EPOCH,      /* below the log's last, or not its checkpoint's */
    KF_BATCH_UNREADABLE, /* SIGBUS while reading the source */
    KF_BATCH_STALE,      /* the source was cut or reused meanwhile */
    KF_BATCH_RECORDS,    /* records that must be decompressed to be checked, or that do not hold */
    /* The records (record.h). */
    KF_RECORD_LENGTH,
    KF_RECORD_FIELD,
    KF_RECORD_SIZE,
    KF_RECORD_HEADERS,
    KF_RECORD_OFFSET,
    KF_RECORD_TIMESTAMP,
    KF_BATCH_CONTROL_KEY,
    KF_BATCH_TRAILING,
    /* Sound, but refused by the caller's rules. */
    KF_BATCH_COMPRESSED,
    KF_RECORD_HAS_TIMESTAMP_DELTA,
    KF_RECORD_HAS_HEADERS,
    KF_RECORD_HAS_KEY,
    KF_RECORD_NO_VALUE,
    KF_BATCH_CONTROL_EMPTY,
    KF_BATCH_CONTROL_UNKNOWN,
    KF_BATCH_CONTROL_BATCH
};

/* Parse and bound a header that lies in private memory; `available` counts from its start. Only the
 * header is read. Records may be missing from the batch, as from one that Kafka compacted; all
 * other faults come before KF_BATCH_INCOMPLETE, and h is filled in at KF_BATCH_ATTRIBUTES and
 * later. */
static inline int kf_batch_read_header(const uint8_t *b, size_t available, kf_batch_header *h) {
    if (available < KF_BATCH_HEADER) return KF_BATCH_INCOMPLETE;
    uint32_t length = kf_load32(b + 8);
    if (length == 0 && b[16] == 0) return KF_BATCH_EMPTY;
    if (length < KF_BATCH_HEADER - KF_BATCH_OVERHEAD ||
        length > KF_BATCH_BYTES_MAX - KF_BATCH_OVERHEAD)
        return KF_BATCH_LENGTH;
    if (b[16] != 2) return KF_BATCH_MAGIC;
    h->base_offset = (int64_t)kf_load64(b);
    h->size = length + KF_BATCH_OVERHEAD;
    h->leader_epoch = (int32_t)kf_load32(b + 12);
    h->crc = kf_load32(b + 17);
    h->attributes = (int16_t)kf_load16(b + 21);
    h->last_offset_delta = (int32_t)kf_load32(b + 23);
    h->base_timestamp = (int64_t)kf_load64(b + 27);
    h->max_timestamp = (int64_t)kf_load64(b + 35);
    h->producer_id = (int64_t)kf_load64(b + 43);
    h->producer_epoch = (int16_t)kf_load16(b + 51);
    h->base_sequence = (int32_t)kf_load32(b + 53);
    h->record_count = (int32_t)kf_load32(b + 57);
    int codec = h->attributes & KF_ATTRIBUTE_CODEC;
    if ((h->attributes & KF_ATTRIBUTE_UNKNOWN) || codec > KF_CODEC_MAX) return KF_BATCH_ATTRIBUTES;
    /* An impossible count is refused unread, and so are bytes that no decoder would look at. */
    uint32_t body = h->size - KF_BATCH_HEADER;
    if (h->last_offset_delta < 0 || h->record_count < 0 ||
        h->record_count - 1 > h->last_offset_delta || h->record_count > KF_BATCH_RECORDS_MAX)
        return KF_BATCH_COUNT;
    if (!codec && (uint32_t)h->record_count > body / KF_RECORD_BYTES_MIN) return KF_BATCH_COUNT;
    if (!h->record_count && body) return KF_BATCH_COUNT;
    /* The exclusive end must fit too. */
    if (h->base_offset < 0 || h->base_offset > INT64_MAX - 1 - h->last_offset_delta)
        return KF_BATCH_OFFSET_BOUNDS;
    if (h->leader_epoch < -1) return KF_BATCH_EPOCH_BOUNDS; /* -1: not stamped yet */
    return h->size > available ? KF_BATCH_INCOMPLETE : KF_BATCH_OK;
}

/* Store base offset and leader epoch, which lie outside the CRC. */
static inline void kf_batch_stamp(uint8_t *b, int64_t base_offset, int32_t leader_epoch) {
    kf_store64(b, (uint64_t)base_offset);
    kf_store32(b + 12, (uint32_t)leader_epoch);
}

/* Store the 61 bytes of h, its CRC as it stands there. */
static inline void kf_batch_write_header(uint8_t *b, const kf_batch_header *h) {
    kf_batch_stamp(b, h->base_offset, h->leader_epoch);
    kf_store32(b + 8, h->size - KF_BATCH_OVERHEAD);
    b[16] = 2;
    kf_store32(b + 17, h->crc);
    kf_store16(b + 21, (uint16_t)h->attributes);
    kf_store32(b + 23, (uint32_t)h->last_offset_delta);
    kf_store64(b + 27, (uint64_t)h->base_timestamp);
    kf_store64(b + 35, (uint64_t)h->max_timestamp);
    kf_store64(b + 43, (uint64_t)h->producer_id);
    kf_store16(b + 51, (uint16_t)h->producer_epoch);
    kf_store32(b + 53, (uint32_t)h->base_sequence);
    kf_store32(b + 57, (uint32_t)h->record_count);
}

/* Judge whether a leader may append a batch with these attributes; return a fault or KF_BATCH_OK.
 * A producer states its codec and no more. Control batches are the leader's own, append times and
 * delete horizons the log's, and a batch of a transaction, which nothing here ever finishes, must
 * not be committed. Records that were not checked yet must not be compressed: KF_BATCH_RECORDS. */
static inline int kf_batch_judge_append(const kf_batch_header *h, int control, int unseen) {
    if ((h->attributes & ~KF_ATTRIBUTE_CODEC) != (control ? KF_ATTRIBUTE_CONTROL : 0))
        return KF_BATCH_ATTRIBUTES;
    return unseen && h->attributes & KF_ATTRIBUTE_CODEC ? KF_BATCH_RECORDS : KF_BATCH_OK;
}

#endif

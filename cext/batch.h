/* Record batches (magic 2) as the log handles them: whole, by their 61 bytes of header.
 *
 *   0 base offset i64 | 8 length i32 (of what follows) | 12 partition leader epoch i32
 *   16 magic i8
 *   17 crc u32 (CRC-32C of 21..end) | 21 attributes i16 | 23 last offset delta i32
 *   27 base timestamp i64 | 35 max timestamp i64 | 43 producer id i64 | 51 producer epoch i16
 *   53 base sequence i32 | 57 record count i32 | 61 records
 *
 * Base offset and leader epoch lie outside the CRC: a leader stamps them, a follower checks them
 * against its log. Bytes of another process are read once: the header into private memory, the
 * body while it is copied and summed; the header is stored last (D20).
 */
#ifndef KF_BATCH_H
#define KF_BATCH_H

#include <stddef.h>
#include <stdint.h>

#define KF_BATCH_HEADER 61
#define KF_BATCH_OVERHEAD 12
#define KF_BATCH_CRC_AT 21
#define KF_BATCH_BYTES_MAX (8u * 1024 * 1024)
#define KF_BATCH_RECORDS_MAX (1 << 22) /* also of a compressed batch, whose bytes bound nothing */

#define KF_ATTRIBUTE_CODEC 0x07
#define KF_ATTRIBUTE_APPEND_TIME 0x08
#define KF_ATTRIBUTE_TRANSACTIONAL 0x10
#define KF_ATTRIBUTE_CONTROL 0x20
#define KF_ATTRIBUTE_UNKNOWN 0xff80

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

/* Why a batch was not taken. */
enum {
    KF_BATCH_OK,
    KF_BATCH_INCOMPLETE, /* fewer bytes than the header says: a torn tail or a cut answer */
    KF_BATCH_EMPTY,      /* zeros where a header is expected: the prepared tail */
    KF_BATCH_LENGTH,
    KF_BATCH_MAGIC,
    KF_BATCH_ATTRIBUTES,
    KF_BATCH_COUNT,
    KF_BATCH_CRC,
    KF_BATCH_OFFSET,
    KF_BATCH_EPOCH,
    KF_BATCH_UNREADABLE, /* SIGBUS while reading the source */
    KF_BATCH_STALE,      /* the source was cut or reused meanwhile */
    KF_BATCH_FAULTS
};
const char *kf_batch_fault_text(int fault);

/* Parse and bound a header that lies in private memory; `available` counts from its start. */
int kf_batch_parse(const uint8_t *header, size_t available, kf_batch_header *h);
/* Whether the CRC of the h->size bytes at `batch` is the one in h; the header is not read again. */
int kf_batch_crc_holds(const uint8_t *batch, const kf_batch_header *h);
/* As kf_batch_parse, for bytes that do not change meanwhile, with the CRC checked too. */
int kf_batch_check(const uint8_t *batch, size_t available, kf_batch_header *h);

/* Take a batch from bytes that another process may change, in two steps. First its header into
 * private memory, parsed and bounded; `available` counts from src. */
int kf_batch_take_header(const uint8_t *src, size_t available, uint8_t header[KF_BATCH_HEADER],
                         kf_batch_header *h);
/* Then, once the caller has judged it, its body to dst + 61 with the CRC checked over the private
 * header and the bytes stored. Nothing is stored in the first 61 bytes of dst, which has room for
 * h->size. */
int kf_batch_take_body(uint8_t *dst, const uint8_t *src, const uint8_t header[KF_BATCH_HEADER],
                       const kf_batch_header *h);
/* Store the private header, stamped, before its body: only now is the batch part of the log. */
void kf_batch_accept(uint8_t *dst, uint8_t header[KF_BATCH_HEADER], int64_t base_offset,
                     int32_t leader_epoch);

#endif

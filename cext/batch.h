/* Record batches (magic 2) as the log handles them: whole, by their header (batch_header.h).
 *
 * Base offset and leader epoch lie outside the CRC: a leader stamps them, a follower checks them
 * against its log. A batch is judged whole before any of it is used (S8). Bytes of another process
 * are read once: the header into private memory, the body while it is copied and summed; the header
 * is stored last (D20).
 */
#ifndef KF_BATCH_H
#define KF_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "batch_header.h"

/* As kf_batch_read_header, for a log: offsets leave no gap, so no record may be missing. */
int kf_batch_parse(const uint8_t *header, size_t available, kf_batch_header *h);
/* Whether the CRC of the h->size bytes at `batch` is the one in h; the header is not read again. */
int kf_batch_crc_holds(const uint8_t *batch, const kf_batch_header *h);
/* Store h in front of the records that stand behind it, with the CRC of both; also in h. */
void kf_batch_seal(uint8_t *batch, kf_batch_header *h);
/* As kf_batch_parse, for bytes that do not change meanwhile, with the CRC checked too. */
int kf_batch_check(const uint8_t *batch, size_t available, kf_batch_header *h);

/* What a check demands beyond a sound batch; may be or-ed. */
enum {
    KF_RULES_ANY = 0,
    KF_RULES_KAFKA_RAFT = 1, /* only what Kafka's own raft reader takes */
    KF_RULES_NO_CONTROL = 2  /* from a producer: no control batch */
};

/* The records (decompressed, if the batch is compressed) one by one: framing, offsets 0 .. n-1, and
 * what the rules demand. At a fault *number is the number of the record, -1 if it is not one
 * record's. Without one *largest_timestamp is that of the records. */
int kf_batch_check_records(const uint8_t *p, size_t size, const kf_batch_header *h, int rules,
                           int64_t *number, int64_t *largest_timestamp);
/* As kf_batch_check, with the records checked too unless they are compressed. */
int kf_batch_check_whole(const uint8_t *batch, size_t available, int rules, kf_batch_header *h,
                         int64_t *number, int64_t *largest_timestamp);

/* Take a batch from bytes that another process may change, in two steps. First its header into
 * private memory, parsed and bounded; `available` counts from src. */
int kf_batch_take_header(const uint8_t *src, size_t available, uint8_t header[KF_BATCH_HEADER],
                         kf_batch_header *h);
/* Then, once the caller has judged it, its body to dst + 61 with the CRC checked over the private
 * header and the bytes stored. Nothing is stored in the first 61 bytes of dst, which has room for
 * h->size. */
int kf_batch_take_body(uint8_t *dst, const uint8_t *src, const uint8_t header[KF_BATCH_HEADER],
                       const kf_batch_header *h);
/* The same; records that were not checked yet must be plain, too (KF_BATCH_RECORDS). */
int kf_batch_take_records(uint8_t *dst, const uint8_t *src, const uint8_t header[KF_BATCH_HEADER],
                          const kf_batch_header *h, int unseen);
/* Whether its records are uncompressed and kf_batch_check_records takes them: a few nanoseconds a
 * record. kraftfast.record.check_batches checks compressed ones. `batch` is private; h is read in
 * place of its header. */
int kf_batch_is_plain(const uint8_t *batch, const kf_batch_header *h);
/* What vouches for the batches of a file that is used again, up to the end of this one: made of
 * what vouches for those before it (KF_VOUCHER_START: none) and of the header, whose CRC stands for
 * the body. A polynomial in the key, modulo a prime: of a key that is drawn when both are fixed,
 * two runs of n batches have the same voucher with a probability of 3n / 2^61 at most. */
#define KF_VOUCHER_START 1
uint64_t kf_batch_vouch(uint64_t voucher, uint64_t key, const kf_batch_header *h,
                        int64_t base_offset);
/* Store the private header, stamped, before its body: only now is the batch part of the log. */
void kf_batch_accept(uint8_t *dst, uint8_t header[KF_BATCH_HEADER], int64_t base_offset,
                     int32_t leader_epoch);

#endif

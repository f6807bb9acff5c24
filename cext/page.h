/* The last page of a prepared segment: the replica's own words, on disk by the segment's own
 * fdatasync (D10). It goes when the file is trimmed. Words are in the machine's byte order.
 *
 *   +0     magic: this file is prepared by kraftfast and not trimmed
 *   +512   two slots of 64 bytes in one sector, written in turn: sequence, target (offset, epoch),
 *          flushed (offset, epoch), a voucher of each, CRC-32C. A torn store spoils one slot, the
 *          other still holds.
 *   +1024  generation: raised before any byte that was published is cut or reused (D8, D20)
 *   +1088  prepared: batches stand in so many bytes from the start of the file at most
 *   +1152  key of a file that is used again, and its complement; both 0: zeros stand behind the
 *          batches
 *   +1536  two slots as above for the end: where batches end by now (offset, epoch, position), and
 *          its voucher; only in a file with a key
 *
 * `target` is stored before fdatasync: nothing at or beyond it was ever acknowledged.
 * `flushed` is stored after it returned: everything below it is on disk. The end is stored with
 * each batch: what a killed process appended is told from what the file held before.
 *
 * A file that is used again holds what it held before, behind the batches and, after a power cut,
 * in the place of pages that were not written. A voucher tells one from the other: it is made of
 * the headers of all batches in front of it (batch.h) and of a key that was drawn when the file was
 * taken in: what the file held before was written without knowledge of it.
 */
#ifndef KF_PAGE_H
#define KF_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

#define KF_PAGE_BYTES 4096
#define KF_PAGE_MAGIC 0x3147455354534146ULL

typedef struct {
    int64_t offset;
    int32_t epoch;
    int32_t pad;
} kf_mark;

typedef struct {
    uint64_t sequence;
    kf_mark target;
    kf_mark flushed;
    uint64_t voucher; /* of the target; 0 in a file without a key */
    union {
        uint64_t flushed_voucher;
        uint64_t position; /* of an end: bytes from the start of the file */
    };
    uint32_t zero;
    uint32_t crc; /* over the 60 bytes before it */
} kf_watermark;

#define KF_KEY_DAMAGED UINT64_MAX /* of a key that cannot be read: it vouches for nothing */
#define KF_KEY_MAX ((1ULL << 61) - 2)

/* Make a page of a file that no process maps: both marks at `at`. The magic is stored last. */
void kf_page_format(uint8_t *page, kf_mark at, uint64_t generation);
/* Whether the magic is there; the slots may still be unreadable. */
int kf_page_valid(const uint8_t *page);
/* Batches stand in so many bytes from the start at most: what lies behind may be older ones.
 * UINT64_MAX if the page does not say; 0 if the end of a file with a key cannot be read just now.
 */
uint64_t kf_page_batches_end(const uint8_t *page);
/* The newest slot that its CRC proves; returns 0, or -1 if neither does. */
int kf_watermark_load(const uint8_t *page, kf_watermark *w);
/* One writer at a time: the flusher from ask to take, else the loop (a cut waits for the flusher,
 * or its `flushed` would rise again above the cut). Invariant: flushed <= target. */
void kf_watermark_store(uint8_t *page, kf_mark target, kf_mark flushed, uint64_t voucher,
                        uint64_t flushed_voucher);

/* The end, as the target of a watermark: where batches end that were appended by now. */
int kf_end_load(const uint8_t *page, kf_watermark *end);
void kf_end_store(uint8_t *page, kf_mark end, uint64_t voucher, uint64_t position);

/* 0: none, and zeros stand behind the batches; KF_KEY_DAMAGED; else from 1 to KF_KEY_MAX. */
uint64_t kf_key_load(const uint8_t *page);
void kf_key_store(uint8_t *page, uint64_t key);

/* Ordered after the reads before it and before the reads after it: what was read between two
 * loads that agree stood in the file under that generation. */
uint64_t kf_generation_load(const uint8_t *page);
/* Raise the generation, ordered before the stores that follow. */
void kf_generation_bump(uint8_t *page);

/* One aligned word, so that no write-back catches it half stored; 0 if it is damaged. */
uint64_t kf_prepared_load(const uint8_t *page);
void kf_prepared_store(uint8_t *page, uint64_t bytes);

#endif

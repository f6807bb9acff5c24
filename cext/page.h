/* The last page of a prepared segment: the replica's own words, on disk by the segment's own
 * fdatasync (D10). It goes when the file is trimmed. Words are in the machine's byte order.
 *
 *   +0     magic: this file is prepared by kraftfast and not trimmed
 *   +512   two slots of 64 bytes in one sector, written in turn: sequence, target (offset, epoch),
 *          flushed (offset, epoch), CRC-32C. A torn store spoils one slot, the other still holds.
 *   +1024  generation: raised before any byte that was published is cut or reused (D8, D20)
 *   +1088  prepared: bytes from the start of the file that are written and flushed
 *
 * `target` is stored before fdatasync: nothing at or beyond it was ever acknowledged.
 * `flushed` is stored after it returned: everything below it is on disk.
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
    uint8_t pad[16];
    uint32_t zero;
    uint32_t crc; /* over the 60 bytes before it */
} kf_watermark;

/* Make a page of a file that nobody maps: both marks at `at`. The magic is stored last. */
void kf_page_format(uint8_t *page, kf_mark at, uint64_t generation);
/* Whether the magic is there; the slots may still be unreadable. */
int kf_page_valid(const uint8_t *page);
/* The newest slot that its CRC proves; returns 0, or -1 if neither does. */
int kf_watermark_load(const uint8_t *page, kf_watermark *w);
/* One writer at a time: the flusher from ask to take, else the loop (a cut waits for the flusher,
 * or its `flushed` would rise again above the cut). Invariant: flushed <= target. */
void kf_watermark_store(uint8_t *page, kf_mark target, kf_mark flushed);

/* Ordered after the reads before it and before the reads after it: what was read between two
 * loads that agree stood in the file under that generation. */
uint64_t kf_generation_load(const uint8_t *page);
/* Raise the generation, ordered before the stores that follow. */
void kf_generation_bump(uint8_t *page);

/* One aligned word, so that no write-back catches it half stored; 0 if it is damaged. */
uint64_t kf_prepared_load(const uint8_t *page);
void kf_prepared_store(uint8_t *page, uint64_t bytes);

#endif

/* Putting a log on disk: the last page of a prepared segment, the flush itself, and its thread.
 *
 * The last page of a prepared segment is the replica's own (reliability.md D10):
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
#ifndef KF_FLUSHER_H
#define KF_FLUSHER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "ring.h"

#define KF_PAGE_BYTES 4096
#define KF_PAGE_MAGIC 0x3147455354534146ULL
#define KF_FLUSH_FILES_MAX 8

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

void kf_page_format(uint8_t *page, kf_mark at, uint64_t generation);
int kf_page_valid(const uint8_t *page);
/* The newest slot that its CRC proves; returns 0, or -1 if neither does. */
int kf_watermark_load(const uint8_t *page, kf_watermark *w);
void kf_watermark_store(uint8_t *page, kf_mark target, kf_mark flushed);
uint64_t kf_generation_load(const uint8_t *page);
/* Raise the generation, ordered before the stores that follow. */
void kf_generation_bump(uint8_t *page);
uint64_t kf_prepared_load(const uint8_t *page);
void kf_prepared_store(uint8_t *page, uint64_t bytes);

typedef struct {
    int fd;
    uint8_t *page;  /* NULL: a file without one */
    kf_mark target; /* what of this file will be on disk */
} kf_flush_file;

typedef struct {
    kf_flush_file files[KF_FLUSH_FILES_MAX]; /* oldest first: a later `flushed` implies the earlier */
    int count;
} kf_flush_job;

/* Store targets, fdatasync each file, store flushed. Returns 0 or the errno, which is final (D9). */
int kf_flush_run(kf_flush_job *job);

enum { KF_FLUSHER_IDLE, KF_FLUSHER_ASKED, KF_FLUSHER_DONE, KF_FLUSHER_ENDED };

/* A thread that never takes the GIL. One job at a time; its end rings the loop's doorbell. */
typedef struct {
    pthread_t thread;
    _Atomic uint32_t state;
    kf_flush_job job;
    int error;            /* of the job that is done */
    uint64_t duration_ns; /* of the job that is done */
    const kf_doorbell_page *doorbell;
    int doorbell_fd;
} kf_flusher;

int kf_flusher_start(kf_flusher *f, const kf_doorbell_page *doorbell, int doorbell_fd);
/* Fill f->job first. Only while idle. */
void kf_flusher_ask(kf_flusher *f);
/* 1 if a job ended (its error and duration are in *f, and the flusher is idle again), else 0. */
int kf_flusher_take(kf_flusher *f);
int kf_flusher_busy(const kf_flusher *f);
/* Waits for the job at hand, then for the thread. */
void kf_flusher_stop(kf_flusher *f);

uint64_t kf_now_ns(void);

#endif

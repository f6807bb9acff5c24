/* Mapping files, copying out of maps that may fail, and the nursery that prepares segments.
 *
 * A store into a mapped page that has no block on disk, or a load from a bad sector, is a SIGBUS.
 * The log never stores where the nursery has not written (R10); what it loads from another
 * replica's file goes through a guarded copy: a SIGBUS inside it makes the copy fail, one anywhere
 * else is recorded on stderr and ends the process.
 */
#ifndef KF_MAPPING_H
#define KF_MAPPING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "ring.h"

/* Shared map of `bytes` of fd from its start; NULL and errno on failure. */
uint8_t *kf_map(int fd, size_t bytes, int writable);
int kf_unmap(void *map, size_t bytes);

/* Once a process, before the first guarded copy. */
int kf_guard_install(void);
/* kf_crc32c_copy that survives SIGBUS: 0, or -1 if a page could not be read or written. */
int kf_guarded_crc_copy(uint32_t *crc, void *dst, const void *src, size_t n);
/* memcpy likewise. */
int kf_guarded_copy(void *dst, const void *src, size_t n);

enum { KF_PREPARE_WRITE, KF_PREPARE_MAPPED };

/* The blocks of [from, to): ENOSPC comes here, cleanly, and in one extent where the disk has one. */
int kf_reserve(int fd, uint64_t from, uint64_t to);
/* Make [from, to) of a file real: zeros written, flushed, pages mapped if `map`.
 * KF_PREPARE_WRITE writes in pieces of `piece` bytes (small folios: small flushes stay small),
 * KF_PREPARE_MAPPED stores through the map (large folios: fewest write faults). `flush_bytes`
 * is how much is flushed at once. Returns 0 or an errno (ENOSPC: nothing was promised). */
int kf_prepare(int fd, uint8_t *map, uint64_t from, uint64_t to, int how, uint32_t piece, uint32_t flush_bytes);
/* Zero [from, to) of a prepared map where it is not zero yet. Returns how many bytes were not. */
uint64_t kf_zero_dirty(uint8_t *map, uint64_t from, uint64_t to);
/* Whether [from, to) is all zeros. */
int kf_is_zero(const uint8_t *map, uint64_t from, uint64_t to);

enum { KF_NURSERY_IDLE, KF_NURSERY_ASKED, KF_NURSERY_DONE, KF_NURSERY_ENDED };

/* A thread that never takes the GIL and prepares one range at a time, ahead of the log's head. */
typedef struct {
    pthread_t thread;
    _Atomic uint32_t state;
    int fd;
    uint8_t *map;
    uint64_t from, to;
    int how;
    uint32_t piece;
    _Atomic uint64_t done;     /* [from, done) is prepared */
    _Atomic uint32_t pause_us; /* between pieces; 0 when the log is close behind */
    _Atomic uint32_t cancel;
    int error; /* of the job that is done */
    const kf_doorbell_page *doorbell;
    int doorbell_fd;
} kf_nursery;

int kf_nursery_start(kf_nursery *n, const kf_doorbell_page *doorbell, int doorbell_fd);
/* Fill fd, map, from, to, how, piece first. Only while idle. */
void kf_nursery_ask(kf_nursery *n);
/* 1 if a job ended (its error is in n->error, and the nursery is idle again), else 0. */
int kf_nursery_take(kf_nursery *n);
int kf_nursery_busy(const kf_nursery *n);
uint64_t kf_nursery_done(const kf_nursery *n);
void kf_nursery_pause(kf_nursery *n, uint32_t pause_us);
/* Gives up the job at hand after its piece, then waits for the thread. */
void kf_nursery_stop(kf_nursery *n);

#endif

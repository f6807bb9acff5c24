/* The nursery: a thread that prepares segments ahead of the log's end, and never takes the GIL. */
#ifndef KF_NURSERY_H
#define KF_NURSERY_H

#include <stdatomic.h>
#include <stdint.h>

#include "mapping.h"
#include "worker.h"

/* What is done with a range of a file. */
enum {
    KF_RESERVE,  /* it gets its blocks, at once: ENOSPC comes here */
    KF_ZERO,     /* zeros are written, piece by piece, each flushed */
    KF_POPULATE, /* its pages are there, and may be stored into without a fault */
    KF_SYNC,     /* what was stored into the file is put on disk; the range does not matter */
    KF_CACHED,   /* it is found out up to where the page cache holds its pages */
};

/* One range at a time. The thread opens the file again (/proc/self/fd), so that its syncs report no
 * error of the log's own write-back in the flusher's stead (D9). Of its own errors EIO is final for
 * the log, whose pages may be among those that failed; after any other one the work is tried again.
 */
typedef struct {
    kf_worker worker;
    int fd;
    uint8_t *map; /* or NULL */
    uint64_t from, to;
    int what;
    uint32_t piece;            /* bytes */
    _Atomic uint64_t done;     /* [from, done) is; from <= done <= to */
    _Atomic uint32_t pause_us; /* between pieces of zeros */
    _Atomic uint64_t flushes;  /* so far */
    _Atomic uint32_t cancel;
    _Atomic uint32_t writing; /* a piece of zeros is being written just now */
    _Atomic uint32_t nudge;   /* counts changes that end a pause */
    int error;                /* of the job that is done */
} kf_nursery;

/* Returns 0 or an errno. */
int kf_nursery_start(kf_nursery *n, const kf_doorbell_page *doorbell, int doorbell_fd);
/* Fill fd, map, from, to, what, piece first. Only while idle. */
void kf_nursery_ask(kf_nursery *n);
/* 1 if a job ended (its error is in n->error, and the nursery is idle again), else 0. */
int kf_nursery_take(kf_nursery *n);
int kf_nursery_busy(const kf_nursery *n);
/* How far the job at hand, or the last one, has come (seq_cst load: a re-check, R12). */
uint64_t kf_nursery_done(const kf_nursery *n);
/* How many syncs the thread has made since it was started. */
uint64_t kf_nursery_flushes(const kf_nursery *n);
/* How long to wait after each piece; ends a pause that is under way if it changes. */
void kf_nursery_pause(kf_nursery *n, uint32_t pause_us);
/* Give up the job at hand after its piece: it ends with ECANCELED, what is done stays prepared. */
void kf_nursery_cancel(kf_nursery *n);
/* The same; when this returns no more zeros are written, though the job may not have ended: the
 * range is the caller's to store into. */
void kf_nursery_halt(kf_nursery *n);
/* Cancels, then waits for the thread. */
void kf_nursery_stop(kf_nursery *n);

#endif

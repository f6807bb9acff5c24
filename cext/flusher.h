/* Putting a log on disk: the flush itself, and its thread.
 *
 * D9: the kernel reports a failed write-back once to each open file description. A thread that
 * syncs the log's description must treat an error as final for the log. The nursery, which does not
 * act for the log, must sync through a description of its own, so that it takes no report away.
 */
#ifndef KF_FLUSHER_H
#define KF_FLUSHER_H

#include <stdint.h>

#include "page.h"
#include "worker.h"

#define KF_FLUSH_FILES_MAX 8

typedef struct {
    int fd;
    uint8_t *page;    /* NULL: none, as of a directory; then fsync, for its names */
    kf_mark target;   /* what of this file will be on disk: sampled before the ask (D1) */
    uint64_t voucher; /* of the target */
    /* NULL: sync the whole file. Else [0, end) of this map and the page alone: what is mapped for
     * stores to come would be written too, and each of its pages faults again at its next store. */
    uint8_t *map;
    uint64_t end;
} kf_flush_file;

typedef struct {
    /* Oldest first: a later `flushed` implies the earlier ones (D18). */
    kf_flush_file files[KF_FLUSH_FILES_MAX];
    int count;
} kf_flush_job;

/* Store targets, sync each file, store flushed. Returns 0 or the errno, which is final (D9);
 * EIO too where a page has no readable watermark. */
int kf_flush_run(kf_flush_job *job);

/* One job at a time; its end rings the loop's doorbell. A job does not know of truncations: the
 * loop waits for the end before it cuts, or drops the completion (D2). */
typedef struct {
    kf_worker worker;
    kf_flush_job job;
    int error; /* of the job that is done; once set, all later jobs end with it (D9) */
    uint64_t began_ns, duration_ns; /* of the job that is done */
} kf_flusher;

/* Returns 0 or an errno. */
int kf_flusher_start(kf_flusher *f, const kf_doorbell_page *doorbell, int doorbell_fd);
/* Fill f->job first. Only while idle. */
void kf_flusher_ask(kf_flusher *f);
/* 1 if a job ended (its error and duration are in *f, and the flusher is idle again), else 0. */
int kf_flusher_take(kf_flusher *f);
int kf_flusher_busy(const kf_flusher *f);
/* Waits for the job at hand, then for the thread; the job's end can still be taken. */
void kf_flusher_stop(kf_flusher *f);

uint64_t kf_now_ns(void);

#endif

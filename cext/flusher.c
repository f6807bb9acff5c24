#include "flusher.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mapping.h"

uint64_t kf_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

/* D10 asks that the target is stored before and the flushed end after; bytes and page may reach
 * the disk in either order. */
static int sync_range(const kf_flush_file *f) {
    int error = kf_sync_range(f->map, 0, f->end);
    uint64_t page = (uint64_t)(f->page - f->map);
    return error ? error : kf_sync_range(f->map, page, page + KF_PAGE_BYTES);
}

static int sync_one(const kf_flush_file *f) {
    int failed;
    if (f->page && f->map) return sync_range(f);
    do failed = f->page ? fdatasync(f->fd) : fsync(f->fd);
    while (failed && errno == EINTR); /* cut short before it failed or ended: not an answer */
    return failed ? errno : 0;
}

int kf_flush_run(kf_flush_job *job) {
    if (job->count < 0 || job->count > KF_FLUSH_FILES_MAX) __builtin_trap();
    for (int i = 0; i < job->count; i++) {
        kf_flush_file *f = &job->files[i];
        kf_watermark w;
        if (f->page) { /* D10: target before the flush ... */
            if (kf_watermark_load(f->page, &w)) return EIO;
            kf_watermark_store(f->page, f->target, w.flushed, f->voucher, w.flushed_voucher);
        }
        int error = sync_one(f);
        if (error) return error; /* D9: never retried */
        if (f->page)             /* ... flushed after it */
            kf_watermark_store(f->page, f->target, f->target, f->voucher, f->voucher);
    }
    return 0;
}

static void work(void *owner) {
    kf_flusher *f = owner;
    uint64_t began = kf_now_ns();
    if (!f->error) f->error = kf_flush_run(&f->job); /* D9: the next fdatasync would lie */
    f->duration_ns = kf_now_ns() - began;
    f->began_ns = began;
}

int kf_flusher_start(kf_flusher *f, const kf_doorbell_page *doorbell, int doorbell_fd) {
    memset(f, 0, sizeof *f);
    return kf_worker_start(&f->worker, "kf-flusher", work, f, doorbell, doorbell_fd);
}

void kf_flusher_ask(kf_flusher *f) { kf_worker_ask(&f->worker); }

int kf_flusher_take(kf_flusher *f) { return kf_worker_take(&f->worker); }

int kf_flusher_busy(const kf_flusher *f) { return kf_worker_busy(&f->worker); }

void kf_flusher_stop(kf_flusher *f) { kf_worker_stop(&f->worker); }

#include "nursery.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* seq_cst, and so is `writing`: either the thread sees that it has to stop, or the caller
 * sees that it writes. */
static int cancelled(kf_nursery *n) {
    return atomic_load_explicit(&n->cancel, memory_order_seq_cst) != 0;
}

static int write_piece(kf_nursery *n, int fd, uint64_t from, uint64_t to) {
    atomic_store_explicit(&n->writing, 1, memory_order_seq_cst);
    int error = cancelled(n) ? ECANCELED : kf_write_zeros(fd, from, to, n->piece);
    atomic_store_explicit(&n->writing, 0, memory_order_seq_cst);
    return error;
}

static int zero_range(kf_nursery *n, int fd) {
    uint64_t at = n->from;
    if (!n->piece) return EINVAL;
    while (at < n->to) {
        uint32_t nudge = atomic_load_explicit(&n->nudge, memory_order_acquire);
        uint32_t pause_us = atomic_load_explicit(&n->pause_us, memory_order_relaxed);
        uint64_t stop = n->to - at > n->piece ? at + n->piece : n->to;
        int error = write_piece(n, fd, at, stop);
        if (error) return error;
        error = kf_sync(fd);
        atomic_fetch_add_explicit(&n->flushes, 1, memory_order_relaxed);
        if (error) return error;
        atomic_store_explicit(&n->done, stop, memory_order_seq_cst);
        at = stop;
        if (pause_us && at < n->to) kf_futex_wait(&n->nudge, nudge, pause_us);
    }
    return 0;
}

static int do_range(kf_nursery *n, int fd) {
    int error = 0;
    if (cancelled(n)) return ECANCELED;
    if (n->what == KF_ZERO) return zero_range(n, fd);
    if (n->what == KF_RESERVE) error = kf_reserve(fd, n->from, n->to);
    if (n->what == KF_POPULATE) kf_populate(n->map, n->from, n->to);
    uint64_t end = n->what == KF_CACHED ? kf_cached_end(n->map, n->from, n->to) : n->to;
    if (n->what == KF_SYNC) {
        error = kf_sync(fd);
        atomic_fetch_add_explicit(&n->flushes, 1, memory_order_relaxed);
    }
    if (!error) atomic_store_explicit(&n->done, end, memory_order_seq_cst);
    return error;
}

static void work(void *owner) {
    kf_nursery *n = owner;
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", n->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        n->error = errno;
        return;
    }
    n->error = do_range(n, fd);
    close(fd);
}

int kf_nursery_start(kf_nursery *n, const kf_doorbell_page *doorbell, int doorbell_fd) {
    memset(n, 0, sizeof *n);
    return kf_worker_start(&n->worker, "kf-nursery", work, n, doorbell, doorbell_fd);
}

void kf_nursery_ask(kf_nursery *n) {
    atomic_store_explicit(&n->done, n->from, memory_order_relaxed);
    atomic_store_explicit(&n->cancel, 0, memory_order_relaxed);
    kf_worker_ask(&n->worker);
}

int kf_nursery_take(kf_nursery *n) { return kf_worker_take(&n->worker); }

int kf_nursery_busy(const kf_nursery *n) { return kf_worker_busy(&n->worker); }

uint64_t kf_nursery_done(const kf_nursery *n) {
    return atomic_load_explicit(&n->done, memory_order_seq_cst);
}

uint64_t kf_nursery_flushes(const kf_nursery *n) {
    return atomic_load_explicit(&n->flushes, memory_order_relaxed);
}

static void nudge(kf_nursery *n) {
    atomic_fetch_add_explicit(&n->nudge, 1, memory_order_release);
    kf_futex_wake(&n->nudge);
}

void kf_nursery_pause(kf_nursery *n, uint32_t pause_us) {
    if (atomic_exchange_explicit(&n->pause_us, pause_us, memory_order_relaxed) != pause_us)
        nudge(n);
}

void kf_nursery_cancel(kf_nursery *n) {
    atomic_store_explicit(&n->cancel, 1, memory_order_seq_cst);
    nudge(n);
}

void kf_nursery_halt(kf_nursery *n) {
    kf_nursery_cancel(n);
    while (atomic_load_explicit(&n->writing, memory_order_seq_cst)) sched_yield();
}

void kf_nursery_stop(kf_nursery *n) {
    kf_nursery_cancel(n);
    kf_worker_stop(&n->worker);
}

#include "nursery.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PIECES_IN_A_HURRY 64 /* flushed at once; at leisure one, so that no commit waits behind */

static int cancelled(kf_nursery *n) {
    return atomic_load_explicit(&n->cancel, memory_order_acquire) != 0;
}

static int prepare_range(kf_nursery *n, int fd) {
    uint64_t at = n->from;
    int error = cancelled(n) ? ECANCELED : kf_reserve(fd, n->from, n->to);
    while (!error && at < n->to) {
        uint32_t nudge = atomic_load_explicit(&n->nudge, memory_order_acquire);
        uint32_t pause_us = atomic_load_explicit(&n->pause_us, memory_order_relaxed);
        uint64_t step = (uint64_t)n->piece * (pause_us ? 1 : PIECES_IN_A_HURRY);
        uint64_t stop = n->to - at > step ? at + step : n->to;
        if (cancelled(n)) return ECANCELED;
        error = kf_prepare(fd, n->map, at, stop, n->how, n->piece, step);
        atomic_fetch_add_explicit(&n->flushes, 1, memory_order_relaxed);
        if (error) return error;
        /* seq_cst, then what is wanted: either the loop's re-check sees this, or we ring (R12). */
        atomic_exchange_explicit(&n->done, stop, memory_order_seq_cst);
        uint64_t wanted = atomic_load_explicit(&n->wanted, memory_order_seq_cst);
        if (at < wanted && wanted <= stop)
            kf_doorbell_ring(n->errand.doorbell, n->errand.doorbell_fd);
        at = stop;
        if (pause_us && at < n->to) kf_futex_wait(&n->nudge, nudge, pause_us);
    }
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
    n->error = prepare_range(n, fd);
    close(fd);
}

int kf_nursery_start(kf_nursery *n, const kf_doorbell_page *doorbell, int doorbell_fd) {
    memset(n, 0, sizeof *n);
    return kf_errand_start(&n->errand, "kf-nursery", work, n, doorbell, doorbell_fd);
}

void kf_nursery_ask(kf_nursery *n) {
    atomic_store_explicit(&n->done, n->from, memory_order_relaxed);
    atomic_store_explicit(&n->wanted, 0, memory_order_relaxed);
    atomic_store_explicit(&n->cancel, 0, memory_order_relaxed);
    kf_errand_ask(&n->errand);
}

int kf_nursery_take(kf_nursery *n) { return kf_errand_take(&n->errand); }

int kf_nursery_busy(const kf_nursery *n) { return kf_errand_busy(&n->errand); }

uint64_t kf_nursery_done(const kf_nursery *n) {
    return atomic_load_explicit(&n->done, memory_order_seq_cst);
}

uint64_t kf_nursery_flushes(const kf_nursery *n) {
    return atomic_load_explicit(&n->flushes, memory_order_relaxed);
}

void kf_nursery_want(kf_nursery *n, uint64_t upto) {
    atomic_exchange_explicit(&n->wanted, upto, memory_order_seq_cst);
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
    atomic_store_explicit(&n->cancel, 1, memory_order_release);
    nudge(n);
}

void kf_nursery_stop(kf_nursery *n) {
    kf_nursery_cancel(n);
    kf_errand_stop(&n->errand);
}

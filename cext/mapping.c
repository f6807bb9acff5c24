#define _GNU_SOURCE
#include "mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "crc32c.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

#define SIGBUS_EXIT_CODE 71

uint8_t *kf_map(int fd, size_t bytes, int writable) {
    void *map = mmap(NULL, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    return map == MAP_FAILED ? NULL : map;
}

int kf_unmap(void *map, size_t bytes) { return munmap(map, bytes); }

static __thread sigjmp_buf *guard; /* where a SIGBUS of this thread jumps to; NULL outside a copy */

static void on_sigbus(int signo, siginfo_t *info, void *context) {
    (void)signo;
    (void)info;
    (void)context;
    if (guard) siglongjmp(*guard, 1);
    static const char text[] = "kraftfast: SIGBUS: a mapped file could not be read or written; stopping\n";
    if (write(2, text, sizeof text - 1) < 0) _exit(SIGBUS_EXIT_CODE);
    _exit(SIGBUS_EXIT_CODE);
}

int kf_guard_install(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO | SA_NODEFER; /* it jumps out: must not stay blocked */
    return sigaction(SIGBUS, &action, NULL);
}

int kf_guarded_crc_copy(uint32_t *crc, void *dst, const void *src, size_t n) {
    sigjmp_buf here;
    if (sigsetjmp(here, 0)) {
        guard = NULL;
        return -1;
    }
    guard = &here;
    atomic_signal_fence(memory_order_seq_cst);
    *crc = kf_crc32c_copy(*crc, dst, src, n);
    atomic_signal_fence(memory_order_seq_cst);
    guard = NULL;
    return 0;
}

int kf_guarded_copy(void *dst, const void *src, size_t n) {
    sigjmp_buf here;
    if (sigsetjmp(here, 0)) {
        guard = NULL;
        return -1;
    }
    guard = &here;
    atomic_signal_fence(memory_order_seq_cst);
    memcpy(dst, src, n);
    atomic_signal_fence(memory_order_seq_cst);
    guard = NULL;
    return 0;
}

static int sync_file(int fd) {
    int failed;
    do failed = fdatasync(fd);
    while (failed && errno == EINTR);
    return failed ? errno : 0;
}

/* Zeros of one piece; static, so that no thread pays for it. */
static const uint8_t zeros[1 << 16];

static int write_zeros(int fd, uint64_t from, uint64_t to, uint32_t piece) {
    if (piece > sizeof zeros) piece = sizeof zeros;
    while (from < to) {
        uint64_t stop = (from / piece + 1) * piece; /* pieces stay aligned: folios of that size */
        size_t n = (size_t)((stop < to ? stop : to) - from);
        ssize_t written = pwrite(fd, zeros, n, (off_t)from);
        if (written < 0) {
            if (errno == EINTR) continue;
            return errno;
        }
        from += (uint64_t)written;
    }
    return 0;
}

int kf_reserve(int fd, uint64_t from, uint64_t to) {
    return from < to ? posix_fallocate(fd, (off_t)from, (off_t)(to - from)) : 0;
}

int kf_prepare(int fd, uint8_t *map, uint64_t from, uint64_t to, int how, uint32_t piece, uint32_t flush_bytes) {
    int error = 0;
    while (!error && from < to) {
        uint64_t stop = to - from > flush_bytes ? from + flush_bytes : to;
        if (how == KF_PREPARE_MAPPED && map)
            memset(map + from, 0, stop - from);
        else
            error = write_zeros(fd, from, stop, piece);
        if (!error) error = sync_file(fd);
        if (!error && map) {
            uint64_t page_from = from & ~4095ULL;
            madvise(map + page_from, stop - page_from, MADV_POPULATE_READ); /* only a hint */
        }
        from = stop;
    }
    return error;
}

int kf_is_zero(const uint8_t *map, uint64_t from, uint64_t to) {
    while (from < to && (from & 7))
        if (map[from++]) return 0;
    for (; from + 64 <= to; from += 64) {
        uint64_t w[8];
        memcpy(w, map + from, 64);
        if (w[0] | w[1] | w[2] | w[3] | w[4] | w[5] | w[6] | w[7]) return 0;
    }
    while (from < to)
        if (map[from++]) return 0;
    return 1;
}

uint64_t kf_zero_dirty(uint8_t *map, uint64_t from, uint64_t to) {
    uint64_t zeroed = 0;
    while (from < to) {
        uint64_t stop = (from | 4095) + 1;
        if (stop > to) stop = to;
        if (!kf_is_zero(map, from, stop)) {
            memset(map + from, 0, stop - from);
            zeroed += stop - from;
        }
        from = stop;
    }
    return zeroed;
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static int run_job(kf_nursery *n) {
    uint64_t at = n->from;
    int reserved = kf_reserve(n->fd, n->from, n->to);
    if (reserved) return reserved;
    while (at < n->to && !atomic_load_explicit(&n->cancel, memory_order_acquire)) {
        uint32_t pause_us = atomic_load_explicit(&n->pause_us, memory_order_relaxed);
        /* In a hurry, flush 64 pieces at once; at leisure one, so that commits do not wait behind. */
        uint64_t step = pause_us ? n->piece : (uint64_t)n->piece * 64;
        uint64_t stop = n->to - at > step ? at + step : n->to;
        int error = kf_prepare(n->fd, n->map, at, stop, n->how, n->piece, (uint32_t)step);
        if (error) return error;
        at = stop;
        atomic_store_explicit(&n->done, at, memory_order_release);
        if (pause_us) {
            struct timespec t = {pause_us / 1000000, (long)(pause_us % 1000000) * 1000};
            nanosleep(&t, NULL);
        }
    }
    return 0;
}

static void *run(void *arg) {
    kf_nursery *n = arg;
    for (;;) {
        uint32_t state = atomic_load_explicit(&n->state, memory_order_acquire);
        if (state == KF_NURSERY_ENDED) return NULL;
        if (state != KF_NURSERY_ASKED) {
            futex_wait(&n->state, state);
            continue;
        }
        n->error = run_job(n);
        uint32_t asked = KF_NURSERY_ASKED; /* unless the end was asked for meanwhile */
        atomic_compare_exchange_strong(&n->state, &asked, KF_NURSERY_DONE);
        kf_doorbell_ring(n->doorbell, n->doorbell_fd);
    }
}

int kf_nursery_start(kf_nursery *n, const kf_doorbell_page *doorbell, int doorbell_fd) {
    memset(n, 0, sizeof *n);
    n->doorbell = doorbell;
    n->doorbell_fd = doorbell_fd;
    return pthread_create(&n->thread, NULL, run, n);
}

void kf_nursery_ask(kf_nursery *n) {
    atomic_store_explicit(&n->done, n->from, memory_order_relaxed);
    atomic_store_explicit(&n->state, KF_NURSERY_ASKED, memory_order_release);
    futex_wake(&n->state);
}

int kf_nursery_take(kf_nursery *n) {
    if (atomic_load_explicit(&n->state, memory_order_seq_cst) != KF_NURSERY_DONE) return 0;
    atomic_store_explicit(&n->state, KF_NURSERY_IDLE, memory_order_release);
    return 1;
}

int kf_nursery_busy(const kf_nursery *n) {
    return atomic_load_explicit(&n->state, memory_order_acquire) == KF_NURSERY_ASKED;
}

uint64_t kf_nursery_done(const kf_nursery *n) { return atomic_load_explicit(&n->done, memory_order_acquire); }

void kf_nursery_pause(kf_nursery *n, uint32_t pause_us) {
    atomic_store_explicit(&n->pause_us, pause_us, memory_order_relaxed);
}

void kf_nursery_stop(kf_nursery *n) {
    atomic_store_explicit(&n->cancel, 1, memory_order_release);
    atomic_exchange_explicit(&n->state, KF_NURSERY_ENDED, memory_order_seq_cst);
    futex_wake(&n->state);
    pthread_join(n->thread, NULL);
}

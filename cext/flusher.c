#include "flusher.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "crc32c.h"

#define SLOTS_AT 512
#define GENERATION_AT 1024
#define PREPARED_AT 1088

_Static_assert(sizeof(kf_watermark) == 64, "two slots fit one sector");
_Static_assert(SLOTS_AT + 2 * sizeof(kf_watermark) <= 1024, "in one sector of 512 bytes");

uint64_t kf_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

static uint32_t slot_crc(const kf_watermark *w) { return kf_crc32c(0, w, offsetof(kf_watermark, crc)); }

void kf_page_format(uint8_t *page, kf_mark at, uint64_t generation) {
    uint64_t magic = KF_PAGE_MAGIC;
    memset(page, 0, KF_PAGE_BYTES);
    memcpy(page + GENERATION_AT, &generation, 8);
    kf_watermark_store(page, at, at);
    memcpy(page, &magic, 8);
}

int kf_page_valid(const uint8_t *page) {
    uint64_t magic;
    memcpy(&magic, page, 8);
    return magic == KF_PAGE_MAGIC;
}

int kf_watermark_load(const uint8_t *page, kf_watermark *out) {
    int found = -1;
    for (int i = 0; i < 2; i++) {
        kf_watermark w;
        memcpy(&w, page + SLOTS_AT + i * sizeof w, sizeof w);
        if (w.sequence == 0 || w.crc != slot_crc(&w)) continue;
        if (found < 0 || w.sequence > out->sequence) *out = w;
        found = 0;
    }
    return found;
}

void kf_watermark_store(uint8_t *page, kf_mark target, kf_mark flushed) {
    kf_watermark newest, w;
    memset(&w, 0, sizeof w);
    w.sequence = kf_watermark_load(page, &newest) ? 1 : newest.sequence + 1;
    w.target = target;
    w.flushed = flushed;
    w.crc = slot_crc(&w);
    memcpy(page + SLOTS_AT + (w.sequence & 1) * sizeof w, &w, sizeof w);
}

uint64_t kf_generation_load(const uint8_t *page) {
    return atomic_load_explicit((const _Atomic uint64_t *)(page + GENERATION_AT), memory_order_acquire);
}

void kf_generation_bump(uint8_t *page) {
    atomic_fetch_add_explicit((_Atomic uint64_t *)(page + GENERATION_AT), 1, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst); /* the cut's stores come after, for every reader */
}

uint64_t kf_prepared_load(const uint8_t *page) {
    uint64_t v, check;
    memcpy(&v, page + PREPARED_AT, 8);
    memcpy(&check, page + PREPARED_AT + 8, 8);
    return check == ~v ? v : 0;
}

void kf_prepared_store(uint8_t *page, uint64_t bytes) {
    uint64_t check = ~bytes;
    memcpy(page + PREPARED_AT, &bytes, 8);
    memcpy(page + PREPARED_AT + 8, &check, 8);
}

int kf_flush_run(kf_flush_job *job) {
    for (int i = 0; i < job->count; i++) {
        kf_flush_file *f = &job->files[i];
        kf_watermark w;
        if (f->page) { /* D10: target before the flush ... */
            if (kf_watermark_load(f->page, &w)) return EIO;
            kf_watermark_store(f->page, f->target, w.flushed);
        }
        int failed;
        do failed = f->page ? fdatasync(f->fd) : fsync(f->fd); /* a directory's names, a cut's length */
        while (failed && errno == EINTR);
        if (failed) return errno; /* D9: never retried */
        if (f->page) kf_watermark_store(f->page, f->target, f->target); /* ... flushed after it */
    }
    return 0;
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *run(void *arg) {
    kf_flusher *f = arg;
    for (;;) {
        uint32_t state = atomic_load_explicit(&f->state, memory_order_acquire);
        if (state == KF_FLUSHER_ENDED) return NULL;
        if (state != KF_FLUSHER_ASKED) {
            futex_wait(&f->state, state);
            continue;
        }
        uint64_t began = kf_now_ns();
        f->error = kf_flush_run(&f->job);
        f->duration_ns = kf_now_ns() - began;
        /* seq_cst: the loop's re-check before it sleeps sees either this or rings are rung (R12). */
        atomic_exchange_explicit(&f->state, KF_FLUSHER_DONE, memory_order_seq_cst);
        kf_doorbell_ring(f->doorbell, f->doorbell_fd);
    }
}

int kf_flusher_start(kf_flusher *f, const kf_doorbell_page *doorbell, int doorbell_fd) {
    memset(f, 0, sizeof *f);
    f->doorbell = doorbell;
    f->doorbell_fd = doorbell_fd;
    return pthread_create(&f->thread, NULL, run, f);
}

void kf_flusher_ask(kf_flusher *f) {
    atomic_store_explicit(&f->state, KF_FLUSHER_ASKED, memory_order_release);
    futex_wake(&f->state);
}

int kf_flusher_take(kf_flusher *f) {
    if (atomic_load_explicit(&f->state, memory_order_seq_cst) != KF_FLUSHER_DONE) return 0;
    atomic_store_explicit(&f->state, KF_FLUSHER_IDLE, memory_order_release);
    return 1;
}

int kf_flusher_busy(const kf_flusher *f) {
    return atomic_load_explicit(&f->state, memory_order_acquire) == KF_FLUSHER_ASKED;
}

void kf_flusher_stop(kf_flusher *f) {
    while (kf_flusher_busy(f)) sched_yield();
    atomic_store_explicit(&f->state, KF_FLUSHER_ENDED, memory_order_release);
    futex_wake(&f->state);
    pthread_join(f->thread, NULL);
}

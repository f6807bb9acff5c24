/* The last page of a segment, the order of a flush, and the flusher's thread. The system calls are
 * wrapped at link time (--wrap): what is true at the moment of the sync is checked there. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "batch.h"
#include "check.h"
#include "flusher.h"

typedef struct {
    int fd;
    int is_fsync;
    const uint8_t *from; /* of a range */
    size_t bytes;
} call;

static call calls[64];
static int call_count;
static int fail_at, fail_errno;        /* call number fail_at (from 1) fails; 0: none */
static void (*at_sync)(int fd);        /* looks at the world in the middle of a sync */

static int synced(call made) {
    CHECK(call_count < 64);
    calls[call_count++] = made;
    if (at_sync) at_sync(made.fd);
    if (call_count == fail_at) {
        errno = fail_errno;
        return -1;
    }
    return 0;
}

int __wrap_fdatasync(int fd);
int __wrap_fsync(int fd);
int __wrap_msync(void *from, size_t bytes, int flags);
int __wrap_fdatasync(int fd) { return synced((call){.fd = fd}); }
int __wrap_fsync(int fd) { return synced((call){.fd = fd, .is_fsync = 1}); }
int __wrap_msync(void *from, size_t bytes, int flags) {
    CHECK(flags == MS_SYNC && (uintptr_t)from % KF_PAGE_BYTES == 0);
    return synced((call){.from = from, .bytes = bytes});
}

static void reset(void) {
    call_count = fail_at = fail_errno = 0;
    at_sync = NULL;
}

static kf_mark mark(int64_t offset, int32_t epoch) {
    return (kf_mark){offset, epoch, 0x5a5a5a5a}; /* the padding is nobody's */
}

static int same(kf_mark a, int64_t offset, int32_t epoch) {
    return a.offset == offset && a.epoch == epoch && a.pad == 0;
}

static int watermark_is(const uint8_t *page, int64_t target, int64_t flushed) {
    kf_watermark w;
    return kf_watermark_load(page, &w) == 0 && w.target.offset == target &&
           w.flushed.offset == flushed;
}

_Alignas(4096) static uint8_t pages[3][KF_PAGE_BYTES];

static void page_format(void) {
    uint8_t *page = pages[0];
    kf_watermark w;
    memset(page, 0, KF_PAGE_BYTES);
    CHECK(!kf_page_valid(page) && kf_watermark_load(page, &w) == -1);
    memset(page, 0xa5, KF_PAGE_BYTES);
    CHECK(!kf_page_valid(page) && kf_watermark_load(page, &w) == -1);
    CHECK(kf_prepared_load(page) == 0);
    kf_page_format(page, mark(17, 3), 9);
    CHECK(kf_page_valid(page) && kf_generation_load(page) == 9 && kf_prepared_load(page) == 0);
    CHECK(kf_watermark_load(page, &w) == 0);
    CHECK(same(w.target, 17, 3) && same(w.flushed, 17, 3) && w.sequence > 0);
    kf_generation_bump(page);
    CHECK(kf_generation_load(page) == 10);
    kf_watermark_store(page, mark(30, 4), mark(17, 3), 7, 6);
    CHECK(kf_watermark_load(page, &w) == 0 && same(w.target, 30, 4) && same(w.flushed, 17, 3));
    kf_watermark_store(page, mark(20, 3), mark(20, 3), 8, 8); /* a cut: newer is not larger */
    CHECK(watermark_is(page, 20, 20) && kf_generation_load(page) == 10);
    CHECK(memcmp(page, "FASTSEG1", 8) == 0);
}

static void prepared_word(void) {
    uint8_t *page = pages[0];
    kf_page_format(page, mark(0, 0), 1);
    static const uint64_t lengths[] = {0,       1, 4096, 65536, 1 << 30, (1ULL << 40) + 5,
                                       (1ULL << 48) - 1};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        kf_prepared_store(page, lengths[i]);
        CHECK(kf_prepared_load(page) == lengths[i]);
        uint64_t good = 0;
        for (int bit = 0; bit < 64; bit++) {
            page[1088 + bit / 8] ^= (uint8_t)(1 << bit % 8);
            good += kf_prepared_load(page) != 0;
            page[1088 + bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        CHECK(good == 0); /* every flip is seen */
    }
    /* One store: no moment at which another process sees a mixture. */
    kf_prepared_store(page, 1 << 20);
    uint8_t before[KF_PAGE_BYTES];
    memcpy(before, page, sizeof before);
    kf_prepared_store(page, 1 << 21);
    for (int i = 0; i < KF_PAGE_BYTES; i++)
        CHECK(page[i] == before[i] || (i >= 1088 && i < 1096));
    CHECK(watermark_is(page, 0, 0)); /* and nothing of the flusher's is touched */
}

/* A write-back, or a crash, in the middle of a store: whichever bytes have arrived, what is read is
 * the old mark or the new one. */
static void torn_watermark(void) {
    uint8_t before[KF_PAGE_BYTES], after[KF_PAGE_BYTES], torn[KF_PAGE_BYTES];
    uint64_t seed = 11;
    kf_page_format(before, mark(100, 1), 1);
    for (int round = 0; round < 200; round++) {
        kf_watermark old, new, got;
        int64_t offset = 100 + 50 * round;
        memcpy(after, before, sizeof after);
        CHECK(kf_watermark_load(before, &old) == 0);
        if (round & 1)
            kf_watermark_store(after, old.target, old.target, 1, 1);
        else
            kf_watermark_store(after, mark(offset, round), old.flushed, 2, 1);
        CHECK(kf_watermark_load(after, &new) == 0 && memcmp(&old, &new, sizeof old));
        for (size_t end = 512; end <= 640; end++) {
            memcpy(torn, before, sizeof torn); /* front first, then back first */
            memcpy(torn, after, end);
            CHECK(kf_watermark_load(torn, &got) == 0);
            CHECK(!memcmp(&got, &old, sizeof got) || !memcmp(&got, &new, sizeof got));
            memcpy(torn, after, sizeof torn);
            memcpy(torn, before, end);
            CHECK(kf_watermark_load(torn, &got) == 0);
            CHECK(!memcmp(&got, &old, sizeof got) || !memcmp(&got, &new, sizeof got));
        }
        for (int i = 0; i < 500; i++) { /* any set of words, in any order */
            memcpy(torn, before, sizeof torn);
            uint64_t chosen = chance(&seed);
            for (int w = 0; w < 64; w++)
                if (chosen >> w & 1) memcpy(torn + 512 + w * 4, after + 512 + w * 4, 4);
            CHECK(kf_watermark_load(torn, &got) == 0);
            CHECK(!memcmp(&got, &old, sizeof got) || !memcmp(&got, &new, sizeof got));
        }
        memcpy(before, after, sizeof before);
    }
    for (int bit = 0; bit < 64 * 8; bit++) { /* a flipped bit costs one slot, never a wrong mark */
        kf_watermark newest, got;
        memcpy(torn, after, sizeof torn);
        CHECK(kf_watermark_load(torn, &newest) == 0);
        uint8_t *slot = torn + 512 + (newest.sequence & 1) * 64;
        slot[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK(kf_watermark_load(torn, &got) == 0 && got.sequence == newest.sequence - 1);
    }
    memset(torn + 512, 0, 512); /* the whole sector lost */
    kf_watermark got;
    CHECK(kf_watermark_load(torn, &got) == -1);
    CHECK(kf_page_valid(torn));
}

/* A file that is used again: its key, and the end of its batches. */
static void keys_and_ends(void) {
    uint8_t *page = pages[0], before[KF_PAGE_BYTES];
    kf_watermark w;
    kf_page_format(page, mark(9, 1), 1);
    CHECK(kf_key_load(page) == 0 && kf_end_load(page, &w) == -1);
    CHECK(kf_page_batches_end(page) == UINT64_MAX);
    kf_prepared_store(page, 1 << 20);
    CHECK(kf_page_batches_end(page) == 1 << 20);
    kf_end_store(page, mark(30, 2), 99, 4711);
    CHECK(kf_page_batches_end(page) == 1 << 20); /* without a key zeros end the batches */
    static const uint64_t keys[] = {1, 2, 0x1234567812345678, KF_KEY_MAX};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        memcpy(before, page, sizeof before);
        kf_key_store(page, keys[i]);
        CHECK(kf_key_load(page) == keys[i] && kf_page_batches_end(page) == 4711);
        for (int bit = 0; bit < 128; bit++) { /* a damaged key is none that vouches */
            page[1152 + bit / 8] ^= (uint8_t)(1 << bit % 8);
            CHECK(kf_key_load(page) == KF_KEY_DAMAGED && kf_page_batches_end(page) == 4711);
            page[1152 + bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        for (int at = 0; at < KF_PAGE_BYTES; at++)
            CHECK(page[at] == before[at] || (at >= 1152 && at < 1168));
    }
    for (int i = 0; i < 9; i++) {
        kf_end_store(page, mark(31 + i, 2), 100u + (unsigned)i, 5000u + (unsigned)i);
        CHECK(kf_end_load(page, &w) == 0 && same(w.target, 31 + i, 2));
        CHECK(w.voucher == 100u + (unsigned)i && w.position == 5000u + (unsigned)i);
    }
    CHECK(watermark_is(page, 9, 9));
    page[1536] ^= 1, page[1600] ^= 1;
    CHECK(kf_end_load(page, &w) == -1 && kf_page_batches_end(page) == 0);
    kf_end_store(page, mark(50, 2), 1, (1 << 20) + 1); /* no end that can be */
    CHECK(kf_page_batches_end(page) == 1 << 20);
    kf_key_store(page, 0);
    CHECK(kf_key_load(page) == 0);
}

static kf_batch_header batch(int64_t offset, uint32_t size, uint32_t crc, int32_t epoch) {
    kf_batch_header h = {.base_offset = offset, .size = size, .crc = crc, .leader_epoch = epoch};
    return h;
}

/* Whatever of a batch differs, and wherever in a run, the voucher does. */
static void vouchers(void) {
    static const uint64_t keys[] = {0x0123456789abcdef, 0x0fedcba987654321, 0x1badc0ffee0ddf00};
    for (size_t k = 0, count = 0; k < 3; k++, count = 0) {
        uint64_t seen[2000];
        for (int changed = 0; changed <= 40; changed++) { /* 0: none */
            uint64_t v = KF_VOUCHER_START;
            for (int i = 0; i < 40; i++) {
                uint32_t n = (uint32_t)i;
                kf_batch_header h = batch(100 + 3 * i, 500 + n, 77 * n, i / 9);
                if (i == changed - 1) h.crc ^= 1;
                v = kf_batch_vouch(v, keys[k], &h, h.base_offset);
                if (!changed || i >= changed - 1) seen[count++] = v;
            }
        }
        kf_batch_header h = batch(5, 100, 9, 1), other[4] = {h, h, h, h};
        other[0].crc++, other[1].size++, other[2].leader_epoch++, other[3].leader_epoch = -1;
        for (int i = 0; i < 4; i++) seen[count++] = kf_batch_vouch(1, keys[k], &other[i], 5);
        seen[count++] = kf_batch_vouch(1, keys[k], &h, 5);
        seen[count++] = kf_batch_vouch(1, keys[k], &h, INT64_MAX - 1);
        seen[count++] = kf_batch_vouch(1, keys[k] - 1, &h, 5);
        for (uint64_t i = 0; i < count; i++) {
            CHECK(seen[i] <= KF_KEY_MAX);
            for (uint64_t j = 0; j < i; j++) CHECK(seen[i] != seen[j]);
        }
    }
}

static void flushed_beyond_target(void) {
    kf_page_format(pages[0], mark(0, 0), 1);
    kf_watermark_store(pages[0], mark(5, 0), mark(6, 0), 0, 0);
}

static void page_traps(void) {
    char text[64];
    CHECK(is_trap(outcome_of(flushed_beyond_target, text, sizeof text)));
}

/* --- the flush --- */

static kf_flush_job three_files(void) {
    kf_flush_job job = {.count = 3};
    for (int i = 0; i < 3; i++) {
        kf_page_format(pages[i], mark(100 * i, 1), 1);
        uint64_t voucher = 1000 + (uint64_t)i;
        job.files[i] = (kf_flush_file){40 + i, pages[i], mark(100 * (i + 1), 2), voucher, NULL, 0};
    }
    return job;
}

static void check_order(int fd) {
    int at = fd - 40;
    for (int i = 0; i < 3; i++) {
        if (i < at) CHECK(watermark_is(pages[i], 100 * (i + 1), 100 * (i + 1)));
        if (i == at) CHECK(watermark_is(pages[i], 100 * (i + 1), 100 * i)); /* D10, D1 */
        kf_watermark w;
        CHECK(kf_watermark_load(pages[i], &w) == 0);
        if (i == at) CHECK(w.voucher == 1000u + (unsigned)i && w.flushed_voucher == 0);
        if (i > at) CHECK(watermark_is(pages[i], 100 * i, 100 * i));
    }
}

static void flush_order(void) {
    reset();
    at_sync = check_order;
    kf_flush_job job = three_files();
    CHECK(kf_flush_run(&job) == 0 && call_count == 3);
    for (int i = 0; i < 3; i++) {
        kf_watermark w;
        CHECK(calls[i].fd == 40 + i && !calls[i].is_fsync);
        CHECK(kf_watermark_load(pages[i], &w) == 0);
        CHECK(same(w.target, 100 * (i + 1), 2) && same(w.flushed, 100 * (i + 1), 2));
        CHECK(w.voucher == 1000u + (unsigned)i && w.flushed_voucher == w.voucher);
    }
    job.count = 0;
    CHECK(kf_flush_run(&job) == 0 && call_count == 3);
}

/* What is prepared between the end and the page stays as it is. */
_Alignas(4096) static uint8_t map[8 * KF_PAGE_BYTES];

static void check_target(int fd) {
    (void)fd;
    CHECK(watermark_is(map + 7 * KF_PAGE_BYTES, 9, 5)); /* D10: until both are on disk */
}

static void flush_of_a_range(void) {
    reset();
    at_sync = check_target;
    uint8_t *page = map + 7 * KF_PAGE_BYTES;
    kf_page_format(page, mark(5, 1), 1);
    kf_flush_job job = {.files = {{5, page, mark(9, 1), 0, map, 2 * KF_PAGE_BYTES + 1}}, .count = 1};
    CHECK(kf_flush_run(&job) == 0 && call_count == 2 && watermark_is(page, 9, 9));
    CHECK(calls[0].from == map && calls[0].bytes == 2 * KF_PAGE_BYTES + 1);
    CHECK(calls[1].from == page && calls[1].bytes == KF_PAGE_BYTES);
    for (int failed = 1; failed <= 2; failed++) { /* D9 */
        reset();
        kf_page_format(page, mark(5, 1), 1);
        fail_at = failed;
        fail_errno = EIO;
        CHECK(kf_flush_run(&job) == EIO && call_count == failed && watermark_is(page, 9, 5));
        reset();
        fail_at = failed;
        fail_errno = EINTR;
        CHECK(kf_flush_run(&job) == 0 && call_count == 3 && watermark_is(page, 9, 9));
    }
}

static void flush_without_page(void) {
    reset();
    kf_flush_job job = {.files = {{.fd = 5}}, .count = 1};
    CHECK(kf_flush_run(&job) == 0 && call_count == 1 && calls[0].fd == 5 && calls[0].is_fsync);
}

static void flush_fails_once(void) {
    reset();
    fail_at = 2;
    fail_errno = EIO;
    kf_flush_job job = three_files();
    CHECK(kf_flush_run(&job) == EIO && call_count == 2); /* D9: neither again nor further */
    CHECK(watermark_is(pages[0], 100, 100));
    CHECK(watermark_is(pages[1], 200, 100)); /* tried, never counted */
    CHECK(watermark_is(pages[2], 200, 200));
}

static void flush_interrupted(void) {
    reset();
    fail_at = 1;
    fail_errno = EINTR;
    kf_flush_job job = three_files();
    CHECK(kf_flush_run(&job) == 0 && call_count == 4);
    CHECK(watermark_is(pages[0], 100, 100));
}

static void flush_unreadable_page(void) {
    reset();
    kf_flush_job job = three_files();
    memset(pages[1] + 512, 0, 512);
    CHECK(kf_flush_run(&job) == EIO && call_count == 1);
}

/* --- the thread --- */

static kf_doorbell_page bell;
static int bell_fd;
static kf_flusher flusher;

static void start(void) {
    reset();
    memset(&bell, 0, sizeof bell);
    bell_fd = eventfd(0, EFD_NONBLOCK);
    CHECK(kf_flusher_start(&flusher, &bell, bell_fd) == 0);
}

static void stop(void) {
    kf_flusher_stop(&flusher);
    close(bell_fd);
}

static int readable(int fd, int ms) {
    struct pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, ms) == 1;
}

static void wait_done(void) {
    uint64_t until = clock_ms() + 5000;
    while (!kf_flusher_take(&flusher)) CHECK(clock_ms() < until);
}

static void slow_sync(int fd) {
    (void)fd;
    sleep_ms(100);
}

static void thread_runs_a_job(void) {
    start();
    CHECK(!kf_flusher_busy(&flusher) && !kf_flusher_take(&flusher));
    at_sync = slow_sync;
    flusher.job = three_files();
    flusher.job.count = 1;
    kf_flusher_ask(&flusher);
    CHECK(kf_flusher_busy(&flusher) && !kf_flusher_take(&flusher));
    wait_done();
    CHECK(flusher.error == 0 && flusher.duration_ns > 90 * 1000000ULL);
    CHECK(!kf_flusher_busy(&flusher));
    CHECK(!kf_flusher_take(&flusher)); /* once */
    CHECK(watermark_is(pages[0], 100, 100) && !readable(bell_fd, 0)); /* nobody slept */
    stop();
}

static void thread_keeps_its_error(void) {
    start();
    fail_at = 1;
    fail_errno = EIO;
    for (int i = 0; i < 3; i++) {
        flusher.job = three_files();
        kf_flusher_ask(&flusher);
        wait_done();
        CHECK(flusher.error == EIO && call_count == 1); /* D9: the next sync would say 0 */
        CHECK(watermark_is(pages[2], 200, 200));
    }
    stop();
}

/* The loop goes to sleep while jobs end: each end is seen by the re-check or rings. */
static void thread_rings_a_sleeper(void) {
    start();
    uint64_t until = clock_ms() + 300, jobs = 0, naps = 0, rings, seed = 2;
    while (clock_ms() < until) {
        flusher.job.count = 0;
        kf_flusher_ask(&flusher);
        for (uint64_t i = chance(&seed) % 3000; i; i--) __asm__ volatile("");
        kf_doorbell_sleep(&bell);
        while (!kf_flusher_take(&flusher)) {
            naps++;
            CHECK(readable(bell_fd, 3000));
            CHECK(read(bell_fd, &rings, 8) == 8);
        }
        kf_doorbell_awake(&bell);
        jobs++;
    }
    CHECK(jobs > 100 && naps > 0);
    stop();
}

static uint64_t own_cpu_us(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void stop_waits_for_the_job(void) {
    for (int already = 0; already < 2; already++) {
        start();
        at_sync = slow_sync;
        flusher.job = three_files();
        flusher.job.count = 1;
        kf_flusher_ask(&flusher);
        if (already) sleep_ms(30); /* it is in the sync; else it may not even have begun */
        uint64_t cpu = own_cpu_us();
        stop();
        CHECK(own_cpu_us() - cpu < 30000); /* waits, does not spin */
        CHECK(call_count == 1 && watermark_is(pages[0], 100, 100));
        CHECK(kf_flusher_take(&flusher) && flusher.error == 0);
    }
    for (int i = 0; i < 200; i++) { /* idle, at whatever point it is */
        start();
        if (i & 1) {
            flusher.job.count = 0;
            kf_flusher_ask(&flusher);
        }
        stop();
    }
}

static void ask_twice(void) {
    start();
    at_sync = slow_sync;
    flusher.job = three_files();
    kf_flusher_ask(&flusher);
    kf_flusher_ask(&flusher);
}

static void too_many_files(void) {
    kf_flush_job job = {.count = KF_FLUSH_FILES_MAX + 1};
    kf_flush_run(&job);
}

static void target_goes_back(void) {
    kf_flush_job job = three_files();
    job.files[0].target.offset = -1;
    kf_flush_run(&job);
}

static void thread_traps(void) {
    char text[64];
    CHECK(is_trap(outcome_of(ask_twice, text, sizeof text)));
    CHECK(is_trap(outcome_of(too_many_files, text, sizeof text)));
    CHECK(is_trap(outcome_of(target_goes_back, text, sizeof text)));
}

static _Atomic int handled_by;

static void on_signal(int signo) {
    (void)signo;
    atomic_store(&handled_by, (int)syscall(SYS_gettid));
}

static void signals_are_not_the_threads(void) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    signal(SIGUSR1, on_signal);
    start();
    sigprocmask(SIG_BLOCK, &one, NULL); /* after the start: only the thread could take it */
    kill(getpid(), SIGUSR1);
    sleep_ms(30);
    CHECK(atomic_load(&handled_by) == 0);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    sleep_ms(1);
    CHECK(atomic_load(&handled_by) == (int)getpid());
    stop();
}

static const test_case cases[] = {
    {"page_format", page_format},
    {"prepared_word", prepared_word},
    {"torn_watermark", torn_watermark},
    {"page_traps", page_traps},
    {"keys_and_ends", keys_and_ends},
    {"vouchers", vouchers},
    {"flush_order", flush_order},
    {"flush_of_a_range", flush_of_a_range},
    {"flush_without_page", flush_without_page},
    {"flush_fails_once", flush_fails_once},
    {"flush_interrupted", flush_interrupted},
    {"flush_unreadable_page", flush_unreadable_page},
    {"thread_runs_a_job", thread_runs_a_job},
    {"thread_keeps_its_error", thread_keeps_its_error},
    {"thread_rings_a_sleeper", thread_rings_a_sleeper},
    {"stop_waits_for_the_job", stop_waits_for_the_job},
    {"thread_traps", thread_traps},
    {"signals_are_not_the_threads", signals_are_not_the_threads},
};

int main(int argc, char **argv) {
    return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}

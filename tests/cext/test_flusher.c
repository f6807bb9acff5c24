/* The order of a flush, and the flusher's thread. The system calls are
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

#include "check.h"
#include "flusher.h"
#include "marks.h"

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

_Alignas(4096) static uint8_t pages[3][KF_PAGE_BYTES];

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
#define END (2 * KF_PAGE_BYTES + 1)
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
    kf_flush_job job = {.files = {{5, page, mark(9, 1), 0, map, END}}, .count = 1};
    CHECK(kf_flush_run(&job) == 0 && call_count == 2 && watermark_is(page, 9, 9));
    CHECK(calls[0].from == map && calls[0].bytes == END);
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

/* Preparing segments, and the nursery's thread, in the directory KF_TEST_DIR (default: here).
 * The system calls are wrapped at link time (--wrap) to see what is written and synced, and when,
 * and to make them fail. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "check.h"
#include "nursery.h"

#define PIECE 65536u
#define MIB (1u << 20)

int __real_fdatasync(int fd);
int __real_fallocate(int fd, int mode, off_t offset, off_t len);
ssize_t __real_pwrite(int fd, const void *p, size_t n, off_t at);
int __wrap_fdatasync(int fd);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t len);
ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t at);

static int sync_errors[4], sync_error_count; /* the next syncs end with these */
static int fallocate_error, fallocate_interrupts;
static _Atomic int syncs, writes, writes_done;
static _Atomic uint64_t written_to, synced_to; /* the ends of what was written and synced */
static uint64_t write_bytes_max;
static int writes_unaligned;
static int watched_fd = -1; /* of a job: the thread must not sync through it */
static int seen_watched, seen_shared_offset;

static int test_directory_open(const char *name, int flags) {
    char path[512];
    const char *directory = getenv("KF_TEST_DIR");
    snprintf(path, sizeof path, "%s/%s", directory ? directory : ".", name);
    int fd = open(path, flags, 0600);
    CHECK(fd >= 0);
    unlink(path);
    return fd;
}

static int new_file(void) {
    return test_directory_open("nursery-test", O_RDWR | O_CREAT | O_TRUNC);
}

/* Two descriptors of one open file share its position. */
static void watch(int fd) {
    if (watched_fd < 0) return;
    seen_watched |= fd == watched_fd;
    off_t mine = lseek(watched_fd, 0, SEEK_CUR);
    seen_shared_offset |= lseek(fd, 0, SEEK_CUR) == mine;
}

int __wrap_fdatasync(int fd) {
    watch(fd);
    atomic_fetch_add(&syncs, 1);
    if (sync_error_count) {
        errno = sync_errors[--sync_error_count];
        return -1;
    }
    uint64_t covered = atomic_load(&written_to);
    int failed = __real_fdatasync(fd);
    if (!failed) atomic_store(&synced_to, covered);
    return failed;
}

int __wrap_fallocate(int fd, int mode, off_t offset, off_t len) {
    if (fallocate_interrupts && fallocate_interrupts--) {
        errno = EINTR;
        return -1;
    }
    if (fallocate_error) {
        errno = fallocate_error;
        return -1;
    }
    return __real_fallocate(fd, mode, offset, len);
}

ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t at) {
    watch(fd);
    atomic_fetch_add(&writes, 1);
    if (n > write_bytes_max) write_bytes_max = n;
    if (((uint64_t)at % PIECE) + n > PIECE) writes_unaligned = 1;
    ssize_t written = __real_pwrite(fd, p, n, at);
    if (written > 0) atomic_store(&written_to, (uint64_t)at + (uint64_t)written);
    atomic_fetch_add(&writes_done, 1);
    return written;
}

static void reset(void) {
    sync_error_count = fallocate_error = fallocate_interrupts = 0;
    atomic_store(&syncs, 0);
    atomic_store(&writes, 0);
    atomic_store(&writes_done, 0);
    atomic_store(&written_to, 0);
    atomic_store(&synced_to, 0);
    write_bytes_max = 0;
    writes_unaligned = seen_watched = seen_shared_offset = 0;
    watched_fd = -1;
}

/* Whether [from, to) lies in extents that were written: 1, 0 if one is missing or only reserved,
 * or -1 if the file system cannot tell. */
static int really_written(int fd, uint64_t from, uint64_t to) {
    static struct {
        struct fiemap map;
        struct fiemap_extent extents[256];
    } f;
    while (from < to) {
        memset(&f, 0, sizeof f);
        f.map.fm_start = from;
        f.map.fm_length = to - from;
        f.map.fm_flags = FIEMAP_FLAG_SYNC;
        f.map.fm_extent_count = 256;
        if (ioctl(fd, FS_IOC_FIEMAP, &f.map)) return -1;
        if (!f.map.fm_mapped_extents) return 0;
        for (uint32_t i = 0; i < f.map.fm_mapped_extents && from < to; i++) {
            struct fiemap_extent *e = &f.map.fm_extents[i];
            uint32_t unreal = FIEMAP_EXTENT_UNWRITTEN | FIEMAP_EXTENT_DELALLOC;
            if (e->fe_logical > from || e->fe_flags & unreal) return 0;
            from = e->fe_logical + e->fe_length;
        }
    }
    return 1;
}

static void check_real(int fd, const uint8_t *map, uint64_t from, uint64_t to) {
    struct stat s;
    CHECK(kf_is_zero(map, from, to));
    CHECK(fstat(fd, &s) == 0 && (uint64_t)s.st_blocks * 512 >= to - from);
    CHECK(really_written(fd, from, to) != 0);
}

static void zeros_are_real(void) {
    reset();
    int fd = new_file();
    CHECK(ftruncate(fd, 2 * MIB) == 0);
    uint8_t *map = kf_map(fd, 2 * MIB, 1);
    CHECK(map && kf_reserve(fd, 0, MIB) == 0);
    CHECK(really_written(fd, 0, MIB) <= 0); /* the look can tell the difference */
    CHECK(kf_write_zeros(fd, 0, MIB, PIECE) == 0 && kf_sync(fd) == 0);
    check_real(fd, map, 0, MIB);
    CHECK(atomic_load(&writes) == MIB / PIECE);
    struct stat s;
    CHECK(fstat(fd, &s) == 0 && (uint64_t)s.st_blocks * 512 < MIB + MIB / 2);
    kf_unmap(map, 2 * MIB);
    close(fd);
}

/* A used file, and ends within pages: zeros from..to, nothing else touched. */
static void zeros_overwrite_exactly(void) {
    static uint8_t junk[MIB];
    memset(junk, 0xa5, sizeof junk);
    reset();
    int fd = new_file();
    CHECK(__real_pwrite(fd, junk, MIB, 0) == MIB);
    uint8_t *map = kf_map(fd, MIB, 1);
    uint64_t from = 12345, to = MIB - 777;
    kf_populate(map, 0, MIB); /* changes nothing */
    CHECK(kf_reserve(fd, 0, MIB) == 0 && !memcmp(map, junk, MIB)); /* nor does this */
    CHECK(kf_write_zeros(fd, from, to, PIECE) == 0 && kf_is_zero(map, from, to));
    for (uint64_t i = 0; i < from; i++) CHECK(map[i] == 0xa5);
    for (uint64_t i = to; i < MIB; i++) CHECK(map[i] == 0xa5);
    CHECK(!writes_unaligned && write_bytes_max <= PIECE);
    kf_unmap(map, MIB);
    close(fd);
}

static void bounds(void) {
    reset();
    int fd = new_file();
    CHECK(kf_write_zeros(fd, 0, MIB, 0) == EINVAL);
    CHECK(kf_write_zeros(fd, MIB, MIB, PIECE) == 0 && kf_write_zeros(fd, MIB, 0, PIECE) == 0);
    CHECK(kf_reserve(fd, MIB, MIB) == 0 && kf_reserve(fd, MIB, 0) == 0);
    kf_populate(NULL, 0, MIB);
    CHECK(atomic_load(&writes) == 0);
    CHECK(kf_write_zeros(fd, 0, MIB, 1u << 30) == 0 && write_bytes_max <= KF_PIECE_MAX);
    int read_only = open("/proc/self/exe", O_RDONLY);
    CHECK(kf_write_zeros(read_only, 0, PIECE, PIECE) == EBADF);
    close(read_only);
    close(fd);
}

static void calls_that_fail(void) {
    reset();
    int fd = new_file();
    fallocate_interrupts = 2;
    CHECK(kf_reserve(fd, 0, MIB) == 0 && fallocate_interrupts == 0);
    sync_errors[0] = EIO, sync_errors[1] = EINTR, sync_error_count = 2;
    CHECK(kf_sync(fd) == EIO && atomic_load(&syncs) == 2);
    fallocate_error = EOPNOTSUPP; /* then plain writes allocate (R10) */
    uint8_t *map = kf_map(fd, MIB, 1);
    CHECK(ftruncate(fd, MIB) == 0 && kf_reserve(fd, 5000, MIB) == 0);
    CHECK(atomic_load(&writes) == MIB / KF_PIECE_MAX);
    check_real(fd, map, 5000, MIB);
    kf_unmap(map, MIB);
    fallocate_error = ENOSPC;
    CHECK(kf_reserve(fd, 0, MIB) == ENOSPC);
    close(fd);
}

/* What was populated is there, and is stored into without a fault. */
static void populated_pages(void) {
    struct rusage before, after;
    reset();
    int fd = new_file();
    CHECK(ftruncate(fd, 8 * MIB) == 0 && kf_reserve(fd, 0, 8 * MIB) == 0);
    uint8_t *map = kf_map(fd, 8 * MIB, 1);
    kf_populate(map, MIB + 100, 8 * MIB);
    CHECK(getrusage(RUSAGE_SELF, &before) == 0);
    for (uint64_t at = MIB; at < 8 * MIB; at += 4096) map[at] = 1;
    CHECK(getrusage(RUSAGE_SELF, &after) == 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they have their own pages */
    CHECK(after.ru_minflt - before.ru_minflt < 200 || madvise(map, 4096, MADV_POPULATE_WRITE));
#endif
    CHECK(atomic_load(&syncs) == 0);
    kf_unmap(map, 8 * MIB);
    close(fd);
}

/* --- the thread --- */

static kf_nursery nursery;
static kf_doorbell_page bell;
static int bell_fd;

static void start(void) {
    reset();
    memset(&bell, 0, sizeof bell);
    bell_fd = eventfd(0, EFD_NONBLOCK);
    CHECK(kf_nursery_start(&nursery, &bell, bell_fd) == 0);
}

static void stop(void) {
    kf_nursery_stop(&nursery);
    close(bell_fd);
}

static void ask(int fd, uint8_t *map, uint64_t from, uint64_t to, int what) {
    nursery.fd = fd;
    nursery.map = map;
    nursery.from = from;
    nursery.to = to;
    nursery.what = what;
    nursery.piece = PIECE;
    kf_nursery_ask(&nursery);
}

static int wait_done(void) {
    uint64_t until = clock_ms() + 8000;
    while (!kf_nursery_take(&nursery)) {
        CHECK(clock_ms() < until);
        sched_yield();
    }
    CHECK(!kf_nursery_busy(&nursery));
    return nursery.error;
}

static void thread_prepares(void) {
    start();
    int fd = new_file();
    CHECK(ftruncate(fd, 9 * MIB) == 0);
    uint8_t *map = kf_map(fd, 9 * MIB, 1);
    ask(fd, map, 0, 8 * MIB, KF_RESERVE);
    CHECK(wait_done() == 0 && kf_nursery_done(&nursery) == 8 * MIB && atomic_load(&syncs) == 0);
    struct stat s;
    CHECK(fstat(fd, &s) == 0 && (uint64_t)s.st_blocks * 512 >= 8 * MIB);
    kf_nursery_pause(&nursery, 50);
    ask(fd, map, 0, MIB, KF_ZERO);
    uint64_t done = 0, last = 0;
    while (done < MIB) { /* what is done has been synced, and done only grows */
        done = kf_nursery_done(&nursery);
        CHECK(done >= last && done <= MIB);
        CHECK(done <= atomic_load(&synced_to));
        CHECK(kf_is_zero(map, 0, done));
        last = done;
    }
    CHECK(wait_done() == 0 && kf_nursery_done(&nursery) == MIB);
    check_real(fd, map, 0, MIB);
    CHECK(kf_nursery_flushes(&nursery) == MIB / PIECE);
    ask(fd, map, MIB, 2 * MIB, KF_POPULATE);
    CHECK(wait_done() == 0 && kf_nursery_flushes(&nursery) == MIB / PIECE);
    ask(fd, map, 0, 9 * MIB, KF_CACHED);
    CHECK(wait_done() == 0 && kf_nursery_done(&nursery) >= MIB);
    ask(fd, map, 0, 0, KF_SYNC);
    CHECK(wait_done() == 0 && kf_nursery_flushes(&nursery) == MIB / PIECE + 1);
    kf_unmap(map, 9 * MIB);
    close(fd);
    ask(-1, NULL, 0, MIB, KF_ZERO);
    CHECK(wait_done() == ENOENT && kf_nursery_done(&nursery) == 0);
    stop();
}

/* Once it is halted no zeros are written any more: what is stored there stays. */
static void halt_leaves_the_range(void) {
    uint64_t seed = 3;
    int fd = new_file();
    static uint8_t ours[PIECE];
    memset(ours, 0x77, sizeof ours);
    start();
    kf_nursery_pause(&nursery, 0);
    for (int i = 0; i < 200; i++) {
        ask(fd, NULL, 0, 4 * MIB, KF_ZERO);
        for (uint64_t k = chance(&seed) % 300000; k; k--) __asm__ volatile("");
        kf_nursery_halt(&nursery);
        int begun = atomic_load(&writes); /* none is under way, and none begins */
        CHECK(atomic_load(&writes_done) == begun);
        uint64_t at = kf_nursery_done(&nursery);
        for (int piece = 0; piece < 3; piece++)
            CHECK(__real_pwrite(fd, ours, PIECE, (off_t)(at + (uint64_t)piece * PIECE)) == PIECE);
        int error = wait_done();
        CHECK(error == ECANCELED || (error == 0 && at >= 4 * MIB - PIECE));
        CHECK(atomic_load(&writes) == begun);
        for (int piece = 0; piece < 3; piece++) {
            static uint8_t seen[PIECE];
            CHECK(pread(fd, seen, PIECE, (off_t)(at + (uint64_t)piece * PIECE)) == PIECE);
            CHECK(!memcmp(seen, ours, PIECE));
        }
    }
    close(fd);
    stop();
}

/* D9: a write-back error is reported once to each open file. The nursery's syncs report to it. */
static void thread_syncs_its_own_open_file(void) {
    start();
    int fd = new_file();
    CHECK(lseek(fd, 4711, SEEK_SET) == 4711);
    watched_fd = fd;
    ask(fd, NULL, 0, MIB, KF_ZERO);
    CHECK(wait_done() == 0 && atomic_load(&syncs) > 0);
    CHECK(!seen_watched && !seen_shared_offset);
    int opened = open("/proc/self/fd", O_RDONLY), next = dup(0);
    for (int i = 0; i < 50; i++) { /* and closes it */
        ask(fd, NULL, 0, PIECE, KF_ZERO);
        CHECK(wait_done() == 0);
    }
    int after = dup(0);
    CHECK(after == next + 1);
    close(after), close(next), close(opened), close(fd);
    stop();
}

static void thread_reports_errors(void) {
    start();
    int fd = new_file();
    sync_errors[0] = EIO, sync_error_count = 1;
    ask(fd, NULL, 0, MIB, KF_ZERO);
    CHECK(wait_done() == EIO && kf_nursery_done(&nursery) == 0);
    fallocate_error = ENOSPC;
    ask(fd, NULL, PIECE, MIB, KF_RESERVE);
    CHECK(wait_done() == ENOSPC && kf_nursery_done(&nursery) == PIECE);
    fallocate_error = 0;
    ask(fd, NULL, 0, MIB, KF_ZERO); /* no error stays */
    CHECK(wait_done() == 0 && kf_nursery_done(&nursery) == MIB);
    close(fd);
    stop();
}

/* R10: a file system of 2 MiB. Needs a mount of its own: returns 0 where that is not allowed. */
static int enter_small_file_system(void) {
    if (unshare(CLONE_NEWNS)) return 0;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) return 0;
    return !mount("small", "/mnt", "tmpfs", 0, "size=2m");
}

static void full_disk(void) {
    uint8_t *map;
    if (!enter_small_file_system()) _exit(77);
    start();
    int other = open("/mnt/other", O_RDWR | O_CREAT, 0600);
    int fd = open("/mnt/segment", O_RDWR | O_CREAT, 0600);
    CHECK(other >= 0 && fd >= 0 && kf_reserve(other, 0, MIB) == 0);
    CHECK(ftruncate(fd, 4 * MIB) == 0 && (map = kf_map(fd, 4 * MIB, 1)));
    for (int what = KF_RESERVE; what <= KF_ZERO; what++) {
        CHECK(ftruncate(other, MIB) == 0 && kf_reserve(other, 0, MIB) == 0);
        ask(fd, map, 0, 3 * MIB / 2, what);
        CHECK(wait_done() == ENOSPC && kf_nursery_done(&nursery) < 3 * MIB / 2);
        CHECK(ftruncate(other, 0) == 0); /* space returns: it goes on */
        ask(fd, map, 0, 3 * MIB / 2, what);
        CHECK(wait_done() == 0 && kf_is_zero(map, 0, 3 * MIB / 2));
        ask(fd, map, 3 * MIB / 2, 4 * MIB, what);
        CHECK(wait_done() == ENOSPC);
        CHECK(ftruncate(fd, 0) == 0 && ftruncate(fd, 4 * MIB) == 0);
    }
    kf_unmap(map, 4 * MIB);
    close(fd), close(other);
    stop();
}

static void size_limit(void) {
    struct rlimit limit = {MIB, MIB};
    signal(SIGXFSZ, SIG_IGN);
    int fd = new_file();
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    start();
    ask(fd, NULL, 0, 2 * MIB, KF_ZERO);
    CHECK(wait_done() == EFBIG && kf_nursery_done(&nursery) == MIB);
    ask(fd, NULL, 0, 2 * MIB, KF_RESERVE);
    CHECK(wait_done() == EFBIG);
    ask(fd, NULL, 0, MIB, KF_ZERO);
    CHECK(wait_done() == 0 && kf_nursery_done(&nursery) == MIB);
    stop();
}

static void no_space(void) {
    char text[2048];
    int outcome = outcome_of(full_disk, text, sizeof text);
    if (outcome == 77) printf("skipped: no mounts for this user (full file system)\n");
    else if (outcome) fprintf(stderr, "%s", text);
    CHECK(outcome == 0 || outcome == 77);
    outcome = outcome_of(size_limit, text, sizeof text);
    if (outcome) fprintf(stderr, "%s", text);
    CHECK(outcome == 0);
}

/* A pause of minutes: cut short by hurry, by cancel and by stop. */
#define LONG_PAUSE_US 100000000u

static void wait_first_piece(void) {
    uint64_t until = clock_ms() + 3000;
    while (kf_nursery_done(&nursery) == 0) CHECK(clock_ms() < until);
}

static void pause_ends(void) {
    start();
    int fd = new_file();
    kf_nursery_pause(&nursery, LONG_PAUSE_US);
    ask(fd, NULL, 0, MIB, KF_ZERO);
    wait_first_piece();
    CHECK(kf_nursery_done(&nursery) == PIECE && kf_nursery_busy(&nursery));
    kf_nursery_pause(&nursery, 0);
    CHECK(wait_done() == 0 && kf_nursery_done(&nursery) == MIB);

    kf_nursery_pause(&nursery, LONG_PAUSE_US);
    ask(fd, NULL, 0, MIB, KF_ZERO);
    wait_first_piece();
    kf_nursery_cancel(&nursery);
    CHECK(wait_done() == ECANCELED && kf_nursery_done(&nursery) == PIECE);

    ask(fd, NULL, 0, MIB, KF_ZERO); /* a new job is not cancelled */
    wait_first_piece();
    stop();
    CHECK(kf_nursery_take(&nursery) && nursery.error == ECANCELED);
    CHECK(kf_nursery_done(&nursery) == PIECE);
    close(fd);
}

static void cancel_and_stop_at_any_point(void) {
    uint64_t seed = 9;
    int fd = new_file();
    for (int i = 0; i < 60; i++) {
        start();
        kf_nursery_pause(&nursery, i % 3 ? 0 : 100);
        if (i % 4) ask(fd, NULL, 0, MIB, KF_ZERO);
        for (uint64_t k = chance(&seed) % 200000; k; k--) __asm__ volatile("");
        if (i % 2 && i % 4) {
            kf_nursery_cancel(&nursery);
            int error = wait_done();
            CHECK(error == ECANCELED || (error == 0 && kf_nursery_done(&nursery) == MIB));
        }
        stop();
        uint64_t done = kf_nursery_done(&nursery);
        CHECK(done % PIECE == 0 && done <= MIB);
    }
    close(fd);
}

static const test_case cases[] = {
    {"zeros_are_real", zeros_are_real},
    {"zeros_overwrite_exactly", zeros_overwrite_exactly},
    {"bounds", bounds},
    {"calls_that_fail", calls_that_fail},
    {"no_space", no_space},
    {"thread_prepares", thread_prepares},
    {"thread_syncs_its_own_open_file", thread_syncs_its_own_open_file},
    {"thread_reports_errors", thread_reports_errors},
    {"pause_ends", pause_ends},
    {"cancel_and_stop_at_any_point", cancel_and_stop_at_any_point},
    {"halt_leaves_the_range", halt_leaves_the_range},
    {"populated_pages", populated_pages},
};

int main(int argc, char **argv) {
    return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}

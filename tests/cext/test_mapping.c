/* Maps that fail under the reader, zeros, and the generation word. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/mount.h>

#include "check.h"
#include "crc32c.h"
#include "mapping.h"
#include "page.h"

#define BYTES (1u << 20)
#define LEFT 8192u /* what a truncated file still has */

static int new_memory_file(size_t bytes) {
    int fd = memfd_create("mapping-test", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    return fd;
}

/* A map of which only the first LEFT bytes still have a file behind them. */
static uint8_t *broken_map(int writable) {
    int fd = new_memory_file(BYTES);
    uint8_t *own = kf_map(fd, BYTES, 1), *map = kf_map(fd, BYTES, writable);
    CHECK(own && map);
    memset(own, 0x77, BYTES);
    CHECK(ftruncate(fd, LEFT) == 0);
    kf_unmap(own, BYTES);
    close(fd);
    return map;
}

static void maps(void) {
    int fd = new_memory_file(BYTES);
    uint8_t *map = kf_map(fd, BYTES, 1);
    const uint8_t *seen = kf_map(fd, BYTES, 0);
    CHECK(map && seen && map != seen);
    map[BYTES - 1] = 9;
    CHECK(seen[BYTES - 1] == 9);
    CHECK(kf_map(-1, BYTES, 0) == NULL && kf_map(fd, 0, 0) == NULL);
    CHECK(kf_unmap(map, BYTES) == 0 && kf_unmap((void *)seen, BYTES) == 0);
    close(fd);
}

static void guarded_copies_copy(void) {
    static uint8_t from[100000], to[100000];
    uint64_t seed = 3;
    CHECK(kf_guard_install() == 0);
    for (size_t i = 0; i < sizeof from; i++) from[i] = (uint8_t)chance(&seed);
    for (int i = 0; i < 200; i++) {
        size_t at = chance(&seed) % 1000, n = chance(&seed) % (sizeof from - 1000);
        uint32_t start = (uint32_t)chance(&seed), crc = start;
        memset(to, 0, sizeof to);
        CHECK(kf_guarded_crc_copy(&crc, to, from + at, n) == 0);
        CHECK(crc == kf_crc32c(start, from + at, n) && !memcmp(to, from + at, n) && to[n] == 0);
        memset(to, 0, sizeof to);
        CHECK(kf_guarded_copy(to, from + at, n) == 0);
        CHECK(!memcmp(to, from + at, n) && to[n] == 0);
    }
}

static void guarded_copies_fail(void) {
    static uint8_t to[BYTES];
    uint8_t *map = broken_map(1), page[16];
    uint64_t generation = 5;
    CHECK(kf_guard_install() == 0);
    for (int i = 0; i < 300; i++) { /* again and again: nothing stays blocked or armed */
        uint32_t crc = 42;
        CHECK(kf_guarded_crc_copy(&crc, to, map + LEFT - 100, 50000) == -1);
        CHECK(crc == 42);
        CHECK(kf_guarded_copy(to, map + LEFT + 4096, 61) == -1);
        CHECK(kf_guarded_copy(map + LEFT, page, sizeof page) == -1); /* a store, too */
        CHECK(kf_guarded_generation(&generation, map + BYTES - KF_PAGE_BYTES) == -1);
        CHECK(generation == 5);
        CHECK(kf_guarded_crc_copy(&crc, to, map, LEFT) == 0 && crc != 42);
    }
    kf_unmap(map, BYTES);
}

/* Any other SIGBUS: a line on stderr, an exit code of its own. */
static volatile uint8_t *outside;

static void read_outside(void) {
    CHECK(kf_guard_install() == 0);
    outside = broken_map(1);
    (void)outside[LEFT];
}

static void read_outside_after_copies(void) {
    uint8_t to[64];
    CHECK(kf_guard_install() == 0);
    outside = broken_map(1);
    CHECK(kf_guarded_copy(to, (const void *)outside, 64) == 0);
    (void)outside[LEFT];
}

static void read_outside_after_failure(void) {
    uint8_t to[64];
    CHECK(kf_guard_install() == 0);
    outside = broken_map(1);
    CHECK(kf_guarded_copy(to, (const void *)(outside + LEFT), 64) == -1);
    outside[LEFT] = 1;
}

static void *fault_here(void *arg) {
    (void)outside[LEFT];
    return arg;
}

static void read_outside_in_a_thread(void) {
    pthread_t thread;
    CHECK(kf_guard_install() == 0);
    outside = broken_map(1);
    if (!pthread_create(&thread, NULL, fault_here, NULL)) pthread_join(thread, NULL);
}

static void killed(void) {
    CHECK(kf_guard_install() == 0);
    kill(getpid(), SIGBUS);
    sleep_ms(1000);
}

static void outside_a_copy_the_process_ends(void) {
    static void (*const bodies[])(void) = {read_outside, read_outside_after_copies,
                                           read_outside_after_failure, read_outside_in_a_thread,
                                           killed};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        char text[512];
        CHECK(outcome_of(bodies[i], text, sizeof text) == KF_SIGBUS_EXIT_CODE);
        CHECK(strncmp(text, "kraftfast: SIGBUS", 17) == 0 && strchr(text, '\n'));
        CHECK(strchr(text, '\n')[1] == 0); /* one line */
    }
}

/* Each thread has its guard: failures here, copies that go well there, all at once. */
#define THREADS 4
static uint8_t *good_map, *bad_map;
static _Atomic int stop_threads, failures, successes;

static void *copy_both(void *arg) {
    size_t me = (size_t)arg;
    uint8_t *to = malloc(200000);
    while (!atomic_load(&stop_threads)) {
        uint32_t crc = 0;
        CHECK(kf_guarded_crc_copy(&crc, to, good_map + me, 200000) == 0);
        CHECK(crc == kf_crc32c(0, good_map + me, 200000));
        atomic_fetch_add(&successes, 1);
        if (me & 1) {
            CHECK(kf_guarded_crc_copy(&crc, to, bad_map, 200000) == -1);
            CHECK(kf_guarded_copy(to, bad_map + LEFT, 8) == -1);
            atomic_fetch_add(&failures, 1);
        }
    }
    free(to);
    return NULL;
}

static void threads_have_their_own_guards(void) {
    pthread_t threads[THREADS];
    int fd = new_memory_file(BYTES);
    uint64_t seed = 5;
    CHECK(kf_guard_install() == 0);
    good_map = kf_map(fd, BYTES, 1);
    for (size_t i = 0; i < BYTES; i++) good_map[i] = (uint8_t)chance(&seed);
    bad_map = broken_map(0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, copy_both, (void *)i));
    sleep_ms(200);
    while (atomic_load(&failures) <= 10 || atomic_load(&successes) <= 10)
        sleep_ms(1); /* on a busy machine; the case has its alarm */
    atomic_store(&stop_threads, 1);
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    kf_unmap(good_map, BYTES);
    kf_unmap(bad_map, BYTES);
    close(fd);
}

/* A hole in a file of a full file system: a store there is a SIGBUS. */
static void store_into_a_hole(void) {
    static uint8_t from[3 * BYTES];
    memset(from, 1, sizeof from);
    CHECK(kf_guard_install() == 0);
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("small", "/mnt", "tmpfs", 0, "size=2m"))
        _exit(77);
    int fd = open("/mnt/file", O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && ftruncate(fd, 3 * BYTES) == 0);
    uint8_t *map = kf_map(fd, 3 * BYTES, 1);
    CHECK(kf_reserve(fd, 0, 2 * BYTES) == 0);
    CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES) == 0);
    int other = open("/mnt/other", O_RDWR | O_CREAT, 0600);
    CHECK(kf_reserve(other, 0, BYTES) == 0); /* and somebody takes the space */
    CHECK(kf_guarded_copy(map + BYTES, from, BYTES) == 0);
    CHECK(kf_guarded_copy(map, from, BYTES) == -1);
    CHECK(kf_guarded_copy(map, from, 3 * BYTES) == -1);
}

static void punched_file(void) {
    char text[512];
    int outcome = outcome_of(store_into_a_hole, text, sizeof text);
    if (outcome == 77)
        printf("skipped: no mounts for this user (hole in a full file system)\n");
    else if (outcome)
        fprintf(stderr, "%d %s", outcome, text);
    CHECK(outcome == 0 || outcome == 77);
}

/* --- a stage: batches of any size, into a file that was full of something else --- */

#define OLD 0xee

static void stages(void) {
    enum { LIMIT = BYTES - 2 * KF_PAGE_BYTES };
    static uint8_t expected[BYTES];
    uint64_t seed = 11;
    for (int round = 0; round < 40; round++) {
        int fd = new_memory_file(BYTES);
        uint8_t *map = kf_map(fd, BYTES, 1);
        kf_stage stage;
        CHECK(map && kf_stage_open(&stage, BYTES / 2) == 0);
        memset(map, OLD, BYTES);
        memset(expected, OLD, BYTES);
        uint64_t at = 0, end = 0, far = 0;
        while (at < LIMIT) {
            size_t n = 1 + chance(&seed) % (round % 4 ? 6000 : BYTES / 2);
            if (chance(&seed) % 4 == 0) n = 4096 - at % 4096; /* to a page's end */
            if (n > LIMIT - at) n = LIMIT - at;
            uint8_t *place = kf_stage_place(&stage, map, at);
            for (size_t i = 0; i < n; i++) place[i] = expected[at + i] = 1 + (chance(&seed) & 63);
            if (chance(&seed) % 8 == 0) continue; /* refused: nothing of it is in the file */
            uint64_t start = at & ~4095ULL, length = kf_stage_pad(&stage, at, n, LIMIT);
            CHECK(start + length <= LIMIT && start + length >= at + n);
            CHECK((start + length) % KF_PAGE_BYTES == 0 || start + length == at + n);
            CHECK(start + length == LIMIT || start + length - (at + n) >= KF_STAGE_ZEROS);
            CHECK(kf_write_all(fd, stage.bytes, length, start) == 0);
            kf_stage_keep(&stage, map, at, n);
            at += n;
            end = start + length;
            CHECK(!memcmp(map, expected, at) && kf_is_zero(map, at, end));
            far = end > far ? end : far;
            for (uint64_t i = far; i < BYTES && i < far + 5000; i++) CHECK(map[i] == OLD);
            if (chance(&seed) % 8 == 0) { /* a cut: the page is taken from the file */
                at -= chance(&seed) % (at < 5000 ? at + 1 : 5000);
                memset(map + at, 0, end - at);
            }
        }
        kf_stage_close(&stage, BYTES / 2);
        kf_unmap(map, BYTES);
        close(fd);
    }
    int nowhere = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    CHECK(kf_write_all(nowhere, expected, 10, 0) == EBADF && kf_write_all(-1, expected, 0, 0) == 0);
    close(nowhere);
}

static void a_stage_gives_memory_back(void) {
    enum { LARGE = 4 * KF_STAGE_KEPT_BYTES };
    uint8_t *map = kf_private(2 * LARGE);
    unsigned char resident = 1;
    kf_stage stage;
    CHECK(map && kf_stage_open(&stage, LARGE) == 0);
    memset(kf_stage_place(&stage, map, 100), 7, LARGE);
    CHECK(kf_stage_pad(&stage, 100, LARGE, 2 * LARGE) >= LARGE);
    uint8_t *far = stage.bytes + LARGE / 2;
    CHECK(mincore(far, 1, &resident) == 0 && (resident & 1));
    kf_stage_keep(&stage, map, 100, LARGE);
    CHECK(mincore(far, 1, &resident) == 0 && !(resident & 1));
    CHECK(kf_stage_place(&stage, map, 100 + LARGE)[-1] == 7);
    kf_stage_close(&stage, LARGE);
    kf_unmap(map, 2 * LARGE);
}

/* --- zeros --- */

static void zeros(void) {
    enum { N = 3 * 4096 + 100 };
    static uint8_t map[N], before[N];
    uint64_t seed = 21;
    CHECK(kf_is_zero(map, 0, N) && kf_is_zero(map, 5, 5) && kf_is_zero(map, 7, 3));
    CHECK(kf_zero_dirty(map, 0, N) == 0 && kf_zero_dirty(map, 9, 3) == 0);
    for (size_t i = 0; i < N; i++) { /* every single byte is looked at */
        map[i] = 1;
        CHECK(!kf_is_zero(map, 0, N) && !kf_is_zero(map, i, i + 1));
        CHECK(kf_is_zero(map, i + 1, N) && kf_is_zero(map, 0, i));
        map[i] = 0;
    }
    for (int round = 0; round < 2000; round++) {
        uint64_t from = chance(&seed) % N, to = from + chance(&seed) % (N - from + 1);
        for (uint64_t k = chance(&seed) % 6; k; k--) map[chance(&seed) % N] = (uint8_t)round;
        memcpy(before, map, N);
        uint64_t stored = kf_zero_dirty(map, from, to);
        CHECK(kf_is_zero(map, from, to) && stored <= to - from);
        CHECK(!memcmp(map, before, from) && !memcmp(map + to, before + to, N - to));
        int dirty = 0; /* pages that were zero are not stored into */
        for (uint64_t i = from; i < to; i++) dirty |= before[i];
        CHECK((stored > 0) == (dirty != 0));
        uint64_t pages = (to + 4095) / 4096 - from / 4096;
        if (dirty && pages > 1 && kf_is_zero(before, from, from / 4096 * 4096 + 4096))
            CHECK(stored < to - from);
    }
}

/* --- D20: what is read between two loads of one generation stood there under it --- */

#define WORDS 256
static _Alignas(4096) uint8_t source_page[KF_PAGE_BYTES];
static _Atomic uint64_t source[WORDS];

static void *cut_and_rewrite(void *arg) {
    for (uint64_t round = 1; !atomic_load(&stop_threads); round++) {
        kf_generation_bump(source_page);
        for (int i = 0; i < WORDS; i++)
            atomic_store_explicit(&source[i], round, memory_order_relaxed);
        if (round % 8 == 0) sched_yield();
        if (round % 1024 == 0) sleep_ms(1); /* under a sanitizer a reader is slower than a round */
    }
    return arg;
}

/* Data of two rounds under one generation can only be a round that is being written: a reader that
 * sees a round newer than its generation must see the generation move. */
static void generation_guards_a_copy(void) {
    pthread_t thread;
    uint64_t until = clock_ms() + 200, kept = 0, dropped = 0;
    kf_page_format(source_page, (kf_mark){0, 0, 0}, 0);
    atomic_store(&stop_threads, 0);
    CHECK(!pthread_create(&thread, NULL, cut_and_rewrite, NULL));
    while (clock_ms() < until || !kept || !dropped) {
        uint64_t words[WORDS], before, after;
        CHECK(kf_guarded_generation(&before, source_page) == 0);
        for (int i = WORDS - 1; i >= 0; i--)
            words[i] = atomic_load_explicit(&source[i], memory_order_relaxed);
        CHECK(kf_guarded_generation(&after, source_page) == 0);
        CHECK(kf_generation_load(source_page) >= after && after >= before);
        dropped += before != after;
        if (before != after) continue;
        kept++;
        for (int i = 0; i < WORDS; i++) CHECK(words[i] <= before);
    }
    atomic_store(&stop_threads, 1);
    pthread_join(thread, NULL);
}

/* How far a file is in the page cache, from a place on. */
static void cached_pages(void) {
    size_t bytes = 20 * BYTES; /* more than mincore is asked for at once */
    int fd = new_memory_file(bytes + BYTES);
    uint8_t *map = kf_map(fd, bytes + BYTES, 1);
    CHECK(kf_cached_end(map, 0, bytes) == 0 && kf_cached_end(map, 5000, bytes) == 5000);
    for (size_t at = 0; at < bytes; at += 4096) CHECK(pwrite(fd, "x", 1, (off_t)at) == 1);
    CHECK(kf_cached_end(map, 0, bytes) == bytes && kf_cached_end(map, 5000, bytes) == bytes);
    CHECK(kf_cached_end(map, 0, bytes + BYTES) == bytes);
    CHECK(kf_cached_end(map, bytes + 5, bytes + BYTES) == bytes + 5);
    CHECK(kf_cached_end(map, 0, 5000) == 5000 && kf_cached_end(map, 7, 7) == 7);
    CHECK(kf_cached_end(NULL, 3, bytes) == 3);
    CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, BYTES + 8192, 4096) == 0);
    CHECK(kf_cached_end(map, 0, bytes) == BYTES + 8192);
    kf_unmap(map, bytes + BYTES);
    CHECK(kf_cached_end(map, 0, bytes) == 0); /* no map there any more */
    close(fd);
}

static const test_case cases[] = {
    {"maps", maps},
    {"guarded_copies_copy", guarded_copies_copy},
    {"guarded_copies_fail", guarded_copies_fail},
    {"outside_a_copy_the_process_ends", outside_a_copy_the_process_ends},
    {"punched_file", punched_file},
    {"threads_have_their_own_guards", threads_have_their_own_guards},
    {"stages", stages},
    {"a_stage_gives_memory_back", a_stage_gives_memory_back},
    {"zeros", zeros},
    {"cached_pages", cached_pages},
    {"generation_guards_a_copy", generation_guards_a_copy},
};

int main(int argc, char **argv) {
    return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}

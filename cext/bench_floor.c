#define _GNU_SOURCE

#include "bench_floor_run.h"
#include "crc32c.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SPINS 200
#define LOOK_EVERY 256 /* turns of the leader between looks at its followers */
#define HEADER 61
#define BODY_MAX 24 /* of a record, beside its value */

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

static void ring_bell(position *at) {
    atomic_fetch_add(&at->bell, 1);
    syscall(SYS_futex, &at->bell, FUTEX_WAKE, 8, NULL, NULL, 0);
}

static void publish(position *at, uint64_t end) {
    atomic_store(&at->end, end);
    ring_bell(at);
}

/* Sleep until the bell is rung after `heard`, or a tenth of a second. */
static void sleep_on(position *at, uint32_t heard) {
    struct timespec most = {0, 100000000};
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load(&at->bell) != heard) return;
        pause_briefly();
    }
    syscall(SYS_futex, &at->bell, FUTEX_WAIT, heard, &most, NULL, 0);
}

/* Sleep as sleep_on does. If the bell was not rung, the leader checks for followers that ended. */
static void rest(floor_run *run, position *at, uint32_t heard) {
    sleep_on(at, heard);
    if (run->id == 0 && atomic_load(&at->bell) == heard && waitpid(-1, NULL, WNOHANG) > 0)
        kf_floor_fail(run, "a follower's process has ended", ECHILD);
}

/* The end of `at` once it is past `known`; 0 if the run has failed. */
static uint64_t wait_past(floor_run *run, position *at, uint64_t known) {
    for (;;) {
        uint32_t heard = atomic_load(&at->bell);
        uint64_t end = atomic_load(&at->end);
        if (end > known) return end;
        if (atomic_load(&run->shared->failed)) return 0;
        rest(run, at, heard);
    }
}

static double seconds_between(struct timeval a, struct timeval b) {
    return (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_usec - a.tv_usec) / 1e6;
}

/* Note what this process has used since its clock started. */
static void count_cpu(floor_run *run) {
    struct rusage now;
    getrusage(RUSAGE_SELF, &now);
    run->shared->user_s[run->id] = seconds_between(run->before.ru_utime, now.ru_utime);
    run->shared->system_s[run->id] = seconds_between(run->before.ru_stime, now.ru_stime);
}

/* --- followers -------------------------------------------------------------------------------- */

static int check(floor_run *run, const uint8_t *batch, uint32_t size, uint8_t *to) {
    uint32_t expected, found;
    memcpy(&expected, batch + 17, 4);
    if (to) {
        memcpy(to, batch, 21);
        found = kf_crc32c_copy(0, to + 21, batch + 21, size - 21);
    } else {
        found = kf_crc32c(0, batch + 21, size - 21);
    }
    return found == expected ? 0 : kf_floor_fail(run, "a batch does not have its CRC", EBADMSG);
}

/* Take the batches from *at to end. */
static int take(floor_run *run, const uint8_t *leader, uint64_t *at, uint64_t end) {
    while (*at < end) {
        const uint8_t *batch = leader ? leader + *at % run->keep : run->ring + *at % RING;
        uint8_t *to = leader ? run->file.map + *at % run->keep : NULL;
        uint32_t size;
        memcpy(&size, batch + 8, 4);
        if (leader && kf_floor_reserve(run, *at + size)) return -1;
        if (check(run, batch, size, to)) return -1;
        *at += size;
        if (!leader && *at - run->file.stored >= STORE_EACH && kf_floor_store(run, *at)) return -1;
    }
    return leader ? 0 : kf_floor_store(run, *at);
}

static void follow(floor_run *run, int number, const uint8_t *leader) {
    shared_state *shared = run->shared;
    uint64_t at = 0;
    for (;;) {
        uint64_t end = wait_past(run, &shared->leader, at);
        if (!end || take(run, leader, &at, end & ~ENDED)) return;
        if (end & ENDED) return;
        if (run->of->durable && fdatasync(run->file.fd)) {
            kf_floor_fail(run, "cannot flush", errno);
            return;
        }
        atomic_store(&shared->follower[number].end, at);
        ring_bell(&shared->acknowledged);
    }
}

static pid_t start_follower(floor_run *run, int number, const uint8_t *leader) {
    pid_t parent = getpid(), child = fork();
    if (child) return child < 0 ? kf_floor_fail(run, "cannot fork", errno) : child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    run->id = number + 1;
    if (!kf_floor_make_file(run, run->id)) {
        getrusage(RUSAGE_SELF, &run->before);
        atomic_fetch_add(&run->shared->ready.end, 1);
        ring_bell(&run->shared->ready);
        follow(run, number, leader);
        count_cpu(run);
    }
    ring_bell(&run->shared->acknowledged);
    ring_bell(&run->shared->ready);
    _exit(atomic_load(&run->shared->failed) != 0);
}

/* --- the leader ------------------------------------------------------------------------------- */

static size_t varint(uint8_t *p, uint64_t v) {
    size_t n = 0;
    do {
        p[n++] = (uint8_t)((v & 127) | (v > 127 ? 128 : 0));
        v >>= 7;
    } while (v);
    return n;
}

static uint32_t encode(uint8_t *out, const uint8_t *value, size_t value_bytes, int n) {
    uint8_t *p = out + HEADER;
    for (int i = 0; i < n; i++) {
        uint8_t body[BODY_MAX] = {0};
        size_t head = 2; /* attributes, timestamp delta */
        head += varint(body + head, (uint64_t)i << 1);
        body[head++] = 1; /* no key */
        head += varint(body + head, value_bytes << 1);
        p += varint(p, (head + value_bytes + 1) << 1);
        memcpy(p, body, head);
        memcpy(p + head, value, value_bytes);
        p += head + value_bytes;
        *p++ = 0; /* no headers */
    }
    uint32_t size = (uint32_t)(p - out), crc = kf_crc32c(0, out + 21, size - 21);
    memcpy(out + 8, &size, 4);
    memcpy(out + 17, &crc, 4);
    return size;
}

typedef struct {
    double *began, *took; /* by batch, microseconds */
    uint64_t *ends;
    int64_t sent, committed;
    uint64_t at, flushed;
    uint8_t *value;
} leader_state;

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Whether one more batch would overwrite bytes of the ring that a voter has not stored yet. */
static int ring_is_full(const floor_run *run, const leader_state *of) {
    uint64_t low = least(atomic_load(&run->shared->follower[0].end),
                         atomic_load(&run->shared->follower[1].end));
    low = least(low, run->file.stored);
    return run->ring && of->at + run->batch_max - low > RING - STORE_EACH;
}

static int send_batches(floor_run *run, leader_state *of) {
    while (of->sent < run->of->batches && of->sent - of->committed < run->of->window &&
           !ring_is_full(run, of)) {
        uint8_t *out = run->ring ? run->ring + of->at % RING : run->file.map + of->at;
        if (!run->ring && kf_floor_reserve(run, of->at + run->batch_max)) return -1;
        of->began[of->sent] = now_us();
        of->at += encode(out, of->value, run->of->value_bytes, run->per_batch);
        of->ends[of->sent++] = of->at;
        publish(&run->shared->leader, of->at);
    }
    return 0;
}

static int flush(floor_run *run, leader_state *of) {
    if (run->ring && kf_floor_store(run, of->at)) return -1;
    if (run->of->durable && of->flushed < of->at && fdatasync(run->file.fd))
        return kf_floor_fail(run, "cannot flush", errno);
    of->flushed = of->at;
    return 0;
}

/* Commit what two of three have. Returns whether anything was. */
static int commit(floor_run *run, leader_state *of) {
    uint64_t a = atomic_load(&run->shared->follower[0].end),
             b = atomic_load(&run->shared->follower[1].end);
    uint64_t best = a > b ? a : b, both = least(a, b), own = of->flushed;
    uint64_t committed = own < best ? (own > both ? own : both) : best;
    int64_t before = of->committed;
    double now = now_us();
    while (of->committed < of->sent && of->ends[of->committed] <= committed) {
        of->took[of->committed] = now - of->began[of->committed];
        of->committed++;
    }
    return of->committed > before;
}

static int lead(floor_run *run, leader_state *of) {
    position *acknowledged = &run->shared->acknowledged;
    unsigned turns = 0;
    while (of->committed < run->of->batches) {
        if (atomic_load(&run->shared->failed) || send_batches(run, of)) return -1;
        uint32_t heard = atomic_load(&acknowledged->bell);
        if (flush(run, of)) return -1;
        if (++turns % LOOK_EVERY == 0 && waitpid(-1, NULL, WNOHANG) > 0)
            return kf_floor_fail(run, "a follower's process has ended", ECHILD);
        if (!commit(run, of)) rest(run, acknowledged, heard);
    }
    return 0;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void report(floor_run *run, leader_state *of, double seconds, kf_floor_result *result) {
    int64_t n = run->of->batches;
    count_cpu(run);
    qsort(of->took, (size_t)n, sizeof(double), by_size);
    result->records = n * run->per_batch;
    result->seconds = seconds;
    result->p50_us = of->took[n / 2];
    result->p99_us = of->took[n * 99 / 100];
    result->p999_us = of->took[n * 999 / 1000];
    result->max_us = of->took[n - 1];
}

static int wait_until_ready(floor_run *run) {
    for (uint64_t known = 0; known < FOLLOWERS;) {
        known = wait_past(run, &run->shared->ready, known);
        if (!known) return -1;
    }
    return 0;
}

static int run_leader(floor_run *run, kf_floor_result *result) {
    size_t n = (size_t)run->of->batches;
    leader_state of = {.began = malloc(n * sizeof(double)),
                       .took = malloc(n * sizeof(double)),
                       .ends = malloc(n * sizeof(uint64_t)),
                       .value = malloc(run->of->value_bytes)};
    int failed = of.began && of.took && of.ends && of.value
                     ? wait_until_ready(run)
                     : kf_floor_fail(run, "no memory", ENOMEM);
    if (!failed) {
        memset(of.value, 'v', run->of->value_bytes);
        getrusage(RUSAGE_SELF, &run->before);
        double began = now_us();
        failed = lead(run, &of);
        if (!failed) report(run, &of, (now_us() - began) / 1e6, result);
    }
    publish(&run->shared->leader, of.at | ENDED);
    free(of.began);
    free(of.took);
    free(of.ends);
    free(of.value);
    return failed;
}

/* --- the run as a whole ----------------------------------------------------------------------- */

static void measure(floor_run *run, const kf_floor_options *options) {
    run->of = options;
    run->per_batch = (int)(options->batch_bytes / (options->value_bytes + 10));
    if (run->per_batch < 1) run->per_batch = 1;
    run->batch_max = HEADER + (size_t)run->per_batch * (options->value_bytes + BODY_MAX);
    run->size = run->batch_max * ((size_t)options->batches + 1);
    run->size = (run->size + PIECE - 1) & ~(PIECE - 1);
    run->keep =
        options->keep_bytes && options->keep_bytes < run->size ? options->keep_bytes : run->size;
    run->keep = (run->keep + PIECE - 1) & ~(PIECE - 1);
}

/* Memory of RING bytes twice behind each other: what runs over the end goes on at the start. */
static int make_ring(floor_run *run) {
    int fd = memfd_create("floor", MFD_CLOEXEC), flags = MAP_SHARED | MAP_FIXED | MAP_POPULATE;
    if (fd < 0 || ftruncate(fd, (off_t)RING)) return kf_floor_fail(run, "no shared memory", errno);
    uint8_t *at = mmap(NULL, 2 * RING, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return kf_floor_fail(run, "no memory", errno);
    for (int half = 0; half < 2; half++)
        if (mmap(at + half * RING, RING, PROT_READ | PROT_WRITE, flags, fd, 0) == MAP_FAILED)
            return kf_floor_fail(run, "cannot map the ring", errno);
    close(fd);
    memset(at, 1, RING);
    run->ring = at;
    return 0;
}

/* Wait for the followers; one that ended otherwise than it should has failed the run. */
static int reap(floor_run *run, const pid_t *followers) {
    int failed = 0;
    for (int i = 0; i < FOLLOWERS; i++) {
        int status = 0;
        if (followers[i] <= 0) continue;
        while (waitpid(followers[i], &status, 0) < 0 && errno == EINTR) {
        }
        if (status) failed = kf_floor_fail(run, "a follower's process has ended", ECHILD);
    }
    return failed;
}

static int run_all(floor_run *run, kf_floor_result *result) {
    pid_t followers[FOLLOWERS] = {0};
    int in_place = run->of->how == KF_FLOOR_IN_PLACE;
    int failed = (!in_place && make_ring(run)) || kf_floor_make_file(run, 0) ? -1 : 0;
    const uint8_t *leader = in_place ? run->file.map : NULL;
    for (int i = 0; i < FOLLOWERS && !failed; i++)
        failed = (followers[i] = start_follower(run, i, leader)) < 0 ? -1 : 0;
    if (!failed) failed = run_leader(run, result);
    if (reap(run, followers)) failed = -1;
    return failed;
}

int kf_floor_run(const kf_floor_options *options, kf_floor_result *result) {
    floor_run run = {0};
    memset(result, 0, sizeof *result);
    run.shared =
        mmap(NULL, sizeof(shared_state), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run.shared == MAP_FAILED) {
        snprintf(result->failed, sizeof result->failed, "no memory");
        result->error = errno;
        return -1;
    }
    measure(&run, options);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int in_circle = run.keep < run.size, in_place = options->how == KF_FLOOR_IN_PLACE;
    int failed = in_place && in_circle
                     ? kf_floor_fail(&run, "in place nothing is used in a circle", EINVAL)
                     : run_all(&run, result);
    for (int i = 0; i <= FOLLOWERS; i++) {
        result->user_s += run.shared->user_s[i];
        result->system_s += run.shared->system_s[i];
    }
    if (failed) {
        memcpy(result->failed, run.shared->what, sizeof result->failed);
        result->error = atomic_load(&run.shared->failed);
    }
    if (run.ring) munmap(run.ring, 2 * RING);
    if (run.file.map && run.file.map != MAP_FAILED) munmap(run.file.map, run.keep);
    if (run.file.tail && run.file.tail != MAP_FAILED) munmap(run.file.tail, PAGE);
    if (run.file.fd > 0) close(run.file.fd);
    munmap(run.shared, sizeof(shared_state));
    return failed;
}

/* The ring: one thread against a model, and two ends against each other. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "ring_pair.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static void attach(void) {
    pair p = make_pair(CAPACITY);
    kf_ring_out out;
    kf_ring_in in;
    uint64_t *producer = (uint64_t *)p.producer_file, *consumer = (uint64_t *)p.consumer_file;
    static const uint32_t bad[] = {0, 1, 4095, 4097, 6144, 1u << 31, 2048};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(kf_ring_format_producer(p.producer_file, bad[i], 1) == -1);
        CHECK(kf_ring_format_consumer(p.consumer_file, bad[i], 1) == -1);
    }
    for (int side = 0; side < 2; side++) {
        uint64_t *words = side ? consumer : producer;
        for (int word = 0; word < 3; word++) { /* magic, capacity, generation */
            words[word] ^= 1u << 13;
            CHECK(kf_ring_attach_out(&out, p.producer_file, p.bytes, p.consumer_file) == -1);
            CHECK(kf_ring_attach_in(&in, p.producer_file, p.bytes, p.consumer_file) == -1);
            words[word] ^= 1u << 13;
        }
    }
    for (size_t bytes = 0; bytes < p.bytes; bytes += 1021) {
        CHECK(kf_ring_attach_out(&out, p.producer_file, bytes, p.consumer_file) == -1);
        CHECK(kf_ring_attach_in(&in, p.producer_file, bytes, p.consumer_file) == -1);
    }
    put(&p.out, 10, 1); /* R4: what was used is not attached again */
    kf_ring_publish(&p.out);
    CHECK(kf_ring_attach_out(&out, p.producer_file, p.bytes, p.consumer_file) == -1);
    expect(&p.in, 10, 1);
    kf_ring_publish_tail(&p.in);
    CHECK(kf_ring_attach_in(&in, p.producer_file, p.bytes, p.consumer_file) == -1);
    free_pair(&p);
}

/* One thread, against a queue in plain memory: what is visible when, and when there is room. */
typedef struct {
    uint32_t length, kind;
} model_message;

static void model(void) {
    static model_message queue[1u << 20];
    uint64_t seed = 1;
    for (int round = 0; round < 20; round++) {
        pair p = make_pair(CAPACITY << (round & 3));
        uint64_t committed = 0, published = 0, read = 0, released = 0;
        uint32_t max = kf_ring_payload_max(&p.out);
        for (int step = 0; step < (SANITIZED ? 4000 : 40000); step++) {
            uint32_t length = (uint32_t)(chance(&seed) % (chance(&seed) & 1 ? 64 : max + 1));
            switch (chance(&seed) % 6) {
            case 0:
            case 1: { /* append: in full, shorter than claimed, or not at all */
                int room = kf_ring_has_room(&p.out, length);
                uint8_t *payload = kf_ring_claim(&p.out, length);
                CHECK(room == (payload != NULL));
                if (released == committed && kf_ring_drained(&p.out)) CHECK(payload);
                if (!payload) break;
                if (chance(&seed) % 8 == 0) {
                    kf_ring_abort(&p.out);
                    break;
                }
                uint32_t kind = (uint32_t)chance(&seed) & 0xffff;
                uint32_t shorter = chance(&seed) % 4 ? length : (uint32_t)(length * 2ULL / 3);
                memset(payload, (int)kind, shorter);
                kf_ring_commit(&p.out, shorter, kind, kind * 3);
                queue[committed++] = (model_message){shorter, kind};
                CHECK(kf_ring_position(&p.out) == p.out.head);
                break;
            }
            case 2:
                kf_ring_publish(&p.out);
                published = committed;
                break;
            case 3:
                while (read < published && chance(&seed) % 4) {
                    expect(&p.in, queue[read].length, queue[read].kind);
                    read++;
                }
                if (read == published) expect_none(&p.in);
                break;
            case 4:
                CHECK(kf_ring_publish_tail(&p.in) == 0); /* nobody asked for room */
                released = read;
                break;
            default: /* a padding alone may be waiting, a message never hides */
                if (read < published) CHECK(kf_ring_waiting(&p.in));
            }
        }
        CHECK(committed > 100 && !p.out.fault && !p.in.fault);
        free_pair(&p);
    }
}

static void padding(void) {
    for (uint32_t rest = 16; rest <= 256; rest += 16) {
        pair p = make_pair(CAPACITY);
        uint32_t half = kf_ring_payload_max(&p.out);
        put(&p.out, half, 1);
        kf_ring_publish(&p.out);
        expect(&p.in, half, 1);
        kf_ring_publish_tail(&p.in);
        put(&p.out, half - rest, 2); /* now `rest` bytes are left before the end */
        uint8_t *payload = kf_ring_claim(&p.out, rest);
        CHECK(payload == p.out.data + KF_RING_HEADER); /* did not fit there: at the start again */
        memset(payload, 3, rest);
        kf_ring_commit(&p.out, rest, 3, 9);
        kf_ring_publish(&p.out);
        expect(&p.in, half - rest, 2);
        expect(&p.in, rest, 3);
        expect_none(&p.in);
        CHECK(kf_ring_publish_tail(&p.in) == 0 && kf_ring_drained(&p.out));
        free_pair(&p);
    }
    pair p = make_pair(CAPACITY); /* an exact fit before the end takes no padding */
    uint32_t half = kf_ring_payload_max(&p.out);
    for (uint32_t i = 0; i < 64; i++) {
        put(&p.out, half, i);
        CHECK(p.out.head == (i + 1ULL) * CAPACITY / 2);
        kf_ring_publish(&p.out);
        expect(&p.in, half, i);
        kf_ring_publish_tail(&p.in);
    }
    CHECK(kf_ring_claim(&p.out, half + 1) == NULL && kf_ring_has_room(&p.out, half + 1) == 0);
    /* A padding that was committed by a claim that was given up: skipped, alone. */
    put(&p.out, 16, 5);
    put(&p.out, half - 64, 5);
    kf_ring_publish(&p.out);
    expect(&p.in, 16, 5);
    expect(&p.in, half - 64, 5);
    kf_ring_publish_tail(&p.in);
    put(&p.out, half - 32, 6);
    CHECK(kf_ring_claim(&p.out, 128));
    kf_ring_abort(&p.out);
    kf_ring_publish(&p.out);
    expect(&p.in, half - 32, 6);
    expect_none(&p.in);
    CHECK(!kf_ring_waiting(&p.in));
    kf_ring_publish_tail(&p.in);
    CHECK(kf_ring_drained(&p.out));
    put(&p.out, 1, 7);
    kf_ring_publish(&p.out);
    expect(&p.in, 1, 7);
    free_pair(&p);
}

/* Messages of random sizes, each filled with a stream that the other side computes too. */
#define STREAM_SEED 99
static _Atomic int stop_hammer;

typedef struct {
    pair p;
    kf_doorbell_page producer_bell, consumer_bell;
    int producer_fd, consumer_fd, blocking;
    uint64_t sent, received;
    uint32_t capacity;
} hammer_state;

static void fill(uint8_t *payload, uint32_t length, uint64_t *stream) {
    uint64_t word = chance(stream);
    for (uint32_t i = 0; i < length; i++) payload[i] = (uint8_t)(word >> (i & 7) * 8);
}

static void nap(int fd) {
    uint64_t rings;
    struct timespec limit = {3, 0};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    CHECK(pselect(fd + 1, &set, NULL, NULL, &limit, NULL) == 1); /* else: a lost wake-up */
    CHECK(read(fd, &rings, 8) == 8);
}

static void producer_waits(hammer_state *s, uint32_t length) {
    kf_ring_want_room(&s->p.out);
    kf_doorbell_ring(&s->consumer_bell, s->consumer_fd);
    if (!s->blocking) return;
    kf_doorbell_sleep(&s->producer_bell);
    if (!kf_ring_has_room(&s->p.out, length)) nap(s->producer_fd);
    kf_doorbell_awake(&s->producer_bell);
}

/* Several laps: however long they take on a machine that is busy with other things. */
static int is_enough(const hammer_state *s) {
    return s->sent > 100 && (s->p.out.head > 4ULL * s->capacity || SANITIZED);
}

static void *produce(void *arg) {
    hammer_state *s = arg;
    uint64_t seed = 5, stream = STREAM_SEED, batch = 0;
    uint32_t max = kf_ring_payload_max(&s->p.out);
    while (!atomic_load(&stop_hammer) || !is_enough(s)) {
        uint32_t length = (uint32_t)(chance(&seed) % (chance(&seed) % 16 ? 200 : max + 1));
        uint8_t *payload;
        while (!(payload = kf_ring_claim(&s->p.out, length))) {
            CHECK(!s->p.out.fault);
            producer_waits(s, length);
            batch = 0;
        }
        fill(payload, length, &stream);
        kf_ring_commit(&s->p.out, length, (uint32_t)s->sent, length);
        s->sent++;
        if (++batch < chance(&seed) % 8) continue; /* several commits, one publish */
        batch = 0;
        kf_ring_publish(&s->p.out);
        kf_doorbell_ring(&s->consumer_bell, s->consumer_fd);
    }
    uint8_t *payload;
    while (!(payload = kf_ring_claim(&s->p.out, 0))) producer_waits(s, 0);
    kf_ring_commit(&s->p.out, 0, 0xdead, 0);
    kf_ring_publish(&s->p.out);
    kf_doorbell_ring(&s->consumer_bell, s->consumer_fd);
    return NULL;
}

static void *consume(void *arg) {
    hammer_state *s = arg;
    static uint8_t want[1 << 20];
    uint64_t seed = 6, stream = STREAM_SEED;
    kf_ring_message m;
    for (;;) {
        int got = kf_ring_peek(&s->p.in, &m);
        CHECK(got >= 0);
        if (got == 0 || chance(&seed) % 5 == 0)
            if (kf_ring_publish_tail(&s->p.in))
                kf_doorbell_ring(&s->producer_bell, s->producer_fd);
        if (got == 0) {
            if (!s->blocking) continue;
            kf_doorbell_sleep(&s->consumer_bell);
            if (!kf_ring_waiting(&s->p.in)) nap(s->consumer_fd);
            kf_doorbell_awake(&s->consumer_bell);
            continue;
        }
        if (m.kind == 0xdead && m.length == 0 && m.crc == 0 && atomic_load(&stop_hammer)) break;
        CHECK(m.kind == (uint32_t)s->received && m.crc == m.length);
        fill(want, m.length, &stream);
        CHECK(memcmp(want, m.payload, m.length) == 0);
        kf_ring_release(&s->p.in);
        s->received++;
    }
    return NULL;
}

static void run_hammer(uint32_t capacity, int blocking, unsigned ms) {
    hammer_state s;
    memset(&s, 0, sizeof s);
    s.p = make_pair(capacity);
    s.blocking = blocking;
    s.capacity = capacity;
    s.producer_fd = eventfd(0, EFD_NONBLOCK);
    s.consumer_fd = eventfd(0, EFD_NONBLOCK);
    atomic_store(&stop_hammer, 0);
    pthread_t threads[2];
    CHECK(!pthread_create(&threads[0], NULL, produce, &s));
    CHECK(!pthread_create(&threads[1], NULL, consume, &s));
    sleep_ms(ms);
    atomic_store(&stop_hammer, 1);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    CHECK(s.sent == s.received && is_enough(&s));
    close(s.producer_fd);
    close(s.consumer_fd);
    free_pair(&s.p);
}

static void hammer(void) {
    run_hammer(CAPACITY, 0, 200);
    run_hammer(1 << 16, 0, 200);
}

/* Both ends sleep when they cannot go on: a wake-up that is lost is a nap of three seconds. */
static void back_pressure(void) {
    run_hammer(CAPACITY, 1, 250);
    run_hammer(1 << 15, 1, 250);
}

static void unpublished_commits_do_not_wait_for_room(void) {
    pair p = make_pair(CAPACITY);
    for (int i = 0; i < 2; i++) put(&p.out, kf_ring_payload_max(&p.out), 1);
    CHECK(kf_ring_claim(&p.out, 0) == NULL && !p.out.fault);
    expect_none(&p.in);
    kf_ring_want_room(&p.out);
    expect(&p.in, kf_ring_payload_max(&p.out), 1);
    CHECK(kf_ring_has_room(&p.out, 0) == 0);
    CHECK(kf_ring_publish_tail(&p.in) == 1);
    CHECK(kf_ring_has_room(&p.out, 0) == 1);
    put(&p.out, 0, 2); /* ends the wish */
    expect(&p.in, kf_ring_payload_max(&p.out), 1);
    CHECK(kf_ring_publish_tail(&p.in) == 0);
    free_pair(&p);
}

static void taken(void) {
    pair p = make_pair(CAPACITY);
    kf_ring_message m;
    put(&p.out, 100, 1);
    uint64_t first = kf_ring_position(&p.out);
    put(&p.out, 100, 2);
    kf_ring_publish(&p.out);
    CHECK(kf_ring_taken(&p.out) == 0);
    CHECK(kf_ring_peek(&p.in, &m) == 1);
    CHECK(kf_ring_taken(&p.out) == 0); /* looked at, not acted on */
    kf_ring_take(&p.in);
    CHECK(kf_ring_taken(&p.out) == first);
    kf_ring_release(&p.in);
    CHECK(kf_ring_taken(&p.out) == first);
    free_pair(&p);
}

/* --- our own bugs end the process --- */

static void claim_twice(void) {
    pair p = make_pair(CAPACITY);
    kf_ring_claim(&p.out, 1);
    kf_ring_claim(&p.out, 1);
}

static void commit_more_than_claimed(void) {
    pair p = make_pair(CAPACITY);
    kf_ring_claim(&p.out, 100);
    kf_ring_commit(&p.out, 113, 1, 0);
}

static void commit_unclaimed(void) {
    pair p = make_pair(CAPACITY);
    kf_ring_commit(&p.out, 0, 1, 0);
}

static void commit_padding(void) {
    pair p = make_pair(CAPACITY);
    kf_ring_claim(&p.out, 0);
    kf_ring_commit(&p.out, 0, KF_RING_PADDING, 0);
}

/* D24: what was released and may have to be sent again is not overwritten; paddings count, too. */
static void kept(void) {
    uint64_t seed = 5;
    for (int round = 0; round < 200; round++) {
        pair p = make_pair(CAPACITY);
        uint64_t ends[CAPACITY], starts[CAPACITY];
        uint32_t lengths[CAPACITY], count = 0, oldest = 0, max = kf_ring_payload_max(&p.out);
        kf_ring_keep(&p.out, 0);
        for (int step = 0; step < 400; step++) {
            uint32_t length = (uint32_t)(chance(&seed) % (chance(&seed) & 1 ? 64 : max + 1));
            if (chance(&seed) % 3 && kf_ring_has_room(&p.out, length)) {
                put(&p.out, length, count);
                ends[count] = kf_ring_position(&p.out);
                starts[count] = ends[count] - ((length + 15ULL) & ~15ULL);
                lengths[count] = length;
                kf_ring_publish(&p.out);
                expect(&p.in, length, count++);
                CHECK(kf_ring_publish_tail(&p.in) == 0);
            } else if (oldest < count) {
                kf_ring_keep(&p.out, ends[oldest++]);
            } else {
                CHECK(kf_ring_has_room(&p.out, length) == 1);
            }
            for (uint32_t i = oldest; i < count; i++)
                for (uint32_t at = 0; at < lengths[i]; at++)
                    CHECK(p.out.data[(starts[i] + at) & p.out.mask] == (uint8_t)i);
        }
        free_pair(&p);
    }
}

static void traps(void) {
    char text[64];
    CHECK(is_trap(outcome_of(claim_twice, text, sizeof text)));
    CHECK(is_trap(outcome_of(commit_more_than_claimed, text, sizeof text)));
    CHECK(is_trap(outcome_of(commit_unclaimed, text, sizeof text)));
    CHECK(is_trap(outcome_of(commit_padding, text, sizeof text)));
}

/* R5, R6: two sealed memory files, each writable for its writer alone, the other's read-only. */
static void two_sealed_files(void) {
    size_t sizes[2] = {kf_ring_file_bytes(CAPACITY), KF_RING_PAGE};
    uint8_t *own[2], *peer[2];
    for (int i = 0; i < 2; i++) {
        int fd = memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        CHECK(fd >= 0 && ftruncate(fd, (off_t)sizes[i]) == 0);
        own[i] = mmap(NULL, sizes[i], PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
        CHECK(fcntl(fd, F_ADD_SEALS, seals) == 0);
        CHECK(mmap(NULL, sizes[i], PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
        peer[i] = mmap(NULL, sizes[i], PROT_READ, MAP_SHARED, fd, 0);
        CHECK(own[i] != MAP_FAILED && peer[i] != MAP_FAILED);
        close(fd);
    }
    kf_ring_out out;
    kf_ring_in in;
    CHECK(!kf_ring_format_producer(own[0], CAPACITY, 1));
    CHECK(!kf_ring_format_consumer(own[1], CAPACITY, 1));
    CHECK(!kf_ring_attach_out(&out, own[0], sizes[0], peer[1]));
    CHECK(!kf_ring_attach_in(&in, peer[0], sizes[0], own[1]));
    for (uint32_t i = 0; i < 100; i++) {
        put(&out, i * 10, i);
        kf_ring_want_room(&out);
        CHECK(kf_ring_waiting(&in));
        expect(&in, i * 10, i);
        kf_ring_take(&in);
        CHECK(kf_ring_publish_tail(&in) == 1 && kf_ring_drained(&out));
    }
    for (int i = 0; i < 2; i++) {
        munmap(own[i], sizes[i]);
        munmap(peer[i], sizes[i]);
    }
}

static const test_case cases[] = {
    {"attach", attach},
    {"model", model},
    {"padding", padding},
    {"unpublished_commits_do_not_wait_for_room", unpublished_commits_do_not_wait_for_room},
    {"taken", taken},
    {"kept", kept},
    {"traps", traps},
    {"two_sealed_files", two_sealed_files},
    {"hammer", hammer},
    {"back_pressure", back_pressure},
};

int main(int argc, char **argv) {
    return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}

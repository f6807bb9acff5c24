/* The ring: one end against a model, two ends against each other, and either end against a peer
 * that writes what it likes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "check.h"
#include "ring.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define CAPACITY 4096u
#define GENERATION 7

typedef struct {
    uint8_t *producer_file, *consumer_file;
    size_t bytes;
    kf_ring_out out;
    kf_ring_in in;
} pair;

/* Both files exactly as large as said: a step beyond their ends is AddressSanitizer's. */
static pair make_pair(uint32_t capacity) {
    pair p;
    memset(&p, 0, sizeof p);
    p.bytes = kf_ring_file_bytes(capacity);
    p.producer_file = aligned_alloc(KF_RING_PAGE, p.bytes);
    p.consumer_file = aligned_alloc(KF_RING_PAGE, KF_RING_PAGE);
    memset(p.producer_file, 0, p.bytes);
    CHECK(kf_ring_format_producer(p.producer_file, capacity, GENERATION) == 0);
    CHECK(kf_ring_format_consumer(p.consumer_file, capacity, GENERATION) == 0);
    CHECK(kf_ring_attach_out(&p.out, p.producer_file, p.bytes, p.consumer_file) == 0);
    CHECK(kf_ring_attach_in(&p.in, p.producer_file, p.bytes, p.consumer_file) == 0);
    return p;
}

static void free_pair(pair *p) {
    free(p->producer_file);
    free(p->consumer_file);
}

static kf_ring_producer_page *producer_page(pair *p) { return (void *)p->producer_file; }
static kf_ring_consumer_page *consumer_page(pair *p) { return (void *)p->consumer_file; }

static void put(kf_ring_out *out, uint32_t length, uint32_t kind) {
    uint8_t *payload = kf_ring_claim(out, length);
    CHECK(payload);
    memset(payload, (int)kind, length);
    kf_ring_commit(out, length, kind, kind * 3);
}

static void expect(kf_ring_in *in, uint32_t length, uint32_t kind) {
    kf_ring_message m;
    CHECK(kf_ring_peek(in, &m) == 1);
    CHECK(m.length == length && m.kind == kind && m.crc == kind * 3);
    for (uint32_t i = 0; i < length; i++) CHECK(m.payload[i] == (uint8_t)kind);
    kf_ring_release(in);
}

static void expect_none(kf_ring_in *in) {
    kf_ring_message m;
    CHECK(kf_ring_peek(in, &m) == 0);
}

static void expect_fault(kf_ring_in *in) {
    kf_ring_message m;
    CHECK(kf_ring_peek(in, &m) == -1);
    CHECK(in->fault);
    CHECK(kf_ring_peek(in, &m) == -1); /* for good */
}

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

static void *produce(void *arg) {
    hammer_state *s = arg;
    uint64_t seed = 5, stream = STREAM_SEED, batch = 0;
    uint32_t max = kf_ring_payload_max(&s->p.out);
    while (!atomic_load(&stop_hammer)) {
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
    CHECK(s.sent == s.received && s.sent > 100);
    CHECK(s.p.out.head > 4ULL * capacity || SANITIZED); /* several laps */
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

/* --- R7: a producer that writes what it likes --- */

static uint64_t *word_at(pair *p, uint64_t at) {
    return (uint64_t *)(p->producer_file + KF_RING_PAGE + (at & (CAPACITY - 1)));
}

static void set_head(pair *p, uint64_t head) { atomic_store(&producer_page(p)->head, head); }

static void hostile_head(void) {
    static const int64_t heads[] = {CAPACITY + 16, INT64_MAX, -1, -16, 8, 33, 1};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        pair p = make_pair(CAPACITY);
        put(&p.out, 64, 1); /* a good message does not make a bad head good */
        set_head(&p, (uint64_t)heads[i]);
        CHECK(kf_ring_waiting(&p.in)); /* does not sleep over it */
        expect_fault(&p.in);
        free_pair(&p);
    }
    pair p = make_pair(CAPACITY); /* going back */
    put(&p.out, 64, 1);
    put(&p.out, 64, 2);
    kf_ring_publish(&p.out);
    expect(&p.in, 64, 1);
    set_head(&p, 80);
    expect(&p.in, 64, 2); /* was published: it counts */
    expect_fault(&p.in);
    free_pair(&p);
    p = make_pair(CAPACITY); /* a head without any message behind it: zeros are none */
    set_head(&p, 64);
    expect_fault(&p.in);
    free_pair(&p);
}

/* One message is published as it should be, then its header is changed. */
static void hostile_header(uint64_t xor_word, uint64_t xor_tag, uint64_t head_plus) {
    pair p = make_pair(CAPACITY);
    put(&p.out, 64, 1);
    kf_ring_publish(&p.out);
    word_at(&p, 0)[0] ^= xor_word;
    word_at(&p, 0)[1] ^= xor_tag;
    set_head(&p, p.out.head + head_plus);
    expect_fault(&p.in);
    free_pair(&p);
}

static void hostile_length(void) {
    hostile_header(64 ^ 65, 0, 0);                            /* beyond what was published */
    hostile_header(64 ^ 0xffffffff, 0, 0);                    /* would overflow 32 bits */
    hostile_header(64 ^ 0xfffffff0, 0, CAPACITY - 80);        /* and with its header wrap to 0 */
    hostile_header(64 ^ (CAPACITY - 16), 0, CAPACITY - 80);   /* more than half a ring */
    hostile_header(64 ^ (CAPACITY / 2 - 15), 0, CAPACITY / 2);
    pair p = make_pair(CAPACITY); /* across the end */
    uint32_t half = kf_ring_payload_max(&p.out);
    put(&p.out, half, 1);
    put(&p.out, half - 128, 2);
    kf_ring_publish(&p.out);
    expect(&p.in, half, 1);
    kf_ring_publish_tail(&p.in);
    uint64_t at = p.out.head;
    put(&p.out, 64, 3);
    kf_ring_publish(&p.out);
    expect(&p.in, half - 128, 2);
    word_at(&p, at)[0] += 64; /* 144 bytes where 128 are left */
    set_head(&p, p.out.head + 64);
    expect_fault(&p.in);
    free_pair(&p);
}

static void hostile_sequence(void) {
    hostile_header(1ULL << 32, 0, 0);
    hostile_header(1ULL << 63, 0, 0);
    pair p = make_pair(CAPACITY); /* a gap */
    put(&p.out, 16, 1);
    p.out.sequence++;
    put(&p.out, 16, 2);
    kf_ring_publish(&p.out);
    expect(&p.in, 16, 1);
    expect_fault(&p.in);
    free_pair(&p);
    p = make_pair(CAPACITY); /* a stale lap: the head runs ahead over what stood there before */
    uint32_t half = kf_ring_payload_max(&p.out);
    for (int i = 0; i < 4; i++) {
        put(&p.out, half, 1);
        kf_ring_publish(&p.out);
        expect(&p.in, half, 1);
        kf_ring_publish_tail(&p.in);
    }
    set_head(&p, p.out.head + CAPACITY / 2);
    expect_fault(&p.in);
    free_pair(&p);
    p = make_pair(CAPACITY); /* a message of another generation, at the same place */
    kf_ring_out other;
    uint8_t *file = aligned_alloc(KF_RING_PAGE, p.bytes), *page = aligned_alloc(4096, 4096);
    memset(file, 0, p.bytes);
    CHECK(!kf_ring_format_producer(file, CAPACITY, GENERATION + 1));
    CHECK(!kf_ring_format_consumer(page, CAPACITY, GENERATION + 1));
    CHECK(!kf_ring_attach_out(&other, file, p.bytes, page));
    put(&other, 16, 1);
    memcpy(p.producer_file + KF_RING_PAGE, file + KF_RING_PAGE, CAPACITY);
    set_head(&p, other.head);
    expect_fault(&p.in);
    free(file);
    free(page);
    free_pair(&p);
}

static void hostile_padding(void) {
    uint64_t make_padding = 1 ^ (uint64_t)KF_RING_PADDING;
    hostile_header(0, make_padding, 0); /* a padding in the middle */
    hostile_header(64 ^ 0xffffffff, make_padding, 0);
    hostile_header(64 ^ (CAPACITY - 16), make_padding, CAPACITY - 80); /* of the whole ring */
    /* Paddings all the way: a peek comes back, however many are ahead. */
    pair p = make_pair(CAPACITY);
    uint32_t sequence = p.out.sequence;
    for (uint64_t at = 0; at < CAPACITY; at += 16) {
        word_at(&p, at)[0] = (uint64_t)sequence++ << 32;
        word_at(&p, at)[1] = KF_RING_PADDING;
    }
    set_head(&p, CAPACITY);
    expect_fault(&p.in);
    CHECK(p.in.tail == 0);
    free_pair(&p);
}

static void header_changes_after_peek(void) {
    pair p = make_pair(CAPACITY);
    kf_ring_message m;
    put(&p.out, 64, 1);
    put(&p.out, 32, 2);
    kf_ring_publish(&p.out);
    CHECK(kf_ring_peek(&p.in, &m) == 1);
    word_at(&p, 0)[0] = UINT64_MAX;
    word_at(&p, 0)[1] = UINT64_MAX;
    CHECK(m.length == 64 && m.kind == 1 && m.crc == 3);
    kf_ring_release(&p.in);
    CHECK(p.in.tail == 80); /* what was checked counts, not what stands there now */
    expect(&p.in, 32, 2);
    free_pair(&p);
}

/* Anything at all in the producer's file: every message that is handed out lies in the data. */
static void hostile_fuzz(void) {
    uint64_t seed = 77;
    uint64_t messages = 0;
    for (int round = 0; round < (SANITIZED ? 4000 : 40000); round++) {
        pair p = make_pair(CAPACITY);
        uint32_t sequence = p.out.sequence;
        uint64_t at = 0;
        while (at < 4 * CAPACITY && !p.in.fault) {
            uint32_t length = (uint32_t)(chance(&seed) % 300), kind = (uint32_t)(chance(&seed) & 1);
            if (chance(&seed) % 16 == 0) length = (uint32_t)chance(&seed);
            if (chance(&seed) % 16 == 0) kind = KF_RING_PADDING;
            if (chance(&seed) % 16 == 0) sequence += (uint32_t)(chance(&seed) % 3);
            word_at(&p, at)[0] = (uint64_t)sequence++ << 32 | length;
            word_at(&p, at)[1] = kind;
            at += (length % 512 + 31) & ~15u;
            set_head(&p, chance(&seed) % 32 ? at : chance(&seed));
            kf_ring_message m;
            while (kf_ring_peek(&p.in, &m) == 1) {
                const uint8_t *data = p.producer_file + KF_RING_PAGE;
                CHECK(m.payload >= data && m.length <= CAPACITY / 2);
                CHECK(m.payload + m.length <= data + CAPACITY);
                messages++;
                kf_ring_release(&p.in);
            }
            kf_ring_publish_tail(&p.in);
        }
        free_pair(&p);
    }
    CHECK(messages > 1000);
}

/* --- and a consumer that does --- */

static void hostile_tail(void) {
    static const int64_t tails[] = {144, 160, CAPACITY, -16, INT64_MIN, 24, 1, 33};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        pair p = make_pair(CAPACITY);
        put(&p.out, 64, 1);
        put(&p.out, 32, 1);
        kf_ring_publish(&p.out); /* 128 */
        put(&p.out, 16, 1);      /* up to 160: not published */
        atomic_store(&consumer_page(&p)->tail, (uint64_t)tails[i]);
        put(&p.out, CAPACITY / 2 - 176, 1);
        put(&p.out, kf_ring_payload_max(&p.out), 1); /* room by what we knew before: now it is full */
        CHECK(kf_ring_claim(&p.out, 0) == NULL);
        CHECK(p.out.fault && kf_ring_has_room(&p.out, 0) == -1);
        atomic_store(&consumer_page(&p)->tail, 128);
        CHECK(kf_ring_claim(&p.out, 0) == NULL); /* for good */
        free_pair(&p);
    }
    pair p = make_pair(CAPACITY); /* going back */
    uint32_t half = kf_ring_payload_max(&p.out);
    put(&p.out, half, 1);
    put(&p.out, half, 1);
    kf_ring_publish(&p.out);
    atomic_store(&consumer_page(&p)->tail, CAPACITY);
    put(&p.out, half, 1);
    kf_ring_publish(&p.out);
    atomic_store(&consumer_page(&p)->tail, CAPACITY / 2);
    put(&p.out, half, 1);
    CHECK(kf_ring_claim(&p.out, half) == NULL && p.out.fault);
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
    {"hostile_head", hostile_head},
    {"hostile_length", hostile_length},
    {"hostile_sequence", hostile_sequence},
    {"hostile_padding", hostile_padding},
    {"header_changes_after_peek", header_changes_after_peek},
    {"hostile_fuzz", hostile_fuzz},
    {"hostile_tail", hostile_tail},
    {"traps", traps},
    {"two_sealed_files", two_sealed_files},
    {"hammer", hammer},
    {"back_pressure", back_pressure},
};

int main(int argc, char **argv) {
    return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}

/* Either end of a ring against a peer that writes what it likes (R3, R7). */
#include "ring_pair.h"

/* --- a producer --- */

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

/* --- a consumer --- */

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
        put(&p.out, kf_ring_payload_max(&p.out), 1); /* by what we knew: now it is full */
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

static const test_case cases[] = {
    {"hostile_head", hostile_head},
    {"hostile_length", hostile_length},
    {"hostile_sequence", hostile_sequence},
    {"hostile_padding", hostile_padding},
    {"header_changes_after_peek", header_changes_after_peek},
    {"hostile_fuzz", hostile_fuzz},
    {"hostile_tail", hostile_tail},
};

int main(int argc, char **argv) {
    return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}

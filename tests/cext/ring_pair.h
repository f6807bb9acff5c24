/* Both ends of a ring in one process, for the tests. */
#ifndef RING_PAIR_H
#define RING_PAIR_H

#include "check.h"
#include "ring.h"

#define CAPACITY 4096u
#define GENERATION 7

typedef struct {
    uint8_t *producer_file, *consumer_file;
    size_t bytes;
    kf_ring_out out;
    kf_ring_in in;
} pair;

/* Both files exactly as large as said: a step beyond their ends is AddressSanitizer's. */
static inline pair make_pair(uint32_t capacity) {
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

static inline void free_pair(pair *p) {
    free(p->producer_file);
    free(p->consumer_file);
}

static inline kf_ring_producer_page *producer_page(pair *p) { return (void *)p->producer_file; }
static inline kf_ring_consumer_page *consumer_page(pair *p) { return (void *)p->consumer_file; }

static inline void put(kf_ring_out *out, uint32_t length, uint32_t kind) {
    uint8_t *payload = kf_ring_claim(out, length);
    CHECK(payload);
    memset(payload, (int)kind, length);
    kf_ring_commit(out, length, kind, kind * 3);
}

static inline void expect(kf_ring_in *in, uint32_t length, uint32_t kind) {
    kf_ring_message m;
    CHECK(kf_ring_peek(in, &m) == 1);
    CHECK(m.length == length && m.kind == kind && m.crc == kind * 3);
    for (uint32_t i = 0; i < length; i++) CHECK(m.payload[i] == (uint8_t)kind);
    kf_ring_release(in);
}

static inline void expect_none(kf_ring_in *in) {
    kf_ring_message m;
    CHECK(kf_ring_peek(in, &m) == 0);
}

static inline void expect_fault(kf_ring_in *in) {
    kf_ring_message m;
    CHECK(kf_ring_peek(in, &m) == -1);
    CHECK(in->fault);
    CHECK(kf_ring_peek(in, &m) == -1); /* for good */
}

#endif

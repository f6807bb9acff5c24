#include "ring.h"

#include <string.h>
#include <unistd.h>

_Static_assert(offsetof(kf_ring_producer_page, head) == 128, "head on its own line");
_Static_assert(offsetof(kf_ring_producer_page, want_room) == 256, "want_room on its own line");
_Static_assert(offsetof(kf_ring_consumer_page, tail) == 128, "tail on its own line");
_Static_assert(sizeof(_Atomic uint64_t) == 8, "lock-free words");

static uint64_t align16(uint64_t n) { return (n + 15) & ~15ULL; }

static int capacity_ok(uint64_t c) {
    return c >= KF_RING_CAPACITY_MIN && c <= KF_RING_CAPACITY_MAX && (c & (c - 1)) == 0;
}

size_t kf_ring_file_bytes(uint32_t capacity) { return KF_RING_PAGE + (size_t)capacity; }

int kf_ring_format_producer(void *file, uint32_t capacity, uint64_t generation) {
    if (!capacity_ok(capacity)) return -1;
    kf_ring_producer_page *p = file;
    memset(p, 0, KF_RING_PAGE);
    p->capacity = capacity;
    p->generation = generation;
    p->magic = KF_RING_MAGIC;
    return 0;
}

int kf_ring_format_consumer(void *file, uint32_t capacity, uint64_t generation) {
    if (!capacity_ok(capacity)) return -1;
    kf_ring_consumer_page *c = file;
    memset(c, 0, KF_RING_PAGE);
    c->capacity = capacity;
    c->generation = generation;
    c->magic = KF_RING_MAGIC;
    return 0;
}

static int constants_fit(const kf_ring_producer_page *p, const kf_ring_consumer_page *c, size_t bytes) {
    return p->magic == KF_RING_MAGIC && c->magic == KF_RING_MAGIC && capacity_ok(p->capacity) &&
           p->capacity == c->capacity && p->generation == c->generation &&
           bytes >= KF_RING_PAGE + p->capacity;
}

int kf_ring_attach_out(kf_ring_out *r, void *producer_file, size_t bytes, const void *consumer_file) {
    memset(r, 0, sizeof *r);
    r->page = producer_file;
    r->consumer = consumer_file;
    if (!constants_fit(r->page, r->consumer, bytes)) return -1;
    r->data = (uint8_t *)producer_file + KF_RING_PAGE;
    r->mask = r->page->capacity - 1;
    return 0;
}

int kf_ring_attach_in(kf_ring_in *r, const void *producer_file, size_t bytes, void *consumer_file) {
    memset(r, 0, sizeof *r);
    r->page = producer_file;
    r->consumer = consumer_file;
    if (!constants_fit(r->page, r->consumer, bytes)) return -1;
    r->data = (const uint8_t *)producer_file + KF_RING_PAGE;
    /* Read once at attach: the other side could change its page later, our mask stays. */
    r->mask = r->consumer->capacity - 1;
    if (bytes < KF_RING_PAGE + r->mask + 1) return -1;
    return 0;
}

uint32_t kf_ring_payload_max(const kf_ring_out *r) {
    /* Half the ring: with padding before it, a message of that size always fits an empty ring. */
    return (uint32_t)((r->mask + 1) / 2 - KF_RING_HEADER);
}

/* Whether `bytes` more fit; refreshes the cached tail only when the cached one does not do. */
static int room(kf_ring_out *r, uint64_t bytes) {
    uint64_t capacity = r->mask + 1;
    if (capacity - (r->head - r->tail_cached) >= bytes) return 1;
    uint64_t tail = atomic_load_explicit(&r->consumer->tail, memory_order_acquire);
    if (tail > r->head || tail < r->tail_cached) { /* R7: 0 <= head - tail <= capacity, never back */
        r->fault = 1;
        return 0;
    }
    r->tail_cached = tail;
    return capacity - (r->head - tail) >= bytes;
}

static void put_header(kf_ring_out *r, uint64_t at, uint32_t length, uint32_t kind, uint32_t crc) {
    uint8_t *h = r->data + (at & r->mask);
    memcpy(h + 8, &kind, 4);
    memcpy(h + 12, &crc, 4);
    atomic_store_explicit((_Atomic uint64_t *)h, (uint64_t)r->sequence++ << 32 | length, memory_order_release);
}

uint8_t *kf_ring_claim(kf_ring_out *r, uint32_t length) {
    if (r->fault || r->claimed || length > kf_ring_payload_max(r)) return NULL;
    uint64_t need = align16((uint64_t)length + KF_RING_HEADER);
    uint64_t to_end = (r->mask + 1) - (r->head & r->mask);
    uint64_t padding = to_end < need ? to_end : 0;
    if (!room(r, need + padding)) return NULL;
    if (padding) {
        put_header(r, r->head, (uint32_t)(padding - KF_RING_HEADER), KF_RING_PADDING, 0);
        r->head += padding;
    }
    r->claimed = need;
    return r->data + (r->head & r->mask) + KF_RING_HEADER;
}

void kf_ring_commit(kf_ring_out *r, uint32_t length, uint32_t kind, uint32_t crc) {
    uint64_t used = align16((uint64_t)length + KF_RING_HEADER);
    if (used > r->claimed) __builtin_trap(); /* more was written than claimed: memory is broken */
    put_header(r, r->head, length, kind, crc);
    r->head += used;
    r->claimed = 0;
}

void kf_ring_abort(kf_ring_out *r) { r->claimed = 0; }

void kf_ring_publish(kf_ring_out *r) {
    atomic_exchange_explicit(&r->page->head, r->head, memory_order_seq_cst);
}

int kf_ring_drained(kf_ring_out *r) {
    return atomic_load_explicit(&r->consumer->tail, memory_order_acquire) == r->head;
}

/* Refresh the cached head; 0 if nothing new, -1 on a fault. */
static int refresh_head(kf_ring_in *r) {
    uint64_t head = atomic_load_explicit(&r->page->head, memory_order_seq_cst);
    if (head < r->head_cached || head - r->tail > r->mask + 1 || (head & 15)) {
        r->fault = 1;
        return -1;
    }
    r->head_cached = head;
    return head != r->tail;
}

int kf_ring_peek(kf_ring_in *r, kf_ring_message *m) {
    for (;;) {
        if (r->fault) return -1;
        if (r->head_cached == r->tail) {
            int more = refresh_head(r);
            if (more <= 0) return more;
        }
        uint64_t at = r->tail & r->mask;
        const uint8_t *h = r->data + at;
        /* The header once, into private memory (R3); everything below looks at the copy. */
        uint64_t word = atomic_load_explicit((const _Atomic uint64_t *)h, memory_order_acquire);
        uint32_t length = (uint32_t)word, sequence = (uint32_t)(word >> 32), kind, crc;
        memcpy(&kind, h + 8, 4);
        memcpy(&crc, h + 12, 4);
        uint64_t total = align16((uint64_t)length + KF_RING_HEADER);
        if (sequence != r->sequence || total > r->mask + 1 - at || total > r->head_cached - r->tail) {
            r->fault = 1; /* a gap, a stale lap, or a length beyond what was published */
            return -1;
        }
        r->peeked = total;
        if (kind == KF_RING_PADDING) {
            kf_ring_release(r);
            continue;
        }
        m->payload = h + KF_RING_HEADER;
        m->length = length;
        m->kind = kind;
        m->crc = crc;
        return 1;
    }
}

void kf_ring_release(kf_ring_in *r) {
    r->tail += r->peeked;
    r->sequence += r->peeked != 0;
    r->peeked = 0;
}

int kf_ring_publish_tail(kf_ring_in *r) {
    if (atomic_load_explicit(&r->consumer->tail, memory_order_relaxed) == r->tail) return 0;
    atomic_exchange_explicit(&r->consumer->tail, r->tail, memory_order_seq_cst);
    return atomic_load_explicit(&r->page->want_room, memory_order_seq_cst) != 0;
}

int kf_ring_waiting(const kf_ring_in *r) {
    return atomic_load_explicit(&r->page->head, memory_order_seq_cst) != r->tail;
}

void kf_doorbell_sleep(kf_doorbell_page *d) {
    atomic_exchange_explicit(&d->sleeping, 1, memory_order_seq_cst);
}

void kf_doorbell_awake(kf_doorbell_page *d) {
    atomic_store_explicit(&d->sleeping, 0, memory_order_seq_cst);
}

int kf_doorbell_asleep(const kf_doorbell_page *d) {
    return atomic_load_explicit(&d->sleeping, memory_order_seq_cst) != 0;
}

int kf_doorbell_ring(const kf_doorbell_page *d, int eventfd) {
    if (!kf_doorbell_asleep(d)) return 0;
    uint64_t one = 1;
    ssize_t written = write(eventfd, &one, sizeof one); /* EAGAIN: it is full of wake-ups already */
    return written == sizeof one;
}

#include "ring.h"

#include <string.h>
#include <unistd.h>

_Static_assert(offsetof(kf_ring_producer_page, head) == 128, "head on its own line");
_Static_assert(offsetof(kf_ring_producer_page, want_room) == 256, "want_room on its own line");
_Static_assert(offsetof(kf_ring_consumer_page, tail) == 128, "tail on its own line");
_Static_assert(sizeof(_Atomic uint64_t) == 8, "lock-free words");

static int capacity_ok(uint64_t c) {
    return c >= KF_RING_CAPACITY_MIN && c <= KF_RING_CAPACITY_MAX && (c & (c - 1)) == 0;
}

size_t kf_ring_file_bytes(uint32_t capacity) { return KF_RING_PAGE + (size_t)capacity; }

static int format(void *file, uint32_t capacity, uint64_t generation) {
    if (!capacity_ok(capacity)) return -1;
    kf_ring_words words = {KF_RING_MAGIC, capacity, generation};
    memset(file, 0, KF_RING_PAGE);
    memcpy(file, &words, sizeof words);
    return 0;
}

int kf_ring_format_producer(void *file, uint32_t capacity, uint64_t generation) {
    return format(file, capacity, generation);
}

int kf_ring_format_consumer(void *file, uint32_t capacity, uint64_t generation) {
    return format(file, capacity, generation);
}

/* The peer may change its words at any time: each is read once, then only ours count. */
static int words_fit(const kf_ring_words *own, const volatile kf_ring_words *peer, size_t bytes) {
    return own->magic == KF_RING_MAGIC && capacity_ok(own->capacity) &&
           bytes >= KF_RING_PAGE + own->capacity && peer->magic == KF_RING_MAGIC &&
           peer->capacity == own->capacity && peer->generation == own->generation;
}

/* R3: in a header of another generation, or of zeros, the sequence is far away. */
static uint32_t first_sequence(uint64_t generation) {
    return (uint32_t)generation * 0x9e3779b1u | 1;
}

int kf_ring_attach_out(kf_ring_out *r, void *producer_file, size_t bytes,
                       const void *consumer_file) {
    kf_ring_producer_page *page = producer_file;
    const kf_ring_consumer_page *consumer = consumer_file;
    if (bytes < KF_RING_PAGE || !words_fit(&page->words, &consumer->words, bytes)) return -1;
    if (atomic_load_explicit(&page->head, memory_order_relaxed)) return -1; /* used: R4 */
    memset(r, 0, sizeof *r);
    r->page = page;
    r->consumer = consumer;
    r->data = (uint8_t *)producer_file + KF_RING_PAGE;
    r->mask = page->words.capacity - 1;
    r->kept = UINT64_MAX;
    r->sequence = first_sequence(page->words.generation);
    return 0;
}

int kf_ring_attach_in(kf_ring_in *r, const void *producer_file, size_t bytes, void *consumer_file) {
    const kf_ring_producer_page *page = producer_file;
    kf_ring_consumer_page *consumer = consumer_file;
    if (bytes < KF_RING_PAGE || !words_fit(&consumer->words, &page->words, bytes)) return -1;
    if (atomic_load_explicit(&consumer->tail, memory_order_relaxed)) return -1; /* used: R4 */
    memset(r, 0, sizeof *r);
    r->page = page;
    r->consumer = consumer;
    r->data = (const uint8_t *)producer_file + KF_RING_PAGE;
    r->mask = consumer->words.capacity - 1;
    r->sequence = first_sequence(consumer->words.generation);
    return 0;
}

/* What a message takes with its header. */
static uint64_t slot_bytes(uint64_t length) { return (length + KF_RING_HEADER + 15) & ~15ULL; }

uint32_t kf_ring_payload_max(const kf_ring_out *r) {
    return (uint32_t)((r->mask + 1) / 2 - KF_RING_HEADER);
}

static uint64_t to_end(uint64_t mask, uint64_t at) { return mask + 1 - (at & mask); }

/* The padding that goes before a slot of `need` bytes: a message does not cross the end. */
static uint64_t padding_before(const kf_ring_out *r, uint64_t need) {
    uint64_t rest = to_end(r->mask, r->head);
    return rest < need ? rest : 0;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Whether `bytes` more fit; refreshes the cached tail only when the cached one does not do. */
static int room(kf_ring_out *r, uint64_t bytes) {
    uint64_t capacity = r->mask + 1;
    if (capacity - (r->head - least(r->tail_cached, r->kept)) >= bytes) return 1;
    uint64_t tail = atomic_load_explicit(&r->consumer->tail, memory_order_seq_cst);
    if (tail > r->published || tail < r->tail_cached || (tail & 15)) { /* R7 */
        r->fault = 1;
        return 0;
    }
    r->tail_cached = tail;
    return capacity - (r->head - least(tail, r->kept)) >= bytes;
}

static void put_header(kf_ring_out *r, uint32_t length, uint32_t kind, uint32_t crc) {
    _Atomic uint64_t *h = (_Atomic uint64_t *)(r->data + (r->head & r->mask));
    atomic_store_explicit(h + 1, (uint64_t)crc << 32 | kind, memory_order_relaxed);
    uint64_t word = (uint64_t)r->sequence++ << 32 | length;
    atomic_store_explicit(h, word, memory_order_release); /* R3: last */
}

uint8_t *kf_ring_claim(kf_ring_out *r, uint32_t length) {
    if (r->claimed) __builtin_trap();
    if (r->fault || length > kf_ring_payload_max(r)) return NULL;
    uint64_t need = slot_bytes(length), padding = padding_before(r, need);
    if (!room(r, need + padding)) return NULL;
    if (padding) {
        put_header(r, (uint32_t)(padding - KF_RING_HEADER), KF_RING_PADDING, 0);
        r->head += padding;
    }
    if (r->wants_room) {
        atomic_store_explicit(&r->page->want_room, 0, memory_order_relaxed);
        r->wants_room = 0;
    }
    r->claimed = need;
    return r->data + (r->head & r->mask) + KF_RING_HEADER;
}

void kf_ring_commit(kf_ring_out *r, uint32_t length, uint32_t kind, uint32_t crc) {
    uint64_t used = slot_bytes(length);
    if (used > r->claimed || kind == KF_RING_PADDING) __builtin_trap();
    put_header(r, length, kind, crc);
    r->head += used;
    r->claimed = 0;
}

void kf_ring_abort(kf_ring_out *r) { r->claimed = 0; }

void kf_ring_publish(kf_ring_out *r) {
    r->published = r->head;
    atomic_exchange_explicit(&r->page->head, r->head, memory_order_seq_cst);
}

void kf_ring_keep(kf_ring_out *r, uint64_t position) { r->kept = position; }

int kf_ring_drained(const kf_ring_out *r) {
    return atomic_load_explicit(&r->consumer->tail, memory_order_acquire) == r->head;
}

void kf_ring_want_room(kf_ring_out *r) {
    kf_ring_publish(r);
    r->wants_room = 1;
    atomic_exchange_explicit(&r->page->want_room, 1, memory_order_seq_cst);
}

int kf_ring_has_room(kf_ring_out *r, uint32_t length) {
    if (r->fault) return -1;
    if (length > kf_ring_payload_max(r)) return 0;
    uint64_t need = slot_bytes(length);
    return room(r, need + padding_before(r, need)) ? 1 : -r->fault;
}

/* With all that is cached read: refresh the cached head; 0 if nothing new, -1 on a fault. */
static int refresh_head(kf_ring_in *r) {
    uint64_t head = atomic_load_explicit(&r->page->head, memory_order_seq_cst);
    if (head - r->tail > r->mask + 1 || (head & 15)) { /* R7; one that went back wraps around */
        r->fault = 1;
        return -1;
    }
    r->head_cached = head;
    return head != r->tail;
}

int kf_ring_peek(kf_ring_in *r, kf_ring_message *m) {
    for (;;) { /* a second time only after a padding, a third time never */
        if (r->fault) return -1;
        if (r->head_cached == r->tail) {
            int more = refresh_head(r);
            if (more <= 0) return more;
        }
        /* The header once, into private memory (R3); everything below looks at the copy. */
        const _Atomic uint64_t *h = (const _Atomic uint64_t *)(r->data + (r->tail & r->mask));
        uint64_t word = atomic_load_explicit(h, memory_order_acquire);
        uint64_t tag = atomic_load_explicit(h + 1, memory_order_relaxed);
        uint32_t length = (uint32_t)word, kind = (uint32_t)tag;
        uint64_t total = slot_bytes(length), rest = to_end(r->mask, r->tail);
        /* A gap or a stale lap; a length beyond the slot's bound, the end or what was published;
         * a padding that does not lead to the end, so that a peer could spin us on paddings. */
        if ((uint32_t)(word >> 32) != r->sequence || total > (r->mask + 1) / 2 || total > rest ||
            total > r->head_cached - r->tail || (kind == KF_RING_PADDING && total != rest)) {
            r->fault = 1;
            return -1;
        }
        r->peeked = total;
        if (kind == KF_RING_PADDING) {
            kf_ring_release(r);
            continue;
        }
        m->payload = (const uint8_t *)h + KF_RING_HEADER;
        m->length = length;
        m->kind = kind;
        m->crc = (uint32_t)(tag >> 32);
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

uint32_t kf_ring_fill_permille(const kf_ring_in *r) {
    uint64_t filled = atomic_load_explicit(&r->page->head, memory_order_acquire) - r->tail;
    return filled > r->mask ? 1000 : (uint32_t)(filled * 1000 / (r->mask + 1));
}

uint64_t kf_ring_position(const kf_ring_out *r) { return r->head; }

uint64_t kf_ring_taken(const kf_ring_out *r) {
    return atomic_load_explicit(&r->consumer->taken, memory_order_acquire);
}

void kf_ring_take(kf_ring_in *r) {
    atomic_store_explicit(&r->consumer->taken, r->tail + r->peeked, memory_order_release);
}

int kf_ring_out_faulted(const kf_ring_out *r) { return r->fault; }

int kf_ring_in_faulted(const kf_ring_in *r) { return r->fault; }

void kf_ring_fence(kf_ring_in *r) { r->fault = 1; }

void kf_doorbell_sleep(kf_doorbell_page *d) {
    atomic_exchange_explicit(&d->sleeping, 1, memory_order_seq_cst);
}

void kf_doorbell_awake(kf_doorbell_page *d) {
    atomic_store_explicit(&d->sleeping, 0, memory_order_seq_cst);
}

int kf_doorbell_asleep(const kf_doorbell_page *d) {
    return atomic_load_explicit(&d->sleeping, memory_order_seq_cst) != 0;
}

int kf_doorbell_ring(const kf_doorbell_page *d, int fd) {
    if (!kf_doorbell_asleep(d)) return 0;
    uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one); /* EAGAIN: full of wake-ups already */
    return written == sizeof one;
}

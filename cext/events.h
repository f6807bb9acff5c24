/* Rings of timed events in shared memory: one writer that never waits, any number of readers.
 *
 * An event has 32 bytes. The ring wraps over what no reader took in time; a reader knows how many
 * those were. A writer that is off costs a load and a branch. Readers map the ring read-only.
 *
 * Order: `written` is stored before the words of the next event, which are stored with release: a
 * reader that sees any of these words sees that `written`, and drops the event that stood there.
 */
#ifndef KF_EVENTS_H
#define KF_EVENTS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define KF_EVENTS_MAGIC 0x3153544E4556464BULL
#define KF_EVENT_WORDS 4

typedef struct {
    uint64_t ns;    /* CLOCK_MONOTONIC; where something took time, its end */
    uint64_t arg;   /* mostly when it began, ns of the same clock */
    int64_t offset; /* of its first record, or a value */
    uint32_t kind;  /* the writer's own numbers, from 1 */
    uint32_t count; /* records, or a number that the kind explains */
} kf_event;

typedef struct {
    _Atomic uint64_t magic;
    _Atomic uint64_t on;      /* whether events are noted; the writer's to change */
    _Atomic uint64_t written; /* events since the ring was made */
    uint64_t capacity;        /* events; a power of two */
    uint64_t reserved[4];
    _Atomic uint64_t words[]; /* capacity * KF_EVENT_WORDS */
} kf_events;

#define KF_EVENTS_BYTES(capacity) (sizeof(kf_events) + (capacity) * sizeof(kf_event))

static inline void kf_events_init(kf_events *e, uint64_t capacity) {
    e->capacity = capacity;
    atomic_store_explicit(&e->written, 0, memory_order_relaxed);
    atomic_store_explicit(&e->on, 0, memory_order_relaxed);
    atomic_store_explicit(&e->magic, KF_EVENTS_MAGIC, memory_order_release);
}

static inline void kf_events_switch(kf_events *e, int on) {
    atomic_store_explicit(&e->on, on ? 1 : 0, memory_order_relaxed);
}

static inline uint64_t kf_events_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

/* `e` may be NULL: off. */
static inline int kf_events_on(const kf_events *e) {
    return e && __builtin_expect(atomic_load_explicit(&e->on, memory_order_relaxed) != 0, 0);
}

static inline void kf_events_note(kf_events *e, uint32_t kind, int64_t offset, uint32_t count,
                                  uint64_t arg, uint64_t ns) {
    uint64_t n = atomic_load_explicit(&e->written, memory_order_relaxed);
    _Atomic uint64_t *words = &e->words[(n & (e->capacity - 1)) * KF_EVENT_WORDS];
    atomic_store_explicit(&words[0], ns, memory_order_release);
    atomic_store_explicit(&words[1], arg, memory_order_release);
    atomic_store_explicit(&words[2], (uint64_t)offset, memory_order_release);
    atomic_store_explicit(&words[3], (uint64_t)kind | (uint64_t)count << 32, memory_order_release);
    atomic_store_explicit(&e->written, n + 1, memory_order_release);
}

/* Copies events from number *from on, at most `room`, in order; returns how many. *from is then the
 * number of the next, and *lost has grown by those that were overwritten. `capacity`: as the reader
 * checked it. */
static inline uint64_t kf_events_read(const kf_events *e, uint64_t capacity, uint64_t *from,
                                      uint64_t *lost, kf_event *out, uint64_t room) {
    uint64_t written = atomic_load_explicit(&e->written, memory_order_acquire), n = 0,
             first = *from;
    if (written < first) return 0; /* no writer of ours: it never falls */
    if (written - first > capacity) first = written - capacity;
    uint64_t end = written - first > room ? first + room : written;
    for (uint64_t i = first; i < end; i++) {
        const _Atomic uint64_t *words = &e->words[(i & (capacity - 1)) * KF_EVENT_WORDS];
        uint64_t last = atomic_load_explicit(&words[3], memory_order_acquire);
        kf_event event = {
            .ns = atomic_load_explicit(&words[0], memory_order_acquire),
            .arg = atomic_load_explicit(&words[1], memory_order_acquire),
            .offset = (int64_t)atomic_load_explicit(&words[2], memory_order_acquire),
            .kind = (uint32_t)last,
            .count = (uint32_t)(last >> 32),
        };
        /* Number i is whole unless the writer began number i + capacity before it was copied. */
        uint64_t now = atomic_load_explicit(&e->written, memory_order_relaxed);
        if (now - i >= capacity) continue;
        out[n++] = event;
    }
    *lost += end - *from - n;
    *from = end;
    return n;
}

#endif

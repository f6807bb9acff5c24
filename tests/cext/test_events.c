/* Rings of events: what is read is what was written, whole and in order, and what is lost is told.
 */
#include <pthread.h>

#include "check.h"
#include "events.h"

#define CAPACITY 64ULL

__attribute__((returns_nonnull)) static kf_events *make(void) {
    kf_events *e = calloc(1, KF_EVENTS_BYTES(CAPACITY));
    if (!e) abort();
    kf_events_init(e, CAPACITY);
    return e;
}

/* Every field is a function of the number, so that a mixture of two events shows. */
static void note(kf_events *e, uint64_t n) {
    kf_events_note(e, (uint32_t)n, (int64_t)(n * 3), (uint32_t)(n * 5), n * 7, n * 11);
}

static int is_number(const kf_event *event, uint64_t n) {
    return event->kind == (uint32_t)n && event->offset == (int64_t)(n * 3) &&
           event->count == (uint32_t)(n * 5) && event->arg == n * 7 && event->ns == n * 11;
}

static void layout(void) {
    CHECK(sizeof(kf_event) == 32 && offsetof(kf_events, words) == 64);
    kf_events *e = make();
    note(e, 9);
    kf_event raw;
    memcpy(&raw, (const char *)e + offsetof(kf_events, words), sizeof raw);
    CHECK(is_number(&raw, 9));
    free(e);
}

static void off(void) {
    kf_events *e = make();
    CHECK(!kf_events_on(NULL) && !kf_events_on(e));
    kf_events_switch(e, 1);
    CHECK(kf_events_on(e));
    kf_events_switch(e, 0);
    CHECK(!kf_events_on(e));
    free(e);
}

static void wraps(void) {
    kf_event out[CAPACITY * 2];
    for (uint64_t written = 0; written < 5 * CAPACITY; written += 7) {
        for (uint64_t taken = 0; taken <= written; taken += 5) {
            kf_events *e = make();
            for (uint64_t n = 0; n < written; n++) note(e, n);
            uint64_t from = taken, lost = 0;
            uint64_t got = kf_events_read(e, CAPACITY, &from, &lost, out, CAPACITY * 2);
            CHECK(from == written && got + lost == written - taken);
            /* The oldest slot is the one that the writer may be writing. */
            uint64_t kept = written - taken < CAPACITY - 1 ? written - taken : CAPACITY - 1;
            CHECK(got == kept);
            for (uint64_t i = 0; i < got; i++) CHECK(is_number(&out[i], written - got + i));
            free(e);
        }
    }
}

static void little_room(void) {
    kf_event out[4];
    kf_events *e = make();
    for (uint64_t n = 0; n < 10; n++) note(e, n);
    uint64_t from = 0, lost = 0;
    for (uint64_t wanted = 4, first = 0; first < 10; first += 4) {
        if (10 - first < wanted) wanted = 10 - first;
        CHECK(kf_events_read(e, CAPACITY, &from, &lost, out, 4) == wanted && !lost);
        for (uint64_t i = 0; i < wanted; i++) CHECK(is_number(&out[i], first + i));
    }
    CHECK(kf_events_read(e, CAPACITY, &from, &lost, out, 4) == 0 && from == 10);
    free(e);
}

static void foreign_counter(void) {
    kf_event out[4];
    kf_events *e = make();
    uint64_t from = 5, lost = 0;
    CHECK(kf_events_read(e, CAPACITY, &from, &lost, out, 4) == 0 && from == 5 && !lost);
    free(e);
}

static _Atomic int stop;

static void *writes(void *arg) {
    uint64_t n = 0;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) note(arg, n++);
    return NULL;
}

static void reader_beside_the_writer(void) {
    kf_event out[CAPACITY];
    kf_events *e = make();
    pthread_t writer;
    atomic_store(&stop, 0);
    CHECK(!pthread_create(&writer, NULL, writes, e));
    uint64_t from = 0, lost = 0, seen = 0, until = clock_ms() + 700;
    while (clock_ms() < until) {
        uint64_t before = from, lost_before = lost;
        uint64_t got = kf_events_read(e, CAPACITY, &from, &lost, out, CAPACITY);
        CHECK(from - before == got + lost - lost_before);
        for (uint64_t i = 0; i < got; i++) {
            uint64_t n = out[i].ns / 11;
            CHECK(n >= before && n < from && is_number(&out[i], n));
            CHECK(!i || n > out[i - 1].ns / 11);
        }
        seen += got;
    }
    atomic_store(&stop, 1);
    pthread_join(writer, NULL);
    CHECK(seen > 0);
    free(e);
}

static const test_case cases[] = {
    {"layout", layout},
    {"off", off},
    {"wraps", wraps},
    {"little_room", little_room},
    {"foreign_counter", foreign_counter},
    {"reader_beside_the_writer", reader_beside_the_writer},
};

int main(int argc, char **argv) {
    return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}

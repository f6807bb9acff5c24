/* The doorbell (R12). Two threads run the two halves of the protocol against each other, again and
 * again from the same moment: at least one of the two must see the other, or a wake-up is lost.
 * Both ends use one mapping. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "check.h"
#include "ring.h"

#define CAPACITY 4096u
#define DUEL_MS 500
#define TURNS_MIN 1000    /* that a duel takes at least, on a machine that does other things too */
#define GIVE_UP_MS 30000

typedef struct {
    _Alignas(KF_RING_PAGE) uint8_t producer_file[KF_RING_PAGE + CAPACITY];
    _Alignas(KF_RING_PAGE) uint8_t consumer_file[KF_RING_PAGE];
    kf_ring_out out;
    kf_ring_in in;
    _Alignas(128) kf_doorbell_page bell;
    _Alignas(128) _Atomic uint32_t turn[2]; /* how far each thread is */
    _Alignas(128) _Atomic int stop;
    int seen[2];  /* in this round, by producer and consumer */
    int finished; /* there is no round after this meeting */
    int lean;     /* > 0: the producer starts later by so many steps, < 0: the consumer */
} duel;

static duel d;

static void make_ring(void) {
    memset(&d, 0, sizeof d);
    CHECK(!kf_ring_format_producer(d.producer_file, CAPACITY, 1));
    CHECK(!kf_ring_format_consumer(d.consumer_file, CAPACITY, 1));
    size_t bytes = sizeof d.producer_file;
    CHECK(!kf_ring_attach_out(&d.out, d.producer_file, bytes, d.consumer_file));
    CHECK(!kf_ring_attach_in(&d.in, d.producer_file, bytes, d.consumer_file));
}

/* Both threads leave together; one that waits long for the other gives its processor away. */
static void meet(int me, uint32_t *turn) {
    uint32_t next = ++*turn;
    atomic_store(&d.turn[me], next);
    for (int spins = 0; atomic_load(&d.turn[!me]) < next; spins++)
        if (spins > 2000) sched_yield();
}

/* Whoever looked later in the last rounds goes a little earlier in the next, so that the two halves
 * fall together whatever the machine; and a few nanoseconds of chance. Every fourth round is left
 * to chance alone. */
static void aim(int me, uint32_t turn, uint64_t *seed) {
    int delay = turn % 4 ? me ? -d.lean : d.lean : 0;
    if (delay < 0) delay = 0;
    delay += (int)(chance(seed) % (4u << chance(seed) % 5));
    for (volatile int i = delay; i; i--) continue;
}

static void learn(void) {
    if (d.seen[0] == d.seen[1]) return;
    d.lean += d.seen[1] ? d.lean < 300 : -(d.lean > -300);
}

/* Two processors if there are two: on one, nothing is reordered. */
static void move_to_processor(int which) {
    cpu_set_t allowed, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof allowed, &allowed) || CPU_COUNT(&allowed) < 2) return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && which-- == 0) CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void run_duel(void *(*producer)(void *), void *(*consumer)(void *)) {
    pthread_t threads[2];
    make_ring();
    CHECK(!pthread_create(&threads[0], NULL, producer, NULL));
    CHECK(!pthread_create(&threads[1], NULL, consumer, NULL));
    for (int ms = 0; ms < GIVE_UP_MS; ms += 10) {
        if (ms >= DUEL_MS && atomic_load(&d.turn[0]) > TURNS_MIN) break;
        sleep_ms(10);
    }
    atomic_store(&d.stop, 1);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    CHECK(d.turn[0] > TURNS_MIN);
}

static void *publish_then_look(void *arg) {
    move_to_processor(0);
    uint32_t turn = 0;
    uint64_t seed = 3;
    for (int going = 1; going;) {
        uint8_t *payload = kf_ring_claim(&d.out, 0);
        CHECK(payload);
        kf_ring_commit(&d.out, 0, 1, 0);
        going = !atomic_load(&d.stop);
        meet(0, &turn);
        aim(0, turn, &seed);
        kf_ring_publish(&d.out);
        d.seen[0] = kf_doorbell_asleep(&d.bell);
        meet(0, &turn);
        meet(0, &turn);
    }
    d.finished = 1;
    meet(0, &turn);
    return arg;
}

static void *sleep_then_look(void *arg) {
    move_to_processor(1);
    uint32_t turn = 0;
    uint64_t seed = 4;
    kf_ring_message m;
    for (;;) {
        meet(1, &turn);
        if (d.finished) return arg;
        aim(1, turn, &seed);
        kf_doorbell_sleep(&d.bell);
        d.seen[1] = kf_ring_waiting(&d.in);
        meet(1, &turn);
        CHECK(d.seen[0] || d.seen[1]); /* else it sleeps on, with a message waiting */
        learn();
        CHECK(kf_ring_peek(&d.in, &m) == 1);
        kf_ring_release(&d.in);
        kf_ring_publish_tail(&d.in);
        kf_doorbell_awake(&d.bell);
        meet(1, &turn);
    }
}

static void message_or_sleeper_is_seen(void) { run_duel(publish_then_look, sleep_then_look); }

static void fill_ring(void) {
    for (int i = 0; i < 2; i++) {
        CHECK(kf_ring_claim(&d.out, kf_ring_payload_max(&d.out)));
        kf_ring_commit(&d.out, kf_ring_payload_max(&d.out), 1, 0);
    }
    kf_ring_publish(&d.out);
    CHECK(!kf_ring_has_room(&d.out, 0));
}

static void *want_then_look(void *arg) {
    move_to_processor(0);
    uint32_t turn = 0;
    uint64_t seed = 5;
    for (int going = 1; going;) {
        fill_ring();
        going = !atomic_load(&d.stop);
        meet(0, &turn);
        aim(0, turn, &seed);
        kf_ring_want_room(&d.out);
        d.seen[0] = kf_ring_has_room(&d.out, 0);
        meet(0, &turn);
        meet(0, &turn);
        CHECK(kf_ring_claim(&d.out, 0)); /* ends the wish */
        kf_ring_abort(&d.out);
    }
    d.finished = 1;
    meet(0, &turn);
    return arg;
}

static void *release_then_look(void *arg) {
    move_to_processor(1);
    uint32_t turn = 0;
    uint64_t seed = 6;
    kf_ring_message m;
    for (;;) {
        meet(1, &turn);
        if (d.finished) return arg;
        for (int i = 0; i < 2; i++) {
            CHECK(kf_ring_peek(&d.in, &m) == 1);
            kf_ring_release(&d.in);
        }
        aim(1, turn, &seed);
        d.seen[1] = kf_ring_publish_tail(&d.in);
        meet(1, &turn);
        CHECK(d.seen[0] || d.seen[1]); /* else it waits on, with room */
        learn();
        meet(1, &turn);
    }
}

static void room_or_wish_is_seen(void) { run_duel(want_then_look, release_then_look); }

static int readable(int fd, int ms) {
    struct pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, ms) == 1;
}

static void rings_only_a_sleeper(void) {
    kf_doorbell_page bell = {0};
    int fd = eventfd(0, EFD_NONBLOCK);
    uint64_t value;
    CHECK(!kf_doorbell_asleep(&bell));
    CHECK(kf_doorbell_ring(&bell, fd) == 0 && !readable(fd, 0));
    kf_doorbell_sleep(&bell);
    CHECK(kf_doorbell_asleep(&bell));
    CHECK(kf_doorbell_ring(&bell, fd) == 1 && readable(fd, 0));
    kf_doorbell_awake(&bell);
    CHECK(kf_doorbell_ring(&bell, fd) == 0);
    CHECK(read(fd, &value, 8) == 8 && value == 1);
    close(fd);
}

/* An eventfd that is full does not hold the ringer up. */
static void rings_a_full_eventfd(void) {
    kf_doorbell_page bell = {0};
    int fd = eventfd(0, EFD_NONBLOCK);
    uint64_t full = UINT64_MAX - 1, value;
    CHECK(write(fd, &full, 8) == 8);
    kf_doorbell_sleep(&bell);
    CHECK(kf_doorbell_ring(&bell, fd) == 0);
    CHECK(read(fd, &value, 8) == 8 && value == full);
    close(fd);
}

/* R6: who rings may only read the flag; a read-modify-write there would be a SIGSEGV. */
static void rings_through_a_read_only_page(void) {
    int memory = memfd_create("bell", MFD_CLOEXEC), fd = eventfd(0, EFD_NONBLOCK);
    CHECK(ftruncate(memory, KF_RING_PAGE) == 0);
    kf_doorbell_page *own = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    const kf_doorbell_page *peer = mmap(NULL, 4096, PROT_READ, MAP_SHARED, memory, 0);
    CHECK(own != MAP_FAILED && peer != MAP_FAILED);
    CHECK(kf_doorbell_ring(peer, fd) == 0);
    kf_doorbell_sleep(own);
    CHECK(kf_doorbell_ring(peer, fd) == 1);
    munmap(own, 4096);
    close(memory);
    close(fd);
}

/* Messages at uneven moments, a consumer that really sleeps: each arrives soon. */
static int doorbell_fd;

static void *send_now_and_then(void *arg) {
    uint64_t seed = 8;
    uint32_t *sent = arg;
    uint64_t until = clock_ms() + 400;
    while (clock_ms() < until) {
        for (uint64_t i = chance(&seed) % 4000; i; i--) __asm__ volatile("");
        if (!kf_ring_claim(&d.out, 8)) {
            sched_yield();
            continue;
        }
        kf_ring_commit(&d.out, 8, ++*sent, 0);
        kf_ring_publish(&d.out);
        kf_doorbell_ring(&d.bell, doorbell_fd);
    }
    while (!kf_ring_claim(&d.out, 0)) sched_yield();
    kf_ring_commit(&d.out, 0, 0, 0);
    kf_ring_publish(&d.out);
    kf_doorbell_ring(&d.bell, doorbell_fd);
    return NULL;
}

static void sleeps_and_wakes(void) {
    make_ring();
    doorbell_fd = eventfd(0, EFD_NONBLOCK);
    pthread_t sender;
    uint32_t sent = 0, received = 0, naps = 0;
    uint64_t rings;
    kf_ring_message m;
    CHECK(!pthread_create(&sender, NULL, send_now_and_then, &sent));
    for (;;) {
        int got = kf_ring_peek(&d.in, &m);
        CHECK(got >= 0);
        if (!got) {
            kf_ring_publish_tail(&d.in);
            kf_doorbell_sleep(&d.bell);
            if (!kf_ring_waiting(&d.in)) {
                CHECK(readable(doorbell_fd, 3000));
                CHECK(read(doorbell_fd, &rings, 8) == 8);
                naps++;
            }
            kf_doorbell_awake(&d.bell);
            continue;
        }
        kf_ring_release(&d.in);
        if (m.length == 0) break;
        CHECK(m.kind == ++received);
    }
    pthread_join(sender, NULL);
    CHECK(sent == received && naps > 10);
    close(doorbell_fd);
}

static const test_case cases[] = {
    {"message_or_sleeper_is_seen", message_or_sleeper_is_seen},
    {"room_or_wish_is_seen", room_or_wish_is_seen},
    {"rings_only_a_sleeper", rings_only_a_sleeper},
    {"rings_a_full_eventfd", rings_a_full_eventfd},
    {"rings_through_a_read_only_page", rings_through_a_read_only_page},
    {"sleeps_and_wakes", sleeps_and_wakes},
};

int main(int argc, char **argv) {
    return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}

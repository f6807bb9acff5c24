#define _GNU_SOURCE
#include "stay_awake.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "flusher.h"
#include "worker.h"

enum { NO_THREAD, ASLEEP, AWAKE, ENDING, FORBIDDEN };
#define LOOKS 64            /* pauses between two looks at the clock */
#define STARVED_NS 20000000 /* between two looks: others have the processor, none will halt */

static inline void pause_a_little(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static void release(kf_stay_awake *v) {
    if (atomic_fetch_sub(&v->holders, 1) > 1) return;
    if (v->waits_fd >= 0) close(v->waits_fd);
    free(v);
}

static int change(kf_stay_awake *v, uint32_t from, uint32_t to) {
    return atomic_compare_exchange_strong(&v->state, &from, to);
}

/* Returns whether the thread goes on. */
static int stay(kf_stay_awake *v, uint64_t *looked_ns) {
    uint32_t state = atomic_load(&v->state);
    if (state == ENDING) return !change(v, ENDING, NO_THREAD);
    uint64_t now_ns = kf_now_ns(), before_ns = *looked_ns;
    *looked_ns = now_ns;
    if (state == ASLEEP) {
        kf_futex_wait(&v->state, ASLEEP, KF_LINGER_US);
        *looked_ns = 0; /* a sleep is no wait for a processor */
        uint64_t slept_us = (kf_now_ns() - now_ns) / 1000;
        return slept_us < KF_LINGER_US || !change(v, ASLEEP, NO_THREAD);
    }
    if (before_ns && now_ns - before_ns > STARVED_NS) return !change(v, AWAKE, NO_THREAD);
    if (now_ns < atomic_load(&v->until_ns)) {
        for (int i = 0; i < LOOKS; i++) pause_a_little();
        return 1;
    }
    /* A keep that comes between the look and this is lost: the next one counts. */
    if (change(v, AWAKE, ASLEEP)) *looked_ns = 0;
    return 1;
}

static void *run(void *arg) {
    kf_stay_awake *v = arg;
    struct sched_param none = {0};
    uint64_t looked_ns = 0;
    /* The own thread alone. Anybody may do that, but a sandbox can forbid it; then it must not run:
     * it would take the processor from those it is kept for. */
    if (sched_setscheduler(0, SCHED_IDLE, &none)) atomic_store(&v->state, FORBIDDEN);
    else
        while (stay(v, &looked_ns)) continue;
    release(v);
    return NULL;
}

kf_stay_awake *kf_stay_awake_new(int waits_fd) {
    kf_stay_awake *v = calloc(1, sizeof *v);
    if (!v) return NULL;
    v->waits_fd = waits_fd;
    v->calm_looks = waits_fd < 0 ? KF_CALM_LOOKS : 0;
    atomic_store(&v->holders, 1);
    return v;
}

/* How long the loop's thread waited for a processor each time since the last look: if long, others
 * keep them busy, and none will halt. A thread that is started there by mistake takes seconds to
 * end, so one look is not enough for it. */
static void look_around(kf_stay_awake *v, uint64_t now_ns) {
    char text[80];
    if (v->waits_fd < 0 || now_ns - v->looked_at_ns < KF_LOOK_EVERY_NS) return;
    v->looked_at_ns = now_ns;
    ssize_t n = pread(v->waits_fd, text, sizeof text - 1, 0);
    if (n <= 0) return;
    text[n] = 0;
    char *rest = text;
    strtoull(rest, &rest, 10); /* how long it ran */
    uint64_t waited_ns = strtoull(rest, &rest, 10), runs = strtoull(rest, &rest, 10);
    if (runs <= v->runs) return; /* it slept */
    if ((waited_ns - v->waited_ns) / (runs - v->runs) > KF_WAIT_NS_MAX) v->calm_looks = 0;
    else if (v->calm_looks < KF_CALM_LOOKS) v->calm_looks++;
    v->waited_ns = waited_ns, v->runs = runs;
}

static void start(kf_stay_awake *v) {
    pthread_t thread;
    atomic_fetch_add(&v->holders, 1);
    atomic_store(&v->state, AWAKE);
    if (kf_thread_start(&thread, "kf-stay-awake", run, v)) {
        atomic_store(&v->state, FORBIDDEN); /* too many threads: it only runs slower without it */
        release(v);
    } else {
        pthread_detach(thread);
    }
}

static void end(kf_stay_awake *v) {
    if (change(v, AWAKE, ENDING)) return;
    if (change(v, ASLEEP, ENDING)) kf_futex_wake(&v->state);
}

void kf_stay_awake_keep(kf_stay_awake *v, uint64_t now_ns, uint64_t until_ns) {
    atomic_store(&v->until_ns, until_ns);
    look_around(v, now_ns);
    if (v->calm_looks < KF_CALM_LOOKS) end(v);
    else if (change(v, ASLEEP, AWAKE)) kf_futex_wake(&v->state);
    else if (atomic_load(&v->state) == NO_THREAD) start(v);
}

int kf_stay_awake_has_thread(const kf_stay_awake *v) {
    uint32_t state = atomic_load(&v->state);
    return state != NO_THREAD && state != FORBIDDEN;
}

void kf_stay_awake_free(kf_stay_awake *v) {
    end(v);
    release(v);
}

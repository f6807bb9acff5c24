#define _GNU_SOURCE
#include "stay_awake.h"

#include <sched.h>
#include <string.h>

#include "flusher.h"
#include "worker.h"

enum { ASLEEP, AWAKE, ENDING };
#define LOOKS 64 /* pauses between two looks at the clock */

static inline void pause_a_little(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static void *run(void *arg) {
    kf_stay_awake *v = arg;
    struct sched_param none = {0};
    sched_setscheduler(0, SCHED_IDLE, &none); /* the own thread alone; anybody may do that */
    for (;;) {
        uint32_t state = atomic_load_explicit(&v->state, memory_order_acquire);
        if (state == ENDING) return NULL;
        if (state == ASLEEP) {
            kf_futex_wait(&v->state, ASLEEP, 0);
        } else if (kf_now_ns() < atomic_load_explicit(&v->until_ns, memory_order_relaxed)) {
            for (int i = 0; i < LOOKS; i++) pause_a_little();
        } else {
            /* A keep that comes between the look and this is lost: the next one counts. */
            atomic_compare_exchange_strong(&v->state, &state, ASLEEP);
        }
    }
}

int kf_stay_awake_start(kf_stay_awake *v) {
    memset(v, 0, sizeof *v);
    return kf_thread_start(&v->thread, "kf-stay-awake", run, v);
}

void kf_stay_awake_keep(kf_stay_awake *v, uint64_t until_ns) {
    atomic_store_explicit(&v->until_ns, until_ns, memory_order_relaxed);
    uint32_t asleep = ASLEEP;
    if (atomic_compare_exchange_strong(&v->state, &asleep, AWAKE)) kf_futex_wake(&v->state);
}

void kf_stay_awake_stop(kf_stay_awake *v) {
    atomic_store_explicit(&v->state, ENDING, memory_order_release);
    kf_futex_wake(&v->state);
    pthread_join(v->thread, NULL);
}

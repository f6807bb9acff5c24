/* Keeps a processor from halting for a moment, at the lowest of all priorities.
 *
 * Waking a halted processor costs more than any mechanism of ours, a virtual one above all. While
 * something is in flight, a thread under SCHED_IDLE looks at the clock: any other that wants the
 * processor gets it at once, and the scheduler takes it for idle when it places a thread.
 */
#ifndef KF_STAY_AWAKE_H
#define KF_STAY_AWAKE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

typedef struct {
    pthread_t thread;
    _Atomic uint64_t until_ns; /* on CLOCK_MONOTONIC; never lower than before */
    _Atomic uint32_t state;    /* whether the thread sleeps, and whether it is to end */
} kf_stay_awake;

/* Starts the thread, asleep. Returns 0 or an errno. */
int kf_stay_awake_start(kf_stay_awake *v);
/* Stay awake until then; from one thread at a time. */
void kf_stay_awake_keep(kf_stay_awake *v, uint64_t until_ns);
/* Ends the thread and waits for it. */
void kf_stay_awake_stop(kf_stay_awake *v);

#endif

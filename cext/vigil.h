/* Keeps a processor from halting for a moment, at the lowest of all priorities.
 *
 * Waking a halted processor costs more than any mechanism of ours, a virtual one above all. While
 * something is in flight, a thread under SCHED_IDLE looks at the clock: any other that wants the
 * processor gets it at once, and the scheduler takes it for idle when it places a thread.
 */
#ifndef KF_VIGIL_H
#define KF_VIGIL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

typedef struct {
    pthread_t thread;
    _Atomic uint64_t until_ns; /* on CLOCK_MONOTONIC; never lower than before */
    _Atomic uint32_t state;    /* whether the thread sleeps, and whether it is to end */
} kf_vigil;

/* Starts the thread, asleep. Returns 0 or an errno. */
int kf_vigil_start(kf_vigil *v);
/* Stay awake until then; from one thread at a time. */
void kf_vigil_keep(kf_vigil *v, uint64_t until_ns);
/* Ends the thread and waits for it. */
void kf_vigil_stop(kf_vigil *v);

#endif

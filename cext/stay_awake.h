/* Keeps a processor from halting for a moment, at the lowest of all priorities.
 *
 * Waking a halted processor costs more than any mechanism of ours, a virtual one above all. While
 * something is in flight, a thread under SCHED_IDLE looks at the clock: any other that wants the
 * processor gets it at once, and the scheduler takes it for idle when it places a thread.
 *
 * The kernel reports the end of a process, and releases its descriptors and locks, only when its
 * last thread has ended, and a thread needs a processor to end. Where other work keeps the
 * processors busy, a thread under SCHED_IDLE waits seconds for one (failover after kill -9 took
 * 2.2 s instead of 0.07 s). So the thread exists only while it is needed and processors are free.
 */
#ifndef KF_STAY_AWAKE_H
#define KF_STAY_AWAKE_H

#include <stdatomic.h>
#include <stdint.h>

#define KF_LINGER_US 1000000      /* asleep for longer, the thread ends */
#define KF_LOOK_EVERY_NS 50000000 /* from one look at how busy the machine is to the next */
#define KF_WAIT_NS_MAX 200000     /* for a processor, each time, in the mean: beyond it is busy */
#define KF_CALM_LOOKS 10          /* so many in a row before the machine counts as free */

typedef struct {
    _Atomic uint64_t until_ns; /* on CLOCK_MONOTONIC; never lower than before */
    _Atomic uint32_t state;    /* whether there is a thread, whether it sleeps, or is to end */
    _Atomic uint32_t holders;  /* the loop and the thread: the last one frees this */
    /* The loop's alone: */
    int waits_fd;             /* its thread's schedstat; -1: not to be had */
    int calm_looks;           /* in a row, up to KF_CALM_LOOKS; below it there is no thread */
    uint64_t looked_at_ns;    /* when that was found out */
    uint64_t waited_ns, runs; /* of its thread until then */
} kf_stay_awake;

/* Returns NULL without memory. Takes over waits_fd, /proc/thread-self/schedstat of the thread that
 * will call the others. */
kf_stay_awake *kf_stay_awake_new(int waits_fd);
/* Stay awake until then, if the machine has a processor to spare. */
void kf_stay_awake_keep(kf_stay_awake *v, uint64_t now_ns, uint64_t until_ns);
/* Whether there is a thread. */
int kf_stay_awake_has_thread(const kf_stay_awake *v);
/* Has the thread end, and does not wait for it. */
void kf_stay_awake_free(kf_stay_awake *v);

#endif

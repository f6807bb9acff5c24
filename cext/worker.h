/* A thread beside the loop that never takes the GIL and runs one job at a time (a flush, a
 * range to prepare). Its end rings the loop's doorbell.
 *
 *   idle --ask (loop)--> asked --the work has run (thread)--> done --take (loop)--> idle
 *
 * What the work reads is the loop's until ask and again after take, the thread's in between.
 */
#ifndef KF_WORKER_H
#define KF_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "ring.h"

typedef struct {
    pthread_t thread;
    _Atomic uint32_t state; /* one of the three above, and a bit that the end was asked for */
    void (*work)(void *owner);
    void *owner;
    const kf_doorbell_page *doorbell;
    int doorbell_fd;
} kf_worker;

/* Starts a thread with every asynchronous signal blocked. Returns 0 or an errno.
 * `name` is what tools show, at most 15 characters. */
int kf_thread_start(pthread_t *thread, const char *name, void *(*body)(void *), void *arg);
/* Starts the job's thread, likewise. */
int kf_worker_start(kf_worker *e, const char *name, void (*work)(void *), void *owner,
                    const kf_doorbell_page *doorbell, int doorbell_fd);
/* Only while idle (else a trap). */
void kf_worker_ask(kf_worker *e);
/* 1 if a job ended, which makes it idle again, else 0 (seq_cst load: a re-check, R12). */
int kf_worker_take(kf_worker *e);
/* Whether it is asked and not done (seq_cst load). */
int kf_worker_busy(const kf_worker *e);
/* Waits for the job at hand and for the thread. What has ended can still be taken. */
void kf_worker_stop(kf_worker *e);

/* Until *word is not `value` or kf_futex_wake or, unless timeout_us is 0, the time is over. */
void kf_futex_wait(_Atomic uint32_t *word, uint32_t value, uint32_t timeout_us);
void kf_futex_wake(_Atomic uint32_t *word);

#endif

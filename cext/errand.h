/* A thread beside the loop that never takes the GIL and runs one errand at a time (a flush, a
 * range to prepare). Its end rings the loop's doorbell.
 *
 *   idle --ask (loop)--> asked --the work has run (thread)--> done --take (loop)--> idle
 *
 * What the work reads is the loop's until ask and again after take, the thread's in between.
 */
#ifndef KF_ERRAND_H
#define KF_ERRAND_H

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
} kf_errand;

/* Starts a thread with every asynchronous signal blocked. Returns 0 or an errno.
 * `name` is what tools show, at most 15 characters. */
int kf_thread_start(pthread_t *thread, const char *name, void *(*body)(void *), void *arg);
/* Starts the errand's thread, likewise. */
int kf_errand_start(kf_errand *e, const char *name, void (*work)(void *), void *owner,
                    const kf_doorbell_page *doorbell, int doorbell_fd);
/* Only while idle (else a trap). */
void kf_errand_ask(kf_errand *e);
/* 1 if an errand ended, which makes it idle again, else 0 (seq_cst load: a re-check, R12). */
int kf_errand_take(kf_errand *e);
/* Whether it is asked and not done (seq_cst load). */
int kf_errand_busy(const kf_errand *e);
/* Waits for the errand at hand and for the thread. What has ended can still be taken. */
void kf_errand_stop(kf_errand *e);

/* Until *word is not `value` or kf_futex_wake or, unless timeout_us is 0, the time is over. */
void kf_futex_wait(_Atomic uint32_t *word, uint32_t value, uint32_t timeout_us);
void kf_futex_wake(_Atomic uint32_t *word);

#endif

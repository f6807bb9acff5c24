#define _GNU_SOURCE
#include "worker.h"

#include <linux/futex.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { IDLE, ASKED, DONE, STATE = 3, ENDING = 4 };

void kf_futex_wait(_Atomic uint32_t *word, uint32_t value, uint32_t timeout_us) {
    struct timespec t = {timeout_us / 1000000, (long)(timeout_us % 1000000) * 1000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, timeout_us ? &t : NULL, NULL, 0);
}

void kf_futex_wake(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *run(void *arg) {
    kf_worker *e = arg;
    for (;;) {
        uint32_t state = atomic_load_explicit(&e->state, memory_order_acquire);
        if ((state & STATE) == ASKED) {
            e->work(e->owner);
            /* seq_cst, then the flag: either the loop's re-check sees this, or we ring (R12). */
            atomic_fetch_xor_explicit(&e->state, ASKED ^ DONE, memory_order_seq_cst);
            kf_doorbell_ring(e->doorbell, e->doorbell_fd);
        } else if (state & ENDING) {
            return NULL;
        } else {
            kf_futex_wait(&e->state, state, 0);
        }
    }
}

int kf_thread_start(pthread_t *thread, const char *name, void *(*body)(void *), void *arg) {
    /* Signals are the main thread's: one that lands here would not end its epoll_wait. Those that
     * a thread causes itself stay: blocked, they would kill without a word. */
    static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&blocked, own[i]);
    int error = pthread_sigmask(SIG_SETMASK, &blocked, &before);
    if (error) return error;
    error = pthread_create(thread, NULL, body, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error) pthread_setname_np(*thread, name);
    return error;
}

int kf_worker_start(kf_worker *e, const char *name, void (*work)(void *), void *owner,
                    const kf_doorbell_page *doorbell, int doorbell_fd) {
    memset(e, 0, sizeof *e);
    e->work = work;
    e->owner = owner;
    e->doorbell = doorbell;
    e->doorbell_fd = doorbell_fd;
    return kf_thread_start(&e->thread, name, run, e);
}

void kf_worker_ask(kf_worker *e) {
    uint32_t before = atomic_fetch_or_explicit(&e->state, ASKED, memory_order_release);
    if (before != IDLE) __builtin_trap();
    kf_futex_wake(&e->state);
}

int kf_worker_take(kf_worker *e) {
    uint32_t state = atomic_load_explicit(&e->state, memory_order_seq_cst);
    if ((state & STATE) != DONE) return 0;
    atomic_fetch_and_explicit(&e->state, ENDING, memory_order_release);
    return 1;
}

int kf_worker_busy(const kf_worker *e) {
    uint32_t state = atomic_load_explicit(&e->state, memory_order_seq_cst);
    return (state & STATE) == ASKED;
}

void kf_worker_stop(kf_worker *e) {
    atomic_fetch_or_explicit(&e->state, ENDING, memory_order_release);
    kf_futex_wake(&e->state);
    pthread_join(e->thread, NULL);
}

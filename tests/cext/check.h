/* What the test programs share: a check that names its case, a clock, chance, and a main.
 *
 * A program runs all its cases, or those named on the command line. The first check that fails
 * prints "FAILED case: file:line: expression" and ends the process with 1; a case that hangs ends
 * it with 3. Cases that hammer do so for a share of a second, whatever the machine.
 */
#ifndef CHECK_H
#define CHECK_H

#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* Against a hang, on a machine as busy as may be; KF_CASE_SECONDS says otherwise for mutants. */
#define CASE_SECONDS_MAX 100

static const char *case_name = "";

/* Words may follow, as for printf. */
#define CHECK(expression, ...)                                                                     \
    do {                                                                                           \
        if (!(expression)) check_failed(__FILE__, __LINE__, #expression, "" __VA_ARGS__);          \
    } while (0)

static inline void check_failed(const char *file, int line, const char *text, const char *words,
                                ...) {
    va_list arguments;
    va_start(arguments, words);
    fprintf(stderr, "FAILED %s: %s:%d: %s ", case_name, file, line, text);
    vfprintf(stderr, words, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    _exit(1);
}

typedef struct {
    const char *name;
    void (*run)(void);
} test_case;

static void on_alarm(int signo) {
    (void)signo;
    static const char text[] = "HANGS ";
    if (write(2, text, sizeof text - 1) > 0 && write(2, case_name, strlen(case_name)) > 0)
        if (write(2, "\n", 1) < 0) _exit(3);
    _exit(3);
}

static inline int run_cases(const test_case *cases, size_t count, int argc, char **argv) {
    const char *seconds = getenv("KF_CASE_SECONDS");
    signal(SIGALRM, on_alarm);
    for (size_t i = 0; i < count; i++) {
        int chosen = argc < 2;
        for (int a = 1; a < argc; a++) chosen |= !strcmp(argv[a], cases[i].name);
        if (!chosen) continue;
        case_name = cases[i].name;
        alarm(seconds ? (unsigned)atoi(seconds) : CASE_SECONDS_MAX);
        cases[i].run();
        alarm(0);
        printf("ok %s\n", case_name);
        fflush(stdout);
    }
    return 0;
}

static inline uint64_t clock_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static inline void sleep_ms(unsigned ms) {
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

/* xorshift64*: the same numbers in every run. */
static inline uint64_t chance(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1dULL;
}

static inline uint64_t random64(void) {
    static uint64_t state = 0x9e3779b97f4a7c15u;
    return chance(&state);
}

/* How a child that runs `body` ends: its exit code, or minus the signal that killed it. What it
 * wrote to stderr is in `text`. */
static inline int outcome_of(void (*body)(void), char *text, size_t size) {
    int pipes[2], status;
    size_t got = 0;
    ssize_t n;
    if (pipe(pipes)) abort();
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) abort();
    if (!pid) {
        signal(SIGILL, SIG_DFL); /* a trap, not a sanitizer's report */
        dup2(pipes[1], 2);
        close(pipes[0]);
        body();
        _exit(0);
    }
    close(pipes[1]);
    while (got + 1 < size && (n = read(pipes[0], text + got, size - 1 - got)) > 0) got += (size_t)n;
    text[got] = 0;
    close(pipes[0]);
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static inline int is_trap(int outcome) { return outcome == -SIGILL || outcome == -SIGTRAP; }

#endif

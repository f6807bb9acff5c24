/* The few lines that the C test programs share: CHECK ends the program with the place and words. */
#ifndef KRAFTFAST_TEST_CHECK_H
#define KRAFTFAST_TEST_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition, ...)                                                      \
    do {                                                                           \
        if (!(condition)) {                                                        \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);        \
            fprintf(stderr, __VA_ARGS__);                                          \
            fputc('\n', stderr);                                                   \
            exit(1);                                                               \
        }                                                                          \
    } while (0)

/* xorshift64*: the same numbers in every run. */
static inline uint64_t random64(void) {
    static uint64_t state = 0x9e3779b97f4a7c15u;
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return state * 0x2545f4914f6cdd1du;
}

#endif

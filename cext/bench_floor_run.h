/* What the files of the floor (bench_floor.h) share: the run, and how bytes get into its files. */
#ifndef KF_FLOOR_RUN_H
#define KF_FLOOR_RUN_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include "bench_floor.h"

#define FOLLOWERS 2
#define RING ((size_t)64 << 20)
#define STRIDE ((size_t)64 << 20)
#define AHEAD ((size_t)16 << 20)
#define PIECE ((size_t)64 << 10)
#define PAGE ((size_t)4096)
#define STORE_MAX ((size_t)8 << 20)
/* A follower stores what it has checked each time that it is so much. */
#define STORE_EACH ((uint64_t)1 << 20)
#define ENDED ((uint64_t)1 << 63)

typedef struct {
    _Alignas(64) _Atomic uint64_t end; /* offsets below it are there; ENDED: no more will come */
    _Atomic uint32_t bell;
} position;

typedef struct {
    position leader, follower[FOLLOWERS], acknowledged, ready;
    _Atomic int failed; /* an errno */
    char what[96];
    double user_s[1 + FOLLOWERS], system_s[1 + FOLLOWERS]; /* since the clock started */
} shared_state;

typedef struct {
    int fd;
    uint8_t *map; /* NULL: stored by system calls */
    uint8_t *tail;
    uint64_t stored, reserved;
} log_file;

typedef struct {
    const kf_floor_options *of;
    shared_state *shared;
    uint8_t *ring; /* in place: NULL */
    size_t size, keep, batch_max;
    int per_batch;
    log_file file;
    int id; /* 0: the leader */
    struct rusage before;
} floor_run;

/* Note why the run fails, the first reason alone, for all its processes. Returns -1. */
int kf_floor_fail(floor_run *run, const char *what, int error);
/* Make the file of this process, as it is to be when the clock starts. The three below return 0, or
 * -1 once the run has failed. */
int kf_floor_make_file(floor_run *run, int id);
/* Reserve the blocks of a growing file, some MiB beyond `end`. */
int kf_floor_reserve(floor_run *run, uint64_t end);
/* Put the bytes of the ring below `end` into the file. */
int kf_floor_store(floor_run *run, uint64_t end);

#endif

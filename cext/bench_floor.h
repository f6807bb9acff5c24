/* The floor: the least work by which three voters of one host can commit a stream of records. A
 * real engine on the same machine is divided by it; it is no design to copy.
 *
 * Three processes. The leader encodes records into batches, with their size and CRC-32C (of the
 * header nothing else), and publishes the end offset in shared memory. Two followers check each
 * CRC, store the batch in a file of their own and publish their end offset. Durable: a follower
 * calls fdatasync before it acknowledges whatever has come, and the leader meanwhile, before it
 * looks who has acknowledged: a commit is on its disk and on one more. No protocol, no elections,
 * no producer, nothing that survives.
 */
#ifndef KF_FLOOR_H
#define KF_FLOOR_H

#include <stddef.h>
#include <stdint.h>

/* How bytes get into a file. */
enum {
    KF_FLOOR_IN_PLACE, /* the leader encodes into its mapped file, and followers copy from there */
    KF_FLOOR_MAP,      /* through a mapping, from a ring that the leader encodes into */
    KF_FLOOR_WRITE,    /* by pwritev from that ring, in whole pages */
    KF_FLOOR_DIRECT    /* the same with O_DIRECT */
};
/* What the files are when the clock starts. */
enum {
    KF_FLOOR_PREPARED, /* every byte was written in pieces of 64 KiB, and flushed */
    KF_FLOOR_MAPPED,   /* every byte was stored through the mapping, and flushed */
    KF_FLOOR_RESERVED, /* blocks are reserved (fallocate), nothing was written */
    KF_FLOOR_GROWING,  /* nothing; 64 MiB are reserved at a time */
    KF_FLOOR_COLD      /* written, flushed, and dropped from the page cache */
};

typedef struct {
    const char *directory;
    size_t value_bytes,
        batch_bytes; /* a batch holds what fits into batch_bytes, 1 record at least */
    int64_t batches;
    int window; /* batches under way */
    int durable;
    int how, files;
    size_t keep_bytes; /* files are used in a circle of so many bytes; 0: as long as the log */
} kf_floor_options;

typedef struct {
    int64_t records;
    double seconds; /* from the first record's encoding to the last commit */
    double p50_us, p99_us, p999_us, max_us; /* of a batch: from its encoding to its commit */
    double user_s, system_s;                /* of the three processes, while the clock ran */
    char failed[96]; /* "" or what could not be done, with the errno in `error` */
    int error;
} kf_floor_result;

/* Runs it in this process and two forked ones; the caller has no other thread that matters, and is
 * killed from now on when its parent ends. Files are unlinked as soon as they are open. In place
 * nothing is used in a circle. Returns 0, or -1 with `failed` and `error` set. */
int kf_floor_run(const kf_floor_options *options, kf_floor_result *result);

#endif

/* floor: the least work that three voters of one host can do to commit a stream of records.
 *
 * One leader process encodes record batches (v2 layout, CRC-32C) straight into its memory-mapped
 * segment and publishes the end offset in shared memory. Two follower processes read the leader's
 * mapping, check the CRC, copy the batch into their own mapped segment and publish their end
 * offset. The majority offset is the commit point.
 * With "durable", each follower calls fdatasync before it acknowledges whatever has arrived (group
 * commit), and the leader calls fdatasync once a follower has acknowledged (flush "deferred") or at
 * once, while the followers flush too ("parallel": the lower latency). There is no protocol, no
 * ring, no Python: a real engine on the same machine is divided by it. It is not a design to copy.
 *
 *   cc -O3 -march=native -o floor floor.c -lpthread
 *   ./floor DIR VALUE_BYTES BATCH_BYTES TOTAL_MIB durable|memory
 *           [BATCHES_IN_FLIGHT [deferred|parallel [fresh|recycled|mapped]]]
 *
 * "fresh" (default) writes into newly allocated files, as a growing log does; "recycled" into files
 * whose blocks and pages were written (in 64 KiB pieces) and flushed before the clock starts, as a
 * log that prepares its segments does; "mapped" the same, filled by stores through the mapping:
 * better in memory, worse for durable group commit (the folio size decides).
 * Prints records/s, MB/s of value bytes committed, and the p50 and p99 time from the encoding to
 * the commit of a batch, in microseconds.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <nmmintrin.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    _Atomic uint64_t leo;
    _Atomic uint32_t seq;
    char pad[48];
} slot_t;             /* one cache line each */
static slot_t *slots; /* 0 leader, 1 and 2 followers, 3 their wake-ups */

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

/* A real codec merges three interleaved CRC streams; here the cost of one latency-bound stream for
 * each third is what counts, so the three sums are only xor-ed. */
static uint32_t crc_cost(const uint8_t *p, size_t n) {
    size_t third = (n / 3) & ~7UL;
    uint64_t a = ~0u, b = ~0u, c = ~0u;
    for (size_t i = 0; i < third; i += 8) {
        a = _mm_crc32_u64(a, *(const uint64_t *)(p + i));
        b = _mm_crc32_u64(b, *(const uint64_t *)(p + third + i));
        c = _mm_crc32_u64(c, *(const uint64_t *)(p + 2 * third + i));
    }
    for (size_t i = 3 * third; i < n; i++)
        c = _mm_crc32_u8((uint32_t)c, p[i]);
    return (uint32_t)(a ^ b ^ c);
}

static void wake(slot_t *s) {
    atomic_fetch_add(&s->seq, 1);
    syscall(SYS_futex, &s->seq, FUTEX_WAKE, 8, 0, 0, 0);
}
static void wait_past(slot_t *s, uint64_t leo) {
    for (;;) {
        uint32_t q = atomic_load(&s->seq);
        if (atomic_load(&s->leo) > leo)
            return;
        for (int i = 0; i < 200; i++) {
            if (atomic_load(&s->leo) > leo)
                return;
            __builtin_ia32_pause();
        }
        syscall(SYS_futex, &s->seq, FUTEX_WAIT, q, 0, 0, 0);
    }
}

static uint8_t *map_segment(const char *dir, int id, size_t size, int recycled, int *fd) {
    char path[512];
    snprintf(path, sizeof path, "%s/floor-%d.log", dir, id);
    *fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (*fd < 0 || posix_fallocate(*fd, 0, size)) {
        perror(path);
        exit(1);
    }
    uint8_t *m = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (m == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    if (recycled == 2) {
        memset(m, 0xa5, size);
        fdatasync(*fd);
    }
    if (recycled == 1) { /* 64 KiB pieces */
        static uint8_t zeros[65536];
        for (size_t at = 0; at < size; at += sizeof zeros)
            if (pwrite(*fd, zeros, size - at < sizeof zeros ? size - at : sizeof zeros, at) < 0) {
                perror(path);
                exit(1);
            }
        fdatasync(*fd);
        madvise(m, size, MADV_POPULATE_READ);
    }
    unlink(path);
    return m;
}

static size_t varint(uint8_t *p, uint64_t v) {
    size_t n = 0;
    do {
        p[n] = (v & 127) | (v > 127 ? 128 : 0);
        v >>= 7;
        n++;
    } while (v);
    return n;
}

static size_t encode(uint8_t *out, const uint8_t *value, size_t vlen, int n) {
    uint8_t *p = out + 61; /* batch header */
    for (int i = 0; i < n; i++) {
        uint8_t body[16];
        size_t h = 0;
        body[h++] = 0;
        body[h++] = 0;
        h += varint(body + h, (uint64_t)i << 1);
        body[h++] = 1; /* attrs, ts, offset, null key */
        h += varint(body + h, vlen << 1);
        p += varint(p, (h + vlen + 1) << 1);
        memcpy(p, body, h);
        p += h;
        memcpy(p, value, vlen);
        p += vlen;
        *p++ = 0; /* no headers */
    }
    uint32_t c = crc_cost(out + 21, p - out - 21);
    memcpy(out + 17, &c, 4);
    return p - out;
}

static int cmp(const void *a, const void *b) {
    double x = *(double *)a, y = *(double *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv) {
    if (argc < 6) {
        fprintf(stderr, "usage: floor DIR VALUE_BYTES BATCH_BYTES TOTAL_MIB durable|memory "
                        "[in-flight batches [deferred|parallel [fresh|recycled|mapped]]]\n");
        return 2;
    }
    const char *dir = argv[1];
    size_t vlen = atol(argv[2]), bbytes = atol(argv[3]), total = (size_t)atol(argv[4]) << 20;
    int durable = !strcmp(argv[5], "durable");
    int window = argc > 6 ? atoi(argv[6]) : 32;
    int parallel = argc > 7 && !strcmp(argv[7], "parallel"),
        recycled = argc <= 8                      ? 0
                   : !strcmp(argv[8], "recycled") ? 1
                   : !strcmp(argv[8], "mapped")   ? 2
                                                  : 0;
    int per = bbytes / (vlen + 10);
    if (per < 1)
        per = 1;
    size_t bmax = 61 + per * (vlen + 24);
    long batches = total / (per * vlen);
    if (batches < 1)
        batches = 1;
    size_t size = bmax * (batches + 1);
    int fd[3];
    uint8_t *seg[3];
    for (int i = 0; i < 3; i++)
        seg[i] = map_segment(dir, i, size, recycled, &fd[i]);
    slots = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    slot_t *ack = &slots[3];
    for (int f = 1; f <= 2; f++)
        if (!fork()) {
            uint64_t pos = 0, end = (uint64_t)-1;
            uint32_t sum = 0;
            while (pos != end) {
                wait_past(&slots[0], pos);
                uint64_t leo = atomic_load(&slots[0].leo);
                if (leo >> 63) {
                    end = leo & ~(1UL << 63);
                    leo = end;
                }
                while (pos < leo) { /* batch by batch: check, then copy */
                    uint32_t len;
                    memcpy(&len, seg[0] + pos + 8, 4);
                    sum ^= crc_cost(seg[0] + pos + 21, len - 21);
                    memcpy(seg[f] + pos, seg[0] + pos, len);
                    pos += len;
                }
                if (durable && pos != end)
                    fdatasync(fd[f]);
                atomic_store(&slots[f].leo, pos);
                wake(ack);
            }
            _exit(sum == 0x12345678);
        }
    uint8_t *value = malloc(vlen);
    memset(value, 'v', vlen);
    double *t_enc = malloc(batches * 8), *lat = malloc(batches * 8);
    uint64_t *ends = malloc(batches * 8);
    uint64_t pos = 0;
    long sent = 0, committed = 0;
    uint64_t flushed = 0;
    double t0 = now_us();
    while (committed < batches) {
        while (sent < batches && sent - committed < window) {
            t_enc[sent] = now_us();
            size_t n = encode(seg[0] + pos, value, vlen, per);
            uint32_t l = n;
            memcpy(seg[0] + pos + 8, &l, 4);
            pos += n;
            ends[sent++] = pos;
            atomic_store(&slots[0].leo, pos);
            wake(&slots[0]);
        }
        uint32_t q = atomic_load(&ack->seq);
        if (durable && parallel && flushed < pos) {
            fdatasync(fd[0]);
            flushed = pos;
        }
        uint64_t a = atomic_load(&slots[1].leo), b = atomic_load(&slots[2].leo),
                 best = a > b ? a : b, both = a < b ? a : b;
        if (durable && best > flushed && both < ends[committed]) {
            fdatasync(fd[0]);
            flushed = pos;
        }
        uint64_t hw = durable ? (flushed < best ? (flushed > both ? flushed : both) : best) : best;
        long before = committed;
        double t = now_us();
        while (committed < sent && ends[committed] <= hw) {
            lat[committed] = t - t_enc[committed];
            committed++;
        }
        if (committed == before) {
            for (int i = 0; i < 200 && atomic_load(&ack->seq) == q; i++)
                __builtin_ia32_pause();
            syscall(SYS_futex, &ack->seq, FUTEX_WAIT, q, 0, 0, 0);
        }
    }
    double el = now_us() - t0;
    atomic_store(&slots[0].leo, pos | (1UL << 63));
    wake(&slots[0]);
    while (wait(0) > 0) {
    }
    qsort(lat, batches, 8, cmp);
    double recs = (double)batches * per;
    printf("floor value=%zu batch=%d records %s: %.0f records/s, %.1f MB/s, batch commit p50 %.1f "
           "us p99 %.1f us (%ld batches)\n",
           vlen, per,
           durable ? (parallel ? "durable, parallel flush" : "durable, deferred flush") : "memory",
           recs / el * 1e6, recs * vlen / el, lat[batches / 2], lat[batches * 99 / 100], batches);
    return 0;
}

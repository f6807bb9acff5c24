#define _GNU_SOURCE
#include "mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "crc32c.h"
#include "page.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

uint8_t *kf_map(int fd, size_t bytes, int writable) {
    int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void *map = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
    return map == MAP_FAILED ? NULL : map;
}

int kf_unmap(void *map, size_t bytes) { return munmap(map, bytes); }

uint8_t *kf_private(size_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    return map == MAP_FAILED ? NULL : map;
}

void kf_forget(uint8_t *memory, uint64_t from, uint64_t to) {
    from = from / KF_PAGE_BYTES * KF_PAGE_BYTES;
    to = to / KF_PAGE_BYTES * KF_PAGE_BYTES;
    if (from < to) madvise(memory + from, to - from, MADV_DONTNEED);
}

/* Where a SIGBUS of this thread jumps to; NULL outside a copy. Initial-exec: the handler reads it
 * without the allocation that a first access from a loaded module may make. */
static __thread sigjmp_buf *guard __attribute__((tls_model("initial-exec")));

static void on_sigbus(int signo, siginfo_t *info, void *context) {
    (void)signo;
    if (guard && info->si_code > 0) { /* a fault, not a kill */
        /* The jump does not return to the handler: leave its signal mask here. */
        pthread_sigmask(SIG_SETMASK, &((ucontext_t *)context)->uc_sigmask, NULL);
        siglongjmp(*guard, 1);
    }
    static const char text[] =
        "kraftfast: SIGBUS: a mapped file could not be read or written; stopping\n";
    if (write(2, text, sizeof text - 1) < 0) _exit(KF_SIGBUS_EXIT_CODE);
    _exit(KF_SIGBUS_EXIT_CODE);
}

int kf_guard_install(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO;
    return sigaction(SIGBUS, &action, NULL);
}

typedef struct {
    void *dst;
    const void *src;
    size_t n;
    uint64_t result;
} operation;

/* Runs `step` so that a SIGBUS in it ends it: 0, or -1 then. */
static int guarded(void (*step)(operation *), operation *op) {
    sigjmp_buf here;
    if (sigsetjmp(here, 0)) {
        guard = NULL;
        return -1;
    }
    guard = &here;
    atomic_signal_fence(memory_order_seq_cst);
    step(op);
    atomic_signal_fence(memory_order_seq_cst);
    guard = NULL;
    return 0;
}

static void crc_copy_step(operation *op) {
    op->result = kf_crc32c_copy((uint32_t)op->result, op->dst, op->src, op->n);
}

static void copy_step(operation *op) { memcpy(op->dst, op->src, op->n); }

static void generation_step(operation *op) { op->result = kf_generation_load(op->src); }

int kf_guarded_crc_copy(uint32_t *crc, void *dst, const void *src, size_t n) {
    operation op = {dst, src, n, *crc};
    if (guarded(crc_copy_step, &op)) return -1;
    *crc = (uint32_t)op.result;
    return 0;
}

int kf_guarded_copy(void *dst, const void *src, size_t n) {
    operation op = {dst, src, n, 0};
    return guarded(copy_step, &op);
}

int kf_guarded_generation(uint64_t *generation, const uint8_t *page) {
    operation op = {NULL, page, 0, 0};
    if (guarded(generation_step, &op)) return -1;
    *generation = op.result;
    return 0;
}

#define IN_PAGE (KF_PAGE_BYTES - 1ULL)

/* A page before the batch, and up to two behind it. */
static size_t stage_room(size_t bytes) {
    return ((bytes + IN_PAGE) & ~IN_PAGE) + 3 * KF_PAGE_BYTES;
}

int kf_stage_open(kf_stage *s, size_t bytes) {
    s->map = NULL;
    s->end = 0;
    s->bytes = kf_private(stage_room(bytes));
    return s->bytes ? 0 : errno;
}

void kf_stage_close(kf_stage *s, size_t bytes) {
    if (s->bytes) kf_unmap(s->bytes, stage_room(bytes));
    s->bytes = NULL;
}

uint8_t *kf_stage_place(kf_stage *s, const uint8_t *map, uint64_t at) {
    if (s->map != map || s->end != at) memcpy(s->bytes, map + (at & ~IN_PAGE), at & IN_PAGE);
    s->map = NULL; /* until the batch is in the file */
    return s->bytes + (at & IN_PAGE);
}

uint64_t kf_stage_pad(kf_stage *s, uint64_t at, size_t n, uint64_t limit) {
    uint64_t start = at & ~IN_PAGE, end = at + n, padded = (end + IN_PAGE) & ~IN_PAGE;
    if (padded - end < KF_STAGE_ZEROS) padded += KF_PAGE_BYTES;
    if (padded > limit) padded = limit & ~IN_PAGE;
    if (padded < end) padded = end;
    memset(s->bytes + (end - start), 0, padded - end);
    return padded - start;
}

void kf_stage_keep(kf_stage *s, const uint8_t *map, uint64_t at, size_t n) {
    uint64_t start = at & ~IN_PAGE, end = at + n, last = end & ~IN_PAGE;
    if (last > start) memcpy(s->bytes, s->bytes + (last - start), end - last);
    if (end - start > KF_STAGE_KEPT_BYTES)
        kf_forget(s->bytes, KF_STAGE_KEPT_BYTES, (end - start) + 2 * KF_PAGE_BYTES);
    s->map = map;
    s->end = end;
}

int kf_write_all(int fd, const uint8_t *src, size_t n, uint64_t at) {
    while (n) {
        ssize_t written = pwrite(fd, src, n, (off_t)at);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return written ? errno : EIO;
        src += written;
        at += (uint64_t)written;
        n -= (size_t)written;
    }
    return 0;
}

int kf_sync(int fd) {
    int failed;
    do failed = fdatasync(fd);
    while (failed && errno == EINTR);
    return failed ? errno : 0;
}

int kf_sync_range(uint8_t *map, uint64_t from, uint64_t to) {
    int failed;
    from &= ~((uint64_t)sysconf(_SC_PAGESIZE) - 1); /* of the kernel: may be larger than ours */
    do failed = msync(map + from, to - from, MS_SYNC);
    while (failed && errno == EINTR);
    return failed ? errno : 0;
}

int kf_names(int fd) {
    struct statx found;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_NLINK, &found)) return -1;
    return found.stx_mask & STATX_NLINK ? (int)found.stx_nlink : -1;
}

/* Zeros of one piece; static, so that no thread pays for it. */
static const uint8_t zeros[KF_PIECE_MAX];

int kf_write_zeros(int fd, uint64_t from, uint64_t to, uint32_t piece) {
    if (!piece) return EINVAL;
    if (piece > sizeof zeros) piece = sizeof zeros;
    while (from < to) {
        uint64_t stop = (from / piece + 1) * piece; /* pieces stay aligned: folios of that size */
        if (stop > to) stop = to;
        int error = kf_write_all(fd, zeros, (size_t)(stop - from), from);
        if (error) return error;
        from = stop;
    }
    return 0;
}

int kf_reserve(int fd, uint64_t from, uint64_t to) {
    int failed = 0;
    if (from >= to) return 0;
    do failed = fallocate(fd, 0, (off_t)from, (off_t)(to - from));
    while (failed && errno == EINTR);
    if (failed && errno == EOPNOTSUPP) return kf_write_zeros(fd, from, to, KF_PIECE_MAX);
    return failed ? errno : 0;
}

void kf_populate(uint8_t *map, uint64_t from, uint64_t to) {
    uint64_t page_from = from & ~IN_PAGE;
    if (map && page_from < to) madvise(map + page_from, to - page_from, MADV_POPULATE_WRITE);
}

uint64_t kf_cached_end(uint8_t *map, uint64_t from, uint64_t to) {
    unsigned char pages[4096];
    uint64_t at = from & ~IN_PAGE;
    if (!map) return from;
    while (at < to) {
        uint64_t count = (to - at + IN_PAGE) / KF_PAGE_BYTES;
        if (count > sizeof pages) count = sizeof pages;
        if (mincore(map + at, count * KF_PAGE_BYTES, pages)) break;
        for (uint64_t i = 0; i < count; i++, at += KF_PAGE_BYTES)
            if (!(pages[i] & 1)) return at > from ? at : from;
    }
    if (at > to) at = to;
    return at > from ? at : from;
}

int kf_exchange_names(const char *one, const char *other) {
#if defined(SYS_renameat2) && defined(RENAME_EXCHANGE)
    return syscall(SYS_renameat2, AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE) ? errno : 0;
#else
    (void)one, (void)other;
    return ENOSYS;
#endif
}

int kf_is_zero(const uint8_t *map, uint64_t from, uint64_t to) {
    while (from < to && (from & 7))
        if (map[from++]) return 0;
    for (; from + 64 <= to; from += 64) {
        uint64_t w[8];
        memcpy(w, map + from, 64);
        if (w[0] | w[1] | w[2] | w[3] | w[4] | w[5] | w[6] | w[7]) return 0;
    }
    while (from < to)
        if (map[from++]) return 0;
    return 1;
}

uint64_t kf_zero_dirty(uint8_t *map, uint64_t from, uint64_t to) {
    uint64_t zeroed = 0;
    while (from < to) {
        uint64_t stop = (from | 4095) + 1;
        if (stop > to) stop = to;
        if (!kf_is_zero(map, from, stop)) {
            memset(map + from, 0, stop - from);
            zeroed += stop - from;
        }
        from = stop;
    }
    return zeroed;
}

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "bench_floor_run.h"

int kf_floor_fail(floor_run *run, const char *what, int error) {
    int none = 0;
    if (atomic_compare_exchange_strong(&run->shared->failed, &none, error ? error : EIO))
        snprintf(run->shared->what, sizeof run->shared->what, "%s", what);
    return -1;
}

static int write_pieces(floor_run *run) {
    static uint8_t zeros[PIECE];
    for (size_t at = 0; at < run->keep; at += PIECE)
        if (pwrite(run->file.fd, zeros, PIECE, (off_t)at) != (ssize_t)PIECE)
            return kf_floor_fail(run, "cannot write", errno);
    return fdatasync(run->file.fd) ? kf_floor_fail(run, "cannot flush", errno) : 0;
}

static int fill(floor_run *run) {
    log_file *file = &run->file;
    int error = posix_fallocate(file->fd, 0, (off_t)run->keep);
    if (error) return kf_floor_fail(run, "cannot reserve blocks", error);
    if (run->of->files != KF_FLOOR_PREPARED && run->of->files != KF_FLOOR_COLD) return 0;
    if (write_pieces(run)) return -1;
    if (run->of->files == KF_FLOOR_COLD) posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED);
    return 0;
}

static int map_file(floor_run *run) {
    log_file *file = &run->file;
    file->map = mmap(NULL, run->keep, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
    if (file->map == MAP_FAILED) return kf_floor_fail(run, "cannot map", errno);
    if (run->of->files == KF_FLOOR_MAPPED) {
        memset(file->map, 0xa5, run->keep);
        if (fdatasync(file->fd)) return kf_floor_fail(run, "cannot flush", errno);
    }
    if (run->of->files == KF_FLOOR_PREPARED) madvise(file->map, run->keep, MADV_POPULATE_READ);
    return 0;
}

static int open_direct(floor_run *run, const char *path) {
    int fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (fd < 0) return kf_floor_fail(run, "cannot open with O_DIRECT", errno);
    close(run->file.fd);
    run->file.fd = fd;
    return 0;
}

int kf_floor_make_file(floor_run *run, int id) {
    char path[4096];
    int how = run->of->how, failed = 0;
    snprintf(path, sizeof path, "%s/floor-%d.log", run->of->directory, id);
    run->file.fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (run->file.fd < 0) return kf_floor_fail(run, "cannot make a file", errno);
    if (run->of->files != KF_FLOOR_GROWING) failed = fill(run);
    else if (ftruncate(run->file.fd, (off_t)run->keep))
        failed = kf_floor_fail(run, "cannot make a file longer", errno);
    if (!failed && how == KF_FLOOR_DIRECT) failed = open_direct(run, path);
    if (!failed && how <= KF_FLOOR_MAP) failed = map_file(run);
    if (!failed && how > KF_FLOOR_MAP) {
        run->file.tail =
            mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (run->file.tail == MAP_FAILED) failed = kf_floor_fail(run, "no memory", errno);
    }
    unlink(path);
    return failed;
}

int kf_floor_reserve(floor_run *run, uint64_t end) {
    log_file *file = &run->file;
    while (run->of->files == KF_FLOOR_GROWING && file->reserved < end + AHEAD &&
           file->reserved < run->keep) {
        size_t left = run->keep - file->reserved, stride = left < STRIDE ? left : STRIDE;
        if (fallocate(file->fd, 0, (off_t)file->reserved, (off_t)stride))
            return kf_floor_fail(run, "cannot reserve blocks", errno);
        file->reserved += stride;
    }
    return 0;
}

/* Write n bytes of the ring from `at` on, which is on a page, to the place `to` of the file; the
 * last page is padded, and written again with what comes next. */
static int write_pages(floor_run *run, uint64_t at, uint64_t to, size_t n) {
    size_t whole = n & ~(PAGE - 1), rest = n - whole, wanted = 0;
    struct iovec parts[2];
    int count = 0;
    if (whole) parts[count++] = (struct iovec){run->ring + at % RING, whole};
    if (rest) {
        memcpy(run->file.tail, run->ring + (at + whole) % RING, rest);
        memset(run->file.tail + rest, 0, PAGE - rest);
        parts[count++] = (struct iovec){run->file.tail, PAGE};
    }
    for (int i = 0; i < count; i++) wanted += parts[i].iov_len;
    if (pwritev(run->file.fd, parts, count, (off_t)to) != (ssize_t)wanted)
        return kf_floor_fail(run, "cannot write", errno);
    return 0;
}

int kf_floor_store(floor_run *run, uint64_t end) {
    log_file *file = &run->file;
    uint64_t at = file->map ? file->stored : file->stored & ~(uint64_t)(PAGE - 1);
    if (file->stored >= end) return 0;
    if (kf_floor_reserve(run, end)) return -1;
    while (at < end) {
        uint64_t to = at % run->keep;
        size_t n = end - at;
        if (n > run->keep - to) n = run->keep - to;
        if (n > STORE_MAX) n = STORE_MAX;
        if (file->map) memcpy(file->map + to, run->ring + at % RING, n);
        else if (write_pages(run, at, to, n)) return -1;
        at += n;
    }
    file->stored = end;
    return 0;
}

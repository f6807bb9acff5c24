/* Mapping files, copying out of maps that may fail, and making the bytes of a file real.
 *
 * A store into a mapped page that has no block on disk, or a load from a bad sector, is a SIGBUS.
 * The log never stores where the nursery has not written (R10); what it loads from another
 * replica's file goes through a guarded copy: a SIGBUS inside it makes the copy fail, one anywhere
 * else is recorded on stderr and ends the process.
 *
 * The handler is the process's, but the guard that it looks at belongs to the extension that this
 * file is compiled into: guarded copies are made only by the one that called kf_guard_install.
 */
#ifndef KF_MAPPING_H
#define KF_MAPPING_H

#include <stddef.h>
#include <stdint.h>

#define KF_SIGBUS_EXIT_CODE 71

/* Shared map of `bytes` of fd from its start; NULL and errno on failure. */
uint8_t *kf_map(int fd, size_t bytes, int writable);
int kf_unmap(void *map, size_t bytes);
/* Zeros in private memory, which takes room where it is stored into; NULL and errno on failure. */
uint8_t *kf_private(size_t bytes);
/* Give private memory up to `to` back, from the page of `from` on: its pages are zeros again. */
void kf_forget(uint8_t *memory, uint64_t from, uint64_t to);

/* Once a process, before the first guarded copy. */
int kf_guard_install(void);
/* kf_crc32c_copy that survives SIGBUS: 0, or -1 if a page could not be read or written: then *crc
 * is what it was, and dst may hold a part of the bytes. */
int kf_guarded_crc_copy(uint32_t *crc, void *dst, const void *src, size_t n);
/* memcpy likewise. */
int kf_guarded_copy(void *dst, const void *src, size_t n);
/* kf_generation_load of another replica's page likewise. */
int kf_guarded_generation(uint64_t *generation, const uint8_t *page);

/* Private memory in which a batch is put together, to be written into its file by whole pages: a
 * store through a map costs a page fault for every page that was written back since, and makes a
 * whole folio dirty. It goes on holding the page that the last batch ends in, so that nothing is
 * read from the file. */
typedef struct {
    uint8_t *bytes;     /* the first stands for the first of the page in which the batch begins */
    const uint8_t *map; /* whose page it holds, NULL: none */
    uint64_t end;       /* the page is held up to here */
} kf_stage;

#define KF_STAGE_KEPT_BYTES (1u << 20) /* of its memory, after a larger batch */
#define KF_STAGE_ZEROS 61              /* behind a batch: no header begins there */

/* With room for batches of `bytes`. Returns 0 or an errno. */
int kf_stage_open(kf_stage *s, size_t bytes);
void kf_stage_close(kf_stage *s, size_t bytes);
/* Where the batch is put together that will stand at `at` of the file with this map. */
uint8_t *kf_stage_place(kf_stage *s, const uint8_t *map, uint64_t at);
/* How many bytes are to be written from the page of `at` on, for a batch of `n` bytes: up to the
 * end of a page, with zeros behind the batch where the next one's header would be, but for those
 * beyond `limit`. */
uint64_t kf_stage_pad(kf_stage *s, uint64_t at, size_t n, uint64_t limit);
/* The batch is in the file: hold the page in which it ends. */
void kf_stage_keep(kf_stage *s, const uint8_t *map, uint64_t at, size_t n);
/* Write all of it. Returns 0 or an errno; a part may be in the file then. */
int kf_write_all(int fd, const uint8_t *src, size_t n, uint64_t at);

#define KF_PIECE_MAX (1u << 16)

/* The blocks of [from, to), where nothing stands that is needed: ENOSPC comes here, cleanly (R10),
 * and in one extent where the disk has one. Where the file system cannot reserve, zeros are written
 * there. Returns 0 or an errno. */
int kf_reserve(int fd, uint64_t from, uint64_t to);
/* Write zeros in aligned pieces of `piece` bytes, at most KF_PIECE_MAX: small folios, so that small
 * flushes stay small. Returns 0 or an errno. */
int kf_write_zeros(int fd, uint64_t from, uint64_t to, uint32_t piece);
/* Have the pages of [from, to) there, in the largest folios there are, so that stores cause no
 * faults. The blocks must be reserved. Only a hint. */
void kf_populate(uint8_t *map, uint64_t from, uint64_t to);
/* Up to where the page cache holds the pages of [from, to), from the start on. */
uint64_t kf_cached_end(uint8_t *map, uint64_t from, uint64_t to);
/* fdatasync, once it was not cut short. Returns 0 or an errno. */
int kf_sync(int fd);
/* The same of the bytes [from, to) of a shared map alone, and of what finds them in the file. An
 * error is of the description that was mapped. Returns 0 or an errno. */
int kf_sync_range(uint8_t *map, uint64_t from, uint64_t to);
/* How many names lead to an open file; -1 if that cannot be told. Not by fstat: that asks for the
 * time of the last change too, after which Linux (6.13) gives the next write a time of its own, and
 * the next fdatasync has an inode more to store: a tenth of a commit. */
int kf_names(int fd);
/* Exchange the names of two files, at once. Returns 0 or an errno (EINVAL, ENOSYS: not here). */
int kf_exchange_names(const char *one, const char *other);
/* Zero [from, to) of a prepared map where it is not zero yet. Returns how many bytes it stored. */
uint64_t kf_zero_dirty(uint8_t *map, uint64_t from, uint64_t to);
/* Whether [from, to) is all zeros. */
int kf_is_zero(const uint8_t *map, uint64_t from, uint64_t to);

#endif

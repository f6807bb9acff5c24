/* A single-producer, single-consumer ring of messages in shared memory, and the doorbell beside it.
 *
 * Two memory files, one a writer (R5, R6): the producer's holds a page of words and the data, the
 * consumer's one page with its cursor. Each is mapped writable by its writer alone.
 *
 *   producer's file                                   consumer's file
 *   +0      magic, capacity, generation (constant)    +0    magic, capacity, generation (constant)
 *   +128    head: bytes ever published                +128  tail: bytes ever released
 *   +256    want_room: the producer waits for room   +256  taken: bytes ever looked at
 *   +4096   data, `capacity` bytes (a power of two)
 *
 * A message is contiguous and 16-byte aligned: a header of 16 bytes, then the payload. Where it
 * would not fit before the end of the data, a padding message fills the rest.
 *
 *   +0  length (low 32 bits) | sequence (high 32 bits), stored last, release (R3)
 *   +8  kind (low 32 bits) | CRC-32C (high 32 bits): of what, and whether, the kind says
 *
 * The sequence counts messages from a start that the generation gives, so that a header proves its
 * ring and its lap, and a gap is seen (I22). A message with its header takes at most half the ring:
 * with the padding before it, it always fits an empty ring, and two paddings never follow each
 * other.
 *
 * Nothing here waits, allocates or trusts a word that the other side can still change: a message's
 * header is copied once, lengths and cursors are checked (R7), and a fault fences the peer. A full
 * ring is a return value. A dead peer's ring is dropped whole, never repaired, and a file that was
 * used is never attached again (R4). The receiver must check (R5) that the files are sealed,
 * and large enough to be mapped (one page at least).
 *
 * A call that breaks the order claim - commit or abort - publish is a bug here, not a peer's: it
 * ends the process (trap).
 */
#ifndef KF_RING_H
#define KF_RING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define KF_RING_MAGIC 0x31474e4952464bULL /* "KFRING1" */
#define KF_RING_PAGE 4096
#define KF_RING_HEADER 16
#define KF_RING_PADDING 0xffffffffu
#define KF_RING_CAPACITY_MIN 4096u
#define KF_RING_CAPACITY_MAX (1u << 30)

typedef struct {
    uint64_t magic;
    uint64_t capacity;
    uint64_t generation;
} kf_ring_words;

typedef struct {
    kf_ring_words words;
    uint8_t pad0[128 - sizeof(kf_ring_words)];
    _Atomic uint64_t head;
    uint8_t pad1[128 - 8];
    _Atomic uint32_t want_room;
} kf_ring_producer_page;

typedef struct {
    kf_ring_words words;
    uint8_t pad0[128 - sizeof(kf_ring_words)];
    _Atomic uint64_t tail;
    uint8_t pad1[128 - 8];
    _Atomic uint64_t taken;
} kf_ring_consumer_page;

/* The producer's private side. */
typedef struct kf_ring_out {
    kf_ring_producer_page *page;
    const kf_ring_consumer_page *consumer; /* read-only mapping */
    uint8_t *data;
    uint64_t mask;
    uint64_t head;        /* committed by us */
    uint64_t published;   /* what page->head says: tail_cached <= published <= head */
    uint64_t tail_cached; /* never beyond the consumer's tail; head - tail_cached <= capacity */
    uint64_t kept;        /* bytes from here on are not overwritten, even if released (D24) */
    uint64_t claimed;     /* total bytes of the open claim, 0 if none */
    uint32_t sequence;    /* of the next message */
    int wants_room;       /* what page->want_room says */
    int fault;            /* the consumer's cursor made no sense: fence it; never cleared */
} kf_ring_out;

/* The consumer's private side. */
typedef struct kf_ring_in {
    const kf_ring_producer_page *page; /* read-only mapping */
    kf_ring_consumer_page *consumer;
    const uint8_t *data;
    uint64_t mask;
    uint64_t tail;        /* released by us; published up to consumer->tail */
    uint64_t head_cached; /* never beyond the producer's head */
    uint64_t peeked;      /* total bytes of the message at hand, 0 if none */
    uint32_t sequence;    /* of the next message */
    int fault;            /* the producer's words made no sense: fence it; never cleared */
} kf_ring_in;

typedef struct {
    const uint8_t *payload;
    uint32_t length;
    uint32_t kind;
    uint32_t crc;
} kf_ring_message;

size_t kf_ring_file_bytes(uint32_t capacity); /* of the producer's file; the consumer's: a page */
/* Return 0, or -1 if the capacity is no power of two from MIN to MAX. */
int kf_ring_format_producer(void *file, uint32_t capacity, uint64_t generation);
int kf_ring_format_consumer(void *file, uint32_t capacity, uint64_t generation);

/* Attach to formatted files. Return 0, or -1 if the constant words do not fit `bytes` (of the
 * producer's file) or each other, or if our own file was used before. */
int kf_ring_attach_out(kf_ring_out *r, void *producer_file, size_t bytes,
                       const void *consumer_file);
int kf_ring_attach_in(kf_ring_in *r, const void *producer_file, size_t bytes, void *consumer_file);

/* Room for a payload of `length` bytes, or NULL: no room now, longer than kf_ring_payload_max, or
 * r->fault. A claim that succeeds ends the wish of kf_ring_want_room. */
uint8_t *kf_ring_claim(kf_ring_out *r, uint32_t length);
/* End the open claim with its first `length` bytes as payload; visible at the next publish. */
void kf_ring_commit(kf_ring_out *r, uint32_t length, uint32_t kind, uint32_t crc);
void kf_ring_abort(kf_ring_out *r);
/* Make all commits visible by a seq_cst exchange of the head (R12). Then ring the doorbell. */
void kf_ring_publish(kf_ring_out *r);
uint32_t kf_ring_payload_max(const kf_ring_out *r);
/* Bytes ever committed: where the next message starts. */
uint64_t kf_ring_position(const kf_ring_out *r);
/* How far the consumer said it looked (kf_ring_take): nothing beyond was ever acted on, even if the
 * consumer died meanwhile. Not validated against the head: compare, do not index. */
uint64_t kf_ring_taken(const kf_ring_out *r);
/* Do not overwrite bytes from `position` on, even after the consumer has released them: they may
 * have to be sent again (D24). Positions must rise. Until the first call a release is enough. */
void kf_ring_keep(kf_ring_out *r, uint64_t position);
/* Whether the consumer has released everything that was committed. */
int kf_ring_drained(const kf_ring_out *r);
/* Ask the consumer to ring our doorbell when it releases. Publishes first: what is committed and
 * not visible could never make room. To sleep until there is room: claim fails, want_room, ring the
 * consumer's doorbell, kf_doorbell_sleep, re-check kf_ring_has_room, wait (R12). */
void kf_ring_want_room(kf_ring_out *r);
/* Whether a claim of `length` would succeed now: 1, 0, or -1 on a fault (seq_cst load, R12). */
int kf_ring_has_room(kf_ring_out *r, uint32_t length);

/* The next message: 1 and *m filled, 0 if none, -1 on a fault. The payload stays until release. */
int kf_ring_peek(kf_ring_in *r, kf_ring_message *m);
void kf_ring_release(kf_ring_in *r);
/* Say, before acting on the message at hand, that it may have been acted on. */
void kf_ring_take(kf_ring_in *r);
/* Tell the producer how far we are (seq_cst exchange); returns 1 if it waits for room: then ring
 * its doorbell. To be called before going to sleep, too. */
int kf_ring_publish_tail(kf_ring_in *r);
/* Whether a published message is waiting (seq_cst load: the re-check of a sleeper, R12). */
int kf_ring_waiting(const kf_ring_in *r);

/* How much of the ring is committed and was not released, in thousandths of its capacity. */
uint32_t kf_ring_fill_permille(const kf_ring_in *r);

/* Whether the other side broke the rules; kf_ring_fence: it did so in a way that only the caller
 * could see (a payload whose CRC does not match). */
int kf_ring_out_faulted(const kf_ring_out *r);
int kf_ring_in_faulted(const kf_ring_in *r);
void kf_ring_fence(kf_ring_in *r);

/* --- doorbell: how a process that sleeps is woken, at no cost while it is awake (R12) ---
 * The flag lies in a page of the sleeper; wakers map it read-only. What is written to is a pipe, or
 * an eventfd of this process alone, by a non-blocking description that no other process has. */
typedef struct kf_doorbell_page {
    _Atomic uint32_t sleeping;
} kf_doorbell_page;

/* Then re-check everything that rings this doorbell, then wait on its descriptor. */
void kf_doorbell_sleep(kf_doorbell_page *d);
void kf_doorbell_awake(kf_doorbell_page *d);
int kf_doorbell_asleep(const kf_doorbell_page *d);
/* Write 8 bytes to fd if the sleeper sleeps. Returns 1 if it wrote. Call after publishing. */
int kf_doorbell_ring(const kf_doorbell_page *d, int fd);

#endif

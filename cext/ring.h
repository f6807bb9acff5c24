/* A single-producer, single-consumer ring of messages in shared memory, and the doorbell beside it.
 *
 * Two memory files, one a writer (R5, R6): the producer's holds a page of words and the data, the
 * consumer's one page with its cursor. Each is mapped writable by its writer alone.
 *
 *   producer's file                                       consumer's file
 *   +0      magic, capacity, generation (constant)        +0    magic, generation (constant)
 *   +128    head: bytes ever published                    +128  tail: bytes ever released
 *   +256    want_room: the producer waits for the tail
 *   +4096   data, `capacity` bytes (a power of two)
 *
 * A message is contiguous and 16-byte aligned: a header of 16 bytes, then the payload. Where it
 * would not fit before the end of the data, a padding message fills the rest.
 *
 *   +0  word: length (low 32 bits) | sequence (high 32 bits), stored last, release (R3)
 *   +8  kind                          +12  CRC-32C of the payload, or 0 where the payload has its own
 *
 * Nothing here waits, allocates or trusts a word that the other side can still change: a message's
 * header is copied once, lengths and cursors are checked (R7), and a fault fences the peer. A full
 * ring is a return value. A dead peer's ring is dropped whole, never repaired (R4).
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
    uint8_t pad0[128 - 24];
    _Atomic uint64_t head;
    uint8_t pad1[128 - 8];
    _Atomic uint32_t want_room;
} kf_ring_producer_page;

typedef struct {
    uint64_t magic;
    uint64_t capacity;
    uint64_t generation;
    uint8_t pad0[128 - 24];
    _Atomic uint64_t tail;
} kf_ring_consumer_page;

/* The producer's private side. */
typedef struct {
    kf_ring_producer_page *page;
    const kf_ring_consumer_page *consumer; /* read-only mapping */
    uint8_t *data;
    uint64_t mask;
    uint64_t head;        /* committed by us; published up to page->head */
    uint64_t tail_cached; /* never beyond the consumer's tail */
    uint64_t claimed;     /* total bytes of the open claim, 0 if none */
    uint32_t sequence;    /* of the next message */
    int fault;            /* the consumer's cursor made no sense: fence it */
} kf_ring_out;

/* The consumer's private side. */
typedef struct {
    const kf_ring_producer_page *page; /* read-only mapping */
    kf_ring_consumer_page *consumer;
    const uint8_t *data;
    uint64_t mask;
    uint64_t tail;        /* released by us; published up to consumer->tail */
    uint64_t head_cached; /* never beyond the producer's head */
    uint64_t peeked;      /* total bytes of the message at hand, 0 if none */
    uint32_t sequence;    /* of the next message */
    int fault;            /* the producer's words made no sense: fence it */
} kf_ring_in;

typedef struct {
    const uint8_t *payload;
    uint32_t length;
    uint32_t kind;
    uint32_t crc;
} kf_ring_message;

size_t kf_ring_file_bytes(uint32_t capacity);
int kf_ring_format_producer(void *file, uint32_t capacity, uint64_t generation);
int kf_ring_format_consumer(void *file, uint32_t capacity, uint64_t generation);

/* Attach to formatted files. Return 0, or -1 if the constant words do not fit `bytes` or each other. */
int kf_ring_attach_out(kf_ring_out *r, void *producer_file, size_t bytes, const void *consumer_file);
int kf_ring_attach_in(kf_ring_in *r, const void *producer_file, size_t bytes, void *consumer_file);

/* Room for a payload of `length` bytes, or NULL: no room now, too long for ever, or a fault. */
uint8_t *kf_ring_claim(kf_ring_out *r, uint32_t length);
/* End the open claim with its first `length` bytes as payload; visible at the next publish. */
void kf_ring_commit(kf_ring_out *r, uint32_t length, uint32_t kind, uint32_t crc);
void kf_ring_abort(kf_ring_out *r);
/* Make all commits visible by a seq_cst exchange of the head (R12). */
void kf_ring_publish(kf_ring_out *r);
uint32_t kf_ring_payload_max(const kf_ring_out *r);
/* Whether anything that was published is not yet released by the consumer. */
int kf_ring_drained(kf_ring_out *r);

/* The next message: 1 and *m filled, 0 if none, -1 on a fault. The payload stays until release. */
int kf_ring_peek(kf_ring_in *r, kf_ring_message *m);
void kf_ring_release(kf_ring_in *r);
/* Tell the producer how far we are; returns 1 if it waits for room and is to be woken. */
int kf_ring_publish_tail(kf_ring_in *r);
/* Whether a published message is waiting (seq_cst load: the re-check of a sleeper, R12). */
int kf_ring_waiting(const kf_ring_in *r);

/* --- doorbell: how a process that sleeps is woken, at no cost while it is awake (R12) ---
 * The flag lies in a page of the sleeper; wakers map it read-only. */
typedef struct {
    _Atomic uint32_t sleeping;
} kf_doorbell_page;

void kf_doorbell_sleep(kf_doorbell_page *d); /* then re-check every ring, then wait on the eventfd */
void kf_doorbell_awake(kf_doorbell_page *d);
int kf_doorbell_asleep(const kf_doorbell_page *d);
/* Write the eventfd if the sleeper sleeps. Returns 1 if it wrote. Call after publishing. */
int kf_doorbell_ring(const kf_doorbell_page *d, int eventfd);

#endif

#include "page.h"

#include <stddef.h>
#include <string.h>

#include "crc32c.h"

#define SLOTS_AT 512
#define GENERATION_AT 1024
#define PREPARED_AT 1088
#define KEY_AT 1152
#define END_AT 1536
#define PREPARED_BITS 48

_Static_assert(sizeof(kf_watermark) == 64, "two slots fit one sector");
_Static_assert(offsetof(kf_watermark, crc) == 60, "no hidden padding under the CRC");
_Static_assert(SLOTS_AT + 2 * sizeof(kf_watermark) <= 1024, "in one sector of 512 bytes");

/* The fences that rule R12 allows, for the generation only. ThreadSanitizer does not know fences;
 * under it the orders of the generation's own loads and stores have to do. */
#ifdef __SANITIZE_THREAD__
#define generation_fence(order) atomic_signal_fence(order)
#else
#define generation_fence(order) atomic_thread_fence(order)
#endif

static _Atomic uint64_t *word(uint8_t *page, size_t at) { return (_Atomic uint64_t *)(page + at); }

static const _Atomic uint64_t *const_word(const uint8_t *page, size_t at) {
    return (const _Atomic uint64_t *)(page + at);
}

static uint32_t slot_crc(const kf_watermark *w) {
    return kf_crc32c(0, w, offsetof(kf_watermark, crc));
}

void kf_page_format(uint8_t *page, kf_mark at, uint64_t generation) {
    memset(page, 0, KF_PAGE_BYTES);
    atomic_store_explicit(word(page, GENERATION_AT), generation, memory_order_relaxed);
    kf_watermark_store(page, at, at, 0, 0);
    atomic_store_explicit(word(page, 0), KF_PAGE_MAGIC, memory_order_release);
}

int kf_page_valid(const uint8_t *page) {
    return atomic_load_explicit(const_word(page, 0), memory_order_acquire) == KF_PAGE_MAGIC;
}

static int load_slots(const uint8_t *slots, kf_watermark *out) {
    int found = -1;
    for (unsigned i = 0; i < 2; i++) {
        kf_watermark w;
        memcpy(&w, slots + i * sizeof w, sizeof w);
        if (w.sequence == 0 || (w.sequence & 1) != i || w.crc != slot_crc(&w)) continue;
        if (found < 0 || w.sequence > out->sequence) *out = w;
        found = 0;
    }
    return found;
}

static void store_slot(uint8_t *slots, kf_mark target, kf_mark flushed, uint64_t voucher,
                       uint64_t position) {
    kf_watermark newest, w;
    memset(&w, 0, sizeof w);
    w.sequence = load_slots(slots, &newest) ? 1 : newest.sequence + 1;
    w.target.offset = target.offset;
    w.target.epoch = target.epoch;
    w.flushed.offset = flushed.offset;
    w.flushed.epoch = flushed.epoch;
    w.voucher = voucher;
    w.position = position;
    w.crc = slot_crc(&w);
    memcpy(slots + (w.sequence & 1) * sizeof w, &w, sizeof w);
}

int kf_watermark_load(const uint8_t *page, kf_watermark *w) {
    return load_slots(page + SLOTS_AT, w);
}

void kf_watermark_store(uint8_t *page, kf_mark target, kf_mark flushed, uint64_t voucher,
                        uint64_t flushed_voucher) {
    if (flushed.offset > target.offset) __builtin_trap();
    store_slot(page + SLOTS_AT, target, flushed, voucher, flushed_voucher);
}

int kf_end_load(const uint8_t *page, kf_watermark *end) { return load_slots(page + END_AT, end); }

void kf_end_store(uint8_t *page, kf_mark end, uint64_t voucher, uint64_t position) {
    store_slot(page + END_AT, end, end, voucher, position);
}

uint64_t kf_key_load(const uint8_t *page) {
    uint64_t words[2];
    memcpy(words, page + KEY_AT, sizeof words);
    if (!words[0] && !words[1]) return 0;
    return words[0] == ~words[1] && words[0] && words[0] <= KF_KEY_MAX ? words[0] : KF_KEY_DAMAGED;
}

void kf_key_store(uint8_t *page, uint64_t key) {
    if (key > KF_KEY_MAX) __builtin_trap();
    uint64_t words[2] = {key, key ? ~key : 0};
    memcpy(page + KEY_AT, words, sizeof words);
}

uint64_t kf_generation_load(const uint8_t *page) {
    generation_fence(memory_order_acquire);
    return atomic_load_explicit(const_word(page, GENERATION_AT), memory_order_acquire);
}

void kf_generation_bump(uint8_t *page) {
    atomic_fetch_add_explicit(word(page, GENERATION_AT), 1, memory_order_seq_cst);
    generation_fence(memory_order_seq_cst);
}

/* 16 bits over the other 48. */
static uint64_t prepared_check(uint64_t bytes) {
    return (bytes ^ bytes >> 16 ^ bytes >> 32 ^ 0x5a5a) & 0xffff;
}

uint64_t kf_prepared_load(const uint8_t *page) {
    uint64_t v = atomic_load_explicit(const_word(page, PREPARED_AT), memory_order_relaxed);
    uint64_t bytes = v & ((1ULL << PREPARED_BITS) - 1);
    return v >> PREPARED_BITS == prepared_check(bytes) ? bytes : 0;
}

void kf_prepared_store(uint8_t *page, uint64_t bytes) {
    if (bytes >> PREPARED_BITS) __builtin_trap();
    uint64_t v = prepared_check(bytes) << PREPARED_BITS | bytes;
    atomic_store_explicit(word(page, PREPARED_AT), v, memory_order_relaxed);
}

uint64_t kf_page_batches_end(const uint8_t *page) {
    uint64_t prepared = kf_prepared_load(page);
    kf_watermark end;
    if (!prepared) prepared = UINT64_MAX;
    if (!kf_key_load(page)) return prepared;
    if (kf_end_load(page, &end)) return 0;
    return end.position < prepared ? end.position : prepared;
}

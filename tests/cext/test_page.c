/* The last page of a segment: its watermarks, keys and ends, whatever has reached the disk. */
#define _GNU_SOURCE
#include <stddef.h>

#include "batch.h"
#include "check.h"
#include "marks.h"

_Alignas(4096) static uint8_t pages[1][KF_PAGE_BYTES];

static void page_format(void) {
    uint8_t *page = pages[0];
    kf_watermark w;
    memset(page, 0, KF_PAGE_BYTES);
    CHECK(!kf_page_valid(page) && kf_watermark_load(page, &w) == -1);
    memset(page, 0xa5, KF_PAGE_BYTES);
    CHECK(!kf_page_valid(page) && kf_watermark_load(page, &w) == -1);
    CHECK(kf_prepared_load(page) == 0);
    kf_page_format(page, mark(17, 3), 9);
    CHECK(kf_page_valid(page) && kf_generation_load(page) == 9 && kf_prepared_load(page) == 0);
    CHECK(kf_watermark_load(page, &w) == 0);
    CHECK(same(w.target, 17, 3) && same(w.flushed, 17, 3) && w.sequence > 0);
    kf_generation_bump(page);
    CHECK(kf_generation_load(page) == 10);
    kf_watermark_store(page, mark(30, 4), mark(17, 3), 7, 6);
    CHECK(kf_watermark_load(page, &w) == 0 && same(w.target, 30, 4) && same(w.flushed, 17, 3));
    kf_watermark_store(page, mark(20, 3), mark(20, 3), 8, 8); /* a cut: newer is not larger */
    CHECK(watermark_is(page, 20, 20) && kf_generation_load(page) == 10);
    CHECK(memcmp(page, "FASTSEG1", 8) == 0);
}

static void prepared_word(void) {
    uint8_t *page = pages[0];
    kf_page_format(page, mark(0, 0), 1);
    static const uint64_t lengths[] = {0,       1, 4096, 65536, 1 << 30, (1ULL << 40) + 5,
                                       (1ULL << 48) - 1};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        kf_prepared_store(page, lengths[i]);
        CHECK(kf_prepared_load(page) == lengths[i]);
        uint64_t good = 0;
        for (int bit = 0; bit < 64; bit++) {
            page[1088 + bit / 8] ^= (uint8_t)(1 << bit % 8);
            good += kf_prepared_load(page) != 0;
            page[1088 + bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        CHECK(good == 0); /* every flip is seen */
    }
    /* One store: no moment at which another process sees a mixture. */
    kf_prepared_store(page, 1 << 20);
    uint8_t before[KF_PAGE_BYTES];
    memcpy(before, page, sizeof before);
    kf_prepared_store(page, 1 << 21);
    for (int i = 0; i < KF_PAGE_BYTES; i++)
        CHECK(page[i] == before[i] || (i >= 1088 && i < 1096));
    CHECK(watermark_is(page, 0, 0)); /* and nothing of the flusher's is touched */
}

/* A write-back, or a crash, in the middle of a store: whichever bytes have arrived, what is read is
 * the old mark or the new one. */
static void torn_watermark(void) {
    uint8_t before[KF_PAGE_BYTES], after[KF_PAGE_BYTES], torn[KF_PAGE_BYTES];
    uint64_t seed = 11;
    kf_page_format(before, mark(100, 1), 1);
    for (int round = 0; round < 200; round++) {
        kf_watermark old, new, got;
        int64_t offset = 100 + 50 * round;
        memcpy(after, before, sizeof after);
        CHECK(kf_watermark_load(before, &old) == 0);
        if (round & 1)
            kf_watermark_store(after, old.target, old.target, 1, 1);
        else
            kf_watermark_store(after, mark(offset, round), old.flushed, 2, 1);
        CHECK(kf_watermark_load(after, &new) == 0 && memcmp(&old, &new, sizeof old));
        for (size_t end = 512; end <= 640; end++) {
            memcpy(torn, before, sizeof torn); /* front first, then back first */
            memcpy(torn, after, end);
            CHECK(kf_watermark_load(torn, &got) == 0);
            CHECK(!memcmp(&got, &old, sizeof got) || !memcmp(&got, &new, sizeof got));
            memcpy(torn, after, sizeof torn);
            memcpy(torn, before, end);
            CHECK(kf_watermark_load(torn, &got) == 0);
            CHECK(!memcmp(&got, &old, sizeof got) || !memcmp(&got, &new, sizeof got));
        }
        for (int i = 0; i < 500; i++) { /* any set of words, in any order */
            memcpy(torn, before, sizeof torn);
            uint64_t chosen = chance(&seed);
            for (int w = 0; w < 64; w++)
                if (chosen >> w & 1) memcpy(torn + 512 + w * 4, after + 512 + w * 4, 4);
            CHECK(kf_watermark_load(torn, &got) == 0);
            CHECK(!memcmp(&got, &old, sizeof got) || !memcmp(&got, &new, sizeof got));
        }
        memcpy(before, after, sizeof before);
    }
    for (int bit = 0; bit < 64 * 8; bit++) { /* a flipped bit costs one slot, never a wrong mark */
        kf_watermark newest, got;
        memcpy(torn, after, sizeof torn);
        CHECK(kf_watermark_load(torn, &newest) == 0);
        uint8_t *slot = torn + 512 + (newest.sequence & 1) * 64;
        slot[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK(kf_watermark_load(torn, &got) == 0 && got.sequence == newest.sequence - 1);
    }
    memset(torn + 512, 0, 512); /* the whole sector lost */
    kf_watermark got;
    CHECK(kf_watermark_load(torn, &got) == -1);
    CHECK(kf_page_valid(torn));
}

/* A file that is used again: its key, and the end of its batches. */
static void keys_and_ends(void) {
    uint8_t *page = pages[0], before[KF_PAGE_BYTES];
    kf_watermark w;
    kf_page_format(page, mark(9, 1), 1);
    CHECK(kf_key_load(page) == 0 && kf_end_load(page, &w) == -1);
    CHECK(kf_page_batches_end(page) == UINT64_MAX);
    kf_prepared_store(page, 1 << 20);
    CHECK(kf_page_batches_end(page) == 1 << 20);
    kf_end_store(page, mark(30, 2), 99, 4711);
    CHECK(kf_page_batches_end(page) == 1 << 20); /* without a key zeros end the batches */
    static const uint64_t keys[] = {1, 2, 0x1234567812345678, KF_KEY_MAX};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        memcpy(before, page, sizeof before);
        kf_key_store(page, keys[i]);
        CHECK(kf_key_load(page) == keys[i] && kf_page_batches_end(page) == 4711);
        for (int bit = 0; bit < 128; bit++) { /* a damaged key is none that vouches */
            page[1152 + bit / 8] ^= (uint8_t)(1 << bit % 8);
            CHECK(kf_key_load(page) == KF_KEY_DAMAGED && kf_page_batches_end(page) == 4711);
            page[1152 + bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        for (int at = 0; at < KF_PAGE_BYTES; at++)
            CHECK(page[at] == before[at] || (at >= 1152 && at < 1168));
    }
    for (int i = 0; i < 9; i++) {
        kf_end_store(page, mark(31 + i, 2), 100u + (unsigned)i, 5000u + (unsigned)i);
        CHECK(kf_end_load(page, &w) == 0 && same(w.target, 31 + i, 2));
        CHECK(w.voucher == 100u + (unsigned)i && w.position == 5000u + (unsigned)i);
    }
    CHECK(watermark_is(page, 9, 9));
    page[1536] ^= 1, page[1600] ^= 1;
    CHECK(kf_end_load(page, &w) == -1 && kf_page_batches_end(page) == 0);
    kf_end_store(page, mark(50, 2), 1, (1 << 20) + 1); /* no end that can be */
    CHECK(kf_page_batches_end(page) == 1 << 20);
    kf_key_store(page, 0);
    CHECK(kf_key_load(page) == 0);
}

static kf_batch_header batch(int64_t offset, uint32_t size, uint32_t crc, int32_t epoch) {
    kf_batch_header h = {.base_offset = offset, .size = size, .crc = crc, .leader_epoch = epoch};
    return h;
}

/* Whatever of a batch differs, and wherever in a run, the voucher does. */
static void vouchers(void) {
    static const uint64_t keys[] = {0x0123456789abcdef, 0x0fedcba987654321, 0x1badc0ffee0ddf00};
    for (size_t k = 0, count = 0; k < 3; k++, count = 0) {
        uint64_t seen[2000];
        for (int changed = 0; changed <= 40; changed++) { /* 0: none */
            uint64_t v = KF_VOUCHER_START;
            for (int i = 0; i < 40; i++) {
                uint32_t n = (uint32_t)i;
                kf_batch_header h = batch(100 + 3 * i, 500 + n, 77 * n, i / 9);
                if (i == changed - 1) h.crc ^= 1;
                v = kf_batch_vouch(v, keys[k], &h, h.base_offset);
                if (!changed || i >= changed - 1) seen[count++] = v;
            }
        }
        kf_batch_header h = batch(5, 100, 9, 1), other[4] = {h, h, h, h};
        other[0].crc++, other[1].size++, other[2].leader_epoch++, other[3].leader_epoch = -1;
        for (int i = 0; i < 4; i++) seen[count++] = kf_batch_vouch(1, keys[k], &other[i], 5);
        seen[count++] = kf_batch_vouch(1, keys[k], &h, 5);
        seen[count++] = kf_batch_vouch(1, keys[k], &h, INT64_MAX - 1);
        seen[count++] = kf_batch_vouch(1, keys[k] - 1, &h, 5);
        for (uint64_t i = 0; i < count; i++) {
            CHECK(seen[i] <= KF_KEY_MAX);
            for (uint64_t j = 0; j < i; j++) CHECK(seen[i] != seen[j]);
        }
    }
}

static void flushed_beyond_target(void) {
    kf_page_format(pages[0], mark(0, 0), 1);
    kf_watermark_store(pages[0], mark(5, 0), mark(6, 0), 0, 0);
}

static void page_traps(void) {
    char text[64];
    CHECK(is_trap(outcome_of(flushed_beyond_target, text, sizeof text)));
}

static const test_case cases[] = {
    {"page_format", page_format},
    {"prepared_word", prepared_word},
    {"torn_watermark", torn_watermark},
    {"page_traps", page_traps},
    {"keys_and_ends", keys_and_ends},
    {"vouchers", vouchers},
};

int main(int argc, char **argv) {
    return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}

/* Every variant of the CRC-32C kernels against known answers, against a bit-by-bit definition, and
 * against itself in pieces; and the fused copy while another thread changes its source (D20). */
#include "crc32c.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "check.h"

#define SIZE 20000

static uint32_t by_definition(uint32_t crc, const uint8_t *p, size_t n) {
    crc = ~crc;
    while (n--) {
        crc ^= *p++;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78u : 0);
    }
    return ~crc;
}

/* RFC 3720, appendix B.4, and the customary check value. */
static void known_answers(const kf_crc32c_variant *v) {
    uint8_t block[32];
    CHECK(v->crc(0, "123456789", 9) == 0xE3069283u, "%s", v->name);
    CHECK(v->crc(0, "", 0) == 0, "%s", v->name);
    memset(block, 0, 32);
    CHECK(v->crc(0, block, 32) == 0x8A9136AAu, "%s", v->name);
    memset(block, 0xff, 32);
    CHECK(v->crc(0, block, 32) == 0x62A8AB43u, "%s", v->name);
    for (int i = 0; i < 32; i++) block[i] = (uint8_t)i;
    CHECK(v->crc(0, block, 32) == 0x46DD794Eu, "%s", v->name);
    for (int i = 0; i < 32; i++) block[i] = (uint8_t)(31 - i);
    CHECK(v->crc(0, block, 32) == 0x113FDB5Cu, "%s", v->name);
    static const uint8_t read_command[48] = {
        0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x14, 0, 0, 0, 0, 0, 0x04, 0,
        0, 0, 0, 0x14, 0, 0, 0, 0x18, 0x28, 0, 0, 0, 0, 0, 0, 0, 0x02};
    CHECK(v->crc(0, read_command, 48) == 0xD9963A56u, "%s", v->name);
}

/* Exact-size blocks from malloc, so that AddressSanitizer sees a step past either end. */
static void one_length(const kf_crc32c_variant *v, size_t n, size_t at, uint32_t start) {
    uint8_t *src = malloc(at + n + 1), *dst = malloc(at + n + 1);
    for (size_t i = 0; i < at + n; i++) src[i] = (uint8_t)random64();
    memset(dst, 0xee, at + n + 1);
    uint32_t want = by_definition(start, src + at, n);
    CHECK(v->crc(start, src + at, n) == want, "%s n=%zu at=%zu", v->name, n, at);
    for (size_t shift = 0; shift <= at; shift += 1 + at / 2) {
        uint32_t got = v->copy(start, dst + shift, src + at, n);
        CHECK(got == want, "%s copy n=%zu at=%zu to=%zu", v->name, n, at, shift);
        CHECK(!memcmp(dst + shift, src + at, n), "%s copied bytes", v->name);
        CHECK(dst[shift + n] == 0xee, "%s wrote past the end, n=%zu", v->name, n);
        CHECK(!shift || dst[shift - 1] == 0xee, "%s wrote before dst, n=%zu", v->name, n);
        memset(dst, 0xee, at + n + 1);
    }
    size_t cut = n ? random64() % n : 0;
    uint32_t a = v->crc(start, src + at, cut), b = v->crc(0, src + at + cut, n - cut);
    CHECK(v->combine(a, b, n - cut) == want, "%s combine n=%zu cut=%zu", v->name, n, cut);
    CHECK(v->crc(a, src + at + cut, n - cut) == want, "%s chain n=%zu cut=%zu", v->name, n, cut);
    free(src), free(dst);
}

static void lengths(const kf_crc32c_variant *v) {
    for (size_t n = 0; n < 1100; n++) one_length(v, n, n % 3, (uint32_t)random64());
    for (size_t n = 1100; n < SIZE; n += 1 + random64() % 600)
        one_length(v, n, random64() % 70, (uint32_t)random64());
}

/* Combining over zeros of any length needs no zeros: 2^40 of them by repeated doubling. */
static void long_combine(const kf_crc32c_variant *v) {
    uint32_t crc = 0x12345678u, doubled = crc;
    static const uint8_t zero[1] = {0};
    uint32_t one_zero = v->crc(0, zero, 1);
    CHECK(v->combine(crc, one_zero, 1) == v->crc(crc, zero, 1), "%s", v->name);
    for (int i = 0; i < 1 << 10; i++) doubled = v->combine(doubled, 0, (size_t)1 << 30);
    CHECK(v->combine(crc, 0, (size_t)1 << 40) == doubled, "%s", v->name);
}

static uint8_t shared[8192];
static atomic_int running;

static void *scribble(void *unused) {
    (void)unused;
    volatile uint8_t *bytes = shared; /* another process, as far as the kernel can tell */
    for (uint8_t value = 0; atomic_load(&running); value++)
        for (size_t i = 0; i < sizeof shared; i += 5) bytes[i] = value;
    return NULL;
}

/* The CRC is that of the bytes stored, whatever happens to the source meanwhile. */
static void changing_source(const kf_crc32c_variant *v) {
    pthread_t other;
    static uint8_t dst[sizeof shared];
    size_t torn = 0;
    atomic_store(&running, 1);
    CHECK(!pthread_create(&other, NULL, scribble, NULL), "thread");
    for (int round = 0; round < 20000; round++) {
        size_t n = sizeof shared - random64() % 200;
        uint32_t crc = v->copy(0, dst, shared, n);
        CHECK(crc == v->crc(0, dst, n), "%s summed what it did not store", v->name);
        for (size_t i = 5; i < n; i += 5)
            if (dst[i] != dst[i - 5]) { torn++; break; }
    }
    atomic_store(&running, 0);
    pthread_join(other, NULL);
    CHECK(torn > 20, "the source did not change under the copy: nothing was tested");
}

static void each_variant(void (*check)(const kf_crc32c_variant *)) {
    for (size_t i = 0; kf_crc32c_variants(i); i++) check(kf_crc32c_variants(i));
}

static void gives_known_answers(void) { each_variant(known_answers); }
static void agrees_with_the_definition(void) { each_variant(lengths); }
static void combines_any_length(void) { each_variant(long_combine); }

static void sums_what_it_stores(void) {
#ifndef __SANITIZE_THREAD__ /* the race is the test */
    each_variant(changing_source);
#else
    (void)changing_source;
#endif
}

static void chooses_the_first(void) {
    size_t count = 0;
    while (kf_crc32c_variants(count)) count++;
    CHECK(count >= 1 && !strcmp(kf_crc32c_variants(count - 1)->name, "portable"), "the last one");
    CHECK(!kf_crc32c_variants(1000), "past the end");
    CHECK(kf_crc32c(0, "123456789", 9) == 0xE3069283u, "the chosen one");
    char copy[9];
    CHECK(kf_crc32c_copy(0, copy, "123456789", 9) == 0xE3069283u, "the chosen one");
    CHECK(kf_crc32c_combine(kf_crc32c(0, "1234", 4), kf_crc32c(0, "56789", 5), 5) == 0xE3069283u,
          "the chosen one");
}

static const test_case cases[] = {
    {"gives_known_answers", gives_known_answers},
    {"agrees_with_the_definition", agrees_with_the_definition},
    {"combines_any_length", combines_any_length},
    {"sums_what_it_stores", sums_what_it_stores},
    {"chooses_the_first", chooses_the_first},
};

int main(int argc, char **argv) {
    return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}

/* Four ways to a CRC-32C, and the algebra that they share.
 *
 * A message is a polynomial over GF(2), its first bit the highest power; P is Castagnoli's. Values
 * are kept bit-reflected: bit 0 of a 32-bit word is the coefficient of x^31. But for the inversions
 * the CRC of M is M * x^32 mod P, so n zero bytes behind M multiply its CRC by x^(8n): this is what
 * makes the CRCs of two pieces, or of three interleaved streams, into that of the whole.
 * A carry-less product of two reflected words comes out as a * b * x, and the crc instruction on a
 * 64-bit word multiplies it by x^32 mod P: hence the odd exponents of the constants, all of which
 * power() derives from P when the library is loaded.
 *
 *   portable      tables, eight bytes a step ("slicing by 8")
 *   sse42, armv8  the crc instruction on three streams at once, since its latency is three cycles
 *   avx2, avx512  folding: 256 bytes in eight or four registers, times x^2048 mod P, plus the next
 *                 256 (Gopal et al., "Fast CRC Computation ... Using PCLMULQDQ", Intel 2009)
 *
 * The copying variants are the same loops with a store beside each load. The stores are ordinary
 * ones: non-temporal stores gain a quarter when dst lies beyond the caches, but lose half when it
 * does not, and what was copied is read again soon, by followers or by the flush.
 */
#include "crc32c.h"

#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernels read little-endian words"
#endif

#define POLYNOMIAL 0x82F63B78u
#define INLINE static inline __attribute__((always_inline))
#define AHEAD 1024 /* how far copies prefetch: 1.15 to 1.7 times as fast beyond the caches */
/* Ends a load: the compiler may not read the memory again to get the value a second time (D20). */
#define LOADED(word) __asm__ volatile("" : "+r"(word))

INLINE uint64_t load64(const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    LOADED(word);
    return word;
}

/* Asks for the 256 bytes that a copy reaches soon; past the end of a mapping it does nothing. */
INLINE void prefetch(const uint8_t *dst, const uint8_t *src) {
    for (size_t line = AHEAD; line < AHEAD + 256; line += 64) {
        __builtin_prefetch((const void *)((uintptr_t)src + line), 0);
        __builtin_prefetch((const void *)((uintptr_t)dst + line), 1);
    }
}

/* ---- arithmetic modulo P ---- */

/* x^n; n may be negative. */
static uint32_t power(long n) {
    uint32_t value = 0x80000000u; /* x^0 */
    for (; n > 0; n--) value = (value >> 1) ^ (value & 1 ? POLYNOMIAL : 0);
    for (; n < 0; n++) value = value >> 31 ? (value ^ POLYNOMIAL) << 1 | 1 : value << 1;
    return value;
}

static uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (int bit = 31; bit >= 0; bit--) { /* from the coefficient of x^0 upwards */
        if (a >> bit & 1) product ^= b;
        b = (b >> 1) ^ (b & 1 ? POLYNOMIAL : 0);
    }
    return product;
}

/* ---- portable ---- */

#define PIECE 2048 /* copied, then summed while it is in the first cache */

static uint32_t slices[8][256]; /* slices[k][b]: the CRC of byte b and k zero bytes behind it */
static uint32_t zeros[64];      /* zeros[i]: x^(8 * 2^i), what 2^i zero bytes multiply by */

static void prepare_portable(void) {
    for (uint32_t byte = 0; byte < 256; byte++) slices[0][byte] = multiply(byte, power(8));
    for (int k = 1; k < 8; k++)
        for (uint32_t byte = 0; byte < 256; byte++)
            slices[k][byte] = (slices[k - 1][byte] >> 8) ^ slices[0][slices[k - 1][byte] & 0xff];
    zeros[0] = power(8);
    for (int i = 1; i < 64; i++) zeros[i] = multiply(zeros[i - 1], zeros[i - 1]);
}

static uint32_t crc_portable(uint32_t crc, const void *data, size_t n) {
    const uint8_t *p = data;
    crc = ~crc;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t word = load64(p) ^ crc;
        crc = slices[7][word & 0xff] ^ slices[6][word >> 8 & 0xff] ^ slices[5][word >> 16 & 0xff] ^
              slices[4][word >> 24 & 0xff] ^ slices[3][word >> 32 & 0xff] ^
              slices[2][word >> 40 & 0xff] ^ slices[1][word >> 48 & 0xff] ^ slices[0][word >> 56];
    }
    for (; n; n--) crc = (crc >> 8) ^ slices[0][(crc ^ *p++) & 0xff];
    return ~crc;
}

static uint32_t copy_portable(uint32_t crc, void *dst, const void *src, size_t n) {
    uint8_t *to = dst;
    const uint8_t *from = src;
    while (n) {
        size_t piece = n < PIECE ? n : PIECE;
        memcpy(to, from, piece);
        crc = crc_portable(crc, to, piece); /* of what was stored, not of src again: D20 */
        to += piece, from += piece, n -= piece;
    }
    return crc;
}

static uint32_t combine_portable(uint32_t crc_a, uint32_t crc_b, size_t n_b) {
    for (int i = 0; n_b; i++, n_b >>= 1)
        if (n_b & 1) crc_a = multiply(crc_a, zeros[i]);
    return crc_a ^ crc_b;
}

static const kf_crc32c_variant portable = {"portable", crc_portable, copy_portable,
                                           combine_portable};

/* ---- what x86 and ARM name differently: crc of 8, 4, 2, 1 bytes, carry-less product ---- */

#if defined(__x86_64__)
#include <immintrin.h>
#define HARDWARE_NAME "sse42"
#define TARGET __attribute__((target("sse4.2,pclmul")))
#define CRC8(crc, word) _mm_crc32_u64(crc, word)
#define CRC4(crc, word) _mm_crc32_u32(crc, word)
#define CRC2(crc, word) _mm_crc32_u16(crc, word)
#define CRC1(crc, byte) _mm_crc32_u8(crc, byte)
TARGET INLINE uint64_t product(uint64_t a, uint64_t b) {
    return (uint64_t)_mm_cvtsi128_si64(
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)a), _mm_cvtsi64_si128((long long)b), 0));
}
static int hardware_present(void) {
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <arm_neon.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#define HARDWARE_NAME "armv8"
#define TARGET __attribute__((target("arch=armv8-a+crc+crypto")))
#define CRC8(crc, word) __crc32cd((uint32_t)(crc), word)
#define CRC4(crc, word) __crc32cw((uint32_t)(crc), word)
#define CRC2(crc, word) __crc32ch((uint32_t)(crc), word)
#define CRC1(crc, byte) __crc32cb((uint32_t)(crc), byte)
TARGET INLINE uint64_t product(uint64_t a, uint64_t b) {
    return vgetq_lane_u64(vreinterpretq_u64_p128(vmull_p64((poly64_t)a, (poly64_t)b)), 0);
}
static int hardware_present(void) {
    return (getauxval(AT_HWCAP) & (HWCAP_CRC32 | HWCAP_PMULL)) == (HWCAP_CRC32 | HWCAP_PMULL);
}
#endif

#ifdef HARDWARE_NAME

#define LONG 256 /* bytes of each of three streams: first in blocks of 3 * LONG, then 3 * SHORT */
#define SHORT 128

static uint8_t nowhere[1];   /* dst of a kernel that does not copy: not stored to */
static uint32_t past[64];    /* past[i]: makes product() and CRC8 multiply by x^(8 * 2^i) */
static uint32_t past_two[2]; /* past two streams and past one, LONG and SHORT */
static uint32_t past_one[2];

static void prepare_hardware(void) {
    for (int i = 0; i < 64; i++) past[i] = multiply(zeros[i], power(-33));
    for (int i = 0; i < 2; i++) {
        past_two[i] = power(8 * 2 * (i ? SHORT : LONG) - 33);
        past_one[i] = power(8 * (i ? SHORT : LONG) - 33);
    }
}

/* The word at src, stored at dst too if the kernel copies. */
INLINE uint64_t take(uint8_t *dst, const uint8_t *src, int copies) {
    uint64_t word = load64(src);
    if (copies) memcpy(dst, &word, 8);
    return word;
}

/* One stream; here and below crc is without the final inversion. */
TARGET INLINE uint32_t serial(uint32_t state, uint8_t *dst, const uint8_t *src, size_t n,
                              int copies) {
    uint64_t crc = state;
    for (; n >= 8; n -= 8, dst += copies * 8, src += 8) crc = CRC8(crc, take(dst, src, copies));
#define REST(type, crc_step)                                                                       \
    if (n & sizeof(type)) {                                                                        \
        type word;                                                                                 \
        memcpy(&word, src, sizeof word);                                                           \
        LOADED(word);                                                                              \
        if (copies) memcpy(dst, &word, sizeof word);                                               \
        crc = crc_step((uint32_t)crc, word);                                                       \
        dst += copies * sizeof word, src += sizeof word;                                           \
    }
    REST(uint32_t, CRC4)
    REST(uint16_t, CRC2)
    REST(uint8_t, CRC1)
#undef REST
    return (uint32_t)crc;
}

TARGET INLINE uint32_t three_streams(uint32_t state, uint8_t *dst, const uint8_t *src, size_t n,
                                     int copies) {
    uint64_t a = state;
    for (int size = 0; size < 2; size++) {
        const size_t length = size ? SHORT : LONG;
        for (; n >= 3 * length; n -= 3 * length) {
            uint64_t b = 0, c = 0, last;
            for (size_t i = 0; copies && i < 3 * length; i += 256) prefetch(dst + i, src + i);
            for (size_t i = 0;; i += 8) {
                a = CRC8(a, take(dst + copies * i, src + i, copies));
                b = CRC8(b, take(dst + copies * (length + i), src + length + i, copies));
                last = take(dst + copies * (2 * length + i), src + 2 * length + i, copies);
                if (i == length - 8) break;
                c = CRC8(c, last);
            }
            a = CRC8(c, last ^ product(a, past_two[size]) ^ product(b, past_one[size]));
            dst += copies * 3 * length, src += 3 * length;
        }
    }
    return serial((uint32_t)a, dst, src, n, copies);
}

TARGET static uint32_t crc_hardware(uint32_t crc, const void *p, size_t n) {
    return ~three_streams(~crc, nowhere, p, n, 0);
}

TARGET static uint32_t copy_hardware(uint32_t crc, void *dst, const void *src, size_t n) {
    return ~three_streams(~crc, dst, src, n, 1);
}

TARGET static uint32_t combine_hardware(uint32_t crc_a, uint32_t crc_b, size_t n_b) {
    uint64_t crc = crc_a;
    for (int i = 0; n_b; i++, n_b >>= 1)
        if (n_b & 1) crc = CRC8(0, product(crc, past[i]));
    return (uint32_t)crc ^ crc_b;
}

static const kf_crc32c_variant hardware = {HARDWARE_NAME, crc_hardware, copy_hardware,
                                           combine_hardware};
#endif

/* ---- folding: what avx2 and avx512 share ---- */

#if defined(__x86_64__)

#define ALIGN_FROM 512 /* copies from here on align dst: 1.5 times as fast beyond the caches */

/* by[i]: the two factors that move a 128-bit lane 128 * (i + 1) bits ahead, for its low quadword
 * (the higher powers) and its high one; by_2048 the same for the main loop. */
static uint64_t by[12][2];
static uint64_t by_2048[2];

static void prepare_folding(void) {
    for (int i = 0; i < 12; i++) {
        by[i][0] = (uint64_t)power(128 * (i + 1) + 63) << 32;
        by[i][1] = (uint64_t)power(128 * (i + 1) - 1) << 32;
    }
    by_2048[0] = (uint64_t)power(2048 + 63) << 32;
    by_2048[1] = (uint64_t)power(2048 - 1) << 32;
}

/* The CRC state of the 16 bytes in sum. */
TARGET INLINE uint32_t reduce(__m128i sum) {
    uint64_t high = (uint64_t)_mm_extract_epi64(sum, 1);
    return (uint32_t)_mm_crc32_u64(_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(sum)), high);
}

/* ---- avx2 ---- */

#define TARGET256 __attribute__((target("avx2,vpclmulqdq,pclmul,sse4.2")))

TARGET256 INLINE __m256i factors256(const uint64_t pair[2]) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)pair));
}

/* lanes * factors + more */
TARGET256 INLINE __m256i fold256(__m256i lanes, __m256i factor, __m256i more) {
    __m256i low = _mm256_clmulepi64_epi128(lanes, factor, 0x00);
    __m256i high = _mm256_clmulepi64_epi128(lanes, factor, 0x11);
    return _mm256_xor_si256(_mm256_xor_si256(low, more), high);
}

TARGET256 INLINE __m256i take256(uint8_t *dst, const uint8_t *src, int copies) {
    __m256i block = _mm256_loadu_si256((const __m256i *)src);
    __asm__ volatile("" : "+x"(block)); /* as LOADED */
    if (copies) _mm256_storeu_si256((__m256i *)dst, block);
    return block;
}

/* The CRC state of the 32 bytes in lanes. */
TARGET256 INLINE uint32_t finish256(__m256i lanes) {
    __m256i folded = fold256(lanes, factors256(by[0]), _mm256_setzero_si256());
    return reduce(
        _mm_xor_si128(_mm256_castsi256_si128(folded), _mm256_extracti128_si256(lanes, 1)));
}

TARGET256 INLINE uint32_t folding256(uint32_t crc, uint8_t *dst, const uint8_t *src, size_t n,
                                     int copies) {
    if (copies && n >= ALIGN_FROM) {
        size_t head = -(uintptr_t)dst & 31;
        crc = serial(crc, dst, src, head, copies);
        dst += head, src += head, n -= head;
    }
    if (n >= 256) {
        __m256i lanes[8];
        for (int i = 0; i < 8; i++) lanes[i] = take256(dst + copies * 32 * i, src + 32 * i, copies);
        lanes[0] = _mm256_xor_si256(lanes[0], _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)crc)));
        __m256i factor = factors256(by_2048);
        for (dst += copies * 256, src += 256, n -= 256; n >= 256; n -= 256) {
            if (copies) prefetch(dst, src);
            for (int i = 0; i < 8; i++)
                lanes[i] =
                    fold256(lanes[i], factor, take256(dst + copies * 32 * i, src + 32 * i, copies));
            dst += copies * 256, src += 256;
        }
        factor = factors256(by[7]);
        for (int i = 0; i < 4; i++) lanes[i] = fold256(lanes[i], factor, lanes[i + 4]);
        factor = factors256(by[3]);
        for (int i = 0; i < 2; i++) lanes[i] = fold256(lanes[i], factor, lanes[i + 2]);
        factor = factors256(by[1]);
        __m256i last = fold256(lanes[0], factor, lanes[1]);
        for (; n >= 32; n -= 32, dst += copies * 32, src += 32)
            last = fold256(last, factor, take256(dst, src, copies));
        crc = finish256(last);
    }
    return serial(crc, dst, src, n, copies);
}

TARGET256 static uint32_t crc_avx2(uint32_t crc, const void *p, size_t n) {
    return ~folding256(~crc, nowhere, p, n, 0);
}

TARGET256 static uint32_t copy_avx2(uint32_t crc, void *dst, const void *src, size_t n) {
    return ~folding256(~crc, dst, src, n, 1);
}

static const kf_crc32c_variant avx2 = {"avx2", crc_avx2, copy_avx2, combine_hardware};

static int avx2_present(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
}

/* ---- avx512 ---- */

#define TARGET512 __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.2")))

TARGET512 INLINE __m512i factors(const uint64_t pair[2]) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)pair));
}

/* lanes * factors + more */
TARGET512 INLINE __m512i fold(__m512i lanes, __m512i factor, __m512i more) {
    __m512i low = _mm512_clmulepi64_epi128(lanes, factor, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(lanes, factor, 0x11);
    return _mm512_ternarylogic_epi64(low, high, more, 0x96); /* three-way xor */
}

TARGET512 INLINE __m512i take512(uint8_t *dst, const uint8_t *src, int copies) {
    __m512i block = _mm512_loadu_si512(src);
    __asm__ volatile("" : "+v"(block)); /* as LOADED */
    if (copies) _mm512_storeu_si512(dst, block);
    return block;
}

/* The CRC state of the 64 bytes in lanes. */
TARGET512 INLINE uint32_t finish(__m512i lanes) {
    __m512i factor =
        _mm512_set_epi64(0, 0, (long long)by[0][1], (long long)by[0][0], (long long)by[1][1],
                         (long long)by[1][0], (long long)by[2][1], (long long)by[2][0]);
    __m512i folded = fold(lanes, factor, _mm512_setzero_si512()); /* the last lane to zero */
    __m128i sum = _mm512_extracti32x4_epi32(lanes, 3);
    sum = _mm_xor_si128(sum, _mm512_castsi512_si128(folded));
    sum = _mm_xor_si128(sum, _mm512_extracti32x4_epi32(folded, 1));
    sum = _mm_xor_si128(sum, _mm512_extracti32x4_epi32(folded, 2));
    return reduce(sum);
}

TARGET512 INLINE uint32_t folding(uint32_t crc, uint8_t *dst, const uint8_t *src, size_t n,
                                  int copies) {
    if (copies && n >= ALIGN_FROM) {
        size_t head = -(uintptr_t)dst & 63;
        crc = serial(crc, dst, src, head, copies);
        dst += head, src += head, n -= head;
    }
    if (n >= 256) {
        __m512i a = take512(dst, src, copies);
        __m512i b = take512(dst + copies * 64, src + 64, copies);
        __m512i c = take512(dst + copies * 128, src + 128, copies);
        __m512i d = take512(dst + copies * 192, src + 192, copies);
        a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
        __m512i factor = factors(by_2048);
        for (dst += copies * 256, src += 256, n -= 256; n >= 256; n -= 256) {
            if (copies) prefetch(dst, src);
            a = fold(a, factor, take512(dst, src, copies));
            b = fold(b, factor, take512(dst + copies * 64, src + 64, copies));
            c = fold(c, factor, take512(dst + copies * 128, src + 128, copies));
            d = fold(d, factor, take512(dst + copies * 192, src + 192, copies));
            dst += copies * 256, src += 256;
        }
        factor = factors(by[3]);
        d = fold(a, factors(by[11]), fold(b, factors(by[7]), fold(c, factor, d)));
        for (; n >= 64; n -= 64, dst += copies * 64, src += 64)
            d = fold(d, factor, take512(dst, src, copies));
        crc = finish(d);
    }
    return serial(crc, dst, src, n, copies);
}

TARGET512 static uint32_t crc_avx512(uint32_t crc, const void *p, size_t n) {
    return ~folding(~crc, nowhere, p, n, 0);
}

TARGET512 static uint32_t copy_avx512(uint32_t crc, void *dst, const void *src, size_t n) {
    return ~folding(~crc, dst, src, n, 1);
}

static const kf_crc32c_variant avx512 = {"avx512", crc_avx512, copy_avx512, combine_hardware};

static int avx512_present(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
}
#endif

/* ---- the choice ---- */

static const kf_crc32c_variant *present[4]; /* fastest first */
static kf_crc32c_variant chosen;

__attribute__((constructor)) static void prepare(void) {
    size_t count = 0;
    prepare_portable();
#ifdef __x86_64__
    __builtin_cpu_init();
    prepare_folding();
    if (hardware_present() && avx512_present()) present[count++] = &avx512;
    if (hardware_present() && avx2_present()) present[count++] = &avx2;
#endif
#ifdef HARDWARE_NAME
    prepare_hardware();
    if (hardware_present()) present[count++] = &hardware;
#endif
    present[count] = &portable;
    chosen = *present[0];
}

const kf_crc32c_variant *kf_crc32c_variants(size_t i) {
    return i < sizeof present / sizeof *present ? present[i] : NULL;
}

uint32_t kf_crc32c(uint32_t crc, const void *p, size_t n) { return chosen.crc(crc, p, n); }

uint32_t kf_crc32c_copy(uint32_t crc, void *dst, const void *src, size_t n) {
    return chosen.copy(crc, dst, src, n);
}

uint32_t kf_crc32c_combine(uint32_t crc_a, uint32_t crc_b, size_t n_b) {
    return chosen.combine(crc_a, crc_b, n_b);
}

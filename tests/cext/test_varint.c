/* Varints and big-endian words: known encodings, round trips, and every kind of bad input. */
#include "varint.h"

#include "check.h"

static void known_encodings(void) {
    static const struct { int64_t value; size_t size; uint8_t bytes[10]; } known[] = {
        {0, 1, {0x00}}, {-1, 1, {0x01}}, {1, 1, {0x02}}, {-64, 1, {0x7f}}, {63, 1, {0x7e}},
        {64, 2, {0x80, 0x01}}, {-65, 2, {0x81, 0x01}}, {8191, 2, {0xfe, 0x7f}},
        {INT32_MAX, 5, {0xfe, 0xff, 0xff, 0xff, 0x0f}},
        {INT32_MIN, 5, {0xff, 0xff, 0xff, 0xff, 0x0f}},
        {INT64_MAX, 10, {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}},
        {INT64_MIN, 10, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint8_t out[KF_VARLONG_MAX];
        int64_t back = 7;
        size_t n = (size_t)(kf_varlong_put(out, known[i].value) - out);
        CHECK(n == known[i].size && !memcmp(out, known[i].bytes, n), "case %zu", i);
        CHECK(kf_varlong_size(known[i].value) == n, "case %zu", i);
        CHECK(kf_varlong_get(out, out + n, &back) == out + n && back == known[i].value, "%zu", i);
        if (known[i].value < INT32_MIN || known[i].value > INT32_MAX) continue;
        int32_t narrow = 7;
        CHECK(kf_varint_put(out, (int32_t)known[i].value) == out + n, "case %zu", i);
        CHECK(!memcmp(out, known[i].bytes, n), "case %zu", i);
        CHECK(kf_varint_get(out, out + n, &narrow) && narrow == known[i].value, "case %zu", i);
    }
    uint8_t out[KF_VARINT_MAX];
    uint32_t back = 0;
    CHECK(kf_uvarint_put(out, 300) == out + 2 && out[0] == 0xac && out[1] == 0x02, "uvarint 300");
    CHECK(kf_uvarint_get(out, out + 2, &back) == out + 2 && back == 300, "uvarint 300");
}

static void round_trips(void) {
    for (int i = 0; i < 300000; i++) {
        uint64_t bits = random64() >> (random64() & 63);
        int64_t value = random64() & 1 ? (int64_t)bits : -(int64_t)(bits >> 1);
        uint8_t out[KF_VARLONG_MAX];
        size_t n = (size_t)(kf_varlong_put(out, value) - out);
        int64_t back;
        CHECK(n == kf_varlong_size(value), "size of %lld", (long long)value);
        CHECK(kf_varlong_get(out, out + n, &back) == out + n && back == value, "round trip");
        CHECK(kf_unzigzag64(kf_zigzag64(value)) == value, "zig-zag");
        uint32_t unsigned_back, word = (uint32_t)bits;
        n = (size_t)(kf_uvarint_put(out, word) - out);
        CHECK(n == kf_uvarint_size(word), "size of %u", word);
        CHECK(kf_uvarint_get(out, out + n, &unsigned_back) && unsigned_back == word, "round trip");
        int32_t narrow, narrow_back;
        narrow = (int32_t)word;
        n = (size_t)(kf_varint_put(out, narrow) - out);
        CHECK(n == kf_varint_size(narrow), "size of %d", narrow);
        CHECK(kf_varint_get(out, out + n, &narrow_back) && narrow_back == narrow, "round trip");
    }
}

/* Cut anywhere, the integer is refused and nothing past the cut is read (AddressSanitizer). */
static void cut_off(void) {
    uint8_t out[KF_VARLONG_MAX];
    size_t n = (size_t)(kf_varlong_put(out, INT64_MIN) - out);
    for (size_t cut = 0; cut < n; cut++) {
        uint8_t *exact = malloc(cut + 1);
        memcpy(exact, out, cut);
        int64_t wide = 5;
        int32_t narrow = 5;
        uint32_t word = 5;
        CHECK(!kf_varlong_get(exact, exact + cut, &wide) && wide == 5, "cut %zu", cut);
        CHECK(!kf_varint_get(exact, exact + cut, &narrow) && narrow == 5, "cut %zu", cut);
        CHECK(!kf_uvarint_get(exact, exact + cut, &word) && word == 5, "cut %zu", cut);
        free(exact);
    }
}

static void too_wide_or_too_long(void) {
    static const uint8_t five[] = {0xff, 0xff, 0xff, 0xff, 0x10}; /* bit 32 */
    static const uint8_t six[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x01};
    static const uint8_t ten[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02};
    static const uint8_t eleven[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
                                     0x80, 0x80, 0x80, 0x80, 0x01};
    static const uint8_t padded[] = {0x81, 0x00}; /* 1 in two bytes */
    int32_t narrow;
    int64_t wide;
    uint32_t word;
    CHECK(!kf_varint_get(five, five + 5, &narrow), "33 bits");
    CHECK(kf_varlong_get(five, five + 5, &wide), "33 bits fit a varlong");
    CHECK(!kf_varint_get(six, six + 6, &narrow), "six bytes");
    CHECK(!kf_uvarint_get(six, six + 6, &word), "six bytes");
    CHECK(!kf_varlong_get(ten, ten + 10, &wide), "65 bits");
    CHECK(!kf_varlong_get(eleven, eleven + 11, &wide), "eleven bytes");
    CHECK(!kf_varint_get(padded, padded + 2, &narrow), "padded");
    CHECK(!kf_varlong_get(padded, padded + 2, &wide), "padded");
    CHECK(!kf_uvarint_get(padded, padded + 2, &word), "padded");
}

static void big_endian(void) {
    uint8_t bytes[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    CHECK(kf_load16(bytes + 1) == 0x0102, "16");
    CHECK(kf_load32(bytes + 1) == 0x01020304, "32");
    CHECK(kf_load64(bytes + 1) == 0x0102030405060708, "64");
    uint8_t out[9] = {0};
    kf_store64(out + 1, 0x0102030405060708);
    CHECK(!memcmp(out, bytes, 9), "64");
    kf_store32(out + 1, 0x0a0b0c0d), kf_store16(out + 5, 0x0e0f);
    CHECK(out[1] == 0x0a && out[4] == 0x0d && out[5] == 0x0e && out[6] == 0x0f, "32 and 16");
}

static const test_case cases[] = {
    {"known_encodings", known_encodings},
    {"round_trips", round_trips},
    {"cut_off", cut_off},
    {"too_wide_or_too_long", too_wide_or_too_long},
    {"big_endian", big_endian},
};

int main(int argc, char **argv) {
    return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}

/* The histogram against sorted samples. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"
#include "histogram.h"

static void buckets(void) {
    uint64_t below = (1ULL << KF_HISTOGRAM_TOP_BITS) - 1, seed = 1;
    CHECK(kf_histogram_bucket(below) == KF_HISTOGRAM_BUCKETS - 1);
    CHECK(kf_histogram_bucket(below + 1) == KF_HISTOGRAM_BUCKETS - 1);
    CHECK(kf_histogram_bucket(UINT64_MAX) == KF_HISTOGRAM_BUCKETS - 1);
    CHECK(kf_histogram_bucket_top(KF_HISTOGRAM_BUCKETS - 1) == below);
    for (uint32_t b = 0; b < KF_HISTOGRAM_BUCKETS; b++) { /* no gap, no overlap */
        uint64_t top = kf_histogram_bucket_top(b);
        CHECK(kf_histogram_bucket(top) == b);
        if (b + 1 < KF_HISTOGRAM_BUCKETS) CHECK(kf_histogram_bucket(top + 1) == b + 1);
    }
    for (int i = 0; i < 100000; i++) { /* within 1/64 above */
        uint64_t ns = chance(&seed) >> (16 + chance(&seed) % 48);
        uint64_t top = kf_histogram_bucket_top(kf_histogram_bucket(ns));
        CHECK(top >= ns && top - ns <= ns / 64);
    }
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void quantiles(void) {
    static kf_histogram h;
    static uint64_t samples[5000];
    static const double wanted[] = {0, 0.001, 0.07, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999, 1};
    uint64_t seed = 2;
    for (int round = 0; round < 60; round++) {
        memset(&h, 0, sizeof h);
        size_t count = 1 + chance(&seed) % (sizeof samples / sizeof *samples), n = 0;
        int shift = 17 + (int)(chance(&seed) % 40);
        uint64_t sum = 0;
        while (n < count) { /* one by one, or some at once */
            uint64_t ns = chance(&seed) >> shift, times = chance(&seed) % 3 ? 1 : chance(&seed) % 5;
            if (times > count - n) times = count - n;
            kf_histogram_add_n(&h, ns, times);
            for (uint64_t i = 0; i < times; i++) samples[n++] = ns;
            sum += ns * times;
        }
        qsort(samples, count, sizeof *samples, compare);
        CHECK(h.count == count && h.sum_ns == sum && h.max_ns == samples[count - 1]);
        for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
            size_t rank = (size_t)ceill((long double)wanted[i] * count - 1e-9L);
            uint64_t exact = samples[rank ? rank - 1 : 0];
            uint64_t got = kf_histogram_quantile(&h, wanted[i]);
            CHECK(got >= exact && got - exact <= exact / 64 && got <= h.max_ns);
        }
    }
}

static void nearest_rank(void) {
    static kf_histogram h;
    memset(&h, 0, sizeof h);
    for (uint64_t ns = 0; ns < 64; ns++) kf_histogram_add(&h, ns); /* buckets of one value each */
    for (uint32_t k = 1; k <= 64; k++) CHECK(kf_histogram_quantile(&h, k / 64.0) == k - 1);
    memset(&h, 0, sizeof h);
    for (uint64_t ns = 1; ns <= 50; ns++) kf_histogram_add_n(&h, ns, 2);
    CHECK(kf_histogram_quantile(&h, 0.99) == 50 && kf_histogram_quantile(&h, 0.98) == 49);
    CHECK(kf_histogram_quantile(&h, 0.07) == 4 && kf_histogram_quantile(&h, 0.5) == 25);
}

static void extremes(void) {
    static kf_histogram h;
    static const double odd[] = {-1, -INFINITY, INFINITY, NAN, 2, 0, 1, 0.5};
    memset(&h, 0, sizeof h);
    for (size_t i = 0; i < 8; i++) CHECK(kf_histogram_quantile(&h, odd[i]) == 0); /* empty */
    kf_histogram_add_n(&h, 7, 0);
    CHECK(h.count == 0 && h.max_ns == 0);
    kf_histogram_add(&h, 1ULL << 60); /* beyond the last bucket: kept as the maximum */
    for (size_t i = 0; i < 8; i++) CHECK(kf_histogram_quantile(&h, odd[i]) == 1ULL << 60);
    kf_histogram_add(&h, 0);
    CHECK(kf_histogram_quantile(&h, 0.5) == 0 && kf_histogram_quantile(&h, NAN) == 0);
    CHECK(kf_histogram_quantile(&h, -INFINITY) == 0);
    CHECK(kf_histogram_quantile(&h, INFINITY) == 1ULL << 60);
}

static void since(void) {
    static kf_histogram h, before;
    memset(&h, 0, sizeof h);
    kf_histogram_add(&h, 5000);
    memcpy(&before, &h, sizeof h);
    CHECK(kf_histogram_max_since(&h, &before) == 0);
    kf_histogram_add(&h, 40);
    CHECK(kf_histogram_max_since(&h, &before) == 40); /* not the larger one of before */
    kf_histogram_add(&h, 5000);
    uint64_t max = kf_histogram_max_since(&h, &before);
    CHECK(max >= 5000 && max <= 5000 + 5000 / 60);
    kf_histogram_add(&h, 1ULL << 60);
    CHECK(kf_histogram_max_since(&h, &before) == 1ULL << 60);
}

/* A reader beside the writer: never more promised than counted, never a value nobody added. */
static kf_histogram shared;
static _Atomic int stop_writer;

static void *write_samples(void *arg) {
    uint64_t seed = 4;
    while (!atomic_load(&stop_writer)) kf_histogram_add(&shared, 1000 + chance(&seed) % 1000);
    return arg;
}

static void reader_beside_the_writer(void) {
    pthread_t writer;
    uint64_t until = clock_ms() + 200, last = 0;
    CHECK(!pthread_create(&writer, NULL, write_samples, NULL));
    while (clock_ms() < until) {
        uint64_t count = atomic_load_explicit(&shared.count, memory_order_acquire), seen = 0;
        CHECK(count >= last);
        last = count;
        for (uint32_t i = 0; i < KF_HISTOGRAM_BUCKETS; i++) seen += shared.buckets[i];
        CHECK(seen >= count && shared.sum_ns >= count * 1000);
        uint64_t median = kf_histogram_quantile(&shared, 0.5);
        CHECK(median == 0 || (median >= 1000 && median < 2032));
    }
    atomic_store(&stop_writer, 1);
    pthread_join(writer, NULL);
    CHECK(last > 1000);
}

static const test_case cases[] = {
    {"buckets", buckets},
    {"quantiles", quantiles},
    {"nearest_rank", nearest_rank},
    {"extremes", extremes},
    {"since", since},
    {"reader_beside_the_writer", reader_beside_the_writer},
};

int main(int argc, char **argv) {
    return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}

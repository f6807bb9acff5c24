/* Latency histograms in shared memory: one writer, any number of readers, no locks.
 *
 * Values are nanoseconds. Buckets are logarithmic, 64 to a doubling: a quantile is at most 1.6 %
 * above the value it stands for, below 2^48 ns (three days). Longer ones share the last bucket;
 * the largest is kept as it is. A reader sees counts that grow while it reads: never less than
 * `count` says.
 */
#ifndef KF_HISTOGRAM_H
#define KF_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

#define KF_HISTOGRAM_SUB_BITS 6
#define KF_HISTOGRAM_SUB (1u << KF_HISTOGRAM_SUB_BITS)
#define KF_HISTOGRAM_TOP_BITS 48
#define KF_HISTOGRAM_BUCKETS                                                                       \
    ((KF_HISTOGRAM_TOP_BITS - KF_HISTOGRAM_SUB_BITS + 1) << KF_HISTOGRAM_SUB_BITS)

typedef struct {
    _Atomic uint64_t count; /* stored last: the buckets hold at least as many */
    _Atomic uint64_t sum_ns;
    _Atomic uint64_t max_ns;
    _Atomic uint64_t buckets[KF_HISTOGRAM_BUCKETS];
} kf_histogram;

static inline uint32_t kf_histogram_bucket(uint64_t ns) {
    if (ns < KF_HISTOGRAM_SUB) return (uint32_t)ns;
    if (ns >> KF_HISTOGRAM_TOP_BITS) ns = (1ULL << KF_HISTOGRAM_TOP_BITS) - 1;
    uint32_t shift = 63 - (uint32_t)__builtin_clzll(ns) - KF_HISTOGRAM_SUB_BITS;
    return (shift << KF_HISTOGRAM_SUB_BITS) + (uint32_t)(ns >> shift); /* SUB <= ns >> shift */
}

/* The largest value of a bucket. */
static inline uint64_t kf_histogram_bucket_top(uint32_t bucket) {
    uint64_t sub = bucket & (KF_HISTOGRAM_SUB - 1);
    uint32_t octave = bucket >> KF_HISTOGRAM_SUB_BITS;
    if (octave == 0) return sub;
    return ((sub + KF_HISTOGRAM_SUB + 1) << (octave - 1)) - 1;
}

static inline uint64_t kf_histogram_word(const _Atomic uint64_t *word) {
    return atomic_load_explicit(word, memory_order_relaxed);
}

/* One writer: a load and a store, no locked instruction. */
static inline void kf_histogram_raise(_Atomic uint64_t *word, uint64_t by) {
    atomic_store_explicit(word, kf_histogram_word(word) + by, memory_order_relaxed);
}

static inline void kf_histogram_add_n(kf_histogram *h, uint64_t ns, uint64_t n) {
    if (!n) return;
    kf_histogram_raise(&h->buckets[kf_histogram_bucket(ns)], n);
    kf_histogram_raise(&h->sum_ns, ns * n);
    if (ns > kf_histogram_word(&h->max_ns))
        atomic_store_explicit(&h->max_ns, ns, memory_order_relaxed);
    atomic_store_explicit(&h->count, kf_histogram_word(&h->count) + n, memory_order_release);
}

static inline void kf_histogram_add(kf_histogram *h, uint64_t ns) { kf_histogram_add_n(h, ns, 1); }

/* The least value (rounded up to its bucket's top) at or below which `quantile` (0..1) of the
 * samples lie: of 100 samples, 0.99 gives the 99th. 0 if there are none. */
static inline uint64_t kf_histogram_quantile(const kf_histogram *h, double quantile) {
    uint64_t count = atomic_load_explicit(&h->count, memory_order_acquire);
    if (!count) return 0;
    double exact = quantile * (double)count * (1 - 1e-12); /* 0.07 * 100 is above 7 */
    uint64_t rank = 1, seen = 0, max = kf_histogram_word(&h->max_ns);
    if (exact > (double)count - 1) rank = count;
    else if (exact > 0) rank = (uint64_t)exact + ((double)(uint64_t)exact < exact);
    for (uint32_t i = 0; i < KF_HISTOGRAM_BUCKETS - 1; i++) {
        seen += kf_histogram_word(&h->buckets[i]);
        if (seen < rank) continue;
        uint64_t top = kf_histogram_bucket_top(i);
        return top < max ? top : max;
    }
    return max;
}

/* The largest sample (rounded up to its bucket's top) since `before`, a copy of `h`, was taken;
 * 0 if there is none. */
static inline uint64_t kf_histogram_max_since(const kf_histogram *h, const kf_histogram *before) {
    uint64_t max = kf_histogram_word(&h->max_ns);
    for (uint32_t i = KF_HISTOGRAM_BUCKETS; i-- > 0;) {
        if (kf_histogram_word(&h->buckets[i]) == kf_histogram_word(&before->buckets[i])) continue;
        uint64_t top = kf_histogram_bucket_top(i);
        return top < max && i < KF_HISTOGRAM_BUCKETS - 1 ? top : max;
    }
    return 0;
}

#endif

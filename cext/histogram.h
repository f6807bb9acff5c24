/* Latency histograms in shared memory: one writer, any number of readers, no locks.
 *
 * Values are nanoseconds. Buckets are logarithmic, 64 to a doubling: a quantile is at most 1.6 %
 * above the value it stands for. Nothing is capped: the last bucket reaches 2^48 ns (three days).
 */
#ifndef KF_HISTOGRAM_H
#define KF_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

#define KF_HISTOGRAM_SUB_BITS 6
#define KF_HISTOGRAM_BUCKETS ((48 - KF_HISTOGRAM_SUB_BITS + 1) << KF_HISTOGRAM_SUB_BITS)

typedef struct {
    _Atomic uint64_t count;
    _Atomic uint64_t sum_ns;
    _Atomic uint64_t max_ns;
    _Atomic uint64_t buckets[KF_HISTOGRAM_BUCKETS];
} kf_histogram;

static inline uint32_t kf_histogram_bucket(uint64_t ns) {
    if (ns < (1u << KF_HISTOGRAM_SUB_BITS)) return (uint32_t)ns;
    if (ns >> 48) ns = (1ULL << 48) - 1;
    uint32_t shift = 63 - (uint32_t)__builtin_clzll(ns) - KF_HISTOGRAM_SUB_BITS;
    return ((shift + 1) << KF_HISTOGRAM_SUB_BITS) + (uint32_t)(ns >> shift) - (1u << KF_HISTOGRAM_SUB_BITS);
}

/* The largest value of a bucket. */
static inline uint64_t kf_histogram_bucket_top(uint32_t bucket) {
    uint32_t shift = bucket >> KF_HISTOGRAM_SUB_BITS, sub = bucket & ((1u << KF_HISTOGRAM_SUB_BITS) - 1);
    if (shift == 0) return sub;
    return (((uint64_t)sub + (1u << KF_HISTOGRAM_SUB_BITS) + 1) << (shift - 1)) - 1;
}

static inline void kf_histogram_add_n(kf_histogram *h, uint64_t ns, uint64_t n) {
    _Atomic uint64_t *b = &h->buckets[kf_histogram_bucket(ns)];
    /* One writer: a load and a store, no locked instruction. */
    atomic_store_explicit(b, atomic_load_explicit(b, memory_order_relaxed) + n, memory_order_relaxed);
    atomic_store_explicit(&h->sum_ns, atomic_load_explicit(&h->sum_ns, memory_order_relaxed) + ns * n, memory_order_relaxed);
    if (ns > atomic_load_explicit(&h->max_ns, memory_order_relaxed))
        atomic_store_explicit(&h->max_ns, ns, memory_order_relaxed);
    atomic_store_explicit(&h->count, atomic_load_explicit(&h->count, memory_order_relaxed) + n, memory_order_release);
}

static inline void kf_histogram_add(kf_histogram *h, uint64_t ns) { kf_histogram_add_n(h, ns, 1); }

/* The value below or at which `quantile` (0..1) of the samples lie; 0 if there are none. */
static inline uint64_t kf_histogram_quantile(const kf_histogram *h, double quantile) {
    uint64_t count = atomic_load_explicit(&h->count, memory_order_acquire);
    uint64_t rank = (uint64_t)(quantile * (double)count), seen = 0;
    if (!count) return 0;
    for (uint32_t i = 0; i < KF_HISTOGRAM_BUCKETS; i++) {
        seen += atomic_load_explicit(&h->buckets[i], memory_order_relaxed);
        if (seen > rank || seen >= count) {
            uint64_t top = kf_histogram_bucket_top(i), max = atomic_load_explicit(&h->max_ns, memory_order_relaxed);
            return top < max ? top : max;
        }
    }
    return atomic_load_explicit(&h->max_ns, memory_order_relaxed);
}

#endif

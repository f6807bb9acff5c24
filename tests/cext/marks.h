/* What tests ask of the watermarks in a segment's last page. */
#ifndef KF_TEST_MARKS_H
#define KF_TEST_MARKS_H

#include "page.h"

static inline kf_mark mark(int64_t offset, int32_t epoch) {
    return (kf_mark){offset, epoch, 0x5a5a5a5a}; /* the padding has no meaning */
}

static inline int same(kf_mark a, int64_t offset, int32_t epoch) {
    return a.offset == offset && a.epoch == epoch && a.pad == 0;
}

static inline int watermark_is(const uint8_t *page, int64_t target, int64_t flushed) {
    kf_watermark w;
    return kf_watermark_load(page, &w) == 0 && w.target.offset == target &&
           w.flushed.offset == flushed;
}

#endif

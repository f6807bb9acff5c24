"""The judge of batches and records, on raw pointers: ``cext/batch.h`` and ``cext/record.h``.

What each does stands there. What is not inline there is linked into a module by ``setup.py``. A
fault is 0 (``KF_BATCH_OK``) or a number of ``shapes.Fault``, of which ``shapes.refusal`` makes the
exception.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef extern from "batch.h" nogil:
    enum:
        KF_BATCH_HEADER
        KF_BATCH_OVERHEAD
        KF_BATCH_CRC_AT
        KF_BATCH_BYTES_MAX
        KF_BATCH_RECORDS_MAX
        KF_RECORD_BYTES_MIN
        KF_RECORD_HEADERS_MAX

        KF_ATTRIBUTE_CODEC
        KF_ATTRIBUTE_APPEND_TIME
        KF_ATTRIBUTE_TRANSACTIONAL
        KF_ATTRIBUTE_CONTROL

        KF_BATCH_OK
        KF_BATCH_INCOMPLETE
        KF_BATCH_EMPTY
        KF_BATCH_LENGTH
        KF_BATCH_ATTRIBUTES
        KF_BATCH_COUNT
        KF_BATCH_CRC
        KF_BATCH_OFFSET
        KF_BATCH_EPOCH
        KF_BATCH_STALE
        KF_BATCH_UNREADABLE
        KF_BATCH_RECORDS
        KF_RECORD_HEADERS
        KF_BATCH_TRAILING

        KF_RULES_ANY
        KF_RULES_KAFKA_RAFT
        KF_RULES_NO_CONTROL

    ctypedef struct kf_batch_header:
        int64_t base_offset
        int64_t base_timestamp
        int64_t max_timestamp
        int64_t producer_id
        int32_t leader_epoch
        int32_t last_offset_delta
        int32_t base_sequence
        int32_t record_count
        uint32_t size
        uint32_t crc
        int16_t attributes
        int16_t producer_epoch

    int kf_batch_read_header(const uint8_t *b, size_t available, kf_batch_header *h)
    void kf_batch_write_header(uint8_t *b, const kf_batch_header *h)
    void kf_batch_stamp(uint8_t *b, int64_t base_offset, int32_t leader_epoch)
    int kf_batch_judge_append(const kf_batch_header *h, int control, int unseen)
    int kf_batch_parse(const uint8_t *header, size_t available, kf_batch_header *h)
    bint kf_batch_crc_holds(const uint8_t *batch, const kf_batch_header *h)
    void kf_batch_seal(uint8_t *batch, kf_batch_header *h)
    int kf_batch_check(const uint8_t *batch, size_t available, kf_batch_header *h)
    int kf_batch_check_records(const uint8_t *p, size_t size, const kf_batch_header *h, int rules,
                               int64_t *number, int64_t *largest_timestamp)
    int kf_batch_check_whole(const uint8_t *batch, size_t available, int rules, kf_batch_header *h,
                             int64_t *number, int64_t *largest_timestamp)
    int kf_batch_take_header(const uint8_t *src, size_t available, uint8_t *header,
                             kf_batch_header *h)
    int kf_batch_take_body(uint8_t *dst, const uint8_t *src, const uint8_t *header,
                           const kf_batch_header *h)
    int kf_batch_take_records(uint8_t *dst, const uint8_t *src, const uint8_t *header,
                              const kf_batch_header *h, int unseen)
    bint kf_batch_is_plain(const uint8_t *batch, const kf_batch_header *h)
    void kf_batch_accept(uint8_t *dst, uint8_t *header, int64_t base_offset, int32_t epoch)

    enum:
        KF_VOUCHER_START
    uint64_t kf_batch_vouch(uint64_t voucher, uint64_t key, const kf_batch_header *h,
                            int64_t base_offset)

cdef extern from "record.h" nogil:
    ctypedef struct kf_record:
        int64_t timestamp_delta
        int32_t offset_delta
        int32_t key_size
        int32_t value_size
        int32_t header_count
        const uint8_t *key
        const uint8_t *value
        const uint8_t *headers
        const uint8_t *end

    const uint8_t *kf_bytes_get(const uint8_t *p, const uint8_t *end, int32_t *size, int *fault)
    const uint8_t *kf_bytes_end(const uint8_t *p, int32_t size)
    int kf_record_next(const uint8_t *p, const uint8_t *end, const kf_batch_header *h,
                       int32_t *last_delta, kf_record *r)

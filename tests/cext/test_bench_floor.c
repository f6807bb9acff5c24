/* The floor: every way with every kind of file, what it counts, and how it fails. */
#include <errno.h>

#include "bench_floor.h"
#include "check.h"

#define BATCHES 60
#define CIRCLE ((size_t)3 << 16)

static kf_floor_options options(int how, int files) {
    kf_floor_options asked = {.directory = "/var/tmp",
                              .value_bytes = 100,
                              .batch_bytes = 8192,
                              .batches = BATCHES,
                              .window = 8,
                              .durable = 1,
                              .how = how,
                              .files = files};
    return asked;
}

static void run_one(const kf_floor_options *asked) {
    kf_floor_result found;
    int failed = kf_floor_run(asked, &found);
    CHECK(!failed, "how %d files %d: %s, %s", asked->how, asked->files, found.failed,
          strerror(found.error));
    CHECK(found.records == BATCHES * (8192 / 110));
    CHECK(found.seconds > 0 && found.user_s >= 0 && found.system_s >= 0);
    CHECK(found.p50_us > 0 && found.p50_us <= found.p99_us);
    CHECK(found.p99_us <= found.p999_us && found.p999_us <= found.max_us);
}

static void every_way(void) {
    for (int how = KF_FLOOR_IN_PLACE; how <= KF_FLOOR_WRITE; how++)
        for (int files = KF_FLOOR_PREPARED; files <= KF_FLOOR_COLD; files++) {
            kf_floor_options asked = options(how, files);
            run_one(&asked);
            asked.durable = 0;
            run_one(&asked);
        }
}

static void in_a_circle(void) {
    for (int how = KF_FLOOR_MAP; how <= KF_FLOOR_WRITE; how++) {
        kf_floor_options asked = options(how, KF_FLOOR_COLD);
        asked.keep_bytes = CIRCLE;
        run_one(&asked);
    }
}

static void refusals(void) {
    kf_floor_result found;
    kf_floor_options nowhere = options(KF_FLOOR_WRITE, KF_FLOOR_PREPARED);
    nowhere.directory = "/nowhere";
    CHECK(kf_floor_run(&nowhere, &found) == -1 && found.error == ENOENT, "%s", found.failed);
    kf_floor_options circle = options(KF_FLOOR_IN_PLACE, KF_FLOOR_PREPARED);
    circle.keep_bytes = CIRCLE;
    CHECK(kf_floor_run(&circle, &found) == -1 && found.error == EINVAL, "%s", found.failed);
}

static const test_case cases[] = {
    {"every_way", every_way},
    {"in_a_circle", in_a_circle},
    {"refusals", refusals},
};

int main(int argc, char **argv) {
    return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}

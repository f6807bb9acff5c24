/* The thread that keeps a processor awake: as long as it was told, at the lowest priority. */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>

#include "check.h"
#include "flusher.h"
#include "stay_awake.h"

#define LONG_NS 3600000000000ULL
#define GIVE_UP_MS 30000

static uint64_t used_ns(kf_stay_awake *v) {
    clockid_t clock;
    struct timespec t;
    CHECK(!pthread_getcpuclockid(v->thread, &clock));
    CHECK(!clock_gettime(clock, &t));
    return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

/* Until the thread sleeps; how much of a processor it used up to then. On a busy machine it may
 * wait long for a processor: that it used none says nothing. */
static uint64_t used_once_asleep(kf_stay_awake *v) {
    for (int ms = 0; atomic_load(&v->state) != 0 && ms < GIVE_UP_MS; ms += 20) sleep_ms(20);
    CHECK(atomic_load(&v->state) == 0);
    return used_ns(v);
}

static void awake_for_a_while_then_asleep(void) {
    kf_stay_awake v;
    CHECK(!kf_stay_awake_start(&v));
    uint64_t at_rest = used_once_asleep(&v), used = at_rest;
    for (int round = 0; round < 3; round++) {
        for (int ms = 0; used < at_rest + 1000000 && ms < GIVE_UP_MS; ms += 10) { /* others first */
            kf_stay_awake_keep(&v, kf_now_ns() + 50000000);
            sleep_ms(10);
            used = used_ns(&v);
        }
        CHECK(used >= at_rest + 1000000);
        at_rest = used = used_once_asleep(&v);
    }
    sleep_ms(100);
    CHECK(used_ns(&v) < at_rest + 1000000); /* the way into its sleep, at most */
    kf_stay_awake_stop(&v);
}

static void ends_while_awake(void) {
    kf_stay_awake v;
    CHECK(!kf_stay_awake_start(&v));
    kf_stay_awake_keep(&v, kf_now_ns() + LONG_NS);
    sleep_ms(5);
    kf_stay_awake_stop(&v);
    CHECK(!kf_stay_awake_start(&v));
    kf_stay_awake_stop(&v);
}

/* The scheduling policy of the thread of that name, -1 if there is none. */
static int policy_of(const char *name) {
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    int policy = -1;
    while ((entry = readdir(tasks))) {
        char path[300], stat[600] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", entry->d_name);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        if (fgets(stat, sizeof stat, file) && strstr(stat, name)) {
            char *field = strrchr(stat, ')') + 1;
            for (int number = 3; number < 41; number++) field = strchr(field + 1, ' ');
            policy = atoi(field);
        }
        fclose(file);
    }
    closedir(tasks);
    return policy;
}

static void gives_way_to_everybody(void) {
    kf_stay_awake v;
    CHECK(!kf_stay_awake_start(&v));
    for (int ms = 0; policy_of("kf-stay-awake") != SCHED_IDLE && ms < GIVE_UP_MS; ms += 10)
        sleep_ms(10);
    CHECK(policy_of("kf-stay-awake") == SCHED_IDLE);
    kf_stay_awake_stop(&v);
}

static const test_case cases[] = {
    {"awake_for_a_while_then_asleep", awake_for_a_while_then_asleep},
    {"ends_while_awake", ends_while_awake},
    {"gives_way_to_everybody", gives_way_to_everybody},
};

int main(int argc, char **argv) {
    return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}

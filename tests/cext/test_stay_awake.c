/* The thread that keeps a processor awake: as long as it was told, at the lowest priority, and only
 * while it is needed and the machine has a processor to spare. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>

#include "check.h"
#include "flusher.h"
#include "stay_awake.h"

#define GIVE_UP_MS 30000
#define NAME "kf-stay-awake"

int __real_sched_setscheduler(pid_t pid, int policy, const struct sched_param *p);
int __wrap_sched_setscheduler(pid_t pid, int policy, const struct sched_param *p);

static kf_stay_awake *awake;
static _Atomic int forbidden, asked; /* the call that lowers the priority */

int __wrap_sched_setscheduler(pid_t pid, int policy, const struct sched_param *p) {
    atomic_fetch_add(&asked, 1);
    errno = EPERM;
    return atomic_load(&forbidden) ? -1 : __real_sched_setscheduler(pid, policy, p);
}

static void keep(uint64_t for_ns) {
    uint64_t now_ns = kf_now_ns();
    kf_stay_awake_keep(awake, now_ns, now_ns + for_ns);
}

/* A file of the thread of that name; NULL if there is none. */
static FILE *file_of_thread(const char *file) {
    FILE *found = NULL;
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    while (!found && (entry = readdir(tasks))) {
        char path[300], name[20] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *comm = fopen(path, "r");
        if (!comm) continue;
        if (fgets(name, sizeof name, comm) && !strncmp(name, NAME, strlen(NAME))) {
            snprintf(path, sizeof path, "/proc/self/task/%s/%s", entry->d_name, file);
            found = fopen(path, "r");
        }
        fclose(comm);
    }
    closedir(tasks);
    return found;
}

/* How long the thread has run; 0 if there is none. */
static uint64_t used_ns(void) {
    unsigned long long ran = 0;
    FILE *file = file_of_thread("schedstat");
    if (!file) return 0;
    if (fscanf(file, "%llu", &ran) != 1) ran = 0;
    fclose(file);
    return ran;
}

/* The scheduling policy of the thread, -1 if there is none. */
static int policy(void) {
    char stat[600] = "";
    FILE *file = file_of_thread("stat");
    if (!file) return -1;
    int found = -1;
    if (fgets(stat, sizeof stat, file)) {
        char *field = strrchr(stat, ')') + 1;
        for (int number = 3; number < 41; number++) field = strchr(field + 1, ' ');
        found = atoi(field);
    }
    fclose(file);
    return found;
}

/* On a busy machine a thread may wait long for a processor: that it used none says nothing. */
static void await_no_thread(void) {
    for (int ms = 0; kf_stay_awake_has_thread(awake) && ms < GIVE_UP_MS; ms += 10) sleep_ms(10);
    CHECK(!kf_stay_awake_has_thread(awake));
    for (int ms = 0; policy() != -1 && ms < GIVE_UP_MS; ms += 10) sleep_ms(10);
    CHECK(policy() == -1);
}

/* It ends by itself, a while after it was needed last, and is there again when it is. */
static void awake_for_a_while_then_gone(void) {
    awake = kf_stay_awake_new(-1);
    CHECK(!kf_stay_awake_has_thread(awake));
    for (int round = 0; round < 2; round++) {
        uint64_t began = used_ns(), used = began;
        for (int ms = 0; used < began + 5000000 && ms < GIVE_UP_MS; ms += 10) { /* others first */
            keep(50000000);
            sleep_ms(10);
            used = used_ns() > used ? used_ns() : used;
        }
        CHECK(used >= began + 5000000);
        sleep_ms(200); /* asleep by now, where others do not keep it from that */
        uint64_t at_rest = used_ns();
        sleep_ms(100);
        CHECK(used_ns() < at_rest + 1000000);
        CHECK(kf_stay_awake_has_thread(awake) || used_ns() == 0);
        await_no_thread();
    }
    kf_stay_awake_free(awake);
}

/* A thread that sleeps is woken, not a second one started. */
static void asleep_then_awake(void) {
    awake = kf_stay_awake_new(-1);
    keep(1);
    uint64_t used = 0, last = 0;
    for (int ms = 0; used < 50000000 && ms < GIVE_UP_MS; ms += 20) {
        sleep_ms(10);
        keep(10000000);
        sleep_ms(10);
        uint64_t now = used_ns(); /* on a busy machine it ends, and another one begins at 0 */
        used += now >= last ? now - last : now;
        last = now;
    }
    CHECK(used >= 50000000);
    kf_stay_awake_free(awake);
}

/* A thread that is woken is there for what woke it. */
static void a_long_sleep_is_no_starvation(void) {
    awake = kf_stay_awake_new(-1);
    int stays = 0;
    for (int ms = 0; !stays && ms < GIVE_UP_MS; ms += 100) {
        keep(1);
        sleep_ms(60); /* asleep by now, where others do not keep it from that */
        int made = atomic_load(&asked);
        uint64_t used = used_ns();
        keep(50000000);
        sleep_ms(15);
        stays = used && used_ns() > used + 2000000 && atomic_load(&asked) == made;
    }
    CHECK(stays);
    kf_stay_awake_free(awake);
}

/* What is freed while the thread is awake, or has just been started, is left to it. */
static void freed_while_awake(void) {
    for (int i = 0; i < 50; i++) {
        awake = kf_stay_awake_new(-1);
        keep(3600000000000ULL);
        if (i % 2) sleep_ms(2);
        kf_stay_awake_free(awake);
    }
    int looks =
        0; /* without one: a folder of threads that end meanwhile may not show all of them */
    for (int ms = 0; looks < 3 && ms < GIVE_UP_MS; ms += 10) {
        looks = policy() == -1 ? looks + 1 : 0;
        sleep_ms(10);
    }
    CHECK(looks == 3);
}

static void gives_way_to_everybody(void) {
    awake = kf_stay_awake_new(-1);
    for (int ms = 0; policy() != SCHED_IDLE && ms < GIVE_UP_MS; ms += 10) {
        keep(100000000);
        sleep_ms(10);
    }
    CHECK(policy() == SCHED_IDLE);
    kf_stay_awake_free(awake);
}

/* Rather none than one at full priority; and it is not tried again. */
static void none_where_a_low_priority_is_forbidden(void) {
    atomic_store(&forbidden, 1);
    atomic_store(&asked, 0);
    awake = kf_stay_awake_new(-1);
    keep(3600000000000ULL);
    await_no_thread();
    for (int i = 0; i < 5; i++) {
        keep(3600000000000ULL);
        sleep_ms(5);
    }
    CHECK(!kf_stay_awake_has_thread(awake) && policy() == -1);
    CHECK(atomic_load(&asked) == 1);
    kf_stay_awake_free(awake);
    atomic_store(&forbidden, 0);
}

static int told_fd;
static unsigned long long told_waited_us, told_runs;

/* A look at a loop that has run once more since, and waited so long for it; then a need. */
static void look(unsigned waited_us) {
    char text[80];
    told_waited_us += waited_us, told_runs++;
    int n = snprintf(text, sizeof text, "0 %llu000 %llu\n", told_waited_us, told_runs);
    CHECK(pwrite(told_fd, text, (size_t)n, 0) == n);
    struct timespec t = {0, KF_LOOK_EVERY_NS + KF_LOOK_EVERY_NS / 10};
    nanosleep(&t, NULL);
    keep(3600000000000ULL);
}

/* Where the loop waits long for a processor, none will halt: the thread goes, and with it what
 * would keep the process from its end. */
static void none_on_a_busy_machine(void) {
    told_fd = open(".", O_TMPFILE | O_RDWR, 0600);
    CHECK(told_fd >= 0);
    awake = kf_stay_awake_new(dup(told_fd));
    for (int i = 0; i < KF_CALM_LOOKS; i++) {
        CHECK(!kf_stay_awake_has_thread(awake));
        look(50);
    }
    CHECK(kf_stay_awake_has_thread(awake));
    look(500);
    await_no_thread();
    for (int i = 0; i < KF_CALM_LOOKS; i++) { /* one that is calm says nothing */
        look(i % 2 ? 50 : 500);
        CHECK(!kf_stay_awake_has_thread(awake));
    }
    for (int i = 0; i < KF_CALM_LOOKS; i++) look(50);
    CHECK(kf_stay_awake_has_thread(awake));
    CHECK(!ftruncate(told_fd, 0)); /* no word of it: as before */
    look(0);
    CHECK(kf_stay_awake_has_thread(awake));
    kf_stay_awake_free(awake);
    close(told_fd);
}

static const test_case cases[] = {
    {"awake_for_a_while_then_gone", awake_for_a_while_then_gone},
    {"asleep_then_awake", asleep_then_awake},
    {"a_long_sleep_is_no_starvation", a_long_sleep_is_no_starvation},
    {"freed_while_awake", freed_while_awake},
    {"gives_way_to_everybody", gives_way_to_everybody},
    {"none_where_a_low_priority_is_forbidden", none_where_a_low_priority_is_forbidden},
    {"none_on_a_busy_machine", none_on_a_busy_machine},
};

int main(int argc, char **argv) {
    return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}

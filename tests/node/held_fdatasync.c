/* Preloaded: fdatasync returns once $HELD is removed, after it has made $HELD.reached. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int fdatasync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    int failed = real(fd);
    const char *held = getenv("HELD");
    char reached[4096];
    if (held && !access(held, F_OK)) {
        snprintf(reached, sizeof reached, "%s.reached", held);
        close(open(reached, O_CREAT | O_WRONLY, 0600));
        struct timespec pause = {0, 1000000};
        while (!access(held, F_OK)) nanosleep(&pause, 0);
    }
    return failed;
}

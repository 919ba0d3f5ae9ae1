/* neighbour - takes 5 of every 15 ms of its core, until it is killed. */
#define _GNU_SOURCE
#include <time.h>

static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(void) {
    const struct timespec rest = {0, 10000000};
    for (;;) {
        long long until = now_ns() + 5000000;
        while (now_ns() < until) {
        }
        nanosleep(&rest, NULL);
    }
}

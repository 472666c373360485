/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time in nanoseconds. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t yoke_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The time `ns` from now, as calls take it that wait by CLOCK_MONOTONIC. */
static inline struct timespec yoke_clock_after(uint64_t ns) {
    uint64_t until = yoke_now_ns() + ns;
    struct timespec time = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    return time;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A fuzz target: reads bytes that anyone may have written. It answers 0; what it must not do is
 * crash. libFuzzer calls it, or driver.c where libFuzzer is missing. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A copy that ends with a NUL, in memory of its own: a sanitizer sees what reads behind it. */
static inline char *fuzz_copy(const uint8_t *data, size_t size) {
    char *copy = malloc(size + 1);
    if (copy == NULL) abort();
    if (size > 0) memcpy(copy, data, size);
    copy[size] = '\0';
    return copy;
}

/* What this process has taken so far: memory at most, and processor time. */
typedef struct fuzz_cost {
    long mb;
    double s;
} fuzz_cost;

static inline fuzz_cost fuzz_cost_now(void) {
    struct rusage used;
    struct timespec time;
    if (getrusage(RUSAGE_SELF, &used) != 0) abort();
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) != 0) abort();
    return (fuzz_cost){used.ru_maxrss / 1024, (double)time.tv_sec + 1e-9 * (double)time.tv_nsec};
}

/* An input that takes more than `most` is a finding, as a crash is. */
static inline void fuzz_cost_check(const fuzz_cost *before, fuzz_cost most) {
    fuzz_cost now = fuzz_cost_now();
    if (now.mb - before->mb <= most.mb && now.s - before->s <= most.s) return;
    fprintf(stderr, "this input took %ld MB more than any before and %.1f s\n", now.mb - before->mb,
            now.s - before->s);
    abort();
}

#endif

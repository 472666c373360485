/* SPDX-License-Identifier: Apache-2.0 */
/* A fuzz target: reads bytes that anyone may have written. It answers 0; what it must not do is
 * crash. libFuzzer calls it, or driver.c where libFuzzer is missing. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A copy that ends with a NUL, in memory of its own: a sanitizer sees what reads behind it. */
static inline char *fuzz_copy(const uint8_t *data, size_t size) {
    char *copy = malloc(size + 1);
    if (copy == NULL) abort();
    if (size > 0) memcpy(copy, data, size);
    copy[size] = '\0';
    return copy;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/shown_struct.h"

#include <string.h>

void yoke_published_write(_Atomic uint32_t *newest, _Atomic uint64_t *copies, size_t bytes,
                          const void *now) {
    uint32_t next = atomic_load(newest) + 1;
    size_t words = bytes / sizeof *copies;
    for (size_t i = 0; i < words; i++) {
        uint64_t word;
        memcpy(&word, (const char *)now + i * sizeof word, sizeof word);
        atomic_store(&copies[next % 2 * words + i], word);
    }
    atomic_store(newest, next);
}

void yoke_published_read(const _Atomic uint32_t *newest, const _Atomic uint64_t *copies,
                         size_t bytes, void *now) {
    size_t words = bytes / sizeof *copies;
    uint32_t read;
    do {
        read = atomic_load(newest);
        for (size_t i = 0; i < words; i++) {
            uint64_t word = atomic_load(&copies[read % 2 * words + i]);
            memcpy((char *)now + i * sizeof word, &word, sizeof word);
        }
    } while (atomic_load(newest) != read);
}

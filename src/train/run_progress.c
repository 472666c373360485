/* SPDX-License-Identifier: Apache-2.0 */
/* The run writes one of two copies, then says which is the newest: it never waits for a reader, and
 * a signal handler on its own thread reads the older one. */
#include "train/run_progress.h"

#include <string.h>

void yoke_run_progress_set(yoke_run_progress *own, const yoke_progress *now) {
    uint64_t words[YOKE_PROGRESS_WORDS];
    uint32_t next = atomic_load(&own->newest) + 1;
    memcpy(words, now, sizeof words);
    for (size_t i = 0; i < YOKE_PROGRESS_WORDS; i++)
        atomic_store(&own->copies[next % 2][i], words[i]);
    atomic_store(&own->newest, next);
}

void yoke_run_progress_read(const yoke_run_progress *own, yoke_progress *now) {
    uint64_t words[YOKE_PROGRESS_WORDS];
    uint32_t newest;
    do {
        newest = atomic_load(&own->newest);
        for (size_t i = 0; i < YOKE_PROGRESS_WORDS; i++)
            words[i] = atomic_load(&own->copies[newest % 2][i]);
    } while (atomic_load(&own->newest) != newest);
    memcpy(now, words, sizeof words);
}

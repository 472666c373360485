/* SPDX-License-Identifier: Apache-2.0 */
/* What any thread may read while a run goes on. The run writes one of two copies, then says which
 * is the newest: it never waits for a reader, and a signal handler on its own thread reads the
 * older one. */
#include <math.h>
#include <string.h>

#include "train/run.h"

static uint64_t bits_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double value_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void yoke_trainer_publish(yoke_trainer *trainer) {
    yoke_published *published = &trainer->published;
    uint32_t next = atomic_load(&published->newest) + 1;
    _Atomic uint64_t *copy = published->copies[next % 2];
    const yoke_step_result *step = &trainer->last_step, *test = &trainer->last_evaluation;
    double seconds = trainer->begin_ns > 0 ? (double)(yoke_now_ns() - trainer->begin_ns) * 1e-9 : 0;
    atomic_store(&copy[YOKE_PUBLISHED_RUNNING], trainer->running);
    atomic_store(&copy[YOKE_PUBLISHED_STEP], trainer->step);
    atomic_store(&copy[YOKE_PUBLISHED_STEPS], trainer->steps < UINT64_MAX ? trainer->steps : 0);
    atomic_store(&copy[YOKE_PUBLISHED_EPOCH], trainer->epoch);
    atomic_store(&copy[YOKE_PUBLISHED_SECONDS], bits_of(seconds));
    atomic_store(&copy[YOKE_PUBLISHED_LOSS], bits_of(step->rows > 0 ? step->loss : (double)NAN));
    atomic_store(&copy[YOKE_PUBLISHED_TEST_LOSS],
                 bits_of(test->rows > 0 ? test->loss : (double)NAN));
    atomic_store(&copy[YOKE_PUBLISHED_TEST_ACCURACY],
                 bits_of(test->rows > 0 ? yoke_trainer_accuracy(test) : -1));
    atomic_store(&published->newest, next);
}

yoke_status yoke_trainer_progress(const yoke_trainer *trainer, yoke_progress *progress) {
    uint64_t words[YOKE_PUBLISHED_WORDS];
    uint32_t newest;
    TRY(yoke_pointer_check(trainer, "trainer"));
    const yoke_published *published = &trainer->published;
    do {
        newest = atomic_load(&published->newest);
        for (int i = 0; i < YOKE_PUBLISHED_WORDS; i++)
            words[i] = atomic_load(&published->copies[newest % 2][i]);
    } while (atomic_load(&published->newest) != newest);
    yoke_progress own = {.struct_size = sizeof own,
                         .running = words[YOKE_PUBLISHED_RUNNING] != 0,
                         .step = words[YOKE_PUBLISHED_STEP],
                         .steps = words[YOKE_PUBLISHED_STEPS],
                         .epoch = words[YOKE_PUBLISHED_EPOCH],
                         .seconds = value_of(words[YOKE_PUBLISHED_SECONDS]),
                         .loss = value_of(words[YOKE_PUBLISHED_LOSS]),
                         .test_loss = value_of(words[YOKE_PUBLISHED_TEST_LOSS]),
                         .test_accuracy = value_of(words[YOKE_PUBLISHED_TEST_ACCURACY])};
    return yoke_options_store(progress, &own, sizeof own, "yoke_progress");
}

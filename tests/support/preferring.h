/* SPDX-License-Identifier: Apache-2.0 */
/* Records of algorithms, and engines, that take the candidates a test wants instead of measuring
 * them. */
#ifndef PREFERRING_H
#define PREFERRING_H

#include "parallel/engine/engine.h"
#include "support/engine_check.h"

/* `names`: of candidates, up to 8 and NULL behind the last; they outlive the record. */
static inline yoke_algorithms *preferring(const char *const *names) {
    yoke_algorithms *algorithms = NULL;
    EXPECT_OK(yoke_algorithms_create(&algorithms));
    for (; *names != NULL; names++)
        yoke_algorithms_prefer(algorithms, *names);
    return algorithms;
}

static inline check_engine check_engine_preferring(const yoke_model *model, const char *list,
                                                   yoke_data_parallel_options options,
                                                   const yoke_optimizer_options *optimizer,
                                                   const char *const *names) {
    check_engine made = {0};
    yoke_devices_options open = {.struct_size = sizeof open, .list = list, .threads = 1};
    EXPECT_OK(yoke_devices_open(&made.devices, &open));
    options.struct_size = sizeof options;
    EXPECT_OK(yoke_engine_create(&made.parallel, model, made.devices, optimizer, &options,
                                 preferring(names)));
    return made;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Engines that take the candidates somebody prefers. */
#include "bench/floor/floor.h"
#include "parallel/engine/engine.h"

yoke_status bench_create_preferring(yoke_data_parallel **parallel, const yoke_model *model,
                                    yoke_devices *devices, const yoke_optimizer_options *optimizer,
                                    const yoke_data_parallel_options *options,
                                    const char *const *names) {
    yoke_algorithms *algorithms = NULL;
    if (names == NULL)
        return yoke_data_parallel_create(parallel, model, devices, optimizer, options);
    TRY(yoke_algorithms_create(&algorithms));
    for (; *names != NULL; names++)
        yoke_algorithms_prefer(algorithms, *names);
    return yoke_engine_create(parallel, model, devices, optimizer, options, algorithms);
}

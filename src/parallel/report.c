/* SPDX-License-Identifier: Apache-2.0 */
/* What a host program may ask of an engine: counts, choices, the trace, memory. */
#include <stdio.h>
#include <stdlib.h>

#include "parallel/engine.h"

const yoke_model *yoke_data_parallel_model(const yoke_data_parallel *parallel) {
    return parallel->model;
}

uint64_t yoke_data_parallel_batches_tracked(const yoke_data_parallel *parallel) {
    return parallel->batches_tracked;
}

void yoke_data_parallel_set_batches_tracked(yoke_data_parallel *parallel, uint64_t count) {
    parallel->batches_tracked = count;
}

uint64_t yoke_data_parallel_steps(const yoke_data_parallel *parallel) {
    return parallel->steps;
}

bool yoke_data_parallel_is_whole(const yoke_data_parallel *parallel) {
    return !parallel->is_torn;
}

const yoke_data_parallel_options *
yoke_data_parallel_options_of(const yoke_data_parallel *parallel) {
    return &parallel->options;
}

bool yoke_data_parallel_is_first(const yoke_data_parallel *parallel) {
    return parallel->ranks.rank == 0;
}

yoke_status yoke_data_parallel_report(const yoke_data_parallel *parallel, yoke_status status) {
    return yoke_ranks_report(parallel, status);
}

yoke_status yoke_data_parallel_settle(yoke_data_parallel *parallel) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_settle"));
    return yoke_leave(parallel, YOKE_OK);
}

yoke_trace *yoke_data_parallel_recorder(const yoke_data_parallel *parallel) {
    return parallel->trace;
}

yoke_trace *yoke_data_parallel_trace(yoke_data_parallel *parallel) {
    if (parallel == NULL) return NULL;
    (void)yoke_timeline_read(parallel); /* what can't be read is not there */
    return parallel->trace;
}

int yoke_data_parallel_device_count(const yoke_data_parallel *parallel) {
    return parallel != NULL ? parallel->count : 0;
}

bool yoke_data_parallel_choice(const yoke_data_parallel *parallel, int index,
                               const char **layer_and_pass, const char **algorithm,
                               double *milliseconds) {
    if (parallel == NULL || layer_and_pass == NULL || algorithm == NULL || milliseconds == NULL)
        return false;
    return yoke_choices_at(parallel->choices, index, layer_and_pass, algorithm, milliseconds);
}

const char *yoke_data_parallel_choices_warning(const yoke_data_parallel *parallel) {
    return parallel != NULL ? yoke_choices_warning(parallel->choices) : NULL;
}

yoke_status yoke_data_parallel_memory(const yoke_data_parallel *parallel, int replica,
                                      yoke_memory_report *report) {
    TRY(yoke_pointer_check(parallel, "parallel"));
    if (replica < 0 || replica >= parallel->count)
        return FAIL(YOKE_ERROR_ARGUMENT, "replica %d: this engine has 0 to %d", replica,
                    parallel->count - 1);
    const yoke_lane *lane = &parallel->lanes[replica];
    size_t flat = parallel->flat->elements * sizeof(float);
    size_t trainable = parallel->flat->trainable_elements * sizeof(float);
    yoke_memory_report own = {
        .struct_size = sizeof own,
        .parameters = flat,
        .gradients = (parallel->options.inference ? 0 : flat) +
                     trainable * (size_t)(yoke_lane_sums(parallel) +
                                          (parallel->unsynced.sums[replica] != NULL)),
        .optimizer = yoke_exchange_optimizer_bytes(parallel->exchange, replica) +
                     (replica == 0 ? yoke_average_bytes(parallel) : 0),
        .buffers = parallel->flat->buffer_elements * sizeof(float) *
                   (replica == 0 ? 1 + (size_t)yoke_guard_count(parallel) : 1),
        .activations = lane->memory->activation_bytes,
        .scratch = lane->memory->scratch_bytes,
        .batch = lane->memory->batch_bytes,
    };
    own.total = yoke_device_allocated(lane->device) + parallel->exchange->placed_bytes;
    return yoke_options_store(report, &own, sizeof own, "yoke_memory_report");
}

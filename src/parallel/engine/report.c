/* SPDX-License-Identifier: Apache-2.0 */
/* What a host program may ask of an engine: counts, algorithms, the trace, memory. */
#include <stdio.h>
#include <stdlib.h>

#include "parallel/engine/average.h"
#include "parallel/engine/entry.h"
#include "parallel/observers/observers.h"
#include "parallel/stages/stages.h"

#define NAMED 4 /* parameters that yoke_data_parallel_unreached names, at most */

const yoke_model *yoke_data_parallel_model(const yoke_data_parallel *parallel) {
    return yoke_models_first(&parallel->step);
}

int yoke_data_parallel_device_rows(const yoke_data_parallel *parallel, int device) {
    if (parallel == NULL || device < 0 || device >= parallel->step.count) return 0;
    return yoke_device_rows(&parallel->step, device);
}

const char *yoke_data_parallel_device_name(const yoke_data_parallel *parallel, int device) {
    if (parallel == NULL || device < 0 || device >= parallel->step.count) return "";
    return yoke_device_name(parallel->step.lanes[device].device);
}

double yoke_data_parallel_seconds(yoke_data_parallel *parallel) {
    return yoke_speeds_take(&parallel->step);
}

uint64_t yoke_data_parallel_batches_tracked(const yoke_data_parallel *parallel) {
    return parallel->step.batches_tracked;
}

void yoke_data_parallel_set_batches_tracked(yoke_data_parallel *parallel, uint64_t count) {
    parallel->step.batches_tracked = count;
}

uint64_t yoke_data_parallel_steps(const yoke_data_parallel *parallel) {
    return parallel->step.steps;
}

yoke_scale_state yoke_data_parallel_scale(const yoke_data_parallel *parallel, bool *dynamic) {
    if (dynamic != NULL) *dynamic = parallel->step.scaler.is_dynamic;
    return parallel->step.scaler.now;
}

static yoke_status report_scale(const yoke_data_parallel *parallel,
                                yoke_loss_scale_report *report) {
    yoke_loss_scale_report own = {.struct_size = sizeof own};
    yoke_scale_state state = yoke_data_parallel_scale(parallel, &own.dynamic);
    own.scale = state.scale;
    own.good_steps = state.good;
    own.skipped_steps = state.skipped;
    return yoke_options_store(report, &own, sizeof own, "yoke_loss_scale_report");
}

yoke_status yoke_data_parallel_loss_scale(yoke_data_parallel *parallel,
                                          yoke_loss_scale_report *report) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_loss_scale"));
    return yoke_leave(parallel, report_scale(parallel, report));
}

bool yoke_data_parallel_is_whole(const yoke_data_parallel *parallel) {
    return !parallel->is_torn;
}

int yoke_data_parallel_failed_device(const yoke_data_parallel *parallel) {
    return parallel->step.failed_lane;
}

const yoke_data_parallel_options *
yoke_data_parallel_options_of(const yoke_data_parallel *parallel) {
    return &parallel->step.options;
}

bool yoke_data_parallel_is_first(const yoke_data_parallel *parallel) {
    return parallel->step.ranks.rank == 0;
}

yoke_status yoke_data_parallel_report(const yoke_data_parallel *parallel, yoke_status status) {
    return yoke_ranks_report(&parallel->step, status);
}

yoke_status yoke_data_parallel_settle(yoke_data_parallel *parallel) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_settle"));
    return yoke_leave(parallel, YOKE_OK);
}

bool yoke_data_parallel_suspects(const yoke_data_parallel *parallel, yoke_suspicion *suspicion) {
    return yoke_audit_suspects(&parallel->step, suspicion);
}

void yoke_data_parallel_judge(yoke_data_parallel *parallel, const yoke_suspicion *suspicion) {
    yoke_audit_judge(&parallel->step, suspicion);
}

yoke_trace *yoke_data_parallel_take_trace(yoke_data_parallel *parallel) {
    yoke_trace *trace = parallel->step.watch.trace;
    parallel->step.watch.trace = NULL;
    return trace;
}

yoke_trace *yoke_data_parallel_recorder(const yoke_data_parallel *parallel) {
    return parallel->step.watch.trace;
}

yoke_trace *yoke_data_parallel_trace(yoke_data_parallel *parallel) {
    if (parallel == NULL) return NULL;
    (void)yoke_timeline_read(&parallel->step); /* what can't be read is not there */
    return parallel->step.watch.trace;
}

int yoke_data_parallel_device_count(const yoke_data_parallel *parallel) {
    return parallel != NULL ? parallel->step.count : 0;
}

bool yoke_data_parallel_algorithm(const yoke_data_parallel *parallel, int index,
                                  const char **layer_and_pass, const char **algorithm,
                                  double *milliseconds) {
    if (parallel == NULL || layer_and_pass == NULL || algorithm == NULL || milliseconds == NULL)
        return false;
    return yoke_algorithms_at(parallel->step.algorithms, index, layer_and_pass, algorithm,
                              milliseconds);
}

const char *yoke_data_parallel_algorithms_warning(const yoke_data_parallel *parallel) {
    return parallel != NULL ? yoke_algorithms_warning(parallel->step.algorithms) : NULL;
}

yoke_status yoke_data_parallel_memory(const yoke_data_parallel *parallel, int replica,
                                      yoke_memory_report *report) {
    TRY(yoke_pointer_check(parallel, "parallel"));
    if (replica < 0 || replica >= parallel->step.count)
        return FAIL(YOKE_ERROR_ARGUMENT, "replica %d: this engine has 0 to %d", replica,
                    parallel->step.count - 1);
    const yoke_lane *lane = &parallel->step.lanes[replica];
    size_t flat = parallel->step.flat->elements * sizeof(float);
    size_t trainable = parallel->step.flat->trainable_elements * sizeof(float);
    yoke_memory_report own = {
        .struct_size = sizeof own,
        .parameters = flat,
        .gradients = (parallel->step.options.inference ? 0 : flat) +
                     trainable * (size_t)(yoke_lane_sums(&parallel->step) +
                                          (parallel->step.gradient.unsynced.sums[replica] != NULL)),
        .optimizer = yoke_exchange_optimizer_bytes(parallel->step.exchange, replica) +
                     (replica == 0 ? yoke_average_bytes(parallel) : 0),
        .buffers = parallel->step.flat->buffer_elements * sizeof(float) *
                   (replica == 0 ? 1 + (size_t)yoke_guard_count(&parallel->step) : 1),
        .activations = lane->memory->activation_bytes,
        .scratch = lane->memory->scratch_bytes,
        .batch = lane->memory->batch_bytes,
    };
    own.total = yoke_device_allocated(lane->device) + parallel->step.exchange->placed_bytes;
    return yoke_options_store(report, &own, sizeof own, "yoke_memory_report");
}

/* Parameters. */

yoke_status yoke_data_parallel_group(const yoke_data_parallel *parallel, int group,
                                     yoke_group_report *report) {
    TRY(yoke_pointer_check(parallel, "parallel"));
    const yoke_step *step = &parallel->step;
    const yoke_groups *groups = &step->groups;
    yoke_group_report own = {.struct_size = sizeof own};
    if (group < -1 || group >= groups->count)
        return FAIL(YOKE_ERROR_ARGUMENT, "group %d: this engine has %d, counted from 0", group,
                    groups->count);
    for (int i = 0; i < yoke_model_tensor_count(step->model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        TRY(yoke_model_tensor(step->model, i, &info));
        if (!info.trainable || (groups->members != NULL ? groups->members[i] : -1) != group)
            continue;
        own.tensors++;
        own.elements += info.count;
    }
    return yoke_options_store(report, &own, sizeof own, "yoke_group_report");
}

static bool is_unreached(const yoke_step *step, int tensor) {
    yoke_tensor_info info = {.struct_size = sizeof info};
    return yoke_model_tensor(step->model, tensor, &info) == YOKE_OK && info.trainable &&
           (yoke_reach_of(&step->reach, tensor) & step->reach.so_far) == 0 &&
           !yoke_groups_freeze(&step->groups, tensor) &&
           !yoke_groups_ask_decay(&step->groups, tensor);
}

static void write_unreached(FILE *text, const yoke_step *step) {
    int found = 0;
    size_t elements = 0;
    fprintf(text, "no loss has reached ");
    for (int i = 0; i < yoke_model_tensor_count(step->model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        if (!is_unreached(step, i) || yoke_model_tensor(step->model, i, &info) != YOKE_OK) continue;
        if (found < NAMED) fprintf(text, "%s%s", found > 0 ? ", " : "", info.name);
        elements += info.count;
        found++;
    }
    if (found > NAMED) fprintf(text, " and %d more", found - NAMED);
    fprintf(text,
            " (%d parameter%s, %zu values): the gradients are zero, and weight decay leaves them "
            "alone; freeze them, or set weight_decay in a group of theirs to let it move them",
            found, found == 1 ? "" : "s", elements);
}

const char *yoke_data_parallel_unreached(yoke_data_parallel *parallel) {
    if (parallel == NULL || parallel->step.reach.outputs == NULL ||
        parallel->step.reach.so_far == 0)
        return NULL;
    yoke_step *step = &parallel->step;
    size_t bytes = 0;
    bool any = false;
    for (int i = 0; i < yoke_model_tensor_count(step->model); i++)
        any = any || is_unreached(step, i);
    if (!any) return NULL;
    yoke_free(step->reach.text);
    step->reach.text = NULL;
    FILE *text = yoke_memory_stream(&step->reach.text, &bytes);
    if (text == NULL) return NULL;
    write_unreached(text, step);
    return fclose(text) == 0 ? step->reach.text : NULL;
}

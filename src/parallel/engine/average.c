/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn: the first update copies the
 * weights, every further one adds (1 - decay) (weights - average). Running statistics are the
 * model's. */
#include "parallel/engine/average.h"

#include "parallel/engine/entry.h"
#include "parallel/stages/stages.h"

bool yoke_averages(const yoke_data_parallel *parallel) {
    return parallel->step.average.values != NULL;
}

static size_t bytes_of(const yoke_data_parallel *parallel) {
    return parallel->step.flat->trainable_elements * sizeof(float);
}

size_t yoke_average_bytes(const yoke_data_parallel *parallel) {
    return yoke_averages(parallel) ? bytes_of(parallel) : 0;
}

yoke_status yoke_average_create(yoke_data_parallel *parallel) {
    yoke_step *step = &parallel->step;
    double decay = step->options.ema_decay;
    void *values = NULL;
    if (!(decay >= 0 && decay < 1))
        return FAIL(YOKE_ERROR_ARGUMENT, "ema_decay is %g: at least 0, for no average, and below 1",
                    decay);
    if (decay == 0) return YOKE_OK;
    TRY(yoke_device_allocate(step->lanes[0].device, bytes_of(parallel),
                             "the average of the weights", &values));
    parallel->step.average.values = values;
    return YOKE_OK;
}

void yoke_average_destroy(yoke_data_parallel *parallel) {
    if (yoke_averages(parallel))
        yoke_device_free(parallel->step.lanes[0].device, parallel->step.average.values);
}

static float *weights_of(const yoke_data_parallel *parallel) {
    return yoke_replica_memory_of(parallel->step.lanes[0].replica)->parameters;
}

static yoke_status blend(int lane, void *context) {
    const yoke_data_parallel *parallel = context;
    const yoke_step *step = &parallel->step;
    float *const none[YOKE_UPDATE_STATES] = {NULL};
    const yoke_update_step towards = yoke_average_towards(step);
    return yoke_device_update(step->lanes[lane].device, YOKE_STREAM_COMPUTE, &towards,
                              step->average.values, weights_of(parallel), none,
                              step->flat->trainable_elements);
}

/* On devices that queue, the exchange does it. */
yoke_status yoke_average_update(yoke_data_parallel *parallel) {
    yoke_step *step = &parallel->step;
    if (!yoke_averages(parallel) || step->queued) return YOKE_OK;
    if (step->flight.left_out) return YOKE_OK;
    TRY(yoke_apply(step, 1, "average", blend, parallel));
    yoke_average_count(step, step->steps - 1);
    return YOKE_OK;
}

yoke_status yoke_average_check(const yoke_data_parallel *parallel) {
    if (!parallel->step.average.in_use) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "the engine has the average of the weights: call "
                                     "yoke_data_parallel_use_average(parallel, false) first");
}

/* Takes the gradients' memory: those of a step that is not done are lost. */
static yoke_status swap(int lane, void *context) {
    const yoke_data_parallel *parallel = context;
    yoke_device *device = parallel->step.lanes[lane].device;
    yoke_replica_renew_shadow(parallel->step.lanes[lane].replica);
    float *room = yoke_replica_memory_of(parallel->step.lanes[lane].replica)->gradients;
    float *const ways[][2] = {{room, weights_of(parallel)},
                              {weights_of(parallel), parallel->step.average.values},
                              {parallel->step.average.values, room}};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        TRY(yoke_device_copy(device, YOKE_STREAM_COMPUTE, ways[i][0], device, ways[i][1],
                             bytes_of(parallel)));
    return yoke_device_synchronize(device);
}

static yoke_status use_average(yoke_data_parallel *parallel, bool use) {
    yoke_step *step = &parallel->step;
    if (!yoke_averages(parallel))
        return FAIL(YOKE_ERROR_ARGUMENT, "this engine has no average: set ema_decay");
    if (use == parallel->step.average.in_use || !parallel->step.average.begun) return YOKE_OK;
    TRY(yoke_lanes_synchronize(step));
    TRY(yoke_apply(step, 1, "average", swap, parallel));
    parallel->step.average.in_use = use;
    step->gradient.on_root = false;
    step->flight.progress = YOKE_STAGE_LOAD;
    step->versions.weights++;
    return YOKE_OK;
}

yoke_status yoke_data_parallel_use_average(yoke_data_parallel *parallel, bool use) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_use_average"));
    return yoke_leave(parallel, yoke_ranks_report(&parallel->step, use_average(parallel, use)));
}

/* On the host. */

typedef struct move_job {
    yoke_data_parallel *parallel;
    float *to;         /* the host's, or NULL */
    const float *from; /* likewise */
} move_job;

static yoke_status move(int lane, void *context) {
    const move_job *job = context;
    const yoke_data_parallel *parallel = job->parallel;
    const yoke_average *average = &parallel->step.average;
    yoke_device *device = parallel->step.lanes[lane].device;
    float *values = average->begun ? average->values : weights_of(parallel);
    if (job->to != NULL)
        TRY(yoke_device_download(device, YOKE_STREAM_COMPUTE, job->to, values, bytes_of(parallel)));
    else
        TRY(yoke_device_upload(device, YOKE_STREAM_COMPUTE, average->values, job->from,
                               bytes_of(parallel)));
    return yoke_device_synchronize(device);
}

yoke_status yoke_average_read(yoke_data_parallel *parallel, float *flat) {
    return yoke_apply(&parallel->step, 1, "average", move,
                      &(move_job){.parallel = parallel, .to = flat});
}

yoke_status yoke_average_write(yoke_data_parallel *parallel, const float *flat) {
    yoke_step *step = &parallel->step;
    parallel->step.average.begun = step->steps > 0;
    return yoke_apply(step, 1, "average", move, &(move_job){.parallel = parallel, .from = flat});
}

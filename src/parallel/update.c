/* update: the optimizer changes the root's weights from the reduced gradient on the root. */
#include <math.h>

#include "parallel/engine.h"

static yoke_status update_range(yoke_data_parallel *parallel, int worker, size_t offset,
                                size_t elements) {
    const yoke_replica_memory *root = yoke_replica_memory_of(parallel->replicas[0]);
    uint64_t begin = yoke_trace_now();
    TRY(yoke_optimizer_update(parallel->optimizers[worker], &parallel->update,
                              yoke_devices_at(parallel->devices, worker), offset, elements,
                              root->parameters + offset, root->gradients + offset));
    yoke_trace_span(parallel->trace, worker, YOKE_STAGE_UPDATE, parallel->steps, begin,
                    5 * elements * sizeof(float));
    return YOKE_OK;
}

/* The root's worker alone, or each the part whose optimizer state it holds. */
static yoke_status update_job(int worker, void *context) {
    yoke_data_parallel *parallel = context;
    if (worker >= parallel->optimizer_count) return YOKE_OK;
    if (parallel->optimizer_count == 1)
        return update_range(parallel, 0, 0, parallel->flat->elements);
    size_t offset, elements;
    yoke_owned_range(parallel, worker, &offset, &elements);
    return update_range(parallel, worker, offset, elements);
}

static yoke_status norm_job(int worker, void *context) {
    yoke_data_parallel *parallel = context;
    size_t offset, elements;
    yoke_owned_range(parallel, worker, &offset, &elements);
    return yoke_device_square_sum(yoke_devices_at(parallel->devices, worker),
                                  yoke_replica_memory_of(parallel->replicas[0])->gradients + offset,
                                  elements, &parallel->square_sums[worker]);
}

static yoke_status clip(yoke_data_parallel *parallel) {
    if (parallel->optimizer_options.clip_norm <= 0) return YOKE_OK;
    TRY(yoke_apply(parallel, YOKE_STAGE_UPDATE, norm_job));
    double squares = 0;
    for (int k = 0; k < parallel->count; k++)
        squares += parallel->square_sums[k];
    parallel->gradient_norm = sqrt(squares);
    parallel->update.gradient_scale =
        yoke_clip_scale(parallel->optimizer_options.clip_norm, parallel->gradient_norm);
    return YOKE_OK;
}

void yoke_update_begin(yoke_data_parallel *parallel, double learning_rate) {
    parallel->update = (yoke_optimizer_step){
        .step = parallel->steps,
        .learning_rate =
            learning_rate > 0 ? learning_rate : parallel->optimizer_options.learning_rate,
        .gradient_scale = 1,
    };
}

yoke_status yoke_update(yoke_data_parallel *parallel, double learning_rate) {
    yoke_update_begin(parallel, learning_rate);
    TRY(clip(parallel));
    TRY(yoke_apply(parallel, YOKE_STAGE_UPDATE, update_job));
    parallel->weights_version++;
    parallel->steps++;
    return YOKE_OK;
}

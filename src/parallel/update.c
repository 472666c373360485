/* update: the optimizer changes the root's weights from the reduced gradient on the root. */
#include <math.h>

#include "parallel/engine.h"

bool yoke_is_sharded(const yoke_data_parallel *parallel) {
    return parallel->options.schedule == YOKE_SCHEDULE_SHARDED && parallel->count > 1;
}

bool yoke_shares_update(const yoke_data_parallel *parallel) {
    return parallel->options.schedule == YOKE_SCHEDULE_SHARDED && parallel->ranks != NULL;
}

/* One optimizer a bucket on the root, or one a bucket and device. */
yoke_optimizer *yoke_optimizer_of(const yoke_data_parallel *parallel, int worker, int bucket) {
    int home = yoke_is_sharded(parallel) ? worker : 0;
    return parallel->optimizers[home * parallel->flat->bucket_count + bucket];
}

static yoke_status update_bucket(yoke_data_parallel *parallel, int worker, int bucket) {
    const yoke_replica_memory *root = yoke_replica_memory_of(parallel->replicas[0]);
    size_t offset = parallel->flat->buckets[bucket].offset;
    size_t elements = parallel->flat->buckets[bucket].elements;
    if (yoke_is_sharded(parallel)) yoke_bucket_slice(parallel, bucket, worker, &offset, &elements);
    uint64_t begin = yoke_trace_now();
    TRY(yoke_optimizer_update(yoke_optimizer_of(parallel, worker, bucket), &parallel->update,
                              yoke_devices_at(parallel->devices, worker), offset, elements,
                              root->parameters + offset, root->gradients + offset));
    yoke_trace_span(parallel->trace, worker, YOKE_STAGE_UPDATE, parallel->steps, begin,
                    5 * elements * sizeof(float));
    return YOKE_OK;
}

/* The root's worker alone, or each the part whose optimizer state it holds. */
static yoke_status update_job(int worker, void *context) {
    yoke_data_parallel *parallel = context;
    if (worker > 0 && !yoke_is_sharded(parallel)) return YOKE_OK;
    for (int bucket = 0; bucket < parallel->flat->bucket_count; bucket++)
        TRY(update_bucket(parallel, worker, bucket));
    return YOKE_OK;
}

static yoke_status norm_job(int worker, void *context) {
    yoke_data_parallel *parallel = context;
    const float *gradients = yoke_replica_memory_of(parallel->replicas[0])->gradients;
    parallel->square_sums[worker] = 0;
    for (int bucket = 0; bucket < parallel->flat->bucket_count; bucket++) {
        size_t offset, elements;
        double squares;
        yoke_bucket_slice(parallel, bucket, worker, &offset, &elements);
        TRY(yoke_device_square_sum(yoke_devices_at(parallel->devices, worker), YOKE_STREAM_COMPUTE,
                                   gradients + offset, elements, &squares));
        parallel->square_sums[worker] += squares;
    }
    return YOKE_OK;
}

/* From the workers' sums of squares, in their order. */
void yoke_clip(yoke_data_parallel *parallel) {
    double squares = 0;
    for (int k = 0; k < parallel->count; k++)
        squares += parallel->square_sums[k];
    parallel->gradient_norm = sqrt(squares);
    parallel->update.gradient_scale =
        yoke_clip_scale(parallel->optimizer_options.clip_norm, parallel->gradient_norm);
}

yoke_status yoke_update_begin(yoke_data_parallel *parallel, double learning_rate) {
    if (!isfinite(learning_rate))
        return FAIL(
            YOKE_ERROR_ARGUMENT,
            "learning_rate is %g: it must be finite; a negative number means the optimizer's own",
            learning_rate);
    parallel->update = (yoke_optimizer_step){
        .step = parallel->steps,
        .learning_rate =
            learning_rate >= 0 ? learning_rate : parallel->optimizer_options.learning_rate,
        .gradient_scale = 1,
    };
    return YOKE_OK;
}

static yoke_status update_by_slices(yoke_data_parallel *parallel) {
    if (parallel->optimizer_options.clip_norm > 0) {
        TRY(yoke_apply(parallel, YOKE_STAGE_UPDATE, norm_job));
        yoke_clip(parallel);
        TRY(yoke_check_norm(parallel));
    }
    return yoke_apply(parallel, YOKE_STAGE_UPDATE, update_job);
}

yoke_status yoke_update(yoke_data_parallel *parallel, double learning_rate) {
    if (parallel == NULL || !parallel->gradient_on_root)
        return FAIL(YOKE_ERROR_ARGUMENT, "yoke_update: %s",
                    parallel == NULL ? "the engine is NULL"
                                     : "no gradient is on the root; call yoke_reduce first");
    if (yoke_shares_update(parallel))
        return FAIL(YOKE_ERROR_ARGUMENT, "yoke_update: ranks that share the update (the sharded "
                                         "schedule) make it in yoke_data_parallel_step alone");
    TRY(yoke_update_begin(parallel, learning_rate));
    TRY(parallel->queued ? yoke_queue_update(parallel) : update_by_slices(parallel));
    parallel->weights_version++;
    parallel->steps++;
    return YOKE_OK;
}

/* scatter: cuts the rows of a batch by torch.chunk's rule and uploads each shard to its device. */
#include "parallel/engine.h"

int yoke_shard_rows(int rows, int devices, int index) {
    return yoke_chunk_of(rows, devices, index).rows;
}

yoke_status yoke_begin_batch(yoke_data_parallel *parallel, const yoke_batch *batch, int parts,
                             bool training) {
    int rows = batch->rows;
    parallel->training = training;
    parallel->progress = YOKE_STAGE_LOAD;
    parallel->losses_known = false;
    parallel->batch_rows = rows;
    parallel->parts = parts;
    parallel->micro = 0;
    parallel->micros = 0; /* a short batch may take fewer than it was to be cut in */
    while (yoke_shard_rows(rows, parts, parallel->micros) > 0)
        parallel->micros++;
    parallel->contributors = 0;
    parallel->gradient_norm = -1;
    parallel->result = (yoke_step_result){.struct_size = sizeof parallel->result};
    for (int k = 0; k < parallel->count; k++)
        parallel->shards[k] = (yoke_shard){0};
    return yoke_ranks_place_batch(parallel, batch);
}

/* Micro-batches are cut as shards are. */
static yoke_batch micro_batch(yoke_data_parallel *parallel, const yoke_batch *batch) {
    yoke_chunk part = yoke_chunk_of(batch->rows, parallel->parts, parallel->micro);
    parallel->micro_first = part.first;
    size_t first = (size_t)parallel->micro_first;
    yoke_shape shape = yoke_model_input_shape(parallel->model);
    size_t row = (size_t)shape.channels * (size_t)shape.height * (size_t)shape.width;
    yoke_batch micro = *batch;
    micro.rows = part.rows;
    micro.inputs = batch->inputs + first * row;
    if (batch->labels != NULL) micro.labels = batch->labels + first;
    if (batch->targets != NULL) micro.targets = batch->targets + first * (size_t)parallel->channels;
    return micro;
}

/* A rank may have no rows of a batch in which others have some. */
static yoke_status check_rows(const yoke_data_parallel *parallel, const yoke_batch *batch) {
    bool idle = parallel->ranks != NULL && batch->rows == 0 && batch->whole_rows > 0;
    if ((batch->rows < 1 && !idle) || batch->rows > parallel->rows_limit)
        return FAIL(YOKE_ERROR_ARGUMENT, "a batch of %d rows: this engine was made for 1 to %d",
                    batch->rows, parallel->rows_limit);
    int whole = batch->whole_rows, first = batch->first_row;
    if (whole < 0 || first < 0 || whole > parallel->options.batch ||
        (whole > 0 && first > whole - batch->rows))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%d rows from row %d of a batch of %d: they must lie in it, and it may have up "
                    "to %d",
                    batch->rows, first, whole, parallel->options.batch);
    return YOKE_OK;
}

yoke_status yoke_check_batch(const yoke_data_parallel *parallel, const yoke_batch *batch,
                             bool with_answers) {
    if (parallel == NULL || batch == NULL || batch->inputs == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "the %s is NULL",
                    parallel == NULL ? "engine"
                    : batch == NULL  ? "batch"
                                     : "batch's inputs");
    yoke_batch own;
    TRY(yoke_options_load(&own, sizeof own, batch, "yoke_batch"));
    TRY(check_rows(parallel, batch));
    if (with_answers) TRY(yoke_check_answers(parallel, batch));
    if (!parallel->classification || batch->labels == NULL) return YOKE_OK;
    for (int row = 0; row < batch->rows; row++)
        if (batch->labels[row] < 0 || batch->labels[row] >= parallel->channels)
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "row %d of the batch has label %d: this model's classes are 0 to %d", row,
                        (int)batch->labels[row], parallel->channels - 1);
    return YOKE_OK;
}

/* Where a part of the batch goes: straight to the replica, or, where the device queues, through its
 * staging memory, so that it arrives while the last batch is still computed. */
typedef struct scatter_part {
    void *to, *staging;
    const void *from;
    size_t bytes;
} scatter_part;

static yoke_status bring_parts(yoke_data_parallel *parallel, int replica, const scatter_part *parts,
                               int count) {
    yoke_device *device = yoke_devices_at(parallel->devices, replica);
    const yoke_replica_events *events = &parallel->events[replica];
    yoke_stage_span span = {
        .stage = YOKE_STAGE_SCATTER, .lane = replica, .bytes = 2 * parts[0].bytes};
    TRY(yoke_device_event_wait(events->consumed, device, YOKE_STREAM_COPY));
    TRY(yoke_stage_begin(parallel, &span));
    for (int i = 0; i < count; i++)
        TRY(yoke_device_upload(device, YOKE_STREAM_COPY,
                               parallel->queued ? parts[i].staging : parts[i].to, parts[i].from,
                               parts[i].bytes));
    TRY(yoke_stage_end(parallel, &span));
    if (!parallel->queued) return YOKE_OK;
    TRY(yoke_device_event_record(events->scattered, YOKE_STREAM_COPY));
    TRY(yoke_device_event_wait(events->scattered, device, YOKE_STREAM_COMPUTE));
    for (int i = 0; i < count; i++)
        TRY(yoke_device_copy(device, YOKE_STREAM_COMPUTE, parts[i].to, device, parts[i].staging,
                             parts[i].bytes));
    return yoke_device_event_record(events->consumed, YOKE_STREAM_COMPUTE);
}

static yoke_status scatter_shard(int replica, void *context) {
    yoke_data_parallel *parallel = context;
    yoke_shard shard = parallel->shards[replica];
    if (shard.rows == 0) return YOKE_OK;
    const yoke_replica_memory *memory = yoke_replica_memory_of(parallel->replicas[replica]);
    const yoke_staging *staging = &parallel->staging[replica];
    const yoke_batch *batch = &parallel->batch;
    yoke_shape shape = yoke_model_input_shape(parallel->model);
    size_t first = (size_t)shard.first, rows = (size_t)shard.rows;
    size_t row = (size_t)shape.channels * (size_t)shape.height * (size_t)shape.width;
    size_t bytes = rows * row * sizeof(float);
    size_t width = (size_t)parallel->channels;
    scatter_part parts[2] = {{memory->inputs, staging->inputs, batch->inputs + first * row, bytes}};
    int count = 1;
    if (parallel->classification && batch->labels != NULL)
        parts[count++] = (scatter_part){memory->labels, staging->labels, batch->labels + first,
                                        rows * sizeof *batch->labels};
    if (!parallel->classification && batch->targets != NULL)
        parts[count++] =
            (scatter_part){memory->targets, staging->targets, batch->targets + first * width,
                           rows * width * sizeof(float)};
    TRY(bring_parts(parallel, replica, parts, count));
    return YOKE_OK;
}

yoke_status yoke_scatter_micro_batch(yoke_data_parallel *parallel, const yoke_batch *batch) {
    parallel->batch = micro_batch(parallel, batch);
    int rows = parallel->batch.rows, active = 0;
    for (int k = 0; k < parallel->count; k++) {
        parallel->shards[k] = yoke_chunk_of(rows, parallel->count, k);
        active += parallel->shards[k].rows > 0;
    }
    if (active > parallel->contributors) parallel->contributors = active;
    TRY(yoke_apply(parallel, YOKE_STAGE_SCATTER, scatter_shard));
    parallel->progress = YOKE_STAGE_SCATTER;
    return YOKE_OK;
}

yoke_status yoke_scatter(yoke_data_parallel *parallel, const yoke_batch *batch) {
    TRY(yoke_check_batch(parallel, batch, false));
    if (batch->rows > parallel->micro_rows)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "a batch of %d rows at once: with %d micro-batches it is %d at most",
                    batch->rows, parallel->options.accumulate, parallel->micro_rows);
    TRY(yoke_begin_batch(parallel, batch, 1, true));
    return yoke_scatter_micro_batch(parallel, batch);
}

yoke_status yoke_scatter_output_gradients(yoke_data_parallel *parallel, const float *gradients) {
    size_t width = (size_t)parallel->channels;
    for (int k = 0; k < parallel->count; k++) {
        yoke_shard shard = parallel->shards[k];
        if (shard.rows == 0) continue;
        TRY(yoke_device_upload(yoke_devices_at(parallel->devices, k), YOKE_STREAM_COMPUTE,
                               yoke_replica_memory_of(parallel->replicas[k])->output_gradients,
                               gradients + (size_t)shard.first * width,
                               (size_t)shard.rows * width * sizeof *gradients));
    }
    parallel->progress = YOKE_STAGE_LOSS;
    return YOKE_OK;
}

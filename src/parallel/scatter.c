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
    parallel->input_gradients = false;
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

static size_t row_elements(const yoke_data_parallel *parallel) {
    yoke_shape shape = yoke_model_input_shape(parallel->model);
    return (size_t)shape.channels * (size_t)shape.height * (size_t)shape.width;
}

/* Micro-batches are cut as shards are. */
static yoke_batch micro_batch(yoke_data_parallel *parallel, const yoke_batch *batch) {
    yoke_chunk part = yoke_chunk_of(batch->rows, parallel->parts, parallel->micro);
    parallel->micro_first = part.first;
    size_t first = (size_t)part.first, row = row_elements(parallel);
    yoke_batch micro = *batch;
    micro.rows = part.rows;
    if (batch->inputs != NULL) micro.inputs = batch->inputs + first * row;
    if (batch->pixels != NULL) micro.pixels = batch->pixels + first * row;
    if (batch->placements != NULL) micro.placements = batch->placements + first;
    if (batch->labels != NULL) micro.labels = batch->labels + first;
    if (batch->targets != NULL) micro.targets = batch->targets + first * (size_t)parallel->channels;
    return micro;
}

/* Checking. */

/* A rank may have no rows of a batch in which others have some. */
static yoke_status check_rows(const yoke_data_parallel *parallel, const yoke_batch *batch) {
    bool idle = parallel->ranks != NULL && batch->rows == 0;
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

/* Inputs, or pixels where the devices decode them. */
static yoke_status check_pictures(const yoke_data_parallel *parallel, const yoke_batch *batch) {
    if (batch->rows == 0 && parallel->ranks != NULL) return YOKE_OK;
    if ((batch->inputs != NULL) == (batch->pixels != NULL))
        return FAIL(YOKE_ERROR_ARGUMENT, "the batch has %s: one of them is expected",
                    batch->inputs != NULL ? "both inputs and pixels"
                                          : "neither inputs nor pixels, both are NULL");
    if (batch->pixels == NULL) return YOKE_OK;
    if (!parallel->queued)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the batch has pixels, which %s does not decode: give it inputs, or make its "
                    "loader for these devices",
                    yoke_device_name(yoke_devices_at(parallel->devices, 0)));
    return batch->decoding != NULL
               ? YOKE_OK
               : FAIL(YOKE_ERROR_ARGUMENT, "the batch's pixels come without a decoding");
}

static yoke_status check_labels(const yoke_data_parallel *parallel, const yoke_batch *batch) {
    if (!parallel->classification || batch->labels == NULL) return YOKE_OK;
    for (int row = 0; row < batch->rows; row++)
        if (batch->labels[row] < 0 || batch->labels[row] >= parallel->channels)
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "row %d of the batch has label %d: this model's classes are 0 to %d", row,
                        (int)batch->labels[row], parallel->channels - 1);
    return YOKE_OK;
}

yoke_status yoke_take_batch(yoke_data_parallel *parallel, const yoke_batch *given,
                            bool with_answers, yoke_batch *batch) {
    TRY(yoke_pointer_check(parallel, "engine"));
    TRY(yoke_pointer_check(given, "batch"));
    TRY(yoke_options_load(batch, sizeof *batch, given, "yoke_batch"));
    TRY(check_pictures(parallel, batch));
    TRY(check_rows(parallel, batch));
    if (with_answers) TRY(yoke_check_answers(parallel, batch));
    TRY(check_labels(parallel, batch));
    if (batch->pixels == NULL) return YOKE_OK;
    return yoke_options_load(&parallel->decoding, sizeof parallel->decoding, batch->decoding,
                             "yoke_decoding");
}

/* Scattering. */

/* What a replica gets of the batch. Where devices queue it goes through staging memory, so that it
 * arrives while the last batch is still computed, and from there `to` its place; what has no
 * staging goes there straight, and what has no place is read where it is staged. */
typedef struct scatter_part {
    void *to, *staging;
    const void *from;
    size_t bytes;
} scatter_part;

typedef struct scatter_parts {
    scatter_part of[3];
    int count;
} scatter_parts;

/* One after another in the compute stream, behind the last batch. */
static yoke_status unpack(yoke_data_parallel *parallel, int replica, const scatter_parts *parts) {
    yoke_device *device = yoke_devices_at(parallel->devices, replica);
    const yoke_staging *staging = &parallel->staging[replica];
    yoke_shape shape = yoke_model_input_shape(parallel->model);
    for (int i = 0; i < parts->count; i++) {
        const scatter_part *part = &parts->of[i];
        if (part->to == NULL || part->staging == NULL) continue;
        TRY(yoke_device_copy(device, YOKE_STREAM_COMPUTE, part->to, device, part->staging,
                             part->bytes));
    }
    if (parallel->batch.pixels == NULL) return YOKE_OK;
    yoke_decode_request request = {
        .rows = parallel->shards[replica].rows,
        .picture = {shape.channels, shape.height, shape.width},
        .pixels = staging->rows,
        .placements = parallel->batch.placements != NULL ? staging->placements : NULL,
        .decoding = parallel->decoding,
        .inputs = yoke_replica_memory_of(parallel->replicas[replica])->inputs};
    return yoke_device_decode(device, &request);
}

static yoke_status bring_parts(yoke_data_parallel *parallel, int replica,
                               const scatter_parts *parts) {
    yoke_device *device = yoke_devices_at(parallel->devices, replica);
    const yoke_replica_events *events = &parallel->events[replica];
    yoke_stage_span span = {
        .stage = YOKE_STAGE_SCATTER, .lane = replica, .bytes = 2 * parts->of[0].bytes};
    TRY(yoke_device_event_wait(events->consumed, device, YOKE_STREAM_COPY));
    TRY(yoke_stage_begin(parallel, &span));
    for (int i = 0; i < parts->count; i++) {
        const scatter_part *part = &parts->of[i];
        TRY(part->staging != NULL ? yoke_device_upload(device, YOKE_STREAM_COPY, part->staging,
                                                       part->from, part->bytes)
                                  : yoke_device_upload(device, YOKE_STREAM_COMPUTE, part->to,
                                                       part->from, part->bytes));
    }
    TRY(yoke_stage_end(parallel, &span));
    if (!parallel->queued) return YOKE_OK;
    TRY(yoke_device_event_record(events->scattered, YOKE_STREAM_COPY));
    TRY(yoke_device_event_wait(events->scattered, device, YOKE_STREAM_COMPUTE));
    TRY(unpack(parallel, replica, parts));
    return yoke_device_event_record(events->consumed, YOKE_STREAM_COMPUTE);
}

static void add_pictures(const yoke_data_parallel *parallel, int replica, scatter_parts *parts) {
    const yoke_batch *batch = &parallel->batch;
    const yoke_staging *staging = &parallel->staging[replica];
    yoke_shard shard = parallel->shards[replica];
    size_t first = (size_t)shard.first, rows = (size_t)shard.rows, row = row_elements(parallel);
    if (batch->inputs != NULL)
        parts->of[parts->count++] =
            (scatter_part){yoke_replica_memory_of(parallel->replicas[replica])->inputs,
                           parallel->options.pixels ? NULL : staging->rows,
                           batch->inputs + first * row, rows * row * sizeof *batch->inputs};
    if (batch->pixels != NULL)
        parts->of[parts->count++] =
            (scatter_part){NULL, staging->rows, batch->pixels + first * row, rows * row};
    if (batch->placements != NULL)
        parts->of[parts->count++] = (scatter_part){
            NULL, staging->placements, batch->placements + first, rows * sizeof *batch->placements};
}

static void add_answers(const yoke_data_parallel *parallel, int replica, scatter_parts *parts) {
    const yoke_batch *batch = &parallel->batch;
    const yoke_staging *staging = &parallel->staging[replica];
    const yoke_replica_memory *memory = yoke_replica_memory_of(parallel->replicas[replica]);
    yoke_shard shard = parallel->shards[replica];
    size_t first = (size_t)shard.first, rows = (size_t)shard.rows;
    size_t width = (size_t)parallel->channels;
    if (parallel->classification && batch->labels != NULL)
        parts->of[parts->count++] = (scatter_part){
            memory->labels, staging->labels, batch->labels + first, rows * sizeof *batch->labels};
    if (!parallel->classification && batch->targets != NULL)
        parts->of[parts->count++] =
            (scatter_part){memory->targets, staging->targets, batch->targets + first * width,
                           rows * width * sizeof *batch->targets};
}

static yoke_status scatter_shard(int replica, void *context) {
    yoke_data_parallel *parallel = context;
    scatter_parts parts = {0};
    if (parallel->shards[replica].rows == 0) return YOKE_OK;
    add_pictures(parallel, replica, &parts);
    add_answers(parallel, replica, &parts);
    return bring_parts(parallel, replica, &parts);
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

yoke_status yoke_scatter(yoke_data_parallel *parallel, const yoke_batch *given) {
    yoke_batch batch;
    TRY(yoke_take_batch(parallel, given, false, &batch));
    if (batch.rows > parallel->micro_rows)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "a batch of %d rows at once: with %d micro-batches it is %d at most",
                    batch.rows, parallel->options.accumulate, parallel->micro_rows);
    TRY(yoke_begin_batch(parallel, &batch, 1, true));
    return yoke_scatter_micro_batch(parallel, &batch);
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

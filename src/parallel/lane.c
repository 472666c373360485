/* SPDX-License-Identifier: Apache-2.0 */
/* What each worker does with its lane: memory and events, then forward, loss, and backward segment
 * by segment. What it queues is also what recorded.c records. */
#include "parallel/lane.h"

#include <math.h>
#include <stdlib.h>

#include "parallel/engine.h"
#include "parallel/exchange_links.h"
#include "parallel/recorded.h"

/* Life. */

static yoke_status create_events(yoke_lane *lane, size_t buckets) {
    yoke_lane_events *events = &lane->events;
    TRY(yoke_device_event_create(&events->scattered, lane->device));
    TRY(yoke_device_event_create(&events->consumed, lane->device));
    TRY(yoke_device_event_create(&events->losses, lane->device));
    TRY(yoke_device_event_create(&events->computed, lane->device));
    TRY(yoke_device_event_create(&events->published, lane->device));
    events->buckets = calloc(buckets + 1, sizeof(yoke_device_event *));
    if (events->buckets == NULL) return FAIL_MEMORY(buckets * sizeof(void *), "events");
    for (size_t b = 0; b < buckets; b++)
        TRY(yoke_device_event_create(&events->buckets[b], lane->device));
    return YOKE_OK;
}

static yoke_status create_staging(const yoke_data_parallel *parallel, yoke_lane *lane) {
    yoke_staging *staging = &lane->staging;
    size_t rows = (size_t)yoke_shard_rows(parallel->limits.micro_rows, parallel->count, 0);
    size_t value = parallel->options.pixels ? sizeof(uint8_t) : sizeof(float);
    TRY(yoke_device_allocate(lane->device, rows * parallel->limits.row_elements * value,
                             "the next shard", &staging->rows));
    for (int k = 1; k < yoke_model_input_count(parallel->model); k++)
        TRY(yoke_device_allocate(
            lane->device, rows * yoke_model_input_elements(parallel->model, k) * sizeof(float),
            "the next shard", (void **)&staging->more_inputs[k - 1]));
    TRY(yoke_device_allocate(lane->device, rows * sizeof *staging->crops, "the next crops",
                             (void **)&staging->crops));
    TRY(yoke_device_allocate(lane->device, rows * sizeof *staging->placements,
                             "the next placements", (void **)&staging->placements));
    TRY(yoke_device_allocate(lane->device, rows * sizeof *staging->mixes, "the next second labels",
                             (void **)&staging->mixes));
    if (parallel->limits.labels)
        return yoke_device_allocate(lane->device,
                                    rows * parallel->limits.positions * sizeof(int32_t),
                                    "the next labels", (void **)&staging->labels);
    return yoke_device_allocate(lane->device, rows * parallel->limits.outputs * sizeof(float),
                                "the next targets", (void **)&staging->targets);
}

int yoke_lane_sums(const yoke_data_parallel *parallel) {
    if (parallel->options.shards > 0) return yoke_shards_sums(parallel);
    return parallel->options.accumulate > 1 ? 1 : 0;
}

const char *yoke_rows_advice(const yoke_data_parallel *parallel) {
    return parallel->options.shards > 0 ? "use a smaller batch, or more shards"
                                        : "use fewer rows a device, or accumulate";
}

yoke_status yoke_lane_open(yoke_data_parallel *parallel, int index) {
    yoke_lane *lane = &parallel->lanes[index];
    size_t sums = (size_t)yoke_lane_sums(parallel);
    lane->loss_is_mapped = yoke_device_ways(lane->device) & YOKE_WAY_MAPPED;
    if (sums > 0)
        TRY(yoke_memory_advice(
            yoke_device_allocate(lane->device,
                                 sums * parallel->flat->trainable_elements * sizeof(float),
                                 "accumulated gradients", (void **)&lane->accumulated),
            parallel->options.accumulate > 1
                ? "they are as large as the model, whatever the rows: accumulate 1 does without "
                  "them"
                : "each is as large as the model, whatever the rows: as many shards as devices do "
                  "without them"));
    TRY(create_events(lane, (size_t)parallel->flat->bucket_count));
    if (!parallel->queued) return YOKE_OK;
    TRY(yoke_memory_advice(create_staging(parallel, lane), yoke_rows_advice(parallel)));
    TRY(yoke_clock_create(parallel, index));
    return yoke_recordings_create(lane);
}

void yoke_lane_close(yoke_data_parallel *parallel, int index) {
    yoke_lane *lane = &parallel->lanes[index];
    yoke_lane_events *events = &lane->events;
    yoke_recordings_destroy(lane);
    yoke_clock_destroy(parallel, index);
    yoke_device_free(lane->device, lane->staging.labels);
    yoke_device_free(lane->device, lane->staging.targets);
    yoke_device_free(lane->device, lane->staging.mixes);
    yoke_device_free(lane->device, lane->staging.placements);
    yoke_device_free(lane->device, lane->staging.crops);
    for (int k = 0; k < YOKE_INPUTS_LIMIT; k++)
        yoke_device_free(lane->device, lane->staging.more_inputs[k]);
    yoke_device_free(lane->device, lane->staging.rows);
    for (int b = 0; events->buckets != NULL && b < parallel->flat->bucket_count; b++)
        yoke_device_event_destroy(events->buckets[b]);
    free(events->buckets);
    yoke_device_event_destroy(events->published);
    yoke_device_event_destroy(events->computed);
    yoke_device_event_destroy(events->losses);
    yoke_device_event_destroy(events->consumed);
    yoke_device_event_destroy(events->scattered);
    yoke_device_free(lane->device, lane->accumulated);
    yoke_replica_destroy(lane->replica);
}

/* Order between streams. */

yoke_status yoke_lanes_synchronize(yoke_data_parallel *parallel) {
    for (int k = 0; k < parallel->count; k++)
        TRY(yoke_device_synchronize(parallel->lanes[k].device));
    return YOKE_OK;
}

yoke_status yoke_lanes_order(yoke_data_parallel *parallel, yoke_stream from, yoke_stream to) {
    for (int k = 0; k < parallel->count; k++) {
        const yoke_lane *lane = &parallel->lanes[k];
        yoke_device_event *passed =
            from == YOKE_STREAM_COMPUTE ? lane->events.computed : lane->events.published;
        TRY(yoke_device_event_record(passed, from));
        TRY(yoke_device_event_wait(passed, lane->device, to));
    }
    return YOKE_OK;
}

yoke_status yoke_lane_download_scalars(const yoke_lane *lane) {
    const yoke_replica_memory *memory = lane->memory;
    if (lane->loss_is_mapped) return YOKE_OK;
    return yoke_device_download(lane->device, YOKE_STREAM_COMPUTE, memory->on_host, memory->scalars,
                                sizeof *memory->on_host);
}

/* Forward and loss. */

/* The sum of what the rows give, over all ranks, is the mean over the whole batch; with
 * mean_of_ranks, the mean over ranks of their means. */
yoke_plan_step yoke_lane_plan_step(const yoke_data_parallel *parallel, int lane) {
    const yoke_flight *flight = &parallel->flight;
    double weight = parallel->options.mean_of_ranks ? flight->own.weight * parallel->ranks.world
                                                    : flight->whole_weight;
    return (yoke_plan_step){
        .seed = parallel->options.seed,
        .step = parallel->steps,
        .first_row =
            (uint64_t)(flight->first_row + flight->micro_first + parallel->lanes[lane].shard.first),
        .loss_scale = weight > 0 ? 1.0f / (float)weight : 0,
        .mixed = flight->batch.mixes != NULL,
    };
}

yoke_status yoke_lane_queue_forward(yoke_data_parallel *parallel, int index, int rows,
                                    bool training) {
    yoke_stage_span span = {.stage = YOKE_STAGE_FORWARD, .lane = index};
    yoke_plan_step step = yoke_lane_plan_step(parallel, index);
    TRY(yoke_stage_begin(parallel, &span));
    yoke_interpreter_begin(parallel, &span);
    yoke_status status =
        yoke_replica_forward(parallel->lanes[index].replica, rows, training, &step);
    yoke_interpreter_end(parallel, index);
    TRY(status);
    yoke_straggle(parallel, index, span.begin_ns);
    return yoke_stage_end(parallel, &span);
}

yoke_status yoke_lane_queue_loss(yoke_data_parallel *parallel, int index) {
    const yoke_lane *lane = &parallel->lanes[index];
    yoke_stage_span span = {.stage = YOKE_STAGE_LOSS, .lane = index};
    yoke_plan_step step = yoke_lane_plan_step(parallel, index);
    TRY(yoke_stage_begin(parallel, &span));
    TRY(yoke_replica_loss(lane->replica, &step));
    TRY(yoke_lane_download_scalars(lane));
    TRY(yoke_stage_end(parallel, &span));
    return yoke_device_event_record(lane->events.losses, YOKE_STREAM_COMPUTE);
}

yoke_status yoke_lane_forward(yoke_data_parallel *parallel, int lane) {
    int rows = parallel->lanes[lane].shard.rows;
    yoke_status status = YOKE_OK;
    yoke_sync_norm_begin(parallel, lane);
    if (rows > 0) status = yoke_lane_queue_forward(parallel, lane, rows, parallel->flight.training);
    return yoke_sync_norm_end(parallel, lane, status);
}

yoke_status yoke_lane_note_nonfinite(yoke_data_parallel *parallel, int lane, yoke_status status) {
    if (status != YOKE_ERROR_NUMERIC) return status;
    parallel->lanes[lane].bad_statistics = true;
    *parallel->lanes[lane].memory->on_host = (yoke_loss_scalars){.loss_sum = NAN};
    return YOKE_OK;
}

yoke_status yoke_lane_loss(yoke_data_parallel *parallel, int index) {
    const yoke_lane *lane = &parallel->lanes[index];
    if (lane->shard.rows == 0 || lane->bad_statistics) return YOKE_OK;
    return yoke_lane_queue_loss(parallel, index);
}

/* Backward. */

/* Whether an earlier micro-batch left a gradient of this lane in `accumulated`. A smaller one may
 * keep more lanes busy: 5 rows on 4 devices are 2, 2, 1 and 4 rows are 1, 1, 1, 1. */
static bool has_accumulated(const yoke_data_parallel *parallel, int lane) {
    const yoke_flight *flight = &parallel->flight;
    for (int micro = 0; micro < flight->micro; micro++) {
        int rows = yoke_shard_rows(flight->rows, flight->parts, micro);
        if (yoke_shard_rows(rows, parallel->count, lane) > 0) return true;
    }
    return false;
}

/* Gradients of earlier micro-batches wait in `accumulated`: the first is copied there, later ones
 * are added, and the last one's gradient takes the sum, bucket by bucket. */
static yoke_status accumulate_bucket(yoke_data_parallel *parallel, int index, yoke_bucket bucket) {
    const yoke_lane *lane = &parallel->lanes[index];
    float *sum = lane->accumulated + bucket.offset;
    float *gradient = lane->memory->gradients + bucket.offset;
    bool last = yoke_flight_is_last(&parallel->flight);
    if (has_accumulated(parallel, index))
        return yoke_device_sum(lane->device, YOKE_STREAM_COMPUTE, last ? gradient : sum,
                               (const float *const[]){sum, gradient}, 2, bucket.elements);
    if (last) return YOKE_OK;
    return yoke_device_copy(lane->device, YOKE_STREAM_COMPUTE, sum, lane->device, gradient,
                            bucket.elements * sizeof *sum);
}

/* A lane without rows in the last micro-batch adds what it accumulated before, or nothing: an
 * all-reduce reads its gradient all the same. */
static yoke_status idle_bucket(yoke_data_parallel *parallel, int index, yoke_bucket bucket) {
    const yoke_lane *lane = &parallel->lanes[index];
    float *gradient = lane->memory->gradients + bucket.offset;
    size_t bytes = bucket.elements * sizeof *gradient;
    if (parallel->flight.by_shards) {
        TRY(yoke_device_clear(lane->device, YOKE_STREAM_COMPUTE, gradient, bytes));
        return yoke_shards_merge(parallel, index, bucket);
    }
    if (!yoke_flight_is_last(&parallel->flight)) return YOKE_OK;
    if (!has_accumulated(parallel, index))
        return yoke_device_clear(lane->device, YOKE_STREAM_COMPUTE, gradient, bytes);
    return yoke_device_copy(lane->device, YOKE_STREAM_COMPUTE, gradient, lane->device,
                            lane->accumulated + bucket.offset, bytes);
}

yoke_status yoke_lane_queue_segment(yoke_data_parallel *parallel, int index, int segment) {
    yoke_stage_span span = {.stage = YOKE_STAGE_BACKWARD, .lane = index, .bucket = segment};
    yoke_plan_step step = yoke_lane_plan_step(parallel, index);
    TRY(yoke_stage_begin(parallel, &span));
    TRY(yoke_replica_backward_segment(parallel->lanes[index].replica, segment, &step));
    if (parallel->flight.by_shards)
        TRY(yoke_shards_merge(parallel, index, parallel->flat->buckets[segment]));
    else if (parallel->flight.micros > 1)
        TRY(accumulate_bucket(parallel, index, parallel->flat->buckets[segment]));
    yoke_straggle(parallel, index, span.begin_ns);
    return yoke_stage_end(parallel, &span);
}

yoke_status yoke_lane_backward(yoke_data_parallel *parallel, int lane, yoke_exchange *exchange) {
    const yoke_lane *own = &parallel->lanes[lane];
    bool idle = own->shard.rows == 0 || own->bad_statistics;
    for (int segment = 0; segment < parallel->flat->bucket_count; segment++) {
        if (idle) TRY(yoke_sync_norm_idle_segment(parallel, lane, segment));
        TRY(idle ? idle_bucket(parallel, lane, parallel->flat->buckets[segment])
                 : yoke_lane_queue_segment(parallel, lane, segment));
        if (exchange == NULL) continue;
        TRY(yoke_device_event_record(own->events.buckets[segment], YOKE_STREAM_COMPUTE));
        yoke_exchange_links_arrive(exchange, lane, segment);
        TRY(exchange->kind->ready(exchange, lane, segment));
    }
    return YOKE_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* backward: every lane computes the gradients of its shard, last layer first, segment by segment;
 * each segment completes a bucket. */
#include "parallel/stages/no_sync.h"
#include "parallel/stages/stage_table.h"
#include "parallel/stages/sync_batch_norm.h"

/* Whether an earlier micro-batch left a gradient of this lane in `accumulated`. A smaller one may
 * keep more lanes busy: 5 rows on 4 devices are 2, 2, 1 and 4 rows are 1, 1, 1, 1. */
static bool has_accumulated(const yoke_step *step, int lane) {
    const yoke_flight *flight = &step->flight;
    for (int micro = 0; micro < flight->micro; micro++) {
        int rows = yoke_shard_rows(flight->rows, flight->parts, micro);
        if (yoke_deal_rows(step, rows, lane).rows > 0) return true;
    }
    return false;
}

/* Gradients of earlier micro-batches wait in `accumulated`: the first is copied there, later ones
 * are added, and the last one's gradient takes the sum, bucket by bucket. */
static yoke_status accumulate_bucket(yoke_step *step, int index, yoke_bucket bucket) {
    const yoke_lane *lane = &step->lanes[index];
    float *sum = lane->accumulated + bucket.offset;
    float *gradient = lane->memory->gradients + bucket.offset;
    bool last = yoke_flight_is_last(&step->flight);
    if (has_accumulated(step, index))
        return yoke_device_sum(lane->device, YOKE_STREAM_COMPUTE, last ? gradient : sum,
                               (const float *const[]){sum, gradient}, 2, bucket.elements);
    if (last) return YOKE_OK;
    return yoke_device_copy(lane->device, YOKE_STREAM_COMPUTE, sum, lane->device, gradient,
                            bucket.elements * sizeof *sum);
}

/* A lane without rows in the last micro-batch adds what it accumulated before, or nothing: an
 * all-reduce reads its gradient all the same. */
static yoke_status idle_bucket(yoke_step *step, int index, yoke_bucket bucket) {
    const yoke_lane *lane = &step->lanes[index];
    float *gradient = lane->memory->gradients + bucket.offset;
    size_t bytes = bucket.elements * sizeof *gradient;
    if (!yoke_lane_has_round(step, index)) return YOKE_OK;
    if (step->flight.by_shards) {
        TRY(yoke_device_clear(lane->device, YOKE_STREAM_COMPUTE, gradient, bytes));
        return yoke_shards_merge(step, index, bucket);
    }
    if (!yoke_flight_is_last(&step->flight)) return YOKE_OK;
    if (!has_accumulated(step, index))
        return yoke_device_clear(lane->device, YOKE_STREAM_COMPUTE, gradient, bytes);
    return yoke_device_copy(lane->device, YOKE_STREAM_COMPUTE, gradient, lane->device,
                            lane->accumulated + bucket.offset, bytes);
}

static yoke_status compute(yoke_step *step, int lane, yoke_span *span) {
    yoke_plan_step plan_step = yoke_lane_plan_step(step, lane);
    yoke_bucket bucket = step->flat->buckets[span->bucket];
    TRY(yoke_replica_backward_segment(step->lanes[lane].replica, span->bucket, &plan_step));
    TRY(yoke_gradient_is_ready(step, lane, bucket));
    if (step->flight.by_shards) return yoke_shards_merge(step, lane, bucket);
    return step->flight.micros > 1 ? accumulate_bucket(step, lane, bucket) : YOKE_OK;
}

const yoke_bar yoke_bar_backward = {
    .stage = YOKE_STAGE_BACKWARD, .on_stream = true, .work = compute};

static yoke_status run_segments(yoke_step *step, int lane, yoke_exchange *exchange) {
    const yoke_lane *own = &step->lanes[lane];
    bool idle = own->shard.rows == 0 || own->bad_statistics;
    for (int segment = 0; segment < step->flat->bucket_count; segment++) {
        if (idle) TRY(yoke_sync_norm_idle_segment(step, lane, segment));
        TRY(idle ? idle_bucket(step, lane, step->flat->buckets[segment])
                 : yoke_run_bar(step, &yoke_bar_backward, lane, segment));
        if (exchange == NULL) continue;
        TRY(yoke_device_event_record(own->events.buckets[segment], YOKE_STREAM_COMPUTE));
        TRY(yoke_exchange_ready(exchange, lane, segment));
    }
    return YOKE_OK;
}

/* Nobody cancels a backward behind which the weights change bucket by bucket. */
yoke_status yoke_lane_backward(yoke_step *step, int lane, yoke_exchange *exchange) {
    if (exchange == NULL || yoke_exchange_waits(exchange))
        return run_segments(step, lane, exchange);
    yoke_cancel_scope before = yoke_cancel_hold();
    yoke_status status = run_segments(step, lane, exchange);
    (void)yoke_cancel_enter(&before);
    return status;
}

static yoke_status begin(yoke_step *step) {
    step->gradient.on_root = false;
    step->flight.progress = YOKE_STAGE_SCATTER;
    yoke_reach_add(step);
    yoke_unsynced_begin(step);
    return YOKE_OK;
}

static yoke_status keep_gradients(int lane, void *step) {
    return yoke_lane_backward(step, lane, NULL);
}

static yoke_status end(yoke_step *step) {
    TRY(yoke_unsynced_add(step));
    step->flight.progress = YOKE_STAGE_BACKWARD;
    step->gradient.of_inputs = step->options.input_gradients;
    return YOKE_OK;
}

const yoke_stage_def yoke_stage_backward = {.stage = YOKE_STAGE_BACKWARD,
                                            .place = YOKE_ON_LANES,
                                            .begin = begin,
                                            .lane = keep_gradients,
                                            .end = end};

/* SPDX-License-Identifier: Apache-2.0 */
/* A lane's memory and events, and order between the streams of all lanes. */
#include "parallel/step/lanes.h"

#include <stdlib.h>

#include "parallel/step/deal.h"
#include "parallel/step/shards.h"

/* Life. */

static yoke_status create_events(yoke_lane *lane, size_t buckets) {
    yoke_lane_events *events = &lane->events;
    TRY(yoke_device_event_create(&events->scattered, lane->device));
    TRY(yoke_device_event_create(&events->consumed, lane->device));
    TRY(yoke_device_event_create(&events->losses, lane->device));
    TRY(yoke_device_event_create(&events->computed, lane->device));
    TRY(yoke_device_event_create(&events->published, lane->device));
    events->buckets = yoke_calloc(buckets + 1, sizeof(yoke_device_event *));
    if (events->buckets == NULL) return FAIL_MEMORY(buckets * sizeof(void *), "events");
    for (size_t b = 0; b < buckets; b++)
        TRY(yoke_device_event_create(&events->buckets[b], lane->device));
    return YOKE_OK;
}

static yoke_status create_staging(const yoke_step *step, yoke_lane *lane) {
    yoke_staging *staging = &lane->staging;
    size_t rows = (size_t)yoke_deal_most_rows(step);
    size_t value = step->options.pixels ? sizeof(uint8_t) : sizeof(float);
    TRY(yoke_device_allocate(lane->device, rows * step->limits.row_elements * value,
                             "the next shard", &staging->rows));
    for (int k = 1; k < yoke_model_input_count(step->model); k++)
        TRY(yoke_device_allocate(lane->device,
                                 rows * yoke_model_input_elements(step->model, k) * sizeof(float),
                                 "the next shard", (void **)&staging->more_inputs[k - 1]));
    TRY(yoke_device_allocate(lane->device, rows * sizeof *staging->crops, "the next crops",
                             (void **)&staging->crops));
    TRY(yoke_device_allocate(lane->device, rows * sizeof *staging->placements,
                             "the next placements", (void **)&staging->placements));
    TRY(yoke_device_allocate(lane->device, rows * sizeof *staging->mixes, "the next second labels",
                             (void **)&staging->mixes));
    if (step->limits.labels)
        return yoke_device_allocate(lane->device, rows * step->limits.positions * sizeof(int32_t),
                                    "the next labels", (void **)&staging->labels);
    return yoke_device_allocate(lane->device, rows * step->limits.outputs * sizeof(float),
                                "the next targets", (void **)&staging->targets);
}

int yoke_lane_sums(const yoke_step *step) {
    if (step->options.shards > 0) return yoke_shards_sums(step);
    return step->options.accumulate > 1 ? 1 : 0;
}

const char *yoke_rows_advice(const yoke_step *step) {
    return step->options.shards > 0 ? "use a smaller batch, or more shards"
                                    : "use fewer rows a device, or accumulate";
}

yoke_status yoke_lane_open(yoke_step *step, int index) {
    yoke_lane *lane = &step->lanes[index];
    float *placed = step->shards.placed;
    size_t sums = placed == NULL ? (size_t)yoke_lane_sums(step) : 0;
    lane->accumulated = placed;
    lane->loss_is_mapped = yoke_device_variants(lane->device) & YOKE_VARIANT_MAPPED;
    if (sums > 0)
        TRY(yoke_memory_advice(
            yoke_device_allocate(lane->device,
                                 sums * step->flat->trainable_elements * sizeof(float),
                                 "accumulated gradients", (void **)&lane->accumulated),
            step->options.accumulate > 1
                ? "they are as large as the model, whatever the rows: accumulate 1 does without "
                  "them"
                : "each is as large as the model, whatever the rows: as many shards as devices do "
                  "without them"));
    TRY(create_events(lane, (size_t)step->flat->bucket_count));
    if (!step->queued) return YOKE_OK;
    return yoke_memory_advice(create_staging(step, lane), yoke_rows_advice(step));
}

void yoke_lane_close(yoke_step *step, int index) {
    yoke_lane *lane = &step->lanes[index];
    yoke_lane_events *events = &lane->events;
    yoke_device_free(lane->device, lane->staging.labels);
    yoke_device_free(lane->device, lane->staging.targets);
    yoke_device_free(lane->device, lane->staging.mixes);
    yoke_device_free(lane->device, lane->staging.placements);
    yoke_device_free(lane->device, lane->staging.crops);
    for (int k = 0; k < YOKE_INPUTS_LIMIT; k++)
        yoke_device_free(lane->device, lane->staging.more_inputs[k]);
    yoke_device_free(lane->device, lane->staging.rows);
    for (int b = 0; events->buckets != NULL && b < step->flat->bucket_count; b++)
        yoke_device_event_destroy(events->buckets[b]);
    yoke_free(events->buckets);
    yoke_device_event_destroy(events->published);
    yoke_device_event_destroy(events->computed);
    yoke_device_event_destroy(events->losses);
    yoke_device_event_destroy(events->consumed);
    yoke_device_event_destroy(events->scattered);
    if (lane->accumulated != step->shards.placed) yoke_device_free(lane->device, lane->accumulated);
    yoke_replica_destroy(lane->replica);
}

yoke_status yoke_lane_download_scalars(const yoke_lane *lane) {
    const yoke_replica_memory *memory = lane->memory;
    if (lane->loss_is_mapped) return YOKE_OK;
    return yoke_device_download(lane->device, YOKE_STREAM_COMPUTE, memory->on_host, memory->scalars,
                                sizeof *memory->on_host);
}

/* The sum of what the rows give, over all ranks, is the mean over the whole batch; with
 * mean_of_ranks, the mean over ranks of their means. */
yoke_plan_step yoke_lane_plan_step(const yoke_step *step, int lane) {
    const yoke_flight *flight = &step->flight;
    double weight =
        step->options.mean_of_ranks ? flight->own.weight * step->ranks.world : flight->whole_weight;
    return (yoke_plan_step){
        .seed = step->options.seed,
        .step = step->steps,
        .first_row =
            (uint64_t)(flight->first_row + flight->micro_first + step->lanes[lane].shard.first),
        .loss_scale = weight > 0 ? (float)step->gradient.factor / (float)weight : 0,
        .mixed = flight->batch.mixes != NULL,
        .loss_only = flight->loss_only,
        .factors_only = flight->factors_only,
        .scalars = flight->scalars,
        .scalar_count = flight->scalar_count,
        .settled = flight->settled,
        .unscale = (float)(1 / step->gradient.factor),
        .weights_version = step->options.inference ? step->versions.weights : 0,
    };
}

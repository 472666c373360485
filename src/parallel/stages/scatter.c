/* SPDX-License-Identifier: Apache-2.0 */
/* scatter: cuts the rows of a batch by torch.chunk's rule and uploads each shard to its device. */
#include "parallel/stages/scatter.h"

#include <string.h>

#include "parallel/stages/stage_table.h"

/* One array of a shard. Devices that queue receive it in staging memory, while the last batch is
 * still computed, and copy it to its place then. Without staging it is copied to its place at once;
 * without a place it is read where it is staged. */
typedef struct scatter_part {
    void *place, *staging;
    const void *from;
    size_t bytes;
    yoke_device *location; /* of `from`; NULL: the host */
} scatter_part;

typedef struct scatter_parts {
    /* every input, the first perhaps as pixels, crops and placements; labels or targets; mixes */
    scatter_part of[YOKE_INPUTS_LIMIT + 4];
    int count;
    size_t input_bytes;
} scatter_parts;

static scatter_part pixels_of(const yoke_step *step, const yoke_lane *lane) {
    const yoke_batch *batch = &step->flight.batch;
    size_t first = (size_t)lane->shard.first, rows = (size_t)lane->shard.rows;
    size_t row = step->limits.row_elements, begin = first * row, end = begin + rows * row;
    if (batch->crops != NULL) {
        const yoke_crop *last = &batch->crops[first + rows - 1];
        begin = batch->crops[first].offset;
        end = last->offset + yoke_crop_bytes(last, yoke_model_input_shape(step->model).channels);
    }
    return (scatter_part){NULL, lane->staging.rows, batch->pixels + begin, end - begin,
                          step->flight.locations.inputs[0]};
}

/* The replica lays out what is staged, if its first layer reads no plain inputs. */
static scatter_part inputs_of(const yoke_step *step, const yoke_lane *lane) {
    size_t row = step->limits.row_elements, rows = (size_t)lane->shard.rows;
    yoke_device *location = step->flight.locations.inputs[0];
    bool staged = !step->options.pixels && location != lane->device;
    bool laid_out = staged && lane->memory->image != NULL;
    return (scatter_part){laid_out ? NULL : lane->memory->inputs[0],
                          staged ? lane->staging.rows : NULL,
                          step->flight.batch.inputs + (size_t)lane->shard.first * row,
                          rows * row * sizeof(float), location};
}

static scatter_parts parts_of(const yoke_step *step, const yoke_lane *lane) {
    const yoke_batch *batch = &step->flight.batch;
    const yoke_locations *locations = &step->flight.locations;
    const yoke_staging *staging = &lane->staging;
    size_t first = (size_t)lane->shard.first, rows = (size_t)lane->shard.rows;
    size_t width = step->limits.outputs, labels = step->limits.positions;
    scatter_parts parts = {0};
    if (batch->inputs != NULL) parts.of[parts.count++] = inputs_of(step, lane);
    if (batch->pixels != NULL) parts.of[parts.count++] = pixels_of(step, lane);
    for (int k = 0; k < yoke_model_input_count(step->model) - 1; k++) {
        size_t elements = yoke_model_input_elements(step->model, k + 1);
        parts.of[parts.count++] =
            (scatter_part){lane->memory->inputs[k + 1], staging->more_inputs[k],
                           batch->more_inputs[k] + first * elements,
                           rows * elements * sizeof **batch->more_inputs, locations->inputs[k + 1]};
    }
    for (int i = 0; i < parts.count; i++)
        parts.input_bytes += parts.of[i].bytes;
    if (batch->crops != NULL)
        parts.of[parts.count++] = (scatter_part){NULL, staging->crops, batch->crops + first,
                                                 rows * sizeof *batch->crops, NULL};
    if (batch->placements != NULL)
        parts.of[parts.count++] =
            (scatter_part){NULL, staging->placements, batch->placements + first,
                           rows * sizeof *batch->placements, NULL};
    if (step->limits.labels && batch->labels != NULL)
        parts.of[parts.count++] =
            (scatter_part){lane->memory->labels, staging->labels, batch->labels + first * labels,
                           rows * labels * sizeof *batch->labels, NULL};
    if (batch->mixes != NULL)
        parts.of[parts.count++] =
            (scatter_part){lane->memory->mixes, staging->mixes, batch->mixes + first,
                           rows * sizeof *batch->mixes, NULL};
    /* A model whose output is the loss reads none, and has no memory for them. */
    if (!step->limits.labels && batch->targets != NULL && lane->memory->targets != NULL)
        parts.of[parts.count++] =
            (scatter_part){lane->memory->targets, staging->targets, batch->targets + first * width,
                           rows * width * sizeof *batch->targets, locations->targets};
    for (int i = 0; i < parts.count; i++)
        if (parts.of[i].location == lane->device && parts.of[i].place != NULL)
            parts.of[i].staging = NULL; /* no upload to hide: one copy on the device */
    return parts;
}

/* Unpacking: from staging memory to the replica's, in the compute stream, behind the last batch.
 * Only its own members are copied: padding stays zero. */

static void set_decoding(const yoke_step *step, const yoke_lane *lane, const void *staged,
                         yoke_decode_request *request) {
    const yoke_batch *batch = &step->flight.batch;
    request->rows = lane->shard.rows;
    request->pixels = batch->pixels != NULL ? staged : NULL;
    request->decoded = batch->inputs != NULL ? staged : NULL;
    request->crops = batch->crops != NULL ? lane->staging.crops : NULL;
    request->placements = batch->placements != NULL ? lane->staging.placements : NULL;
    if (batch->pixels != NULL)
        memcpy(&request->decoding, &step->flight.decoding, sizeof request->decoding);
}

/* The first part is input 0. */
void yoke_unpacking_of(const yoke_step *step, int index, yoke_unpacking *unpacking) {
    const yoke_lane *lane = &step->lanes[index];
    scatter_parts parts = parts_of(step, lane);
    memset(unpacking, 0, sizeof *unpacking);
    for (int i = 0; i < parts.count; i++) {
        const scatter_part *part = &parts.of[i];
        if (part->place == NULL || part->staging == NULL) continue;
        unpacking->copies[unpacking->count].to = part->place;
        unpacking->copies[unpacking->count].from = part->staging;
        unpacking->copies[unpacking->count++].bytes = part->bytes;
    }
    set_decoding(step, lane, parts.of[0].place == NULL ? lane->staging.rows : NULL,
                 &unpacking->decoding);
}

yoke_status yoke_unpacking_run(const yoke_lane *lane, const yoke_unpacking *unpacking) {
    for (size_t i = 0; i < unpacking->count; i++)
        TRY(yoke_device_copy(lane->device, YOKE_STREAM_COMPUTE, unpacking->copies[i].to,
                             lane->device, unpacking->copies[i].from, unpacking->copies[i].bytes));
    return yoke_replica_decode(lane->replica, &unpacking->decoding);
}

yoke_status yoke_lane_unpack(yoke_step *step, int index) {
    yoke_lane *lane = &step->lanes[index];
    yoke_unpacking unpacking;
    if (!lane->packed) return YOKE_OK;
    lane->packed = false;
    yoke_unpacking_of(step, index, &unpacking);
    TRY(yoke_unpacking_run(lane, &unpacking));
    lane->reader = lane->events.consumed;
    return yoke_device_event_record(lane->events.consumed, YOKE_STREAM_COMPUTE);
}

/* Upload. */

static yoke_status receive(const yoke_lane *lane, const scatter_part *part) {
    bool staged = part->staging != NULL;
    void *to = staged ? part->staging : part->place;
    yoke_stream stream = staged ? YOKE_STREAM_COPY : YOKE_STREAM_COMPUTE;
    if (part->location != NULL || !staged)
        return yoke_device_receive(lane->device, stream, to, part->location, part->from,
                                   part->bytes);
    return yoke_device_queue_upload(lane->device, stream, to, part->from, part->bytes);
}

static yoke_status upload(yoke_step *step, int lane, yoke_span *span) {
    const yoke_lane *own = &step->lanes[lane];
    scatter_parts parts = parts_of(step, own);
    span->bytes = 2 * parts.input_bytes;
    for (int i = 0; i < parts.count; i++)
        TRY(receive(own, &parts.of[i]));
    if (!step->flight.locations.ordinary) return YOKE_OK;
    return yoke_device_finish_uploads(own->device, YOKE_STREAM_COPY);
}

static const yoke_bar upload_bar = {.stage = YOKE_STAGE_SCATTER, .on_stream = true, .work = upload};

/* The compute stream waits for uploads that the host has not waited for. */
yoke_status yoke_lane_scatter(int index, void *context) {
    yoke_step *step = context;
    yoke_lane *lane = &step->lanes[index];
    if (lane->shard.rows == 0) return YOKE_OK;
    TRY(yoke_device_event_wait(lane->reader, lane->device, YOKE_STREAM_COPY));
    lane->packed = true;
    TRY(yoke_run_bar(step, &upload_bar, index, YOKE_NO_BUCKET));
    if (step->flight.locations.ordinary) return YOKE_OK;
    TRY(yoke_device_event_record(lane->events.scattered, YOKE_STREAM_COPY));
    return yoke_device_event_wait(lane->events.scattered, lane->device, YOKE_STREAM_COMPUTE);
}

static yoke_status begin(yoke_step *step) {
    yoke_flight_cut(step);
    return YOKE_OK;
}

static size_t bytes(const yoke_step *step, int lane) {
    const yoke_lane *own = &step->lanes[lane];
    return own->shard.rows > 0 ? parts_of(step, own).input_bytes : 0;
}

/* nn.DataParallel's batch lies on the root; the other schedules upload each shard to its device. */
const yoke_stage_def yoke_stage_scatter = {.stage = YOKE_STAGE_SCATTER,
                                           .place = YOKE_ON_LANES,
                                           .begin = begin,
                                           .lane = yoke_lane_scatter,
                                           .progress = YOKE_STAGE_SCATTER,
                                           .bytes = bytes,
                                           .travels = yoke_steps_by_phases};

static yoke_status scatter_to_lane(yoke_step *step, const yoke_lane *lane,
                                   const float *const *gradients, yoke_device *const *locations) {
    for (int k = 0; k < yoke_model_output_count(step->model); k++) {
        size_t elements = yoke_model_output_elements(step->model, k);
        size_t bytes = (size_t)lane->shard.rows * elements * sizeof **gradients;
        float *to = lane->memory->output_gradients[k];
        if (gradients[k] == NULL) {
            TRY(yoke_device_clear(lane->device, YOKE_STREAM_COMPUTE, to, bytes));
            continue;
        }
        TRY(yoke_device_receive(lane->device, YOKE_STREAM_COMPUTE, to, locations[k],
                                gradients[k] + (size_t)lane->shard.first * elements, bytes));
        TRY(yoke_gradient_scale(step, lane->device, to, bytes / sizeof *to));
    }
    return YOKE_OK;
}

/* Then the caller may write to its arrays again: the host waits, unless all of them lie on GPUs and
 * the batch has a stream, which then waits. */
static yoke_status give_back(yoke_step *step, const float *const *gradients,
                             yoke_device *const *locations) {
    bool by_stream = yoke_host_stream_is_given(step);
    for (int k = 0; k < yoke_model_output_count(step->model); k++)
        by_stream &= gradients[k] == NULL || locations[k] != NULL;
    if (by_stream) return yoke_host_stream_follow_lanes(step);
    for (int k = 0; k < step->count; k++) {
        const yoke_lane *lane = &step->lanes[k];
        TRY(yoke_device_event_record(lane->events.computed, YOKE_STREAM_COMPUTE));
        TRY(yoke_device_event_synchronize(lane->events.computed));
    }
    return YOKE_OK;
}

yoke_status yoke_scatter_output_gradients(yoke_step *step, const float *const *gradients) {
    yoke_device *locations[YOKE_OUTPUTS_LIMIT] = {NULL};
    step->flight.reached = 0;
    TRY(yoke_host_stream_arrive_again(step));
    for (int k = 0; k < yoke_model_output_count(step->model); k++) {
        TRY(yoke_locate(step, gradients[k], &locations[k]));
        if (gradients[k] != NULL) step->flight.reached |= 1u << k;
    }
    for (int k = 0; k < step->count; k++)
        if (step->lanes[k].shard.rows > 0)
            TRY(scatter_to_lane(step, &step->lanes[k], gradients, locations));
    step->flight.progress = YOKE_STAGE_LOSS;
    return give_back(step, gradients, locations);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A batch before it travels: checks, micro-batches, shards, and the order of the stages by hand. */
#include "parallel/step/flight.h"

#include <math.h>

#include "parallel/step/deal.h"
#include "parallel/step/host_stream.h"
#include "parallel/step/loss_scaler.h"
#include "parallel/step/models.h"
#include "parallel/step/ranks.h"
#include "parallel/step/shards.h"

/* Checks. */

static yoke_status check_rows(const yoke_step *step, const yoke_batch *batch) {
    int most = step->options.batch;
    int least = step->ranks.world > 1 ? 0 : 1; /* other ranks may have some */
    if (batch->rows < least || batch->rows > step->limits.rows)
        return FAIL(YOKE_ERROR_ARGUMENT, "a batch of %d rows: this engine was made for %d to %d",
                    batch->rows, least, step->limits.rows);
    int whole = batch->whole_rows, first = batch->first_row;
    if (!(batch->whole_weight >= 0) || isinf(batch->whole_weight))
        return FAIL(YOKE_ERROR_ARGUMENT, "a batch with whole_weight %g: must be finite, at least 0",
                    batch->whole_weight);
    if (whole < 0 || first < 0 || whole > most || (whole > 0 && first > whole - batch->rows))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%d rows from row %d of a batch of %d: they must lie in it, and it may have up "
                    "to %d",
                    batch->rows, first, whole, most);
    return YOKE_OK;
}

/* nn.DataParallel cuts arrays to the shortest one without a word. */
static yoke_status check_count(const char *name, size_t count, int rows, size_t width) {
    if (count == 0 || count == (size_t)rows * width) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "the batch's %s hold %zu values, but its %d rows of %zu are %zu: give all arrays "
                "as many rows",
                name, count, rows, width, (size_t)rows * width);
}

static yoke_status check_counts(const yoke_step *step, const yoke_batch *batch) {
    TRY(check_count("inputs", batch->inputs_count, batch->rows, step->limits.row_elements));
    TRY(check_count("labels", batch->labels_count, batch->rows, step->limits.positions));
    /* A loss of labels reads no targets: any number of them a row. */
    if (step->limits.labels && batch->rows > 0 && batch->targets_count % (size_t)batch->rows == 0)
        return YOKE_OK;
    return check_count("targets", batch->targets_count, batch->rows, step->limits.outputs);
}

/* Staging memory has room for crops of the model's own rows. */
static yoke_status check_crops(const yoke_step *step, const yoke_batch *batch) {
    yoke_shape shape = yoke_model_input_shape(step->model);
    const yoke_crop *crop = batch->crops;
    if (crop == NULL) return YOKE_OK;
    if (step->options.pixels)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the batch has crops, for which this engine has no room: leave "
                    "yoke_data_parallel_options.pixels false, as yoke_loader_pixels says");
    if (shape.channels == 3 && shape.height == crop->down.outputs &&
        shape.width == crop->across.outputs)
        return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "the batch has photographs of 3x%dx%d, model '%s' reads %dx%dx%d: open images with "
                "the size of the model",
                crop->down.outputs, crop->across.outputs, yoke_model_name(step->model),
                shape.channels, shape.height, shape.width);
}

/* Inputs, or pixels where the devices decode them. */
static yoke_status check_inputs(const yoke_step *step, const yoke_batch *batch) {
    if (batch->rows == 0) return YOKE_OK;
    if ((batch->inputs != NULL) == (batch->pixels != NULL))
        return FAIL(YOKE_ERROR_ARGUMENT, "the batch has %s: one of them is expected",
                    batch->inputs != NULL ? "both inputs and pixels"
                                          : "neither inputs nor pixels, both are NULL");
    if (batch->pixels == NULL && (batch->placements != NULL || batch->crops != NULL))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the batch has placements or crops, which say where pixels lie, but inputs in "
                    "place of pixels: leave them NULL");
    if (batch->pixels == NULL) return YOKE_OK;
    if (!step->queued)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the batch has pixels, which %s does not decode: give it inputs, or make its "
                    "loader for these devices",
                    yoke_device_name(step->lanes[0].device));
    if (batch->decoding == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "the batch's pixels come without a decoding");
    return check_crops(step, batch);
}

/* Every input of the model, for as many rows: nn.DataParallel pairs what is there. */
static yoke_status check_more_inputs(const yoke_step *step, const yoke_batch *batch) {
    int wanted = yoke_model_input_count(step->model);
    int most =
        yoke_model_input_count(yoke_models_first(step)); /* of which another model reads some */
    int given = 1 + (batch->more_inputs != NULL ? batch->more_input_count : 0);
    if (batch->rows == 0) return YOKE_OK;
    if (given != wanted && given != most)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the batch has %d input%s, model '%s' reads %d: the first is `inputs`, the "
                    "others are `more_inputs`",
                    given, given == 1 ? "" : "s", yoke_model_name(step->model), wanted);
    for (int k = 1; k < wanted; k++) {
        yoke_value_info info = {.struct_size = sizeof info};
        TRY(yoke_model_describe_input(step->model, k, &info));
        if (batch->more_inputs[k - 1] == NULL)
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "input %d of the batch, '%s', is NULL: more_inputs[%d]", k, info.name,
                        k - 1);
        if (batch->more_inputs_counts == NULL) continue;
        TRY(check_count(info.name, batch->more_inputs_counts[k - 1], batch->rows, info.row_count));
    }
    return YOKE_OK;
}

yoke_status yoke_locate(const yoke_step *step, const void *array, yoke_device **location) {
    bool pinned = false;
    *location = NULL;
    if (!step->queued || array == NULL) return YOKE_OK;
    return yoke_devices_locate(step->devices, array, location, &pinned);
}

/* Notes host memory that is not pinned. */
static yoke_status locate(yoke_step *step, const void *array, yoke_device **location) {
    bool pinned = false;
    *location = NULL;
    if (!step->queued || array == NULL) return YOKE_OK;
    TRY(yoke_devices_locate(step->devices, array, location, &pinned));
    if (*location == NULL && !pinned) step->flight.locations.ordinary = true;
    return YOKE_OK;
}

/* The first device that an array of the batch lies on. */
static yoke_device *first_of(const yoke_locations *locations, yoke_device *labels) {
    for (int k = 0; k < YOKE_INPUTS_LIMIT; k++)
        if (locations->inputs[k] != NULL) return locations->inputs[k];
    return locations->targets != NULL ? locations->targets : labels;
}

/* Labels of a device come to the host: each is checked, and they are few. */
static yoke_status locate_arrays(yoke_step *step, yoke_batch *batch) {
    yoke_locations *locations = &step->flight.locations;
    const void *inputs = batch->pixels != NULL ? (const void *)batch->pixels : batch->inputs;
    const void *const hosts[] = {batch->crops, batch->placements, batch->mixes};
    yoke_device *labels = NULL, *none = NULL;
    *locations = (yoke_locations){{NULL}, NULL, NULL, false};
    if (batch->rows == 0) return YOKE_OK;
    TRY(locate(step, inputs, &locations->inputs[0]));
    for (int k = 1; k < yoke_model_input_count(step->model); k++)
        TRY(locate(step, batch->more_inputs[k - 1], &locations->inputs[k]));
    for (int i = 0; i < 3; i++)
        TRY(locate(step, hosts[i], &none));
    if (step->limits.labels)
        TRY(locate(step, batch->labels, &labels));
    else
        TRY(locate(step, batch->targets, &locations->targets));
    TRY(yoke_host_stream_arrive(step, batch->stream, first_of(locations, labels),
                                &locations->stream));
    if (labels == NULL) return YOKE_OK;
    locations->ordinary = true; /* step->labels */
    TRY(yoke_device_download(labels, YOKE_STREAM_COPY, step->labels, batch->labels,
                             (size_t)batch->rows * step->limits.positions * sizeof *batch->labels));
    batch->labels = step->labels;
    return YOKE_OK;
}

static yoke_status check_labels(const yoke_step *step, const yoke_batch *batch) {
    if (!step->limits.labels || batch->labels == NULL) return YOKE_OK;
    size_t positions = step->limits.positions;
    for (size_t i = 0; i < (size_t)batch->rows * positions; i++)
        if ((batch->labels[i] < 0 || batch->labels[i] >= step->limits.channels) &&
            !yoke_model_ignores(step->model, batch->labels[i]))
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "row %zu of the batch has label %d: this model's classes are 0 to %d",
                        i / positions, (int)batch->labels[i], step->limits.channels - 1);
    return YOKE_OK;
}

/* As PyTorch, which takes no ignore_index with probabilities as targets. */
static yoke_status check_mixes(const yoke_step *step, const yoke_batch *batch) {
    if (batch->mixes == NULL) return YOKE_OK;
    if (!step->limits.labels)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the batch has mixes, which are second labels, but the %s loss reads targets: "
                    "mix those",
                    yoke_model_loss_name(step->model));
    if (step->limits.positions > 1 || yoke_model_has_ignore_index(step->model))
        return FAIL(YOKE_ERROR_ARGUMENT, "mixed labels with %s: leave mixup or mixes out",
                    step->limits.positions > 1 ? "a label for each position" : "ignore_index");
    for (int i = 0; i < batch->rows; i++) {
        const yoke_label_mix *mix = &batch->mixes[i];
        if (mix->label < 0 || mix->label >= step->limits.channels)
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "row %d of the batch has the second label %d: this model's classes are 0 "
                        "to %d",
                        i, (int)mix->label, step->limits.channels - 1);
        if (!(mix->share >= 0 && mix->share <= 1))
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "row %d of the batch gives its label a share of %g: must be 0 to 1", i,
                        (double)mix->share);
    }
    return YOKE_OK;
}

/* The ids of one input; those on a device make NaN of a wrong one. */
static yoke_status check_ids(const yoke_step *step, int input, const float *ids, int rows) {
    int tokens = yoke_model_tokens(step->model, input);
    size_t row = yoke_model_input_elements(step->model, input);
    bool on_device = step->flight.locations.inputs[input] != NULL;
    if (tokens == 0 || on_device || ids == NULL) return YOKE_OK;
    for (size_t i = 0; i < (size_t)rows * row; i++)
        if (!(ids[i] >= 0 && ids[i] < (float)tokens && ids[i] == floorf(ids[i])))
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "row %zu of the batch has token id %g at position %zu: this model's tokens "
                        "are 0 to %d",
                        i / row, (double)ids[i], i % row, tokens - 1);
    return YOKE_OK;
}

static yoke_status check_tokens(const yoke_step *step, const yoke_batch *batch) {
    TRY(check_ids(step, 0, batch->inputs, batch->rows));
    for (int k = 1; batch->rows > 0 && k < yoke_model_input_count(step->model); k++)
        TRY(check_ids(step, k, batch->more_inputs[k - 1], batch->rows));
    return YOKE_OK;
}

yoke_status yoke_flight_check(yoke_step *step, const yoke_batch *given, bool with_labels,
                              yoke_batch *batch) {
    yoke_decoding *decoding = &step->flight.decoding;
    TRY(yoke_pointer_check(given, "batch"));
    TRY(yoke_options_load(batch, sizeof *batch, given, "yoke_batch"));
    TRY(yoke_models_select(step, batch->model));
    TRY(check_rows(step, batch));
    TRY(check_counts(step, batch));
    TRY(check_inputs(step, batch));
    TRY(check_more_inputs(step, batch));
    if (with_labels) TRY(yoke_flight_require_labels(step, batch));
    TRY(locate_arrays(step, batch));
    TRY(check_labels(step, batch));
    TRY(check_mixes(step, batch));
    TRY(check_tokens(step, batch));
    if (batch->pixels == NULL) return YOKE_OK;
    return yoke_options_load(decoding, sizeof *decoding, batch->decoding, "yoke_decoding");
}

/* Cutting. */

/* The ranks' rows must be those of their shards, or one shard would lie on two of them. */
static yoke_status check_place(const yoke_step *step) {
    const yoke_flight *flight = &step->flight;
    yoke_chunk own = yoke_shards_of_rank(step, flight->whole_rows);
    if (!flight->by_shards || (flight->rows == own.rows && flight->first_row == own.first))
        return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%d rows from row %d of %d: with %d shards rank %d of %d has %d rows from row %d",
                flight->rows, flight->first_row, flight->whole_rows, step->options.shards,
                step->ranks.rank, step->ranks.world, own.rows, own.first);
}

int yoke_flight_micros(int rows, int parts) {
    int micros = 0;
    while (yoke_shard_rows(rows, parts, micros) > 0)
        micros++;
    return micros > 0 ? micros : 1;
}

yoke_step_result yoke_flight_no_result(yoke_label_count labels) {
    return (yoke_step_result){
        .struct_size = sizeof(yoke_step_result), .weight = labels.weight, .labels = labels.labels};
}

yoke_status yoke_flight_begin(yoke_step *step, const yoke_batch *batch, bool in_one,
                              bool training) {
    bool by_shards = step->options.shards > 0 && !in_one;
    int parts = in_one ? 1 : by_shards ? step->shards.rounds : step->options.accumulate;
    yoke_decoding decoding = step->flight.decoding;
    yoke_locations locations = step->flight.locations;
    yoke_label_count own =
        yoke_model_count_labels(step->model, batch->labels, batch->rows, batch->mixes != NULL);
    step->flight = (yoke_flight){
        .whole = batch,
        .decoding = decoding,
        .locations = locations,
        .training = training,
        .rows = batch->rows,
        .own = own,
        .by_shards = by_shards,
        .parts = parts,
        .micros = by_shards ? parts : yoke_flight_micros(batch->rows, parts),
        .progress = YOKE_STAGE_LOAD,
        .gradient_norm = -1,
        .result = yoke_flight_no_result(own),
    };
    step->gradient.of_inputs = false;
    if (training) step->gradient.factor = step->scaler.now.scale;
    step->failed_lane = -1;
    for (int k = 0; k < step->count; k++) {
        step->lanes[k].shard = (yoke_shard){0};
        step->lanes[k].round = 0;
        step->lanes[k].done = (yoke_step_result){0};
    }
    TRY(yoke_ranks_place_batch(step, batch));
    return step->ranks.world > 1 ? check_place(step) : YOKE_OK;
}

yoke_status yoke_flight_begin_again(yoke_step *step) {
    yoke_flight *flight = &step->flight;
    yoke_host_loss *host = flight->host;
    double learning_rate = flight->learning_rate;
    TRY(yoke_flight_begin(step, flight->whole, false, true));
    flight->host = host;
    flight->learning_rate = learning_rate;
    flight->micro = -1; /* the runner goes on with the next one */
    return YOKE_OK;
}

/* Every lane takes the next one of its shards from the whole batch; a lane without rows counts as a
 * gradient of zero. */
static void cut_round(yoke_step *step, const yoke_batch *batch) {
    yoke_flight *flight = &step->flight;
    int whole = step->ranks.world > 1 ? flight->whole_rows : flight->rows;
    bool finite = !flight->training || yoke_flight_is_finite_so_far(flight);
    flight->batch = *batch;
    flight->batch.rows = 0;
    if (step->count > flight->contributors) flight->contributors = step->count;
    for (int k = 0; k < step->count; k++) {
        yoke_lane *lane = &step->lanes[k];
        lane->round = flight->micro;
        lane->shard = yoke_shard_of_lane(step, whole, k, lane->round);
        if (!finite) lane->shard.rows = 0;
        lane->bad_statistics = false;
        lane->position = flight->batch.rows;
        flight->batch.rows += lane->shard.rows;
    }
}

void yoke_flight_begin_rounds(yoke_step *step) {
    yoke_flight *flight = &step->flight;
    flight->batch = *flight->whole;
    flight->micros = 1;
    if (step->count > flight->contributors) flight->contributors = step->count;
}

void yoke_flight_cut_round(yoke_step *step, int index) {
    yoke_lane *lane = &step->lanes[index];
    int whole = step->ranks.world > 1 ? step->flight.whole_rows : step->flight.rows;
    lane->shard = yoke_shard_of_lane(step, whole, index, lane->round);
    if (!isfinite(lane->done.loss)) lane->shard.rows = 0;
    lane->bad_statistics = false;
}

/* After a loss that is not finite the rest of the batch is left out: the step fails, but other
 * ranks still wait for this rank's buckets. */
static void cut_micro_batch(yoke_step *step, const yoke_batch *batch) {
    yoke_flight *flight = &step->flight;
    yoke_chunk part = yoke_chunk_of(batch->rows, flight->parts, flight->micro);
    size_t first = (size_t)part.first, row = step->limits.row_elements;
    yoke_batch *micro = &flight->batch;
    *micro = *batch;
    micro->rows = part.rows;
    if (flight->training && !yoke_flight_is_finite_so_far(flight)) micro->rows = 0;
    if (batch->inputs != NULL) micro->inputs = batch->inputs + first * row;
    for (int k = 0; micro->rows > 0 && k < yoke_model_input_count(step->model) - 1; k++)
        flight->more_inputs[k] =
            batch->more_inputs[k] + first * yoke_model_input_elements(step->model, k + 1);
    micro->more_inputs = flight->more_inputs;
    if (batch->crops != NULL)
        micro->crops = batch->crops + first; /* whose offsets find the pixels */
    else if (batch->pixels != NULL)
        micro->pixels = batch->pixels + first * row;
    if (batch->placements != NULL) micro->placements = batch->placements + first;
    if (batch->labels != NULL) micro->labels = batch->labels + first * step->limits.positions;
    if (batch->mixes != NULL) micro->mixes = batch->mixes + first;
    if (batch->targets != NULL && !step->limits.labels)
        micro->targets = batch->targets + first * step->limits.outputs;
    flight->micro_first = part.first;
    int active = 0;
    for (int k = 0; k < step->count; k++) {
        step->lanes[k].shard = yoke_deal_rows(step, micro->rows, k);
        step->lanes[k].position = step->lanes[k].shard.first;
        step->lanes[k].bad_statistics = false;
        active += step->lanes[k].shard.rows > 0;
    }
    if (active > flight->contributors) flight->contributors = active;
}

void yoke_flight_cut(yoke_step *step) {
    if (step->flight.by_shards)
        cut_round(step, step->flight.whole);
    else
        cut_micro_batch(step, step->flight.whole);
}

bool yoke_flight_is_idle(const yoke_step *step, int lane) {
    const yoke_flight *flight = &step->flight;
    if (step->lanes[lane].shard.rows > 0) return false;
    int whole = step->ranks.world > 1 ? flight->whole_rows : flight->rows;
    if (flight->by_shards) return yoke_shard_of_lane(step, whole, lane, 0).rows == 0;
    int rows = yoke_shard_rows(flight->rows, flight->parts, 0);
    return yoke_deal_rows(step, rows, lane).rows == 0;
}

bool yoke_flight_is_last(const yoke_flight *flight) {
    return flight->micro == flight->micros - 1;
}

bool yoke_lane_is_last(const yoke_step *step, int lane) {
    if (!step->flight.by_shards) return yoke_flight_is_last(&step->flight);
    return step->lanes[lane].round == yoke_deal_shards(step, lane) - 1;
}

bool yoke_lane_has_round(const yoke_step *step, int lane) {
    return !step->flight.by_shards || step->lanes[lane].round < yoke_deal_shards(step, lane);
}

bool yoke_flight_is_finite_so_far(const yoke_flight *flight) {
    return isfinite(flight->result.loss);
}

bool yoke_flight_is_finite(const yoke_step *step) {
    for (int k = 0; k < step->count; k++)
        if (!isfinite(step->lanes[k].done.loss) ||
            (step->lanes[k].shard.rows > 0 && !isfinite(step->lanes[k].memory->on_host->loss_sum)))
            return false;
    return yoke_flight_is_finite_so_far(&step->flight);
}

/* Counters. */

void yoke_count_forward(yoke_step *step) {
    step->versions.buffers++;
    step->ranks.buffers_are_equal = step->ranks.world == 1;
    bool counted = step->flight.by_shards && step->flight.micro > 0;
    bool rows_elsewhere = step->sync_norm != NULL && step->ranks.world > 1;
    if (counted || (step->flight.batch.rows == 0 && !rows_elsewhere)) return;
    step->batches_tracked++;
}

void yoke_count_update(yoke_step *step, bool published) {
    step->versions.weights++;
    for (int k = 0; k < step->count && published; k++)
        step->lanes[k].weights_version = step->versions.weights;
    yoke_models_count(step);
    yoke_loss_scaler_count(step);
    step->steps++;
}

/* The order of the stages by hand. */

yoke_status yoke_flight_require(const yoke_step *step, const char *stage, yoke_stage first,
                                yoke_stage last) {
    if (step == NULL) return FAIL(YOKE_ERROR_ARGUMENT, "%s: the engine is NULL", stage);
    yoke_stage progress = step->flight.progress;
    if (progress >= first && progress <= last) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s comes after %s; the last stage of this batch was %s",
                stage, yoke_stage_name(first), yoke_stage_name(progress));
}

yoke_status yoke_flight_require_training(const yoke_step *step, const char *stage) {
    if (step->flight.training) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s: the forward before it was in evaluation mode", stage);
}

yoke_status yoke_flight_require_labels(const yoke_step *step, const yoke_batch *batch) {
    if (batch->rows == 0) return YOKE_OK;
    if (step->limits.labels && batch->labels == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "the batch has no labels, which cross-entropy needs");
    if (yoke_model_reads_targets(step->model) && batch->targets == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "the batch has no targets, which the %s loss needs",
                    yoke_model_loss_name(step->model));
    return YOKE_OK;
}

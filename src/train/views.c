/* SPDX-License-Identifier: Apache-2.0 */
/* The views and their weights are infer_mirror and infer_mirror_translate of airbench94. */
#include "train/views.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "parallel/parallel.h"

typedef struct view {
    bool flip;
    int shift; /* pixels down and to the right */
    float weight;
} view;

static const view two[] = {{false, 0, 0.5f}, {true, 0, 0.5f}};
static const view six[] = {{false, 0, 0.25f},  {true, 0, 0.25f},   {false, -1, 0.125f},
                           {true, -1, 0.125f}, {false, 1, 0.125f}, {true, 1, 0.125f}};

/* A batch as one of its views, and the outputs. */
typedef struct viewed {
    yoke_batch batch;
    float *inputs;              /* [rows of the batch, row]; NULL: it has pixels */
    yoke_placement *placements; /* [rows of the batch] */
    float *outputs, *mean;      /* [rows of the batch, classes] */
    size_t rows, classes;
    yoke_shape shape;
} viewed;

yoke_status yoke_views_check(const yoke_trainer_options *options) {
    int views = options->test_views;
    if (views != 0 && views != 1 && views != 2 && views != 6)
        return FAIL(YOKE_ERROR_ARGUMENT, "test_views is %d: there are 1, 2 or 6", views);
    if (views > 1 && options->mode == YOKE_MODE_DISTRIBUTED_DATA_PARALLEL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "test_views is %d: several views need one process for all devices", views);
    if (views > 1 && options->custom_loss != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "test_views is %d: not with a loss of the host program: leave one out", views);
    return YOKE_OK;
}

static yoke_status check_rows(const yoke_run *run, const yoke_batch *batch) {
    yoke_shape shape = run->training.info.shape, output = yoke_model_output_shape(run->model);
    bool classifies = yoke_model_loss_kind(run->model) == YOKE_LOSS_CROSS_ENTROPY && output.flat;
    if (!shape.flat && !shape.sequence && shape.height > 1 && shape.width > 1 && classifies &&
        batch->labels != NULL && batch->model == 0)
        return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "test_views is %d: views are for images with one label and cross-entropy",
                run->options.test_views);
}

static yoke_status open_views(viewed *at, const yoke_run *run, const yoke_batch *batch) {
    at->batch = *batch;
    at->rows = (size_t)batch->rows;
    at->shape = run->training.info.shape;
    at->classes = (size_t)yoke_model_output_shape(run->model).channels;
    size_t values = (size_t)at->shape.channels * (size_t)at->shape.height * (size_t)at->shape.width;
    at->outputs = yoke_calloc(at->rows * at->classes, sizeof *at->outputs);
    at->mean = yoke_calloc(at->rows * at->classes, sizeof *at->mean);
    if (batch->pixels != NULL)
        at->placements = yoke_calloc(at->rows, sizeof *at->placements);
    else
        at->inputs = yoke_malloc(at->rows * values * sizeof *at->inputs);
    if (at->outputs == NULL || at->mean == NULL || (at->inputs == NULL && at->placements == NULL))
        return FAIL_MEMORY(at->rows * values * sizeof *at->inputs, "views of a batch");
    return YOKE_OK;
}

static void close_views(viewed *at) {
    yoke_free(at->inputs);
    yoke_free(at->placements);
    yoke_free(at->outputs);
    yoke_free(at->mean);
}

static void write_plane(const viewed *at, const view *as, const float *from, float *to) {
    int height = at->shape.height, width = at->shape.width;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            int line = yoke_decode_source(y + as->shift, height, true);
            int column = (as->flip ? width - 1 - x : x) + as->shift;
            column = yoke_decode_source(column, width, true);
            to[y * width + x] = from[line * width + column];
        }
}

/* GPUs place pixels; inputs are copied. */
static void see(viewed *at, const view *as, const yoke_batch *batch) {
    size_t plane = (size_t)at->shape.height * (size_t)at->shape.width;
    size_t planes = at->rows * (size_t)at->shape.channels;
    if (at->placements != NULL) {
        for (size_t i = 0; i < at->rows; i++)
            at->placements[i] = (yoke_placement){
                .down = as->shift, .right = as->shift, .flip = as->flip, .reflect = true};
        at->batch.placements = at->placements;
        return;
    }
    for (size_t i = 0; i < planes; i++)
        write_plane(at, as, batch->inputs + i * plane, at->inputs + i * plane);
    at->batch.inputs = at->inputs;
}

static yoke_status add_view(viewed *at, const view *as, const yoke_run *run,
                            const yoke_batch *batch, yoke_step_result *result) {
    yoke_output_rows wanted = {.outputs = {at->outputs}};
    see(at, as, batch);
    TRY(yoke_data_parallel_evaluate_outputs(run->parallel, &at->batch, result, &wanted, NULL));
    for (size_t i = 0; i < at->rows * at->classes; i++)
        at->mean[i] += as->weight * at->outputs[i];
    return YOKE_OK;
}

/* torch.nn.CrossEntropyLoss of one row, before the division by the weights. */
static double loss_of(const yoke_loss_options *loss, const float *outputs, size_t classes,
                      size_t label) {
    double largest = (double)outputs[0], sum = 0, spread = 0;
    for (size_t i = 1; i < classes; i++)
        largest = fmax(largest, (double)outputs[i]);
    for (size_t i = 0; i < classes; i++)
        sum += exp((double)outputs[i] - largest);
    double logarithm = largest + log(sum), smoothing = loss->label_smoothing;
    const float *weights = loss->class_weights;
    for (size_t i = 0; i < classes; i++)
        spread += (weights != NULL ? (double)weights[i] : 1) * (logarithm - (double)outputs[i]);
    double own =
        (weights != NULL ? (double)weights[label] : 1) * (logarithm - (double)outputs[label]);
    return (1 - smoothing) * own + smoothing / (double)classes * spread;
}

static bool is_largest(const float *outputs, size_t classes, size_t label) {
    for (size_t i = 0; i < classes; i++)
        if (outputs[i] > outputs[label] || (outputs[i] == outputs[label] && i < label))
            return false;
    return true;
}

/* result: of a view; rows, labels and weight are those of the mean, too. */
static void judge(const viewed *at, const yoke_loss_options *loss, yoke_step_result *result) {
    double sum = 0;
    result->correct = 0;
    for (size_t i = 0; i < at->rows; i++) {
        int32_t label = at->batch.labels[i];
        const float *outputs = at->mean + i * at->classes;
        bool ignored = loss->set_ignore_index && label == loss->ignore_index;
        if (ignored || label < 0) continue;
        sum += loss_of(loss, outputs, at->classes, (size_t)label);
        result->correct += is_largest(outputs, at->classes, (size_t)label);
    }
    result->loss = result->weight > 0 ? sum / result->weight : 0;
}

yoke_status yoke_views_evaluate(const yoke_run *run, const yoke_batch *batch,
                                yoke_step_result *result, const yoke_output_rows *outputs) {
    const view *views = run->options.test_views == 2 ? two : six;
    viewed at = {.rows = 0};
    TRY(check_rows(run, batch));
    yoke_status status = open_views(&at, run, batch);
    for (int i = 0; i < run->options.test_views && status == YOKE_OK; i++)
        status = add_view(&at, &views[i], run, batch, result);
    if (status == YOKE_OK) judge(&at, yoke_model_loss(run->model), result);
    if (status == YOKE_OK && outputs->outputs[0] != NULL)
        memcpy(outputs->outputs[0], at.mean, at.rows * at.classes * sizeof *at.mean);
    close_views(&at);
    return status;
}

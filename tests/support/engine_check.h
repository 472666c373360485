/* SPDX-License-Identifier: Apache-2.0 */
/* Small models, batches and engines for tests that train. */
#ifndef ENGINE_CHECK_H
#define ENGINE_CHECK_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/devices.h"
#include "yoke/yoke.h"

#define EXPECT_OK(call)                                                                            \
    do {                                                                                           \
        yoke_status expect_status_ = (call);                                                       \
        if (expect_status_ != YOKE_OK)                                                             \
            fail_msg("%s: %s: %s", #call, yoke_status_name(expect_status_), yoke_last_error());    \
    } while (0)

enum { CHECK_CHANNELS = 2, CHECK_SIDE = 6, CHECK_CLASSES = 5 };
enum { CHECK_ROW = CHECK_CHANNELS * CHECK_SIDE * CHECK_SIDE };

static inline double check_noise(uint32_t i) {
    uint32_t x = i * 2654435761u + 12345u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (double)x / 4294967296.0 - 0.5;
}

/* conv - [batch norm] - relu - conv - add - relu - global pool - linear, 5 classes. */
static inline yoke_model *check_model_with(bool norm, double dropout,
                                           const yoke_loss_options *loss) {
    yoke_model *model = NULL;
    EXPECT_OK(yoke_model_create(&model, "small",
                                (yoke_shape){CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE, false}));
    yoke_conv2d_options conv = {
        .struct_size = sizeof conv, .name = "conv1", .out_channels = 8, .kernel = 3, .padding = 1};
    yoke_value x = yoke_conv2d(model, yoke_model_input(model), &conv);
    yoke_batch_norm_options bn = {
        .struct_size = sizeof bn, .name = "bn1", .epsilon = 1e-5, .momentum = 0.1};
    if (norm) x = yoke_batch_norm(model, x, &bn);
    x = yoke_relu(model, x);
    conv.name = "conv2";
    conv.no_bias = true;
    yoke_value y = yoke_conv2d(model, x, &conv);
    x = yoke_relu(model, yoke_add(model, y, x));
    if (dropout > 0) x = yoke_dropout(model, x, dropout);
    x = yoke_flatten(model, yoke_global_average_pool(model, x));
    yoke_linear_options fc = {
        .struct_size = sizeof fc, .name = "fc", .out_features = CHECK_CLASSES};
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, x, &fc), loss));
    return model;
}

static inline yoke_model *check_model(bool norm, double dropout) {
    return check_model_with(norm, dropout, NULL);
}

/* conv - group norm - mish - attention over the channels by products of matrices - a scale of its
 * own - linear, 5 classes: what elementary operations are put together to. */
static inline yoke_model *check_composed(const yoke_loss_options *loss) {
    yoke_model *model = NULL;
    EXPECT_OK(yoke_model_create(&model, "composed",
                                yoke_shape_image(CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE)));
    yoke_conv2d_options conv = {
        .struct_size = sizeof conv, .name = "conv1", .out_channels = 8, .kernel = 3, .padding = 1};
    yoke_group_norm_options norm = YOKE_GROUP_NORM_OPTIONS_INIT;
    norm.name = "gn1";
    norm.groups = 4;
    yoke_value x = yoke_conv2d(model, yoke_model_input(model), &conv);
    x = yoke_mish(model, yoke_group_norm(model, x, &norm));
    x = yoke_reshape(model, x, yoke_shape_sequence(8, CHECK_SIDE * CHECK_SIDE));
    yoke_value scores = yoke_matmul(model, x, x, false, true);
    scores = yoke_map_with(model, YOKE_FN_SCALE, scores, 1.0 / CHECK_SIDE, 0);
    scores = yoke_softmax_along(model, scores, YOKE_AXIS_CHANNELS);
    yoke_parameter_options scale = YOKE_PARAMETER_OPTIONS_INIT;
    scale.name = "scale";
    scale.shape = yoke_shape_sequence(8, 1);
    scale.std = 0.5;
    x = yoke_multiply(model, yoke_matmul(model, scores, x, false, false),
                      yoke_parameter_value(model, &scale));
    yoke_linear_options fc = {
        .struct_size = sizeof fc, .name = "fc", .out_features = CHECK_CLASSES};
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, yoke_flatten(model, x), &fc), loss));
    return model;
}

typedef struct check_batch {
    yoke_batch batch;
    float *inputs;
    int32_t *labels;
} check_batch;

static inline check_batch check_batch_make(int rows, uint32_t seed) {
    check_batch made = {0};
    made.inputs = malloc((size_t)rows * CHECK_ROW * sizeof(float));
    made.labels = malloc((size_t)rows * sizeof(int32_t));
    for (int i = 0; i < rows * CHECK_ROW; i++)
        made.inputs[i] = (float)(2 * check_noise((uint32_t)i + 7919u * seed));
    for (int i = 0; i < rows; i++)
        made.labels[i] =
            (int32_t)((check_noise(977u * (uint32_t)i + seed) + 0.5) * (double)CHECK_CLASSES);
    made.batch = (yoke_batch){.struct_size = sizeof made.batch,
                              .rows = rows,
                              .inputs = made.inputs,
                              .labels = made.labels};
    return made;
}

static inline void check_batch_free(check_batch *batch) {
    free(batch->inputs);
    free(batch->labels);
}

typedef struct check_engine {
    yoke_devices *devices;
    yoke_data_parallel *parallel;
} check_engine;

/* One compute thread a device, so that a test is the same on any machine. */
static inline check_engine check_engine_on(const yoke_model *model, const char *list,
                                           yoke_data_parallel_options options,
                                           const yoke_optimizer_options *optimizer) {
    check_engine made = {0};
    yoke_devices_options open = {.struct_size = sizeof open, .list = list, .threads = 1};
    EXPECT_OK(yoke_devices_open(&made.devices, &open));
    options.struct_size = sizeof options;
    EXPECT_OK(yoke_data_parallel_create(&made.parallel, model, made.devices, optimizer, &options));
    return made;
}

static inline check_engine check_engine_make(const yoke_model *model, int devices,
                                             yoke_data_parallel_options options,
                                             const yoke_optimizer_options *optimizer) {
    return check_engine_on(model, devices_of(devices), options, optimizer);
}

static inline void check_engine_free(check_engine *engine) {
    yoke_data_parallel_destroy(engine->parallel);
    yoke_devices_close(engine->devices);
}

/* Two devices with these options are refused, in words that contain `words`. */
static inline void check_refused(const yoke_model *model, yoke_data_parallel_options options,
                                 const char *words) {
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    yoke_devices_options open = {.struct_size = sizeof open, .list = devices_of(2)};
    EXPECT_OK(yoke_devices_open(&devices, &open));
    options.struct_size = sizeof options;
    assert_int_equal(yoke_data_parallel_create(&parallel, model, devices, NULL, &options),
                     YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), words) == NULL) fail_msg("%s", yoke_last_error());
    yoke_devices_close(devices);
}

/* All parameters (or gradients) of the root in state_dict order; freed by the caller. */
static inline float *check_read_all(yoke_data_parallel *parallel, const yoke_model *model,
                                    bool gradient, size_t *count) {
    size_t capacity = yoke_model_parameter_count(model), used = 0;
    float *values = malloc(capacity * sizeof *values);
    for (int i = 0; i < yoke_model_tensor_count(model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        EXPECT_OK(yoke_model_tensor(model, i, &info));
        if (!info.trainable) continue;
        assert_true(used + info.count <= capacity);
        EXPECT_OK(
            gradient
                ? yoke_data_parallel_read_gradient(parallel, info.name, values + used, info.count)
                : yoke_data_parallel_read(parallel, info.name, values + used, info.count));
        used += info.count;
    }
    *count = used;
    return values;
}

/* Of one step, as the timing table shows them. */
static inline double check_bytes(yoke_data_parallel *parallel, yoke_stage stage) {
    yoke_stage_summary rows[YOKE_STAGE_COUNT] = {{.struct_size = sizeof rows[0]}};
    int count = yoke_trace_summarize(yoke_data_parallel_trace(parallel), rows, YOKE_STAGE_COUNT);
    for (int i = 0; i < count; i++)
        if (rows[i].stage == stage) return rows[i].bytes;
    return 0;
}

/* || a - b || / || b || */
static inline double check_relative(const float *a, const float *b, size_t count) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)b[i] * b[i];
    }
    return norm > 0 ? sqrt(difference / norm) : sqrt(difference);
}

static inline uint64_t check_hash(yoke_data_parallel *parallel) {
    uint64_t hash = 0;
    EXPECT_OK(yoke_data_parallel_hash(parallel, &hash));
    return hash;
}

/* Engines for batches of up to 16 rows that are trained on ragged ones. */

enum { CHECK_BATCH = 16, CHECK_STEPS = 6 };

/* Buckets so small that even check_model has several. */
static inline yoke_data_parallel_options check_options(int batch, yoke_schedule schedule) {
    return (yoke_data_parallel_options){.schedule = schedule,
                                        .algorithm = YOKE_ALGORITHM_DIRECT,
                                        .batch = batch,
                                        .seed = 3,
                                        .first_bucket_bytes = 256,
                                        .bucket_bytes = 1024};
}

static inline void check_train(yoke_data_parallel *parallel, int steps) {
    static const int rows[] = {CHECK_BATCH, 11, CHECK_BATCH, 3};
    for (int step = 0; step < steps; step++) {
        check_batch batch = check_batch_make(rows[step % 4], (uint32_t)step);
        yoke_step_result result = {.struct_size = sizeof result};
        EXPECT_OK(
            yoke_data_parallel_step(parallel, &batch.batch, YOKE_OPTIMIZER_LEARNING_RATE, &result));
        assert_int_equal(result.rows, batch.batch.rows);
        assert_true(isfinite(result.loss) && result.correct >= 0 && result.correct <= result.rows);
        check_batch_free(&batch);
    }
}

/* The weights after CHECK_STEPS steps, freed by the caller. */
static inline float *check_weights_after(const yoke_model *model, int devices,
                                         yoke_data_parallel_options options,
                                         const yoke_optimizer_options *optimizer, size_t *count) {
    check_engine engine = check_engine_make(model, devices, options, optimizer);
    check_train(engine.parallel, CHECK_STEPS);
    float *weights = check_read_all(engine.parallel, model, false, count);
    check_engine_free(&engine);
    return weights;
}

/* On 2, 5 and 8 devices, in every schedule, the weights are those of one device up to rounding. */
static inline void check_devices_agree(const yoke_model *model, yoke_data_parallel_options options,
                                       const yoke_optimizer_options *optimizer) {
    size_t count;
    options.schedule = YOKE_SCHEDULE_OVERLAP;
    float *one = check_weights_after(model, 1, options, optimizer, &count);
    for (int devices = 2; devices <= 8; devices += 3)
        for (int schedule = 0; schedule < 3; schedule++) {
            options.schedule = (yoke_schedule)schedule;
            float *many = check_weights_after(model, devices, options, optimizer, &count);
            double difference = check_relative(many, one, count);
            if (!(difference < 2e-6))
                fail_msg("%d devices, schedule %d: %g", devices, schedule, difference);
            free(many);
        }
    free(one);
}

/* All schedules give the same bits. */
static inline void check_schedules_agree(const yoke_model *model, int devices,
                                         yoke_data_parallel_options options,
                                         const yoke_optimizer_options *optimizer) {
    float *weights[3];
    size_t count;
    for (int schedule = 0; schedule < 3; schedule++) {
        options.schedule = (yoke_schedule)schedule;
        weights[schedule] = check_weights_after(model, devices, options, optimizer, &count);
        assert_memory_equal(weights[schedule], weights[0], count * sizeof(float));
    }
    for (int schedule = 0; schedule < 3; schedule++)
        free(weights[schedule]);
}

#endif

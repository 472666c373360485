/* SPDX-License-Identifier: Apache-2.0 */
/* Models, rows and predictors for the tests of this folder. */
#ifndef TESTS_SERVE_RIG_H
#define TESTS_SERVE_RIG_H

#include "serve/predictors.h"
#include "support/engine_check.h"

enum { RIG_ARRAYS = 2 };

static inline yoke_model *rig_preset(const char *name, yoke_shape input, int classes) {
    yoke_model *model = NULL;
    EXPECT_OK(yoke_model_preset(&model, name, input, classes, NULL));
    return model;
}

/* Two images, one tower's weights for both, two outputs. */
static inline yoke_value rig_tower(yoke_model *model, yoke_value value, bool again) {
    yoke_conv2d_options conv = {.struct_size = sizeof conv,
                                .name = again ? "conv_again" : "conv",
                                .out_channels = 6,
                                .kernel = 3,
                                .padding = 1,
                                .shared_with = again ? "conv" : NULL};
    value = yoke_relu(model, yoke_conv2d(model, value, &conv));
    return yoke_flatten(model, yoke_global_average_pool(model, value));
}

static inline yoke_model *rig_pair(void) {
    const yoke_shape image = yoke_shape_image(2, 6, 6);
    yoke_model *model = NULL;
    EXPECT_OK(yoke_model_create(&model, "pair", image));
    yoke_value right = yoke_model_add_input(model, "right", image);
    yoke_value left = rig_tower(model, yoke_model_input(model), false);
    yoke_value pair = yoke_add(model, left, rig_tower(model, right, true));
    yoke_linear_options head = {.struct_size = sizeof head, .name = "head", .out_features = 4};
    yoke_linear_options side = {.struct_size = sizeof side, .name = "side", .out_features = 3};
    yoke_value first = yoke_linear(model, pair, &head);
    yoke_model_add_output(model, "side", yoke_linear(model, pair, &side));
    EXPECT_OK(yoke_model_finish(model, first, NULL));
    return model;
}

/* Rows of inputs and outputs. */
typedef struct rig_rows {
    int rows, inputs, outputs;
    float *in[RIG_ARRAYS], *out[RIG_ARRAYS];
    size_t in_row[RIG_ARRAYS], out_row[RIG_ARRAYS];
} rig_rows;

/* Noise, or ids where an embedding reads. */
static inline rig_rows rig_rows_make(const yoke_model *model, int rows, uint32_t seed) {
    rig_rows made = {.rows = rows,
                     .inputs = yoke_model_input_count(model),
                     .outputs = yoke_model_output_count(model)};
    for (int k = 0; k < made.inputs; k++) {
        made.in_row[k] = yoke_model_input_elements(model, k);
        size_t count = (size_t)rows * made.in_row[k];
        int tokens = yoke_model_tokens(model, k);
        made.in[k] = malloc(count * sizeof(float));
        for (size_t i = 0; i < count; i++) {
            double noise = check_noise((uint32_t)i + 7919u * seed + 101u * (uint32_t)k);
            made.in[k][i] = (float)(tokens > 0 ? floor((noise + 0.5) * (double)tokens) : 2 * noise);
        }
    }
    for (int k = 0; k < made.outputs; k++) {
        made.out_row[k] = yoke_model_output_elements(model, k);
        made.out[k] = calloc((size_t)rows * made.out_row[k], sizeof(float));
    }
    return made;
}

static inline void rig_rows_free(rig_rows *rows) {
    for (int k = 0; k < RIG_ARRAYS; k++) {
        free(rows->in[k]);
        free(rows->out[k]);
    }
}

static inline yoke_status rig_run(yoke_predictors *predictors, rig_rows *rows) {
    return yoke_predictors_run(predictors, (const float *const *)rows->in, (size_t)rows->rows,
                               rows->out);
}

/* By the fixed rule of algorithms, unless the options say otherwise. */
static inline yoke_predictors *rig_predictors(const yoke_model *model,
                                              yoke_predictors_options options) {
    yoke_predictors *predictors = NULL;
    yoke_devices_options devices = {
        .struct_size = sizeof devices, .list = devices_of(1), .threads = 1};
    options.model = model;
    options.devices = &devices;
    EXPECT_OK(yoke_predictors_create(&predictors, &options));
    return predictors;
}

/* All parameters and means are c, all variances 1. */
typedef struct rig_constant {
    const yoke_model *model;
    float c;
    int fails_at; /* this tensor; 0: none */
} rig_constant;

static inline yoke_status rig_read_constant(void *context, int tensor, float *values) {
    const rig_constant *from = context;
    yoke_tensor_info info = {.struct_size = sizeof info};
    EXPECT_OK(yoke_model_tensor(from->model, tensor, &info));
    assert_false(info.integer);
    bool variance = strstr(info.name, "running_var") != NULL;
    for (size_t i = 0; i < info.count; i++)
        values[i] = variance ? 1 : from->c;
    if (from->fails_at == 0 || tensor < from->fails_at) return YOKE_OK;
    return yoke_error_set(YOKE_ERROR_DATA, "made up");
}

static inline void rig_publish(yoke_predictors *predictors, const yoke_model *model, float c) {
    rig_constant from = {model, c, 0};
    EXPECT_OK(yoke_predictors_publish(predictors, rig_read_constant, &from));
}

static inline yoke_predictors_report rig_report(yoke_predictors *predictors) {
    yoke_predictors_report report;
    yoke_predictors_describe(predictors, &report);
    return report;
}

#endif

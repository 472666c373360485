/* SPDX-License-Identifier: Apache-2.0 */
/* Every operation computes on a GPU what it computes on the CPU: outputs, gradients, running
 * statistics, losses and dropout masks, for a grid of shapes, in every precision. Skipped without a
 * GPU. */
#include "window_case.h"

/* Convolution and linear. */

static void convolution_equals_the_cpu(void **state) {
    const parity_rig *rig = *state;
    for (size_t i = 0; i < COUNT(convolutions); i++)
        check_every_way(rig, window_case(YOKE_OP_CONV2D, &convolutions[i]));
}

static void measured_convolution_equals_the_cpu(void **state) {
    const parity_rig *rig = *state;
    for (size_t i = 0; i < COUNT(convolutions); i++)
        check_measured(rig, window_case(YOKE_OP_CONV2D, &convolutions[i]));
}

static parity_case linear_case(int rows, int in, int out, bool bias) {
    return (parity_case){.operation = {.kind = YOKE_OP_LINEAR,
                                       .name = "layer",
                                       .input = {in, 1, 1},
                                       .output = {out, 1, 1},
                                       .bias = bias},
                         .rows = rows,
                         .algorithm = YOKE_ALGORITHM_DIRECT};
}

static void linear_equals_the_cpu(void **state) {
    const parity_rig *rig = *state;
    static const struct {
        int rows, in, out;
    } shapes[] = {{4, 32, 16}, {7, 33, 10}, {1, 64, 10}, {3, 1, 5},
                  {5, 7, 1},   {1, 1, 1},   {64, 48, 40}};
    for (size_t i = 0; i < 2 * COUNT(shapes); i++) {
        size_t s = i / 2;
        check_every_way(rig, linear_case(shapes[s].rows, shapes[s].in, shapes[s].out, i % 2 != 0));
    }
}

/* With operands of 24 bits TF32 products would be off by 3e-4. */
static void float32_rounds_no_operand(void **state) {
    const parity_rig *rig = *state;
    for (int i = 0; i < 8; i++) {
        static const int chosen[] = {0, 3, 4, 6, 7, 8, 12};
        parity_case c = i == 7 ? linear_case(16, 64, 40, true)
                               : window_case(YOKE_OP_CONV2D, &convolutions[chosen[i]]);
        c.full = true;
        c.algorithm = i % 2 == 0 ? YOKE_ALGORITHM_DIRECT : YOKE_ALGORITHM_MEASURED;
        parity_check(rig, &c);
    }
}

/* Values of their own. */

/* The last three for batch norm, whose large images take other kernels than its small ones. */
static const struct {
    int rows;
    yoke_dims dims;
} values[] = {{3, {16, 3, 5}},  {4, {20, 4, 4}}, {3, {7, 1, 1}},   {6, {32, 1, 1}},
              {1, {5, 3, 3}},   {2, {1, 5, 7}},  {2, {3, 9, 9}},   {33, {24, 2, 3}},
              {5, {130, 2, 2}}, {20, {7, 8, 8}}, {33, {12, 8, 9}}, {40, {66, 8, 8}}};
enum { VALUES = COUNT(values) - 3 };

static parity_case value_case(yoke_operation_kind kind, size_t index) {
    return (parity_case){.operation = {.kind = kind,
                                       .name = "layer",
                                       .input = values[index].dims,
                                       .output = values[index].dims},
                         .rows = values[index].rows,
                         .algorithm = YOKE_ALGORITHM_DIRECT};
}

static void batch_norm_equals_the_cpu(void **state) {
    const parity_rig *rig = *state;
    for (size_t i = 0; i < 3 * COUNT(values); i++) {
        parity_case c = value_case(YOKE_OP_BATCH_NORM, i / 3);
        c.operation.relu = i % 3 != 0;
        c.operation.add = i % 3 == 2;
        c.operation.epsilon = 1e-5;
        c.operation.momentum = 0.1;
        check_every_way(rig, c);
    }
}

/* Inputs from -8 to 8: 6, where ReLU6 bends, is among them. */
static void activations_equal_the_cpu(void **state) {
    const parity_rig *rig = *state;
    for (size_t i = 0; i < VALUES * YOKE_ACTIVATIONS; i++) {
        parity_case c = value_case(YOKE_OP_ACTIVATION, i / YOKE_ACTIVATIONS);
        c.operation.activation = (yoke_activation)(i % YOKE_ACTIVATIONS);
        c.input_scale = 8;
        check_every_way(rig, c);
    }
}

/* As a sequence: the pixels are its positions. */
static parity_case sequence_case(yoke_operation_kind kind, size_t index) {
    parity_case c = value_case(kind, index);
    yoke_dims dims = c.operation.input;
    c.operation.input = (yoke_dims){dims.channels, dims.height * dims.width, 1, true};
    c.operation.output = c.operation.input;
    return c;
}

static void layer_norm_equals_the_cpu(void **state) {
    const parity_rig *rig = *state;
    static const yoke_dims flat[] = {{1, 1, 1}, {33, 1, 1}, {256, 1, 1}, {1000, 1, 1}};
    for (size_t i = 0; i < COUNT(values) + COUNT(flat); i++) {
        parity_case c = sequence_case(YOKE_OP_LAYER_NORM, i < COUNT(values) ? i : 0);
        if (i >= COUNT(values)) c.operation.input = c.operation.output = flat[i - COUNT(values)];
        c.operation.epsilon = 1e-3;
        check_every_way(rig, c);
    }
}

/* Features that a warp holds, a block, and none; and more positions than the blocks of backward
 * have at once. Without and with another reader's gradient of the input. */
static void long_layer_norms_equal_the_cpu(void **state) {
    static const struct {
        int rows, features;
    } cases[] = {{9, 768}, {5, 1024}, {3, 1200}, {2, 4096}, {2, 8200}, {1700, 8}};
    for (size_t i = 0; i < COUNT(cases) * COUNT(precisions) * 2; i++) {
        size_t k = i / 2 / COUNT(precisions);
        yoke_dims dims = {cases[k].features, 1, 1};
        parity_case c = {.operation = {.kind = YOKE_OP_LAYER_NORM,
                                       .name = "layer",
                                       .input = dims,
                                       .output = dims,
                                       .epsilon = 1e-5},
                         .rows = cases[k].rows,
                         .precision = precisions[i / 2 % COUNT(precisions)],
                         .adds = i % 2 != 0,
                         .algorithm = YOKE_ALGORITHM_DIRECT};
        parity_check(*state, &c);
    }
}

static void softmax_equals_the_cpu(void **state) {
    const parity_rig *rig = *state;
    static const yoke_dims flat[] = {{1, 1, 1}, {33, 1, 1}, {1000, 1, 1}};
    for (size_t i = 0; i < COUNT(values) + COUNT(flat); i++) {
        parity_case c = sequence_case(YOKE_OP_SOFTMAX, i < COUNT(values) ? i : 0);
        if (i >= COUNT(values)) c.operation.input = c.operation.output = flat[i - COUNT(values)];
        c.input_scale = 8;
        check_every_way(rig, c);
    }
}

static void factors_of_channels_equal_the_cpu(void **state) {
    const parity_rig *rig = *state;
    for (size_t i = 0; i < VALUES; i++) {
        parity_case c = value_case(YOKE_OP_MULTIPLY, i);
        c.operation.by_channel = true;
        check_every_way(rig, c);
    }
}

/* Of images and sequences; input 1 has fewer, as many or more channels than input 0. */
static void joins_equal_the_cpu(void **state) {
    const parity_rig *rig = *state;
    static const int more[] = {1, 5, 64};
    for (size_t i = 0; i < 2 * VALUES; i++) {
        check_every_way(rig, (i % 2 ? value_case : sequence_case)(YOKE_OP_MULTIPLY, i / 2));
        for (size_t k = 0; k < COUNT(more); k++) {
            parity_case c = (i % 2 ? value_case : sequence_case)(YOKE_OP_CONCAT, i / 2);
            c.operation.output.channels += more[k];
            check_every_way(rig, c);
        }
    }
}

static void add_equals_the_cpu(void **state) {
    const parity_rig *rig = *state;
    for (size_t i = 0; i < VALUES; i++) {
        parity_case c = value_case(YOKE_OP_ADD, i);
        check_every_way(rig, c);
        c.operation.relu = true;
        check_every_way(rig, c);
    }
}

static void flatten_and_output_equal_the_cpu(void **state) {
    const parity_rig *rig = *state;
    for (size_t i = 0; i < 2 * VALUES; i++) {
        parity_case c = value_case(i % 2 ? YOKE_OP_OUTPUT : YOKE_OP_FLATTEN, i / 2);
        yoke_dims dims = c.operation.input;
        c.operation.output = (yoke_dims){dims.channels * dims.height * dims.width, 1, 1};
        check_every_way(rig, c);
    }
}

/* in = out, no groups, no bias; kernel 0: the whole image. */
static const window pools[] = {
    {3, 16, 8, 8, 16, 2, 2, 0, 0, false, 1},
    {2, 8, 9, 7, 8, 3, 2, 1, 0, false, 1},
    {2, 24, 5, 5, 24, 3, 1, 1, 0, false, 1},
    {1, 5, 6, 6, 5, 2, 1, 0, 0, false, 1},
    {4, 16, 4, 4, 16, 4, 4, 0, 0, false, 1},
    {2, 3, 7, 7, 3, 5, 3, 2, 0, false, 1},
    {2, 16, 1, 1, 16, 1, 1, 0, 0, false, 1},
    {2, 130, 3, 2, 130, 2, 1, 1, 0, false, 1},
    {1, 3, 19, 18, 3, 17, 1, 0, 0, false, 1}, /* a winner's place needs more than a byte */
    {2, 8, 9, 7, 8, 3, 2, 1, 0, false, 1, {2, 1, 0, 1}},
    {2, 5, 1, 12, 5, 1, 1, 0, 0, false, 1, {4, 3, 2, 1}}, /* along a line */
    {1, 16, 1, 1, 16, 1, 1, 0, 0, false, 1, {2, 2, 1, 1}},
};

static void pooling_equals_the_cpu(void **state) {
    const parity_rig *rig = *state;
    for (size_t i = 0; i < COUNT(pools); i++) {
        check_every_way(rig, window_case(YOKE_OP_MAX_POOL, &pools[i]));
        check_every_way(rig, window_case(YOKE_OP_AVERAGE_POOL, &pools[i]));
    }
    for (size_t i = 0; i < VALUES; i++) {
        parity_case c = value_case(YOKE_OP_AVERAGE_POOL, i);
        c.operation.output = (yoke_dims){c.operation.input.channels, 1, 1};
        check_every_way(rig, c);
    }
}

static void adaptive_pooling_equals_the_cpu(void **state) {
    const parity_rig *rig = *state;
    static const struct { int height, width; } sizes[] = {{2, 2}, {3, 7}, {7, 7}, {1, 4}};
    for (size_t i = 0; i < VALUES; i++) {
        parity_case c = value_case(YOKE_OP_AVERAGE_POOL, i);
        c.operation.stride = 1;
        for (size_t s = 0; s < COUNT(sizes); s++) {
            c.operation.output =
                (yoke_dims){c.operation.input.channels, sizes[s].height, sizes[s].width};
            check_every_way(rig, c);
        }
    }
}

/* Which elements fall is the same to the bit, in float32 their values too. */
static void dropout_drops_what_the_cpu_drops(void **state) {
    const parity_rig *rig = *state;
    static const double probabilities[] = {0, 0.1, 0.25, 0.5, 0.9};
    static const yoke_plan_step step = {.seed = 1ull << 40 | 7, .step = 9, .first_row = 1000};
    for (size_t i = 0; i < VALUES * COUNT(probabilities); i++) {
        parity_case c = value_case(YOKE_OP_DROPOUT, i / COUNT(probabilities));
        c.operation.probability = probabilities[i % COUNT(probabilities)];
        c.operation.layer = 3;
        check_every_way(rig, c);
        parity_check_steps(rig, &c, &step, 1, 0);
    }
}

static parity_case attention_case(int rows, int positions, int heads, int size) {
    int channels = heads * size;
    return (parity_case){.operation = {.kind = YOKE_OP_ATTENTION,
                                       .name = "attention",
                                       .input = {3 * channels, positions, 1, true},
                                       .output = {channels, positions, 1, true},
                                       .heads = heads},
                         .rows = rows,
                         .algorithm = YOKE_ALGORITHM_DIRECT};
}

/* One position, one head, sizes that are multiples of nothing, lengths around a tile's, and every
 * width of the kernels. */
static void attention_equals_the_cpu(void **state) {
    const parity_rig *rig = *state;
    static const struct {
        int rows, positions, heads, size;
    } shapes[] = {{1, 1, 1, 1},    {2, 1, 2, 5},   {2, 7, 3, 16},  {1, 32, 2, 32},
                  {2, 33, 1, 17},  {1, 65, 2, 64}, {1, 40, 1, 80}, {1, 35, 1, 128},
                  {1, 70, 1, 129}, {1, 33, 2, 256}};
    for (size_t i = 0; i < 2 * COUNT(shapes); i++) {
        size_t s = i / 2;
        parity_case c =
            attention_case(shapes[s].rows, shapes[s].positions, shapes[s].heads, shapes[s].size);
        c.operation.causal = i % 2 != 0;
        check_every_way(rig, c);
    }
}

static parity_case recurrence_case(int rows, int positions, int hidden, bool gru) {
    return (parity_case){.operation = {.kind = YOKE_OP_RECURRENCE,
                                       .name = "recurrence",
                                       .input = {(gru ? 3 : 4) * hidden, positions, 1, true},
                                       .output = {hidden, positions, 1, true},
                                       .bias = true},
                         .rows = rows,
                         .algorithm = YOKE_ALGORITHM_DIRECT};
}

/* One position, sizes that are multiples of nothing, more rows than a block of the CPU's; from both
 * ends, without a bias, and with positions that are not the row's own. */
static void recurrences_equal_the_cpu(void **state) {
    const parity_rig *rig = *state;
    static const int shapes[][3] = {{1, 1, 1}, {3, 5, 4}, {35, 3, 7}, {2, 4, 32}};
    for (size_t i = 0; i < 4 * COUNT(shapes); i++) {
        const int *shape = shapes[i / 4];
        parity_case c = recurrence_case(shape[0], shape[1], shape[2], i % 2 != 0);
        c.operation.reverse = i % 4 > 1;
        check_every_way(rig, c);
        c.operation.bias = false;
        c.operation.others[0] = (yoke_dims){1, shape[1], 1, true};
        check_every_way(rig, c);
    }
}

static parity_case token_case(yoke_operation_kind kind, int rows, int positions, int channels) {
    bool select = kind == YOKE_OP_SELECT;
    yoke_dims longer = {channels, positions + 1, 1, true};
    yoke_dims shorter =
        select ? (yoke_dims){channels, 1, 1, false} : (yoke_dims){channels, positions, 1, true};
    return (parity_case){.operation = {.kind = kind,
                                       .name = "token",
                                       .input = select ? longer : shorter,
                                       .output = select ? shorter : longer,
                                       .index = select ? positions / 2 : 0},
                         .rows = rows,
                         .algorithm = YOKE_ALGORITHM_DIRECT};
}

static void class_token_and_select_equal_the_cpu(void **state) {
    const parity_rig *rig = *state;
    static const int shapes[][3] = {{1, 1, 1}, {3, 4, 5}, {70, 3, 16}, {2, 64, 24}};
    for (size_t i = 0; i < COUNT(shapes); i++) {
        check_every_way(rig,
                        token_case(YOKE_OP_CLASS_TOKEN, shapes[i][0], shapes[i][1], shapes[i][2]));
        check_every_way(rig, token_case(YOKE_OP_SELECT, shapes[i][0], shapes[i][1], shapes[i][2]));
    }
}

static parity_case loss_case(yoke_operation_kind kind, int rows, int classes) {
    return (parity_case){.operation = {.kind = kind, .name = "loss", .input = {classes, 1, 1}},
                         .rows = rows,
                         .algorithm = YOKE_ALGORITHM_DIRECT};
}

static void losses_equal_the_cpu(void **state) {
    const parity_rig *rig = *state;
    static const struct {
        int rows, classes;
    } shapes[] = {{1, 1},   {1, 10},    {3, 2},      {3, 33},    {5, 1},
                  {64, 10}, {64, 1000}, {300, 1000}, {2100, 10}, {300, 33}};
    for (size_t i = 0; i < 3 * COUNT(shapes); i++) {
        bool mse = i % 3 == 2;
        parity_case c = loss_case(mse ? YOKE_OP_MSE : YOKE_OP_CROSS_ENTROPY, shapes[i / 3].rows,
                                  shapes[i / 3].classes);
        c.operation.label_smoothing = i % 3 == 1 ? 0.1 : 0;
        parity_check(rig, &c);
        c.mixed = !mse;
        parity_check(rig, &c);
        c.mixed = false;
        c.evaluation = true;
        parity_check(rig, &c);
    }
}

static void weighted_losses_equal_the_cpu(void **state) {
    const parity_rig *rig = *state;
    static const struct {
        int rows, outputs;
    } shapes[] = {{1, 2}, {3, 33}, {64, 10}, {300, 1000}, {2100, 10}};
    float weights[1000];
    for (int j = 0; j < 1000; j++)
        weights[j] = (float)(j * 7 % 11) / 4;
    for (size_t i = 0; i < 8 * COUNT(shapes); i++) {
        static const yoke_operation_kind kinds[] = {YOKE_OP_CROSS_ENTROPY, YOKE_OP_CROSS_ENTROPY,
                                                    YOKE_OP_CROSS_ENTROPY, YOKE_OP_CROSS_ENTROPY,
                                                    YOKE_OP_BCE,           YOKE_OP_BCE,
                                                    YOKE_OP_HUBER,         YOKE_OP_HUBER};
        size_t way = i % 8;
        parity_case c = loss_case(kinds[way], shapes[i / 8].rows, shapes[i / 8].outputs);
        c.operation.weights = way == 0 || way == 2 || way == 3 || way == 5 ? weights : NULL;
        c.operation.ignores = way == 1 || way == 3;
        c.operation.ignored = 1;
        c.operation.label_smoothing = way == 2 || way == 3 ? 0.1 : 0;
        c.operation.delta = way == 6 ? 0.25 : 1;
        parity_check(rig, &c);
        c.mixed = way == 0 || way == 2;
        if (c.mixed) parity_check(rig, &c);
        c.mixed = false;
        c.evaluation = true;
        parity_check(rig, &c);
    }
}

/* What lies between operations. */

static void accumulate_equals_the_cpu_to_the_bit(void **state) {
    const parity_rig *rig = *state;
    yoke_device *device = yoke_devices_at(rig->devices, 0);
    yoke_device_scope scope;
    PARITY_OK(yoke_device_enter(device, false, &scope));
    for (size_t i = 0; i < VALUES * COUNT(precisions); i++) {
        parity_case c = value_case(YOKE_OP_ADD, i / COUNT(precisions));
        c.precision = precisions[i % COUNT(precisions)];
        parity_side side = {.c = &c, .device = device};
        parity_shape shape = parity_value_shape(c.rows, c.operation.input);
        yoke_layout layout = parity_produced(&side, c.operation.input);
        void *to = parity_memory(&side, layout.bytes), *from = parity_memory(&side, layout.bytes);
        parity_values given = parity_values_new(&c);
        parity_put(&side, &layout, to, &shape, given.inputs[0]);
        parity_put(&side, &layout, from, &shape, given.inputs[1]);
        PARITY_OK(yoke_device_accumulate(device, &layout, to, from));
        PARITY_OK(yoke_device_synchronize(device));
        side.output = parity_take(&side, &shape, &layout, to);
        for (size_t k = 0; k < parity_count(&shape); k++) /* nine bits: bfloat16 rounds the ninth */
            given.inputs[0][k] += given.inputs[1][k];
        parity_compare(&c, "sum", side.output, given.inputs[0], parity_count(&shape),
                       c.precision == YOKE_BFLOAT16 ? 0x1p-8 : 0);
        parity_values_free(&given);
        parity_close(&side);
    }
    yoke_device_leave(device, &scope);
}

/* ReLU that answers 0 for NaN would hide what went wrong before it. */
static void relu_lets_nan_through(void **state) {
    const parity_rig *rig = *state;
    static const yoke_operation_kind kinds[] = {YOKE_OP_ACTIVATION, YOKE_OP_ADD, YOKE_OP_BATCH_NORM,
                                                YOKE_OP_BATCH_NORM}; /* the last with a sum */
    static const yoke_plan_step step = {.loss_scale = 1};
    yoke_device *device = yoke_devices_at(rig->devices, 0);
    yoke_device_scope scope;
    PARITY_OK(yoke_device_enter(device, false, &scope));
    for (size_t i = 0; i < COUNT(kinds) * COUNT(precisions) * 2; i++) {
        parity_case c = value_case(kinds[i % COUNT(kinds)], 0);
        c.operation.add = i % COUNT(kinds) == COUNT(kinds) - 1;
        c.precision = precisions[i / COUNT(kinds) % COUNT(precisions)];
        c.evaluation = i / COUNT(kinds) / COUNT(precisions) == 1;
        c.operation.relu = true;
        c.operation.epsilon = 1e-5;
        c.operation.momentum = 0.1;
        parity_values given = parity_values_new(&c);
        parity_side side;
        given.inputs[0][5] = NAN;
        parity_open(&side, &c, device, NULL);
        parity_run(&side, &given, &step);
        if (!isnan(side.output[5])) {
            char text[256];
            parity_describe(&c, text, sizeof text);
            fail_msg("%s: NaN became %g", text, (double)side.output[5]);
        }
        parity_close(&side);
        parity_values_free(&given);
    }
    yoke_device_leave(device, &scope);
}

/* Seed, step, first row and loss scale are read when the recording runs, not when it was made. */
static void a_replay_with_a_new_step_is_what_direct_calls_give(void **state) {
    const parity_rig *rig = *state;
    if (!yoke_device_records(yoke_devices_at(rig->devices, 0))) {
        print_message("skipped: this device does not record\n");
        skip();
    }
    static const yoke_plan_step steps[] = {
        {.seed = 1, .step = 2, .first_row = 3, .loss_scale = 0.5f},
        {.seed = 1, .step = 3, .first_row = 3, .loss_scale = 0.5f},
        {.seed = 9, .step = 3, .first_row = 70, .loss_scale = 0.25f}};
    parity_case joined = value_case(YOKE_OP_BATCH_NORM, 0);
    joined.operation.add = true;
    parity_case cases[] = {window_case(YOKE_OP_CONV2D, &convolutions[3]),
                           window_case(YOKE_OP_CONV2D, &convolutions[8]),
                           linear_case(7, 33, 10, true),
                           value_case(YOKE_OP_BATCH_NORM, 0),
                           joined,
                           value_case(YOKE_OP_ACTIVATION, 0),
                           sequence_case(YOKE_OP_LAYER_NORM, 0),
                           value_case(YOKE_OP_ADD, 1),
                           value_case(YOKE_OP_DROPOUT, 0),
                           attention_case(2, 37, 2, 8),
                           recurrence_case(2, 3, 5, false),
                           token_case(YOKE_OP_CLASS_TOKEN, 3, 4, 5),
                           token_case(YOKE_OP_SELECT, 3, 4, 5),
                           value_case(YOKE_OP_FLATTEN, 0),
                           value_case(YOKE_OP_OUTPUT, 0),
                           window_case(YOKE_OP_MAX_POOL, &pools[1]),
                           loss_case(YOKE_OP_CROSS_ENTROPY, 5, 10),
                           loss_case(YOKE_OP_MSE, 5, 10),
                           loss_case(YOKE_OP_BCE, 5, 10),
                           loss_case(YOKE_OP_HUBER, 5, 10)};
    for (size_t i = 0; i < COUNT(cases) * COUNT(precisions); i++) {
        parity_case *c = &cases[i % COUNT(cases)];
        yoke_dims dims = c->operation.input;
        bool flat = c->operation.kind == YOKE_OP_FLATTEN || c->operation.kind == YOKE_OP_OUTPUT;
        if (flat) c->operation.output = (yoke_dims){dims.channels * dims.height * dims.width, 1, 1};
        c->precision = precisions[i / COUNT(cases)];
        c->operation.probability = 0.3;
        c->operation.epsilon = 1e-5;
        c->operation.momentum = 0.1;
        c->operation.relu = true;
        c->recorded = true;
        parity_check_steps(rig, c, steps, (int)COUNT(steps), parity_tolerance(c->precision));
    }
}

static void layouts_take_values_there_and_back_to_the_bit(void **state) {
    const parity_rig *rig = *state;
    yoke_device *device = yoke_devices_at(rig->devices, 0);
    yoke_device_scope scope;
    PARITY_OK(yoke_device_enter(device, false, &scope));
    for (size_t i = 0; i < VALUES * COUNT(precisions); i++) {
        parity_case c = value_case(YOKE_OP_ACTIVATION, i / COUNT(precisions));
        c.precision = precisions[i % COUNT(precisions)];
        parity_side side = {.c = &c, .device = device};
        parity_shape shape = parity_value_shape(c.rows, c.operation.input);
        yoke_layout layout = parity_produced(&side, c.operation.input);
        yoke_layout plain = parity_plain(&side, &shape);
        void *there = parity_memory(&side, layout.bytes), *back = parity_memory(&side, plain.bytes);
        parity_values given = parity_values_new(&c);
        parity_put(&side, &layout, there, &shape, given.inputs[0]);
        PARITY_OK(yoke_layout_convert(device, &plain, back, &layout, there));
        side.output = parity_take(&side, &shape, &plain, back);
        parity_compare(&c, "value", side.output, given.inputs[0], parity_count(&shape), 0);
        parity_values_free(&given);
        parity_close(&side);
    }
    yoke_device_leave(device, &scope);
}

/* usage: test_cuda_operations [PATTERN]: only the promises whose name matches, as `relu*`. */
int main(int argc, char **argv) {
    if (!parity_has_gpu()) return 77;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_take_values_there_and_back_to_the_bit),
        cmocka_unit_test(activations_equal_the_cpu),
        cmocka_unit_test(layer_norm_equals_the_cpu),
        cmocka_unit_test(long_layer_norms_equal_the_cpu),
        cmocka_unit_test(softmax_equals_the_cpu),
        cmocka_unit_test(factors_of_channels_equal_the_cpu),
        cmocka_unit_test(joins_equal_the_cpu),
        cmocka_unit_test(add_equals_the_cpu),
        cmocka_unit_test(flatten_and_output_equal_the_cpu),
        cmocka_unit_test(accumulate_equals_the_cpu_to_the_bit),
        cmocka_unit_test(dropout_drops_what_the_cpu_drops),
        cmocka_unit_test(attention_equals_the_cpu),
        cmocka_unit_test(recurrences_equal_the_cpu),
        cmocka_unit_test(class_token_and_select_equal_the_cpu),
        cmocka_unit_test(losses_equal_the_cpu),
        cmocka_unit_test(weighted_losses_equal_the_cpu),
        cmocka_unit_test(pooling_equals_the_cpu),
        cmocka_unit_test(adaptive_pooling_equals_the_cpu),
        cmocka_unit_test(batch_norm_equals_the_cpu),
        cmocka_unit_test(linear_equals_the_cpu),
        cmocka_unit_test(convolution_equals_the_cpu),
        cmocka_unit_test(measured_convolution_equals_the_cpu),
        cmocka_unit_test(float32_rounds_no_operand),
        cmocka_unit_test(relu_lets_nan_through),
        cmocka_unit_test(a_replay_with_a_new_step_is_what_direct_calls_give),
    };
    return cmocka_run_group_tests(tests, parity_group_open_gpu, parity_group_close);
}

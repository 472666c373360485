/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings on a GPU: the gradient of a table is the sum over its tokens in the order of their
 * positions, bit for bit, however many positions there are, and so is that of positions. Skipped
 * without a GPU. */
#include "gpu_rig.h"

enum { BLOCKS = 8 };

typedef struct embedding_case {
    yoke_operation_kind kind;
    int rows, positions, features, table;
    yoke_precision precision;
    int used; /* tokens from 0 on that the batch has; one in ten has no row of the table */
} embedding_case;

typedef struct memory {
    yoke_device *device;
    void *blocks[BLOCKS];
    int count;
} memory;

static void *take(memory *from, size_t bytes) {
    CHECK(yoke_device_allocate(from->device, bytes, "a test", &from->blocks[from->count]));
    return from->blocks[from->count++];
}

static void *put(memory *to, const void *values, size_t bytes) {
    void *made = take(to, bytes);
    CHECK(yoke_device_upload(to->device, YOKE_STREAM_COMPUTE, made, values, bytes));
    return made;
}

static unsigned hash(size_t index) {
    unsigned x = (unsigned)index * 2654435761u + 12345u;
    x ^= x >> 15;
    x *= 2246822519u;
    return x ^ x >> 13;
}

/* Of 8 bits, which bfloat16 holds. */
static float value_at(size_t index) {
    return (float)((int)(hash(index) % 255) - 127) / 64;
}

static float token_at(const embedding_case *c, size_t place) {
    static const float unknown[] = {-1, 0.5f, 1e9f, NAN, 0};
    unsigned drawn = hash(place + 77);
    if (drawn % 10 == 0) return drawn % 5 == 4 ? (float)c->table : unknown[drawn / 10 % 4];
    return (float)(drawn / 10 % (unsigned)c->used);
}

static void write_value(const embedding_case *c, void *values, size_t index, float value) {
    if (c->precision == YOKE_BFLOAT16) {
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        ((uint16_t *)values)[index] = (uint16_t)(bits >> 16);
    } else
        ((float *)values)[index] = value;
}

/* In float, in the order of the positions. */
static void expect_gradient(const embedding_case *c, const float *tokens, float *expected) {
    size_t places = (size_t)c->rows * (size_t)c->positions, features = (size_t)c->features;
    for (size_t i = 0; i < places; i++) {
        bool by_token = c->kind == YOKE_OP_EMBEDDING;
        float token = by_token ? tokens[i] : (float)(i % (size_t)c->positions);
        if (!(token >= 0 && token < (float)c->table && token == floorf(token))) continue;
        for (size_t k = 0; k < features; k++)
            expected[(size_t)token * features + k] += value_at(i * features + k);
    }
}

static void expect_output(const embedding_case *c, const float *tokens, const float *weight,
                          const void *output) {
    size_t places = (size_t)c->rows * (size_t)c->positions, features = (size_t)c->features;
    for (size_t i = 0; i < places * features; i++) {
        size_t place = i / features;
        float token = tokens[place];
        bool known = token >= 0 && token < (float)c->table && token == floorf(token);
        float expected = known ? weight[(size_t)token * features + i % features] : NAN, gave;
        if (c->kind == YOKE_OP_POSITIONS)
            expected = weight[place % (size_t)c->positions * features + i % features] + 0.5f;
        uint32_t bits = (uint32_t)((const uint16_t *)output)[c->precision == YOKE_BFLOAT16 ? i : 0]
                        << 16;
        memcpy(&gave, &bits, sizeof gave);
        if (c->precision != YOKE_BFLOAT16) gave = ((const float *)output)[i];
        if (!(gave == expected || (isnan(gave) && isnan(expected))))
            fail_msg("output %zu: %g, expected %g", i, (double)gave, (double)expected);
    }
}

static yoke_plan *plan_of(yoke_device *device, const embedding_case *c) {
    bool by_token = c->kind == YOKE_OP_EMBEDDING;
    yoke_dims output = {c->features, c->positions, 1, true};
    yoke_operation operation = {.kind = c->kind,
                                .name = "words",
                                .input = by_token ? (yoke_dims){c->positions, 1, 1, false} : output,
                                .output = output,
                                .table = c->table};
    yoke_plan_request request = {
        .operation = &operation, .rows = c->rows, .training = true, .precision = c->precision};
    cuda_layout layout = cuda_value_layout(c->rows, output, c->precision);
    cuda_layout_store(&request.inputs[0], &layout);
    const int64_t shape[] = {c->rows, c->positions};
    if (by_token) CHECK(yoke_layout_plain(device, shape, 2, &request.inputs[0]));
    yoke_plan *plan = NULL;
    CHECK(yoke_plan_create(&plan, device, &request));
    return plan;
}

static void check(const rig *on, const embedding_case *c) {
    yoke_device *device = &on->device->base;
    memory held = {.device = device};
    size_t places = (size_t)c->rows * (size_t)c->positions, features = (size_t)c->features;
    size_t weights = (size_t)c->table * features, element = c->precision == YOKE_BFLOAT16 ? 2 : 4;
    float *tokens = test_malloc(places * sizeof *tokens);
    float *weight = test_malloc(weights * sizeof *weight), *gave = test_malloc(weights * 4);
    float *expected = test_calloc(weights, sizeof *expected);
    char *values = test_malloc(places * features * 4),
         *gradient = test_malloc(places * features * 4);
    for (size_t i = 0; i < places; i++)
        tokens[i] = token_at(c, i);
    for (size_t i = 0; i < weights; i++)
        weight[i] = value_at(i + 5) / 2;
    for (size_t i = 0; i < places * features; i++) {
        write_value(c, gradient, i, value_at(i));
        write_value(c, values, i, 0.5f);
    }
    yoke_plan *plan = plan_of(device, c);
    const yoke_plan_needs *needs = yoke_plan_describe(plan);
    bool by_token = c->kind == YOKE_OP_EMBEDDING;
    yoke_plan_binding binding = {
        .inputs = {by_token ? put(&held, tokens, places * sizeof *tokens)
                            : put(&held, values, places * features * element)},
        .output = take(&held, places * features * element),
        .parameters = {put(&held, weight, weights * sizeof *weight)},
        .parameter_gradients = {take(&held, weights * sizeof *weight)},
        .output_gradient = put(&held, gradient, places * features * element)};
    if (needs->scratch_bytes > 0) binding.scratch = take(&held, needs->scratch_bytes);
    CHECK(yoke_plan_bind(plan, &binding));
    const yoke_plan_step step = {.loss_scale = 1};
    CHECK(yoke_plan_forward(plan, &step));
    CHECK(yoke_plan_backward(plan, &step));
    CHECK(yoke_device_download(device, YOKE_STREAM_COMPUTE, gave, binding.parameter_gradients[0],
                               weights * sizeof *gave));
    CHECK(yoke_device_download(device, YOKE_STREAM_COMPUTE, values, binding.output,
                               places * features * element));
    expect_gradient(c, tokens, expected);
    for (size_t i = 0; i < weights; i++)
        if (gave[i] != expected[i])
            fail_msg("gradient of row %zu, feature %zu: %g, expected %g", i / features,
                     i % features, (double)gave[i], (double)expected[i]);
    expect_output(c, tokens, weight, values);
    yoke_plan_destroy(plan);
    for (int i = 0; i < held.count; i++)
        yoke_device_free(device, held.blocks[i]);
    void *own[] = {tokens, weight, gave, expected, values, gradient};
    for (size_t i = 0; i < COUNT(own); i++)
        test_free(own[i]);
}

/* Tables of one to three digits; batches of less than a tile up to several rounds of all tiles. */
static void sums_go_in_the_order_of_the_positions(void **state) {
    static const embedding_case cases[] = {
        {YOKE_OP_EMBEDDING, 1, 1, 5, 1, YOKE_FLOAT32, 1},
        {YOKE_OP_EMBEDDING, 3, 7, 8, 20, YOKE_BFLOAT16, 20},
        {YOKE_OP_EMBEDDING, 2, 150, 12, 300, YOKE_FLOAT32, 300},
        {YOKE_OP_EMBEDDING, 5, 200, 24, 255, YOKE_BFLOAT16, 3},
        {YOKE_OP_EMBEDDING, 5, 200, 7, 256, YOKE_BFLOAT16, 256},
        {YOKE_OP_EMBEDDING, 4, 100, 2, 70000, YOKE_FLOAT32, 70000},
        {YOKE_OP_EMBEDDING, 36, 1000, 1, 1000, YOKE_FLOAT32, 900},
        {YOKE_OP_EMBEDDING, 2, 40, 1100, 9, YOKE_BFLOAT16, 9},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        check(*state, &cases[i]);
}

static void positions_sum_over_the_rows(void **state) {
    static const embedding_case cases[] = {
        {YOKE_OP_POSITIONS, 1, 1, 1, 1, YOKE_FLOAT32, 1},
        {YOKE_OP_POSITIONS, 9, 6, 5, 6, YOKE_BFLOAT16, 1},
        {YOKE_OP_POSITIONS, 9, 6, 8, 7, YOKE_BFLOAT16, 1},
        {YOKE_OP_POSITIONS, 70, 40, 64, 40, YOKE_FLOAT32, 1},
        {YOKE_OP_POSITIONS, 3, 1100, 24, 1200, YOKE_BFLOAT16, 1},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        check(*state, &cases[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_go_in_the_order_of_the_positions),
        cmocka_unit_test(positions_sum_over_the_rows),
    };
    if (devices_gpus() == 0) return DEVICES_SKIPPED;
    return cmocka_run_group_tests(tests, open_rig, close_rig);
}

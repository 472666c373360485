/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over a sequence that comes in parts has the outputs of the whole causal attention, and
 * a linear layer of few rows those of a sum in double, with the same bits on any number of
 * threads. */
#include "operation_check.h"

#include "device/cpu/few_rows.h"

enum { HEADS = 3, SIZE = 20, CHANNELS = HEADS * SIZE, CAPACITY = 37, ROWS = 2 };

static float noise(size_t at) {
    return (float)((at * 2654435761u >> 7) % 2001) / 1000 - 1;
}

/* A plan with its memory. */
typedef struct part {
    yoke_plan *plan;
    float *inputs, *begins, *output;
    void *scratch;
} part;

static part make_part(yoke_device *device, int positions, void **kept) {
    part made = {0};
    int64_t shape[] = {ROWS, positions, 3 * CHANNELS, 1}, begins[] = {ROWS, 1, 1, 1};
    yoke_operation operation = {.kind = YOKE_OP_CONTINUED_ATTENTION,
                                .name = "attention",
                                .input = {3 * CHANNELS, positions, 1, true},
                                .output = {CHANNELS, positions, 1, true},
                                .others = {{1, 1, 1, false}},
                                .heads = HEADS,
                                .causal = true,
                                .capacity = CAPACITY};
    yoke_plan_request request = {.operation = &operation, .rows = ROWS};
    CHECK(yoke_layout_plain(device, shape, 4, &request.inputs[0]));
    CHECK(yoke_layout_plain(device, begins, 4, &request.inputs[1]));
    CHECK(yoke_plan_create(&made.plan, device, &request));
    const yoke_plan_needs *needs = yoke_plan_describe(made.plan);
    made.inputs = calloc((size_t)(ROWS * positions) * 3 * CHANNELS, sizeof(float));
    made.output = calloc((size_t)(ROWS * positions) * CHANNELS, sizeof(float));
    made.begins = calloc(ROWS, sizeof(float));
    CHECK(yoke_device_allocate(device, needs->scratch_bytes, "scratch", &made.scratch));
    assert_int_equal(needs->kept_bytes, ROWS * 2 * CAPACITY * CHANNELS * sizeof(float));
    if (*kept == NULL) CHECK(yoke_device_allocate(device, needs->kept_bytes, "kept", kept));
    yoke_plan_binding binding = {.inputs = {made.inputs, made.begins},
                                 .output = made.output,
                                 .scratch = made.scratch,
                                 .kept = *kept};
    CHECK(yoke_plan_bind(made.plan, &binding));
    return made;
}

static void free_part(yoke_device *device, part *made) {
    yoke_plan_destroy(made->plan);
    yoke_device_free(device, made->scratch);
    free(made->inputs);
    free(made->output);
    free(made->begins);
}

static float packed(int row, int position, int feature) {
    return 2 * noise((size_t)((row * CAPACITY + position) * 3 * CHANNELS + feature) + 17);
}

static double wanted(int row, int position, int channel) {
    double weights[CAPACITY], sum = 0, mixed = 0;
    int head = channel / SIZE * SIZE;
    for (int j = 0; j <= position; j++) {
        double score = 0;
        for (int d = 0; d < SIZE; d++)
            score += (double)packed(row, position, head + d) *
                     (double)packed(row, j, CHANNELS + head + d);
        sum += weights[j] = exp(score / sqrt(SIZE));
    }
    for (int j = 0; j <= position; j++)
        mixed += weights[j] / sum * (double)packed(row, j, 2 * CHANNELS + channel);
    return mixed;
}

/* A row's part that begins at `begin`; what lies outside of the sequence gets NaN to read. */
static void fill_part(part *of, int positions, int row, int begin) {
    of->begins[row] = (float)begin;
    for (int i = 0; i < positions; i++)
        for (int k = 0; k < 3 * CHANNELS; k++) {
            bool inside = begin + i >= 0 && begin + i < CAPACITY;
            of->inputs[((size_t)(row * positions + i)) * 3 * CHANNELS + (size_t)k] =
                inside ? packed(row, begin + i, k) : NAN;
        }
}

static void check_part(const part *of, int positions, int row, int begin) {
    for (int i = 0; i < positions; i++)
        for (int k = 0; k < CHANNELS; k++) {
            double found = (double)of->output[(size_t)(row * positions + i) * CHANNELS + (size_t)k];
            bool inside = begin + i >= 0 && begin + i < CAPACITY;
            double should = inside ? wanted(row, begin + i, k) : 0;
            if (!(fabs(found - should) < 1e-5))
                fail_msg("row %d, position %d, channel %d: %g, not %g", row, begin + i, k, found,
                         should);
        }
}

static void parts_of_any_length_have_the_outputs_of_the_whole(void **state) {
    (void)state;
    yoke_devices *devices = check_devices(2);
    yoke_device *device = yoke_devices_at(devices, 0);
    const yoke_plan_step step = {.loss_scale = 1};
    void *kept = NULL;
    part eight = make_part(device, 8, &kept), one = make_part(device, 1, &kept);
    /* Row 0 reads 5 positions behind padding, row 1 its first 8, then both go on one by one; at the
     * end a part reaches beyond the capacity. */
    int begins[ROWS] = {-3, 0};
    for (int row = 0; row < ROWS; row++)
        fill_part(&eight, 8, row, begins[row]);
    CHECK(yoke_plan_forward(eight.plan, &step));
    for (int row = 0; row < ROWS; row++)
        check_part(&eight, 8, row, begins[row]);
    for (int i = 0; i < 20; i++) {
        for (int row = 0; row < ROWS; row++)
            fill_part(&one, 1, row, begins[row] + 8 + i);
        CHECK(yoke_plan_forward(one.plan, &step));
        for (int row = 0; row < ROWS; row++)
            check_part(&one, 1, row, begins[row] + 8 + i);
    }
    for (int from = 20; from < CAPACITY; from += 8) {
        for (int row = 0; row < ROWS; row++)
            fill_part(&eight, 8, row, from);
        CHECK(yoke_plan_forward(eight.plan, &step));
        for (int row = 0; row < ROWS; row++)
            check_part(&eight, 8, row, from);
    }
    free_part(device, &one);
    free_part(device, &eight);
    yoke_device_free(device, kept);
    yoke_devices_close(devices);
}

/* A linear layer. */

typedef struct linear_shape {
    int rows, in, out;
    bool transposed, bias;
} linear_shape;

static float *run_linear(linear_shape s, int threads) {
    yoke_devices *devices = check_devices(threads);
    yoke_device *device = yoke_devices_at(devices, 0);
    yoke_operation operation = {.kind = YOKE_OP_LINEAR,
                                .name = "linear",
                                .input = {s.in, s.rows, 1, true},
                                .output = {s.out, s.rows, 1, true},
                                .bias = s.bias,
                                .transposed = s.transposed,
                                .plain_weight = true};
    yoke_plan_request request = {.operation = &operation, .rows = 1};
    int64_t shape[] = {1, s.rows, s.in, 1};
    yoke_plan *plan = NULL;
    CHECK(yoke_layout_plain(device, shape, 4, &request.inputs[0]));
    assert_true(cpu_takes_few_rows(&request));
    CHECK(yoke_plan_create(&plan, device, &request));
    size_t in = (size_t)s.in, out = (size_t)s.out, rows = (size_t)s.rows;
    float *inputs = calloc(rows * in, sizeof(float)), *weights = calloc(in * out, sizeof(float));
    float *bias = calloc(out, sizeof(float)), *output = calloc(rows * out, sizeof(float));
    for (size_t i = 0; i < rows * in; i++)
        inputs[i] = noise(i);
    for (size_t i = 0; i < in * out; i++)
        weights[i] = noise(i + 99);
    for (size_t i = 0; i < out; i++)
        bias[i] = noise(i + 7);
    yoke_plan_binding binding = {
        .inputs = {inputs}, .output = output, .parameters = {weights, s.bias ? bias : NULL}};
    CHECK(yoke_plan_bind(plan, &binding));
    CHECK(yoke_plan_forward(plan, &(yoke_plan_step){.loss_scale = 1}));
    for (size_t row = 0; row < rows; row++)
        for (size_t o = 0; o < out; o++) {
            double sum = s.bias ? (double)bias[o] : 0;
            for (size_t i = 0; i < in; i++)
                sum += (double)inputs[row * in + i] *
                       (double)weights[s.transposed ? i * out + o : o * in + i];
            assert_true(fabs((double)output[row * out + o] - sum) < 2e-4);
        }
    free(inputs);
    free(weights);
    free(bias);
    yoke_plan_destroy(plan);
    yoke_devices_close(devices);
    return output;
}

static void few_rows_have_the_same_bits_on_any_number_of_threads(void **state) {
    (void)state;
    static const linear_shape shapes[] = {{1, 768, 2304, true, true}, {1, 768, 1003, false, false},
                                          {3, 67, 530, true, true},   {8, 130, 257, false, true},
                                          {2, 1, 5, true, false},     {1, 3, 1, false, true}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        size_t bytes = (size_t)shapes[i].rows * (size_t)shapes[i].out * sizeof(float);
        float *one = run_linear(shapes[i], 1), *three = run_linear(shapes[i], 3);
        assert_memory_equal(one, three, bytes);
        linear_shape alone = shapes[i];
        alone.rows = 1; /* nor do the other rows change them */
        float *first = run_linear(alone, 1);
        assert_memory_equal(one, first, (size_t)alone.out * sizeof(float));
        free(one);
        free(three);
        free(first);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_any_length_have_the_outputs_of_the_whole),
        cmocka_unit_test(few_rows_have_the_same_bits_on_any_number_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

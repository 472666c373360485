/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm on a GPU: channels too large for one block and how they are cut, the mask of a sum,
 * means that hide the std, statistics that overflow. Skipped without a GPU. */
#include "operation_parity.h"

#include "device/backend.h"
#include "device/cuda/kernels.h"
#include "support/devices.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const yoke_precision precisions[] = {YOKE_FLOAT32, YOKE_BFLOAT16, YOKE_FLOAT16};

/* 2048 pixels forward and 1024 backward are what one launch still serves. */
static const struct {
    int rows;
    yoke_dims dims;
} values[] = {
    {8, {16, 16, 16}}, /* the most that is one launch forward */
    {9, {40, 16, 16}}, /* a group of channels that is not full */
    {9, {5, 16, 16}},  /* channels that are multiples of nothing */
    {5, {72, 15, 15}}, /* two launches backward alone */
    {43, {8, 16, 15}}, /* a last chunk that is shorter */
};

static parity_case norm_case(size_t index) {
    return (parity_case){.operation = {.kind = YOKE_OP_BATCH_NORM,
                                       .name = "layer",
                                       .input = values[index].dims,
                                       .output = values[index].dims,
                                       .epsilon = 1e-5,
                                       .momentum = 0.1},
                         .rows = values[index].rows,
                         .algorithm = YOKE_ALGORITHM_DIRECT};
}

static void large_values_equal_the_cpu(void **state) {
    const parity_rig *rig = *state;
    for (size_t i = 0; i < COUNT(values) * COUNT(precisions) * 6; i++) {
        parity_case c = norm_case(i / 6 % COUNT(values));
        c.precision = precisions[i / 6 / COUNT(values)];
        c.operation.add = i % 6 >= 4;
        c.operation.relu = i % 2 != 0 || c.operation.add;
        c.in_place = i % 6 == 1 || i % 6 == 4;
        c.first_layer = i % 6 == 2;
        c.evaluation = i % 2 != 0 && i % 6 != 1;
        parity_check(rig, &c);
    }
}

/* Blocks. */

/* Of 4 packs of channels. */
static size_t norm_groups(int channels, cuda_type type) {
    size_t group = 64 / cuda_type_bytes(type);
    return ((size_t)channels + group - 1) / group;
}

/* Each block has two partial sums for each channel of its group, and so have all together. */
static size_t norm_blocks(const cuda_batch_norm_job *job) {
    size_t rows =
        cuda_batch_norm_partial_bytes(job) / (2 * sizeof(float) * (size_t)job->channels) - 1;
    return norm_groups(job->channels, job->type) * rows;
}

/* On an H100 and an A100, of ResNet-50's channels: none runs alone behind the others, and nearly
 * all places are taken. */
static void the_blocks_of_a_launch_run_at_once(void **state) {
    static const int processors[] = {132, 108};
    (void)state;
    for (size_t i = 0; i < COUNT(processors) * 2; i++)
        for (int channels = 64; channels <= 2048; channels *= 2)
            for (cuda_type type = CUDA_FLOAT32; type <= CUDA_BFLOAT16; type++) {
                cuda_batch_norm_job job = {
                    .pixels = 256 * 7 * 7, .channels = channels, .type = type};
                int count = processors[i / 2];
                assert_int_equal(i % 2 != 0 ? cuda_fit_batch_norm_backward(&job, count)
                                            : cuda_fit_batch_norm(&job, count),
                                 cudaSuccess);
                size_t most = job.resident.sums, blocks = norm_blocks(&job);
                assert_true(most >= 2 * (size_t)count && job.resident.values >= 2 * (size_t)count);
                assert_true(blocks <= most);
                assert_true(blocks + norm_groups(channels, type) > most);
            }
}

static parity_case wide_case(size_t i) {
    static const yoke_dims dims[] = {{512, 3, 3}, {1032, 2, 2}};
    yoke_dims own = dims[i % COUNT(dims)];
    return (parity_case){.operation = {.kind = YOKE_OP_BATCH_NORM,
                                       .name = "layer",
                                       .input = own,
                                       .output = own,
                                       .relu = true,
                                       .add = i % 4 > 1,
                                       .epsilon = 1e-5,
                                       .momentum = 0.1},
                         .rows = 2100 / (own.height * own.width),
                         .precision = precisions[i / 4],
                         .algorithm = YOKE_ALGORITHM_DIRECT};
}

static void many_channels_equal_the_cpu(void **state) {
    for (size_t i = 0; i < 4 * COUNT(precisions); i++) {
        parity_case c = wide_case(i);
        parity_check(*state, &c);
    }
}

/* Runs one step on the GPU alone. */
static void run_norm(const parity_rig *rig, const parity_case *c, parity_side *side,
                     const parity_values *given) {
    static const yoke_plan_step step = {.loss_scale = 1};
    yoke_device *device = yoke_devices_at(rig->devices, 0);
    yoke_device_scope scope;
    PARITY_OK(yoke_device_enter(device, false, &scope));
    parity_open(side, c, device, NULL);
    parity_run(side, given, &step);
    yoke_device_leave(device, &scope);
}

static void close_norm(const parity_rig *rig, parity_side *side) {
    yoke_device_scope scope;
    PARITY_OK(yoke_device_enter(yoke_devices_at(rig->devices, 0), false, &scope));
    parity_close(side);
    yoke_device_leave(yoke_devices_at(rig->devices, 0), &scope);
}

static void expect_same(const parity_case *c, const char *what, const float *got,
                        const float *wanted, size_t count) {
    parity_compare(c, what, got, wanted, count, 0);
}

/* The norm alone, the sum of what it gave, and the norm again for the gradient the sum gave. */
static void run_parts(const parity_rig *rig, const parity_case *joined, parity_values given,
                      parity_side *norm, parity_side *sum) {
    static parity_case parts[2];
    parts[0] = parts[1] = *joined;
    parts[0].operation.add = parts[0].operation.relu = false;
    parts[1].operation.kind = YOKE_OP_ADD;
    run_norm(rig, &parts[0], norm, &given);
    parity_values summed = given;
    summed.inputs[0] = norm->output;
    run_norm(rig, &parts[1], sum, &summed);
    if (joined->evaluation) return;
    close_norm(rig, norm);
    given.output_gradient = sum->input_gradients[0];
    run_norm(rig, &parts[0], norm, &given);
}

static void a_joined_sum_is_its_parts_to_the_bit(void **state) {
    const parity_rig *rig = *state;
    for (size_t i = 0; i < COUNT(values) * 2; i++) {
        parity_case c = norm_case(i / 2);
        c.operation.add = c.operation.relu = c.full = true;
        c.evaluation = i % 2 != 0;
        parity_values given = parity_values_new(&c);
        size_t count = parity_input_count(&c, 0), channels = (size_t)c.operation.input.channels;
        parity_side joined, norm, sum;
        run_norm(rig, &c, &joined, &given);
        run_parts(rig, &c, given, &norm, &sum);
        expect_same(&c, "output", joined.output, sum.output, count);
        for (int k = 0; k < 2; k++) {
            expect_same(&c, "running statistics", joined.buffers[k], norm.buffers[k], channels);
            if (c.evaluation) continue;
            expect_same(&c, "gradient of a parameter", joined.parameter_gradients[k],
                        norm.parameter_gradients[k], channels);
            expect_same(&c, "gradient of an input", joined.input_gradients[k],
                        k == 0 ? norm.input_gradients[0] : sum.input_gradients[0], count);
        }
        parity_values_free(&given);
        close_norm(rig, &joined);
        close_norm(rig, &norm);
        close_norm(rig, &sum);
    }
}

/* A sum against float64. */

/* The first two are one launch in both directions. */
static parity_case sum_case(size_t index, yoke_precision precision) {
    static const yoke_dims small[] = {{24, 5, 5}, {7, 5, 5}};
    parity_case c = norm_case(index < COUNT(small) ? 0 : index - COUNT(small));
    if (index < COUNT(small)) {
        c.rows = 3;
        c.operation.input = c.operation.output = small[index];
    }
    c.operation.add = c.operation.relu = true;
    c.precision = precision;
    return c;
}
#define SUM_CASES (COUNT(values) + 2)

/* Value k of a channel of plain values. */
static size_t value_at(const parity_case *c, size_t channel, size_t k) {
    yoke_dims dims = c->operation.input;
    size_t pixels = (size_t)(dims.height * dims.width), channels = (size_t)dims.channels;
    return (k / pixels * channels + channel) * pixels + k % pixels;
}

/* In double, then rounded to float32. */
typedef struct sum_reference {
    float *output, *gradients[2], *parameters[2];
} sum_reference;

static void differentiate_channel(const parity_case *c, const parity_values *given, size_t channel,
                                  sum_reference *to) {
    size_t count = parity_input_count(c, 0) / (size_t)c->operation.input.channels;
    double n = (double)count, mean = 0, variance = 0, sum = 0, normal_sum = 0;
    double weight = (double)given->parameters[0][channel];
    for (size_t k = 0; k < count; k++)
        mean += (double)given->inputs[0][value_at(c, channel, k)] / n;
    for (size_t k = 0; k < count; k++)
        variance += pow((double)given->inputs[0][value_at(c, channel, k)] - mean, 2) / n;
    double reciprocal = 1 / sqrt(variance + c->operation.epsilon);
    for (size_t k = 0; k < count; k++) {
        size_t i = value_at(c, channel, k);
        double normal = ((double)given->inputs[0][i] - mean) * reciprocal;
        double z =
            weight * normal + (double)given->parameters[1][channel] + (double)given->inputs[1][i];
        to->output[i] = z > 0 ? (float)z : 0;
        to->gradients[1][i] = z > 0 ? given->output_gradient[i] : 0;
        sum += (double)to->gradients[1][i];
        normal_sum += (double)to->gradients[1][i] * normal;
    }
    for (size_t k = 0; k < count; k++) {
        size_t i = value_at(c, channel, k);
        double normal = ((double)given->inputs[0][i] - mean) * reciprocal;
        double rest = (double)to->gradients[1][i] - sum / n - normal * normal_sum / n;
        to->gradients[0][i] = (float)(weight * reciprocal * rest);
    }
    to->parameters[0][channel] = (float)normal_sum;
    to->parameters[1][channel] = (float)sum;
}

/* What is added is 8 or -8, so that rounding cannot turn the ReLU's mask. */
static void check_sum(const parity_rig *rig, const parity_case *c) {
    size_t count = parity_input_count(c, 0), channels = (size_t)c->operation.input.channels;
    double tolerance = parity_tolerance(c->precision);
    parity_values given = parity_values_new(c);
    for (size_t i = 0; i < count; i++)
        given.inputs[1][i] = parity_hash((uint32_t)i, 21) % 2 != 0 ? 8 : -8;
    sum_reference to;
    float **results[] = {&to.output, &to.gradients[0], &to.gradients[1], &to.parameters[0],
                         &to.parameters[1]};
    for (size_t i = 0; i < COUNT(results); i++)
        *results[i] = test_malloc((i < 3 ? count : channels) * sizeof **results[i]);
    for (size_t channel = 0; channel < channels; channel++)
        differentiate_channel(c, &given, channel, &to);
    parity_side side;
    run_norm(rig, c, &side, &given);
    parity_compare(c, "output", side.output, to.output, count, tolerance);
    parity_compare(c, "gradient of x", side.input_gradients[0], to.gradients[0], count, tolerance);
    expect_same(c, "masked gradient", side.input_gradients[1], to.gradients[1], count);
    for (int k = 0; k < 2; k++)
        parity_compare(c, "gradient of a parameter", side.parameter_gradients[k], to.parameters[k],
                       channels, tolerance);
    close_norm(rig, &side);
    for (size_t i = 0; i < COUNT(results); i++)
        test_free(*results[i]);
    parity_values_free(&given);
}

static void a_sum_equals_float64(void **state) {
    for (size_t i = 0; i < SUM_CASES * COUNT(precisions) * 2; i++) {
        parity_case c = sum_case(i / 2 / COUNT(precisions), precisions[i / 2 % COUNT(precisions)]);
        c.in_place = i % 2 != 0;
        check_sum(*state, &c);
    }
}

/* Backward may not read the output: parity_forget overwrites it. */
static void a_sum_saves_a_byte_for_each_pack(void **state) {
    for (size_t i = 0; i < SUM_CASES * COUNT(precisions); i++) {
        parity_case c = sum_case(i / COUNT(precisions), precisions[i % COUNT(precisions)]);
        size_t channels = (size_t)c.operation.input.channels;
        size_t pack = c.precision == YOKE_FLOAT32 ? 4 : 8;
        size_t packs = channels % pack == 0 ? channels / pack : channels;
        size_t mask = (packs + 3) / 4 * 4 * (parity_input_count(&c, 0) / channels);
        parity_values given = parity_values_new(&c);
        parity_side side;
        run_norm(*state, &c, &side, &given);
        assert_false(side.needs->backward_reads_output);
        assert_int_equal(side.needs->saved_bytes, CUDA_NORM_ROWS * sizeof(float) * channels + mask);
        close_norm(*state, &side);
        parity_values_free(&given);
    }
}

/* A sum of 2^-26, which float16 rounds to 0, of NaN, of 1 and of -1. */
static void the_mask_is_that_of_stored_values(void **state) {
    static const float added[] = {0, NAN, 1, -1};
    for (size_t i = 0; i < SUM_CASES * COUNT(precisions); i++) {
        parity_case c = sum_case(i / COUNT(precisions), precisions[i % COUNT(precisions)]);
        size_t count = parity_input_count(&c, 0);
        parity_values given = parity_values_new(&c);
        for (int k = 0; k < c.operation.input.channels; k++) {
            given.parameters[0][k] = 0;
            given.parameters[1][k] = 0x1p-26f;
        }
        for (size_t k = 0; k < count; k++)
            given.inputs[1][k] = added[parity_hash((uint32_t)k, 22) % COUNT(added)];
        parity_side side;
        run_norm(*state, &c, &side, &given);
        for (size_t k = 0; k < count; k++) {
            float sum = given.inputs[1][k];
            bool stops = sum < 0 || (sum == 0 && c.precision == YOKE_FLOAT16);
            assert_true(side.input_gradients[1][k] == (stops ? 0 : given.output_gradient[k]));
        }
        close_norm(*state, &side);
        parity_values_free(&given);
    }
}

/* Adding 4096 to every value changes nothing but the running mean: what it may cost is the rounding
 * of the mean, 2^-12; sums of squares in float32 would lose the std altogether. */
static void a_mean_far_from_zero_leaves_the_std(void **state) {
    const parity_rig *rig = *state;
    for (size_t i = 0; i < COUNT(values); i++) {
        parity_case c = norm_case(i);
        parity_values given = parity_values_new(&c);
        parity_side near, far;
        run_norm(rig, &c, &near, &given);
        for (size_t k = 0; k < parity_input_count(&c, 0); k++)
            given.inputs[0][k] += 4096;
        run_norm(rig, &c, &far, &given);
        size_t channels = (size_t)c.operation.input.channels;
        parity_compare(&c, "output far from zero", far.output, near.output,
                       parity_input_count(&c, 0), 2e-3);
        parity_compare(&c, "running variance", far.buffers[1], near.buffers[1], channels, 1e-5);
        parity_values_free(&given);
        close_norm(rig, &near);
        close_norm(rig, &far);
    }
}

/* Finite values whose variance is not: without a loss that says so, weights would be updated. */
static void an_overflow_reaches_the_output_and_spares_the_running_statistics(void **state) {
    const parity_rig *rig = *state;
    for (size_t i = 0; i < COUNT(values); i++) {
        parity_case c = norm_case(i);
        c.operation.relu = true;
        parity_values given = parity_values_new(&c);
        parity_side side;
        given.inputs[0][0] = 3e30f;
        given.inputs[0][1] = -3e30f;
        run_norm(rig, &c, &side, &given);
        assert_true(isnan(side.output[0]));
        assert_true(isnan(side.output[2]));
        for (int k = 0; k < 2; k++) {
            assert_true(side.buffers[k][0] == given.buffers[k][0]);
            assert_true(side.buffers[k][1] != given.buffers[k][1]);
        }
        parity_values_free(&given);
        close_norm(rig, &side);
    }
}

int main(void) {
    if (devices_gpus() == 0) {
        print_message("skipped: no usable GPU\n");
        return DEVICES_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_values_equal_the_cpu),
        cmocka_unit_test(the_blocks_of_a_launch_run_at_once),
        cmocka_unit_test(many_channels_equal_the_cpu),
        cmocka_unit_test(a_joined_sum_is_its_parts_to_the_bit),
        cmocka_unit_test(a_sum_equals_float64),
        cmocka_unit_test(a_sum_saves_a_byte_for_each_pack),
        cmocka_unit_test(the_mask_is_that_of_stored_values),
        cmocka_unit_test(a_mean_far_from_zero_leaves_the_std),
        cmocka_unit_test(an_overflow_reaches_the_output_and_spares_the_running_statistics),
    };
    return cmocka_run_group_tests(tests, parity_group_open_gpu, parity_group_close);
}

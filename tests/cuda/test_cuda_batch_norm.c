/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm on a GPU: channels too large for one block and how they are cut, means that hide the
 * std, statistics that overflow. Skipped without a GPU. */
#include "operation_parity.h"

#include "device/backend.h"
#include "device/cuda/kernels.h"
#include "support/devices.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const yoke_precision precisions[] = {YOKE_FLOAT32, YOKE_BFLOAT16};

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
                         .precision = precisions[i / 4 % 2],
                         .algorithm = YOKE_ALGORITHM_DIRECT};
}

static void many_channels_equal_the_cpu(void **state) {
    for (size_t i = 0; i < 8; i++) {
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
        cmocka_unit_test(a_mean_far_from_zero_leaves_the_std),
        cmocka_unit_test(an_overflow_reaches_the_output_and_spares_the_running_statistics),
    };
    return cmocka_run_group_tests(tests, parity_group_open_gpu, parity_group_close);
}

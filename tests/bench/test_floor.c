/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel time is measured without the engine around the kernels, and the model stays as it was; the
 * buckets and the layers of a step. */
#include "bench/floor/floor.h"
#include "support/engine_check.h"

typedef struct kernel_rig {
    yoke_model *model;
    check_engine engine;
    check_batch batch;
} kernel_rig;

static kernel_rig open_rig(yoke_precision precision) {
    kernel_rig rig = {.model = check_model(true, 0.25), .batch = check_batch_make(6, 1)};
    yoke_optimizer_options optimizer = {.struct_size = sizeof optimizer,
                                        .kind = YOKE_ADAMW,
                                        .learning_rate = 1e-3,
                                        .beta1 = 0.9,
                                        .beta2 = 0.999,
                                        .epsilon = 1e-8};
    yoke_data_parallel_options options = {
        .batch = 6, .precision = precision, .algorithm = YOKE_ALGORITHM_DIRECT};
    rig.engine = check_engine_make(rig.model, 2, options, &optimizer);
    return rig;
}

static void close_rig(kernel_rig *rig) {
    check_engine_free(&rig->engine);
    check_batch_free(&rig->batch);
    yoke_model_destroy(rig->model);
}

static double step(kernel_rig *rig) {
    yoke_step_result result = {.struct_size = sizeof result};
    EXPECT_OK(yoke_data_parallel_step(rig->engine.parallel, &rig->batch.batch,
                                      YOKE_OPTIMIZER_LEARNING_RATE, &result));
    return result.loss;
}

static bool has_bfloat16(void) {
    kernel_rig rig = open_rig(YOKE_FLOAT32);
    yoke_device_info info = {.struct_size = sizeof info};
    EXPECT_OK(yoke_devices_describe(rig.engine.devices, 0, &info));
    close_rig(&rig);
    return info.bfloat16;
}

/* Between the steps of two engines that are otherwise alike. */
static void timing_kernels_changes_nothing_of_the_model(void **state) {
    (void)state;
    for (int i = 0; i < (has_bfloat16() ? 2 : 1); i++) {
        yoke_precision precision = i == 0 ? YOKE_FLOAT32 : YOKE_BFLOAT16;
        kernel_rig timed = open_rig(precision), other = open_rig(precision);
        for (int k = 0; k < 3; k++) {
            double milliseconds = 0;
            assert_true(step(&timed) == step(&other));
            EXPECT_OK(
                bench_kernel_time(timed.engine.parallel, BENCH_KERNELS_ALONE, 3, &milliseconds));
            assert_true(milliseconds > 0 && milliseconds < 1e5);
            EXPECT_OK(
                bench_kernel_time(timed.engine.parallel, BENCH_KERNELS_IN_ORDER, 3, &milliseconds));
            assert_true(milliseconds > 0 && milliseconds < 1e5);
        }
        uint64_t hashes[2];
        EXPECT_OK(yoke_data_parallel_hash(timed.engine.parallel, &hashes[0]));
        EXPECT_OK(yoke_data_parallel_hash(other.engine.parallel, &hashes[1]));
        assert_true(hashes[0] == hashes[1]);
        close_rig(&other);
        close_rig(&timed);
    }
}

/* Measuring the kernel time leaves no memory allocated. */
static void timing_kernels_gives_its_memory_back(void **state) {
    (void)state;
    kernel_rig rig = open_rig(YOKE_FLOAT32);
    size_t held[2] = {0};
    for (int i = 0; i < 2; i++) {
        double milliseconds = 0;
        yoke_memory_report report = {.struct_size = sizeof report};
        EXPECT_OK(bench_kernel_time(rig.engine.parallel, BENCH_KERNELS_ALONE, 2, &milliseconds));
        EXPECT_OK(yoke_data_parallel_memory(rig.engine.parallel, 0, &report));
        held[i] = report.total;
    }
    assert_int_equal(held[0], held[1]);
    close_rig(&rig);
}

enum { CALLS = 128 };

static int list_calls(kernel_rig *rig, bench_kernel_call *calls) {
    int count = 0, again = 0;
    EXPECT_OK(bench_kernel_calls(rig->engine.parallel, 1, NULL, 0, &count));
    assert_true(count > 10 && count <= CALLS);
    EXPECT_OK(bench_kernel_calls(rig->engine.parallel, 2, calls, count - 1, &again));
    assert_int_equal(again, count);
    EXPECT_OK(bench_kernel_calls(rig->engine.parallel, 2, calls, CALLS, &again));
    assert_int_equal(again, count);
    return count;
}

static const bench_kernel_call *find_call(const bench_kernel_call *calls, int count,
                                          const char *operation, const char *direction) {
    for (int i = 0; i < count; i++)
        if (strcmp(calls[i].operation, operation) == 0 &&
            strcmp(calls[i].direction, direction) == 0)
            return &calls[i];
    fail_msg("no call %s %s", operation, direction);
    return NULL;
}

/* Every call of a step is in the list, with its time; those of convolution and linear in three
 * directions, with their algorithms and as many operations in each. */
static void the_calls_of_a_step_are_listed_with_their_algorithms(void **state) {
    (void)state;
    kernel_rig rig = open_rig(YOKE_FLOAT32);
    bench_kernel_call calls[CALLS];
    int count = list_calls(&rig, calls);
    for (int i = 0; i < count; i++) {
        assert_non_null(calls[i].layer);
        assert_true(calls[i].milliseconds >= 0 && calls[i].milliseconds < 1e5);
        assert_true(calls[i].bytes > 0 && calls[i].shape[0] != '\0');
    }
    assert_string_equal(calls[0].direction, "forward");
    assert_string_equal(calls[count - 1].operation, "update");
    static const char *const operations[] = {"conv2d", "linear"};
    for (int i = 0; i < 2; i++) {
        const bench_kernel_call *forward = find_call(calls, count, operations[i], "forward");
        const bench_kernel_call *weights =
            find_call(calls, count, operations[i], "backward weights");
        const bench_kernel_call *data = find_call(calls, count, operations[i], "backward data");
        assert_true(forward->algorithm && weights->algorithm && data->algorithm);
        assert_true(forward->operations > 0);
        assert_string_equal(weights->layer, data->layer); /* the last of its kind */
        assert_true(data->operations > 0 && data->operations == weights->operations);
    }
    assert_null(find_call(calls, count, "batch_norm", "backward")->algorithm);
    close_rig(&rig);
}

/* 3 rows of [out, in]: the fewest bytes and the operations of a linear layer are known. */
static void bytes_and_operations_are_those_of_the_operands(void **state) {
    (void)state;
    kernel_rig rig = open_rig(YOKE_FLOAT32);
    bench_kernel_call calls[CALLS];
    int count = list_calls(&rig, calls), in = 0, out = 0;
    const bench_kernel_call *forward = find_call(calls, count, "linear", "forward");
    assert_int_equal(sscanf(forward->shape, "%dx1x1 to %dx1x1", &in, &out), 2);
    assert_true(forward->operations == 2.0 * 3 * in * out);
    double least = 4.0 * (3 * in + 3 * out + in * out + out);
    assert_true(forward->bytes >= least && forward->bytes < least + 4 * 4096); /* padding */
    close_rig(&rig);
}

static void rates_are_those_of_a_device(void **state) {
    (void)state;
    kernel_rig rig = open_rig(YOKE_FLOAT32);
    bench_rates rates = {0};
    yoke_memory_report before = {.struct_size = sizeof before}, after = before;
    EXPECT_OK(yoke_data_parallel_memory(rig.engine.parallel, 0, &before));
    EXPECT_OK(bench_measure_rates(rig.engine.parallel, &rates));
    EXPECT_OK(yoke_data_parallel_memory(rig.engine.parallel, 0, &after));
    assert_true(rates.bytes_per_s > 1e6 && rates.bytes_per_s < 1e15);
    assert_true(rates.operations_per_s > 1e6 && rates.operations_per_s < 1e18);
    assert_int_equal(before.total, after.total);
    close_rig(&rig);
}

static void buckets_hold_every_gradient_once(void **state) {
    (void)state;
    enum { SPACE = 64 };
    size_t bytes[SPACE], part[SPACE] = {0}, sum = 0;
    yoke_model *model = check_model(true, 0);
    check_engine engine =
        check_engine_make(model, 2, check_options(6, YOKE_SCHEDULE_OVERLAP), NULL);
    int count = bench_bucket_bytes(engine.parallel, NULL, 0);
    assert_true(count > 2 && count <= SPACE);
    assert_int_equal(bench_bucket_bytes(engine.parallel, bytes, SPACE), count);
    for (int b = 0; b < count; b++)
        sum += bytes[b];
    size_t gradients = yoke_model_parameter_count(model) * sizeof(float);
    assert_true(sum >= gradients && sum < gradients + (size_t)count * 1024); /* padding */
    assert_int_equal(bench_bucket_bytes(engine.parallel, part, count - 1), count);
    assert_int_equal(part[count - 2], bytes[count - 2]);
    assert_int_equal(part[count - 1], 0);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

/* conv, norm, relu, conv, add, relu, pool, flatten, linear: fused ones count one by one, and
 * dropout computes, too. */
static void layers_are_those_that_the_user_wrote(void **state) {
    (void)state;
    for (int dropout = 0; dropout < 2; dropout++) {
        yoke_model *model = check_model(true, 0.25 * dropout);
        assert_int_equal(yoke_model_layer_count(model), 9 + dropout);
        yoke_model_destroy(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timing_kernels_changes_nothing_of_the_model),
        cmocka_unit_test(timing_kernels_gives_its_memory_back),
        cmocka_unit_test(the_calls_of_a_step_are_listed_with_their_algorithms),
        cmocka_unit_test(bytes_and_operations_are_those_of_the_operands),
        cmocka_unit_test(rates_are_those_of_a_device),
        cmocka_unit_test(buckets_hold_every_gradient_once),
        cmocka_unit_test(layers_are_those_that_the_user_wrote),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Unequal shares of a batch: who has which rows, and what stays the same. test_shards says that
 * shares of whole shards change no bit. */
#include "support/engine_check.h"

#include "parallel/step/step.h"
#include "yoke/stages.h"

enum { BATCH = 24, STEPS_HERE = 5, MOST = 4 };

typedef struct share_case {
    double shares[MOST];
    int devices, rows[MOST];
} share_case;

static const share_case cases[] = {
    {{3, 1}, 2, {18, 6}},
    {{1, 3}, 2, {6, 18}},
    {{0.5, 0.25, 0.25}, 3, {12, 6, 6}},
    {{1, 5, 2}, 3, {3, 15, 6}},
    {{20, 1, 2, 1}, 4, {20, 1, 2, 1}},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static yoke_data_parallel_options options_for(const share_case *one, yoke_schedule schedule) {
    yoke_data_parallel_options options = check_options(BATCH, schedule);
    options.shares = one->shares;
    options.share_count = one->devices;
    return options;
}

/* Batches of all sizes, the smallest with fewer rows than devices. */
static void learn(yoke_data_parallel *parallel, double losses[STEPS_HERE]) {
    static const int rows[STEPS_HERE] = {BATCH, 11, 1, 3, BATCH};
    for (int step = 0; step < STEPS_HERE; step++) {
        check_batch batch = check_batch_make(rows[step], (uint32_t)step);
        yoke_step_result result = {.struct_size = sizeof result};
        EXPECT_OK(
            yoke_data_parallel_step(parallel, &batch.batch, YOKE_OPTIMIZER_LEARNING_RATE, &result));
        assert_int_equal(result.rows, rows[step]);
        losses[step] = result.loss;
        check_batch_free(&batch);
    }
}

static void devices_have_rows_in_proportion(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    for (int i = 0; i < CASES; i++) {
        check_engine engine = check_engine_make(
            model, cases[i].devices, options_for(&cases[i], YOKE_SCHEDULE_OVERLAP), NULL);
        for (int k = 0; k < cases[i].devices; k++)
            assert_int_equal(yoke_data_parallel_device_rows(engine.parallel, k), cases[i].rows[k]);
        assert_int_equal(yoke_data_parallel_device_rows(engine.parallel, cases[i].devices), 0);
        assert_int_equal(yoke_data_parallel_device_rows(engine.parallel, -1), 0);
        check_engine_free(&engine);
    }
    assert_int_equal(yoke_data_parallel_device_rows(NULL, 0), 0);
    yoke_model_destroy(model);
}

/* Without batch norm the cut changes rounding alone; each schedule has the bits of the others. */
static void every_cut_learns_what_one_device_learns(void **state) {
    (void)state;
    static const yoke_schedule schedules[] = {YOKE_SCHEDULE_OVERLAP, YOKE_SCHEDULE_CLASSIC,
                                              YOKE_SCHEDULE_SHARDED};
    yoke_model *model = check_model(false, 0);
    double expected[STEPS_HERE], losses[STEPS_HERE];
    size_t count;
    check_engine alone =
        check_engine_make(model, 1, check_options(BATCH, YOKE_SCHEDULE_OVERLAP), NULL);
    learn(alone.parallel, expected);
    float *weights = check_read_all(alone.parallel, model, false, &count);
    for (int i = 0; i < CASES; i++) {
        uint64_t hashes[3];
        for (int s = 0; s < 3; s++) {
            check_engine engine = check_engine_make(model, cases[i].devices,
                                                    options_for(&cases[i], schedules[s]), NULL);
            learn(engine.parallel, losses);
            float *own = check_read_all(engine.parallel, model, false, &count);
            assert_true(check_relative(own, weights, count) < 1e-5);
            for (int step = 0; step < STEPS_HERE; step++)
                assert_true(fabs(losses[step] - expected[step]) < 1e-5);
            hashes[s] = check_hash(engine.parallel);
            free(own);
            check_engine_free(&engine);
        }
        assert_true(hashes[0] == hashes[1] && hashes[0] == hashes[2]);
    }
    free(weights);
    check_engine_free(&alone);
    yoke_model_destroy(model);
}

/* accumulate cuts the batch first; outputs come back in the order of the rows. */
static void micro_batches_and_outputs_keep_their_order(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    float outputs[2][BATCH * CHECK_CLASSES];
    double losses[STEPS_HERE];
    for (int run = 0; run < 2; run++) {
        yoke_data_parallel_options options = check_options(BATCH, YOKE_SCHEDULE_OVERLAP);
        if (run == 1) options = options_for(&cases[3], YOKE_SCHEDULE_OVERLAP);
        options.accumulate = run == 1 ? 2 : 1;
        check_engine engine = check_engine_make(model, run == 1 ? 3 : 1, options, NULL);
        learn(engine.parallel, losses);
        check_batch batch = check_batch_make(BATCH / 2, 9);
        EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &batch.batch, false, outputs[run]));
        check_batch_free(&batch);
        check_engine_free(&engine);
    }
    assert_true(check_relative(outputs[1], outputs[0], BATCH / 2 * CHECK_CLASSES) < 1e-5);
    yoke_model_destroy(model);
}

static void shares_that_cannot_be_are_named(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    static const struct {
        double shares[2];
        int count;
        const char *words;
    } bad[] = {{{1, 1}, 3, "3 shares for 2 devices"},
               {{1, 1}, 1, "1 shares for 2 devices"},
               {{1, 0}, 2, "the share of device 1 is 0"},
               {{-2, 1}, 2, "the share of device 0 is -2"},
               {{1, (double)NAN}, 2, "the share of device 1 is nan"},
               {{100, 1}, 2, "leaves the device without rows of 24"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        yoke_data_parallel_options options = check_options(BATCH, YOKE_SCHEDULE_OVERLAP);
        options.shares = bad[i].shares;
        options.share_count = bad[i].count;
        check_refused(model, options, bad[i].words);
    }
    yoke_data_parallel_options options = check_options(BATCH, YOKE_SCHEDULE_OVERLAP);
    options.share_count = 2;
    check_refused(model, options, "shares is NULL");
    options = check_options(BATCH, YOKE_SCHEDULE_OVERLAP);
    options.auto_shares = options.synchronize_batch_norm = true;
    if (devices_are_cpus()) check_refused(model, options, "synchronize_batch_norm");
    options = options_for(&cases[0], YOKE_SCHEDULE_OVERLAP);
    options.shards = 8;
    if (!devices_are_cpus()) check_refused(model, options, "for CPU devices");
    yoke_model_destroy(model);
}

/* No deal gives a device more rows than its replica has room for, however unlike devices are. */
static void a_measured_share_has_room(void **state) {
    (void)state;
    for (uint32_t seed = 0; seed < 500; seed++) {
        yoke_step step = {.count = 2 + (int)(seed % 9), .ranks = {.world = 1}};
        double seconds[16];
        step.options = (yoke_data_parallel_options){
            .batch = 30 + (int)(seed % 41), .accumulate = 1, .auto_shares = true};
        step.limits.micro_rows = step.options.batch;
        EXPECT_OK(yoke_deal_create(&step));
        int most = yoke_deal_most_rows(&step), rows = 0;
        for (int k = 0; k < step.count; k++)
            seconds[k] = exp(8 * check_noise(16 * seed + (uint32_t)k));
        bool changed = yoke_deal_improve(&step, seconds);
        for (int k = 0; k < step.count; k++) {
            yoke_chunk own = yoke_deal_rows(&step, step.options.batch, k);
            assert_int_equal(own.first, rows);
            assert_in_range(own.rows, 1, most);
            rows += own.rows;
        }
        assert_int_equal(rows, step.options.batch);
        if (seed == 0) assert_true(changed);
    }
}

/* Stages by hand cut the rows by devices: a replica has room for a shard. */
static void by_hand_shares_of_shards_do_not_count(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    yoke_model *model = check_model(false, 0);
    yoke_data_parallel_options options = options_for(&cases[0], YOKE_SCHEDULE_OVERLAP);
    options.shards = 8;
    check_engine engine = check_engine_make(model, 2, options, NULL);
    check_batch batch = check_batch_make(BATCH / 4, 2);
    float outputs[BATCH * CHECK_CLASSES];
    EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &batch.batch, true, outputs));
    EXPECT_OK(yoke_data_parallel_backward(engine.parallel, NULL));
    EXPECT_OK(yoke_data_parallel_update(engine.parallel, YOKE_OPTIMIZER_LEARNING_RATE));
    check_batch_free(&batch);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

/* Steps until the device that takes five times as long has given rows away. */
static int steps_until_moved(yoke_data_parallel *parallel, const yoke_batch *batch) {
    enum { ENOUGH = 5000 };
    for (int step = 1; step <= ENOUGH; step++) {
        EXPECT_OK(yoke_data_parallel_step(parallel, batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL));
        if (yoke_data_parallel_device_rows(parallel, 0) > batch->rows / 2) return step;
    }
    fail_msg("after %d steps the slow device has still half of the rows", ENOUGH);
    return 0;
}

static void measured_shares_follow_speed(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip(); /* GPUs cannot be slowed down */
    enum { LARGE = 64, MORE = 20 };
    yoke_model *model = check_model(false, 0);
    for (int shards = 0; shards <= 8; shards += 8) {
        yoke_data_parallel_options options = check_options(LARGE, YOKE_SCHEDULE_OVERLAP);
        options.shards = shards;
        check_batch batch = check_batch_make(LARGE, 1);
        check_engine equal = check_engine_make(model, 2, options, NULL);
        options.auto_shares = true;
        options.straggler = 1;
        options.straggler_factor = 5;
        check_engine engine = check_engine_make(model, 2, options, NULL);
        int steps = steps_until_moved(engine.parallel, &batch.batch);
        for (int step = 0; step < steps + MORE; step++) {
            EXPECT_OK(yoke_data_parallel_step(equal.parallel, &batch.batch, -1, NULL));
            if (step < steps) continue;
            EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch, -1, NULL));
        }
        int rows = yoke_data_parallel_device_rows(engine.parallel, 0) +
                   yoke_data_parallel_device_rows(engine.parallel, 1);
        assert_int_equal(rows, LARGE);
        if (shards > 0) assert_true(check_hash(engine.parallel) == check_hash(equal.parallel));
        check_engine_free(&engine);
        check_engine_free(&equal);
        check_batch_free(&batch);
    }
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_have_rows_in_proportion),
        cmocka_unit_test(every_cut_learns_what_one_device_learns),
        cmocka_unit_test(micro_batches_and_outputs_keep_their_order),
        cmocka_unit_test(shares_that_cannot_be_are_named),
        cmocka_unit_test(a_measured_share_has_room),
        cmocka_unit_test(by_hand_shares_of_shards_do_not_count),
        cmocka_unit_test(measured_shares_follow_speed),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}

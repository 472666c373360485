/* SPDX-License-Identifier: Apache-2.0 */
/* The engine is exact, whatever the number of devices, the schedule and the size of buckets. */
#include "support/engine_check.h"

#include "parallel/parallel.h"

static const yoke_optimizer_options sgd = {.struct_size = sizeof sgd,
                                           .kind = YOKE_SGD,
                                           .learning_rate = 0.1,
                                           .momentum = 0.9,
                                           .weight_decay = 1e-2};

static void shards_are_cut_by_torch_chunk(void **state) {
    (void)state;
    static const struct {
        int rows, devices, shards[9];
    } table[] = {{1, 2, {1}},
                 {5, 4, {2, 2, 1}},
                 {6, 4, {2, 2, 2}},
                 {9, 4, {3, 3, 3}},
                 {9, 8, {2, 2, 2, 2, 1}},
                 {10, 4, {3, 3, 3, 1}},
                 {13, 2, {7, 6}},
                 {13, 8, {2, 2, 2, 2, 2, 2, 1}},
                 {36, 7, {6, 6, 6, 6, 6, 6}},
                 {36, 8, {5, 5, 5, 5, 5, 5, 5, 1}},
                 {33, 8, {5, 5, 5, 5, 5, 5, 3}},
                 {3, 2, {2, 1}}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        for (int k = 0; k < table[i].devices; k++)
            assert_int_equal(yoke_shard_rows(table[i].rows, table[i].devices, k),
                             table[i].shards[k]);
}

static float *gradient_of(const yoke_model *model, int devices, check_batch *batch, size_t *count) {
    check_engine engine =
        check_engine_make(model, devices, check_options(33, YOKE_SCHEDULE_OVERLAP), &sgd);
    EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &batch->batch, true, NULL));
    EXPECT_OK(yoke_data_parallel_backward(engine.parallel, NULL));
    float *gradient = check_read_all(engine.parallel, model, true, count);
    check_engine_free(&engine);
    return gradient;
}

static void what_there_is_no_time_to_measure_takes_the_fixed_rule(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0.25);
    yoke_data_parallel_options options = check_options(16, YOKE_SCHEDULE_OVERLAP);
    options.algorithm = YOKE_ALGORITHM_MEASURED;
    options.measure_seconds = 1e-9;
    check_engine engine = check_engine_make(model, 2, options, &sgd);
    const char *pass, *algorithm;
    double milliseconds;
    int measured = 0, assumed = 0;
    while (yoke_data_parallel_algorithm(engine.parallel, measured + assumed, &pass, &algorithm,
                                        &milliseconds))
        *(strstr(algorithm, "(not measured)") != NULL ? &assumed : &measured) += 1;
    assert_int_equal(measured, 0);
    assert_true(assumed > 1);
    assert_non_null(
        strstr(yoke_data_parallel_algorithms_warning(engine.parallel), "run unmeasured"));
    check_batch batch = check_batch_make(16, 1);
    EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &batch.batch, true, NULL));
    EXPECT_OK(yoke_data_parallel_backward(engine.parallel, NULL));
    check_batch_free(&batch);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

static void gradients_do_not_depend_on_the_number_of_devices(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0.25);
    check_engine engines[9];
    for (int n = 1; n <= 8; n++)
        engines[n] = check_engine_make(model, n, check_options(33, YOKE_SCHEDULE_OVERLAP), &sgd);
    for (int rows = 1; rows <= 33; rows++) {
        check_batch batch = check_batch_make(rows, (uint32_t)rows);
        float *one = NULL;
        size_t count;
        for (int n = 1; n <= 8; n++) {
            yoke_data_parallel *parallel = engines[n].parallel;
            EXPECT_OK(yoke_data_parallel_forward(parallel, &batch.batch, true, NULL));
            EXPECT_OK(yoke_data_parallel_backward(parallel, NULL));
            float *gradient = check_read_all(parallel, model, true, &count);
            if (n == 1) {
                one = gradient;
                continue;
            }
            double difference = check_relative(gradient, one, count);
            if (!(difference <= 1e-6))
                fail_msg("%d rows on %d devices: gradients differ by %g", rows, n, difference);
            free(gradient);
        }
        free(one);
        check_batch_free(&batch);
    }
    for (int n = 1; n <= 8; n++)
        check_engine_free(&engines[n]);
    yoke_model_destroy(model);
}

static void gradient_is_the_slope_of_the_loss(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    check_batch batch = check_batch_make(7, 5);
    size_t count;
    float *gradient = gradient_of(model, 3, &batch, &count);
    check_engine engine =
        check_engine_make(model, 2, check_options(33, YOKE_SCHEDULE_OVERLAP), &sgd);
    float bias[CHECK_CLASSES];
    EXPECT_OK(yoke_data_parallel_read(engine.parallel, "fc.bias", bias, CHECK_CLASSES));
    for (int i = 0; i < CHECK_CLASSES; i++) {
        double losses[2], keep = bias[i];
        for (int side = 0; side < 2; side++) {
            yoke_step_result result = {.struct_size = sizeof result};
            bias[i] = (float)(keep + (side ? 1e-2 : -1e-2));
            EXPECT_OK(yoke_data_parallel_write(engine.parallel, "fc.bias", bias, CHECK_CLASSES));
            EXPECT_OK(yoke_data_parallel_evaluate(engine.parallel, &batch.batch, &result));
            losses[side] = result.loss;
        }
        bias[i] = (float)keep;
        double slope = (losses[1] - losses[0]) / 2e-2;
        double analytic = gradient[count - CHECK_CLASSES + (size_t)i]; /* fc.bias is the last */
        assert_true(fabs(slope - analytic) < 1e-3);
    }
    free(gradient);
    check_engine_free(&engine);
    check_batch_free(&batch);
    yoke_model_destroy(model);
}

static void schedules_give_the_same_bits(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    for (int devices = 1; devices <= 5; devices++)
        check_schedules_agree(model, devices, check_options(CHECK_BATCH, YOKE_SCHEDULE_OVERLAP),
                              &sgd);
    yoke_model_destroy(model);
}

static void devices_agree_after_steps(void **state) {
    (void)state;
    yoke_optimizer_options adamw = {.struct_size = sizeof adamw,
                                    .kind = YOKE_ADAMW,
                                    .learning_rate = 1e-3,
                                    .beta1 = 0.9,
                                    .beta2 = 0.999,
                                    .epsilon = 1e-8,
                                    .clip_norm = 0.5};
    yoke_model *model = check_model(false, 0.5);
    check_devices_agree(model, check_options(CHECK_BATCH, YOKE_SCHEDULE_OVERLAP), &sgd);
    check_devices_agree(model, check_options(CHECK_BATCH, YOKE_SCHEDULE_OVERLAP), &adamw);
    yoke_model_destroy(model);
}

static void accumulation_does_not_change_the_update(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0.25);
    size_t count;
    float *whole =
        check_weights_after(model, 2, check_options(16, YOKE_SCHEDULE_OVERLAP), &sgd, &count);
    for (int parts = 2; parts <= 16; parts += 7)
        for (int schedule = 0; schedule < 3; schedule++) {
            yoke_data_parallel_options options = check_options(16, (yoke_schedule)schedule);
            options.accumulate = parts;
            float *cut = check_weights_after(model, 3, options, &sgd, &count);
            double difference = check_relative(cut, whole, count);
            if (!(difference < 2e-6))
                fail_msg("%d micro-batches, schedule %d: %g", parts, schedule, difference);
            free(cut);
        }
    free(whole);
    yoke_model_destroy(model);
}

/* On 4 devices 12 rows in 3 are 4, 4, 4: all compute. 14 rows are 5, 5, 4: the last device joins in
 * the last micro-batch only, and must not add what it accumulated in the step before. */
static void a_replica_idle_at_first_adds_nothing_old(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    for (int schedule = 0; schedule < 3; schedule++) {
        float *weights[2];
        size_t count;
        for (int cut = 0; cut < 2; cut++) {
            yoke_data_parallel_options options = check_options(14, (yoke_schedule)schedule);
            options.accumulate = cut ? 3 : 1;
            check_engine engine = check_engine_make(model, 4, options, &sgd);
            for (int rows = 12; rows <= 14; rows += 2) {
                check_batch batch = check_batch_make(rows, (uint32_t)rows);
                EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                                  YOKE_OPTIMIZER_LEARNING_RATE, NULL));
                check_batch_free(&batch);
            }
            weights[cut] = check_read_all(engine.parallel, model, false, &count);
            check_engine_free(&engine);
        }
        assert_true(check_relative(weights[1], weights[0], count) < 2e-6);
        free(weights[0]);
        free(weights[1]);
    }
    yoke_model_destroy(model);
}

/* 0 is a rate, not the optimizer's own: so is the end of a cosine. */
static void a_rate_of_zero_changes_no_weight(void **state) {
    (void)state;
    const yoke_lr_schedule cosine = {
        .struct_size = sizeof cosine, .kind = YOKE_LR_COSINE, .learning_rate = 0.1, .steps = 2};
    yoke_model *model = check_model(false, 0);
    check_batch batch = check_batch_make(10, 1);
    for (int schedule = 0; schedule < 3; schedule++) {
        yoke_data_parallel_options options = check_options(16, (yoke_schedule)schedule);
        check_engine engine = check_engine_make(model, 3, options, &sgd);
        for (uint64_t step = 0; step < 4; step++) {
            uint64_t before = check_hash(engine.parallel);
            double rate = yoke_lr_schedule_rate(&cosine, step);
            EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch, rate, NULL));
            assert_true((rate == 0) == (step >= cosine.steps));
            assert_true((check_hash(engine.parallel) == before) == (rate == 0));
        }
        uint64_t before = check_hash(engine.parallel);
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                          YOKE_OPTIMIZER_LEARNING_RATE, NULL));
        assert_true(check_hash(engine.parallel) != before);
        check_engine_free(&engine);
    }
    check_batch_free(&batch);
    yoke_model_destroy(model);
}

static void stages_by_hand_are_a_step(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    check_batch batch = check_batch_make(10, 1);
    check_engine whole =
        check_engine_make(model, 3, check_options(16, YOKE_SCHEDULE_OVERLAP), &sgd);
    check_engine hand = check_engine_make(model, 3, check_options(16, YOKE_SCHEDULE_SHARDED), &sgd);
    for (int step = 0; step < 3; step++) {
        yoke_step_result a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
        EXPECT_OK(yoke_data_parallel_step(whole.parallel, &batch.batch,
                                          YOKE_OPTIMIZER_LEARNING_RATE, &a));
        EXPECT_OK(yoke_data_parallel_scatter(hand.parallel, &batch.batch));
        EXPECT_OK(yoke_data_parallel_replicate(hand.parallel));
        EXPECT_OK(yoke_data_parallel_forward_replicas(hand.parallel, true));
        EXPECT_OK(yoke_data_parallel_loss_replicas(hand.parallel));
        EXPECT_OK(yoke_data_parallel_backward_replicas(hand.parallel));
        EXPECT_OK(yoke_data_parallel_reduce(hand.parallel));
        EXPECT_OK(yoke_data_parallel_update(hand.parallel, YOKE_OPTIMIZER_LEARNING_RATE));
        EXPECT_OK(yoke_data_parallel_gather(hand.parallel, &b));
        assert_true(a.loss == b.loss && a.correct == b.correct && a.rows == b.rows);
    }
    assert_true(check_hash(whole.parallel) == check_hash(hand.parallel));
    check_engine_free(&whole);
    check_engine_free(&hand);
    check_batch_free(&batch);
    yoke_model_destroy(model);
}

static void outputs_come_back_in_row_order(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    check_batch batch = check_batch_make(11, 9);
    float one[11 * CHECK_CLASSES], many[11 * CHECK_CLASSES];
    check_engine single =
        check_engine_make(model, 1, check_options(16, YOKE_SCHEDULE_OVERLAP), &sgd);
    EXPECT_OK(yoke_data_parallel_forward(single.parallel, &batch.batch, false, one));
    for (int devices = 2; devices <= 4; devices++) {
        check_engine engine =
            check_engine_make(model, devices, check_options(16, YOKE_SCHEDULE_OVERLAP), &sgd);
        EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &batch.batch, false, many));
        assert_true(check_relative(many, one, 11 * CHECK_CLASSES) < 1e-6);
        check_engine_free(&engine);
    }
    check_engine_free(&single);
    check_batch_free(&batch);
    yoke_model_destroy(model);
}

static void evaluation_broadcasts_weights_only_when_they_changed(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    check_batch batch = check_batch_make(12, 2);
    check_engine engine =
        check_engine_make(model, 3, check_options(16, YOKE_SCHEDULE_CLASSIC), &sgd);
    yoke_trace *trace = yoke_data_parallel_trace(engine.parallel);
    yoke_step_result result = {.struct_size = sizeof result};
    EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch, YOKE_OPTIMIZER_LEARNING_RATE,
                                      &result));
    yoke_trace_reset(trace);
    EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &batch.batch, false, NULL));
    assert_true(check_bytes(engine.parallel, YOKE_STAGE_REPLICATE) > 0);
    yoke_trace_reset(trace);
    EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &batch.batch, false, NULL));
    assert_true(check_bytes(engine.parallel, YOKE_STAGE_REPLICATE) == 0);
    check_engine_free(&engine);
    check_batch_free(&batch);
    yoke_model_destroy(model);
}

static void running_statistics_are_the_roots(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    check_batch batch = check_batch_make(12, 4);
    check_engine many = check_engine_make(model, 3, check_options(12, YOKE_SCHEDULE_OVERLAP), &sgd);
    check_engine one = check_engine_make(model, 1, check_options(12, YOKE_SCHEDULE_OVERLAP), &sgd);
    EXPECT_OK(yoke_data_parallel_forward(many.parallel, &batch.batch, true, NULL));
    batch.batch.rows = 4; /* the root's shard */
    EXPECT_OK(yoke_data_parallel_forward(one.parallel, &batch.batch, true, NULL));
    float a[8], b[8];
    EXPECT_OK(yoke_data_parallel_read(many.parallel, "bn1.running_var", a, 8));
    EXPECT_OK(yoke_data_parallel_read(one.parallel, "bn1.running_var", b, 8));
    assert_true(check_relative(a, b, 8) < 1e-6);
    assert_true(a[0] != 1.0f);
    check_engine_free(&many);
    check_engine_free(&one);
    check_batch_free(&batch);
    yoke_model_destroy(model);
}

static void nonfinite_loss_changes_nothing_and_names_the_layer(void **state) {
    (void)state;
    for (int schedule = 0; schedule < 3; schedule++) {
        yoke_model *model = check_model(true, 0);
        check_batch batch = check_batch_make(12, 4);
        check_engine engine =
            check_engine_make(model, 3, check_options(12, (yoke_schedule)schedule), &sgd);
        yoke_step_result result = {.struct_size = sizeof result};
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                          YOKE_OPTIMIZER_LEARNING_RATE, &result));
        uint64_t before, after;
        EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &before));
        float keep = batch.inputs[9 * CHECK_ROW];
        batch.inputs[9 * CHECK_ROW] = NAN; /* replica 2 of 3 */
        assert_int_equal(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                                 YOKE_OPTIMIZER_LEARNING_RATE, &result),
                         YOKE_ERROR_NUMERIC);
        assert_non_null(strstr(yoke_last_error(), "first at input"));
        assert_true(devices_named(yoke_last_error(), "replica 2 (", 3, 2));
        EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &after));
        assert_true(before == after);
        batch.inputs[9 * CHECK_ROW] = keep;
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                          YOKE_OPTIMIZER_LEARNING_RATE, &result));
        float fc[CHECK_CLASSES] = {INFINITY};
        EXPECT_OK(yoke_data_parallel_write(engine.parallel, "fc.bias", fc, CHECK_CLASSES));
        assert_int_equal(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                                 YOKE_OPTIMIZER_LEARNING_RATE, &result),
                         YOKE_ERROR_NUMERIC);
        assert_non_null(strstr(yoke_last_error(), "first at fc"));
        check_engine_free(&engine);
        check_batch_free(&batch);
        yoke_model_destroy(model);
    }
}

/* The losses of later micro-batches are finite: the step must not forget the first. */
static void a_nonfinite_loss_in_an_earlier_micro_batch_fails_the_step(void **state) {
    (void)state;
    for (int schedule = 0; schedule < 3; schedule++)
        for (int clips = 0; clips < 2; clips++) {
            yoke_model *model = check_model(true, 0);
            check_batch batch = check_batch_make(12, 4);
            yoke_data_parallel_options options = check_options(12, (yoke_schedule)schedule);
            yoke_optimizer_options optimizer = sgd;
            options.accumulate = 3;
            optimizer.clip_norm = clips;
            check_engine engine = check_engine_make(model, 2, options, &optimizer);
            uint64_t before, after;
            EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &before));
            batch.inputs[2 * CHECK_ROW] = NAN; /* replica 1 in micro-batch 0 */
            assert_int_equal(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                                     YOKE_OPTIMIZER_LEARNING_RATE, NULL),
                             YOKE_ERROR_NUMERIC);
            assert_non_null(strstr(yoke_last_error(), "first at input"));
            EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &after));
            assert_true(before == after);
            batch.inputs[2 * CHECK_ROW] = 0;
            EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                              YOKE_OPTIMIZER_LEARNING_RATE, NULL));
            check_engine_free(&engine);
            check_batch_free(&batch);
            yoke_model_destroy(model);
        }
}

/* On GPUs: test_cuda_host_stream. */
static void cpu_devices_refuse_a_stream(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    yoke_model *model = check_model(false, 0);
    check_batch batch = check_batch_make(4, 4);
    check_engine engine =
        check_engine_make(model, 2, check_options(4, YOKE_SCHEDULE_OVERLAP), &sgd);
    batch.batch.stream = &batch;
    assert_int_equal(yoke_data_parallel_evaluate(engine.parallel, &batch.batch, NULL),
                     YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "the batch has a stream, but cpu:"));
    check_engine_free(&engine);
    check_batch_free(&batch);
    yoke_model_destroy(model);
}

static yoke_status fail_on_one(int replica, void *context) {
    int *runs = context;
    __atomic_fetch_add(runs, 1, __ATOMIC_RELAXED);
    return replica == 1 ? YOKE_ERROR_DATA : YOKE_OK;
}

/* Through a call of Yoke that sets a text, which stays on the worker's thread. */
static yoke_status fail_loudly(int replica, void *context) {
    (void)context;
    yoke_model *model = NULL;
    yoke_shape image = {3, 8, 8, false};
    return replica == 1 ? yoke_model_preset(&model, "nonsense", image, 2, NULL) : YOKE_OK;
}

static void a_replicas_error_reaches_the_caller_by_value(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    check_batch batch = check_batch_make(8, 4);
    check_engine engine =
        check_engine_make(model, 3, check_options(8, YOKE_SCHEDULE_OVERLAP), &sgd);
    int runs = 0;
    assert_int_equal(yoke_parallel_apply(engine.parallel, fail_on_one, &runs), YOKE_ERROR_DATA);
    assert_int_equal(runs, 3);
    assert_true(devices_named(yoke_last_error(), "replica 1 on ", 3, 1));
    yoke_step_result result = {.struct_size = sizeof result};
    EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch, YOKE_OPTIMIZER_LEARNING_RATE,
                                      &result));
    assert_int_equal(yoke_parallel_apply(engine.parallel, fail_loudly, NULL), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "nonsense"));
    assert_int_equal(yoke_parallel_apply(engine.parallel, fail_on_one, &runs), YOKE_ERROR_DATA);
    assert_true(devices_named(yoke_last_error(), "parallel_apply, replica 1 on ", 3, 1));
    assert_non_null(strstr(yoke_last_error(), ": the job answered YOKE_ERROR_DATA"));
    check_engine_free(&engine);
    check_batch_free(&batch);
    yoke_model_destroy(model);
}

static void impossible_batches_are_refused(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    check_batch batch = check_batch_make(9, 4);
    check_engine engine =
        check_engine_make(model, 2, check_options(8, YOKE_SCHEDULE_OVERLAP), &sgd);
    yoke_step_result result = {.struct_size = sizeof result};
    assert_int_equal(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                             YOKE_OPTIMIZER_LEARNING_RATE, &result),
                     YOKE_ERROR_ARGUMENT);
    batch.batch.rows = 8;
    batch.labels[6] = CHECK_CLASSES;
    assert_int_equal(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                             YOKE_OPTIMIZER_LEARNING_RATE, &result),
                     YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "row 6"));
    float value;
    assert_int_equal(yoke_data_parallel_read(engine.parallel, "fc.bais", &value, 1),
                     YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "fc.bias"));
    check_engine_free(&engine);
    check_batch_free(&batch);
    yoke_model_destroy(model);
}

static void memory_report_adds_up(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    for (int schedule = 0; schedule < 3; schedule++) {
        check_engine engine =
            check_engine_make(model, 2, check_options(16, (yoke_schedule)schedule), &sgd);
        for (int k = 0; k < 2; k++) {
            yoke_memory_report report = {.struct_size = sizeof report};
            EXPECT_OK(yoke_data_parallel_memory(engine.parallel, k, &report));
            size_t sum = report.parameters + report.gradients + report.optimizer + report.buffers +
                         report.activations + report.scratch + report.batch;
            assert_true(report.parameters > 0 && report.activations > 0);
            assert_true(sum <= report.total && report.total - sum < 65536);
        }
        check_engine_free(&engine);
    }
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_are_cut_by_torch_chunk),
        cmocka_unit_test(cpu_devices_refuse_a_stream),
        cmocka_unit_test(what_there_is_no_time_to_measure_takes_the_fixed_rule),
        cmocka_unit_test(gradients_do_not_depend_on_the_number_of_devices),
        cmocka_unit_test(gradient_is_the_slope_of_the_loss),
        cmocka_unit_test(schedules_give_the_same_bits),
        cmocka_unit_test(devices_agree_after_steps),
        cmocka_unit_test(accumulation_does_not_change_the_update),
        cmocka_unit_test(a_replica_idle_at_first_adds_nothing_old),
        cmocka_unit_test(a_rate_of_zero_changes_no_weight),
        cmocka_unit_test(stages_by_hand_are_a_step),
        cmocka_unit_test(outputs_come_back_in_row_order),
        cmocka_unit_test(evaluation_broadcasts_weights_only_when_they_changed),
        cmocka_unit_test(running_statistics_are_the_roots),
        cmocka_unit_test(nonfinite_loss_changes_nothing_and_names_the_layer),
        cmocka_unit_test(a_nonfinite_loss_in_an_earlier_micro_batch_fails_the_step),
        cmocka_unit_test(a_replicas_error_reaches_the_caller_by_value),
        cmocka_unit_test(impossible_batches_are_refused),
        cmocka_unit_test(memory_report_adds_up),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}

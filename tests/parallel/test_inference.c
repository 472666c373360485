/* SPDX-License-Identifier: Apache-2.0 */
/* An engine that only predicts: what it computes, what it does without, and several threads in it
 * at once. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "support/engine_check.h"

enum { ROWS = 7, THREADS = 4, CALLS = 40 };

static const yoke_data_parallel_options trains = {
    .struct_size = sizeof trains, .algorithm = YOKE_ALGORITHM_DIRECT, .batch = ROWS, .seed = 3};
static const yoke_data_parallel_options predicts = {.struct_size = sizeof predicts,
                                                    .algorithm = YOKE_ALGORITHM_DIRECT,
                                                    .batch = ROWS,
                                                    .seed = 11,
                                                    .inference = true};

typedef struct rig {
    yoke_model *model;
    check_engine trained, copy;
    check_batch batch;
} rig;

/* An engine that has learnt something, running statistics too, and one with its weights. */
static rig make_rig(int devices) {
    rig made = {.model = check_model(true, 0), .batch = check_batch_make(ROWS, 1)};
    made.trained = check_engine_make(made.model, devices, trains, NULL);
    made.copy = check_engine_make(made.model, devices, predicts, NULL);
    for (int step = 0; step < 3; step++)
        EXPECT_OK(yoke_data_parallel_step(made.trained.parallel, &made.batch.batch, 0.1, NULL));
    EXPECT_OK(yoke_data_parallel_copy_weights(made.copy.parallel, made.trained.parallel));
    return made;
}

static void free_rig(rig *made) {
    check_engine_free(&made->copy);
    check_engine_free(&made->trained);
    check_batch_free(&made->batch);
    yoke_model_destroy(made->model);
}

static void forward(yoke_data_parallel *parallel, const check_batch *batch, float *outputs) {
    EXPECT_OK(yoke_data_parallel_forward(parallel, &batch->batch, false, outputs));
}

static void test_it_predicts_what_the_trained_engine_does(void **state) {
    (void)state;
    for (int devices = 1; devices <= 3; devices++) {
        rig made = make_rig(devices);
        float trained[ROWS * CHECK_CLASSES], copied[ROWS * CHECK_CLASSES];
        yoke_step_result one = {.struct_size = sizeof one}, other = one;
        forward(made.trained.parallel, &made.batch, trained);
        forward(made.copy.parallel, &made.batch, copied);
        assert_true(check_relative(copied, trained, ROWS * CHECK_CLASSES) < 1e-6);
        EXPECT_OK(yoke_data_parallel_evaluate(made.trained.parallel, &made.batch.batch, &one));
        EXPECT_OK(yoke_data_parallel_evaluate(made.copy.parallel, &made.batch.batch, &other));
        assert_true(fabs(one.loss - other.loss) < 1e-6);
        assert_int_equal(one.correct, other.correct);
        uint64_t hashes[2];
        EXPECT_OK(yoke_data_parallel_hash(made.trained.parallel, &hashes[0]));
        EXPECT_OK(yoke_data_parallel_hash(made.copy.parallel, &hashes[1]));
        assert_true(hashes[0] == hashes[1]);
        free_rig(&made);
    }
}

static void test_it_has_no_gradients_and_no_optimizer(void **state) {
    (void)state;
    rig made = make_rig(2);
    for (int device = 0; device < 2; device++) {
        yoke_memory_report full = {.struct_size = sizeof full}, lean = full;
        EXPECT_OK(yoke_data_parallel_memory(made.trained.parallel, device, &full));
        EXPECT_OK(yoke_data_parallel_memory(made.copy.parallel, device, &lean));
        assert_int_equal(lean.gradients, 0);
        assert_int_equal(lean.optimizer, 0);
        assert_true(lean.total < full.total - full.gradients);
        assert_true(lean.activations < full.activations);
    }
    free_rig(&made);
}

static void test_it_never_measures_backward(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    yoke_data_parallel_options options = predicts;
    options.algorithm = YOKE_ALGORITHM_MEASURED;
    check_engine engine = check_engine_make(model, 1, options, NULL);
    const char *pass = NULL, *algorithm = NULL;
    double milliseconds = 0;
    int count = 0;
    for (; yoke_data_parallel_algorithm(engine.parallel, count, &pass, &algorithm, &milliseconds);
         count++)
        assert_null(strstr(pass, "backward"));
    if (devices_are_cpus()) assert_true(count >= 2); /* two convolutions */
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

static void expect_refusal(yoke_status status) {
    assert_int_equal(status, YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "only predicts"));
}

static void test_what_trains_is_refused_and_changes_nothing(void **state) {
    (void)state;
    rig made = make_rig(1);
    yoke_data_parallel *parallel = made.copy.parallel;
    float before[ROWS * CHECK_CLASSES], after[ROWS * CHECK_CLASSES];
    forward(parallel, &made.batch, before);
    expect_refusal(yoke_data_parallel_step(parallel, &made.batch.batch, 0.1, NULL));
    expect_refusal(yoke_data_parallel_forward(parallel, &made.batch.batch, true, after));
    expect_refusal(yoke_data_parallel_prepare(parallel, ROWS, true));
    expect_refusal(yoke_data_parallel_bind(parallel));
    assert_int_equal(yoke_data_parallel_backward(parallel, NULL), YOKE_ERROR_ARGUMENT);
    forward(parallel, &made.batch, after);
    assert_memory_equal(before, after, sizeof before);
    free_rig(&made);
}

static void test_options_that_only_training_has_are_refused_by_name(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    yoke_devices *devices = NULL;
    yoke_devices_options open = {.struct_size = sizeof open, .list = devices_of(1), .threads = 1};
    EXPECT_OK(yoke_devices_open(&devices, &open));
    yoke_data_parallel_options wrong[] = {predicts, predicts, predicts, predicts, predicts};
    wrong[0].schedule = YOKE_SCHEDULE_CLASSIC;
    wrong[1].accumulate = 2;
    wrong[2].input_gradients = true;
    wrong[3].shards = 2;
    wrong[4].ema_decay = 0.9;
    const char *const names[] = {"schedule", "accumulate", "input_gradients", "shards",
                                 "ema_decay"};
    for (int i = 0; i < 5; i++) {
        yoke_data_parallel *parallel = NULL;
        assert_int_equal(yoke_data_parallel_create(&parallel, model, devices, NULL, &wrong[i]),
                         YOKE_ERROR_ARGUMENT);
        assert_non_null(strstr(yoke_last_error(), names[i]));
    }
    yoke_devices_close(devices);
    yoke_model_destroy(model);
}

static void test_weights_of_another_model_are_not_copied(void **state) {
    (void)state;
    rig made = make_rig(1);
    yoke_model *other = check_model(false, 0); /* has no bn1 */
    check_engine small = check_engine_make(other, 1, trains, NULL);
    uint64_t before, after;
    EXPECT_OK(yoke_data_parallel_hash(made.copy.parallel, &before));
    assert_int_equal(yoke_data_parallel_copy_weights(made.copy.parallel, small.parallel),
                     YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "bn1"));
    EXPECT_OK(yoke_data_parallel_hash(made.copy.parallel, &after));
    assert_true(before == after);
    check_engine_free(&small);
    yoke_model_destroy(other);
    free_rig(&made);
}

/* Several threads. */

typedef struct caller {
    pthread_t thread;
    yoke_data_parallel *parallel;
    check_batch batch;
    float old[ROWS * CHECK_CLASSES], new[ROWS * CHECK_CLASSES]; /* what it may get */
    int wrong, failed;
} caller;

static void *call_often(void *context) {
    caller *self = context;
    float outputs[ROWS * CHECK_CLASSES];
    for (int i = 0; i < CALLS; i++) {
        size_t bytes = (size_t)self->batch.batch.rows * CHECK_CLASSES * sizeof *outputs;
        yoke_status status =
            yoke_data_parallel_forward(self->parallel, &self->batch.batch, false, outputs);
        self->failed += status != YOKE_OK;
        self->wrong +=
            memcmp(outputs, self->old, bytes) != 0 && memcmp(outputs, self->new, bytes) != 0;
    }
    return NULL;
}

/* New weights arrive while threads predict with the old ones: every result is of the one or of the
 * other. */
static void test_threads_predict_at_once_while_weights_change(void **state) {
    (void)state;
    rig made = make_rig(2);
    yoke_data_parallel *parallel = made.copy.parallel;
    check_engine fresh = check_engine_make(made.model, 2, trains, NULL);
    caller callers[THREADS] = {0};
    for (int i = 0; i < THREADS; i++) {
        callers[i].parallel = parallel;
        callers[i].batch = check_batch_make(ROWS - i, (uint32_t)i);
        forward(parallel, &callers[i].batch, callers[i].old);
    }
    EXPECT_OK(yoke_data_parallel_copy_weights(parallel, fresh.parallel));
    for (int i = 0; i < THREADS; i++) {
        forward(parallel, &callers[i].batch, callers[i].new);
        assert_memory_not_equal(callers[i].old, callers[i].new, sizeof callers[i].old);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call_often, &callers[i]), 0);
    for (int i = 0; i < 6; i++)
        EXPECT_OK(yoke_data_parallel_copy_weights(parallel, i % 2 == 0 ? made.trained.parallel
                                                                       : fresh.parallel));
    for (int i = 0; i < THREADS; i++) {
        pthread_join(callers[i].thread, NULL);
        assert_int_equal(callers[i].failed, 0);
        assert_int_equal(callers[i].wrong, 0);
        check_batch_free(&callers[i].batch);
    }
    check_engine_free(&fresh);
    free_rig(&made);
}

/* The same of a file: its tensors are written in one call. */
static void test_threads_predict_at_once_while_a_file_is_loaded(void **state) {
    (void)state;
    char paths[2][64];
    rig made = make_rig(1);
    yoke_data_parallel *parallel = made.copy.parallel;
    check_engine fresh = check_engine_make(made.model, 1, trains, NULL);
    caller callers[THREADS] = {0};
    for (int i = 0; i < 2; i++) {
        snprintf(paths[i], sizeof paths[i], "/tmp/yoke-inference-%d-%d", (int)getpid(), i);
        EXPECT_OK(yoke_weights_save(i == 0 ? fresh.parallel : made.trained.parallel, made.model,
                                    paths[i]));
        EXPECT_OK(yoke_weights_load(parallel, made.model, paths[i]));
        for (int k = 0; k < THREADS; k++) {
            callers[k].parallel = parallel;
            if (i == 0) callers[k].batch = check_batch_make(ROWS - k, (uint32_t)k);
            forward(parallel, &callers[k].batch, i == 0 ? callers[k].old : callers[k].new);
        }
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call_often, &callers[i]), 0);
    for (int i = 0; i < 20; i++)
        EXPECT_OK(yoke_weights_load(parallel, made.model, paths[i % 2]));
    for (int i = 0; i < THREADS; i++) {
        pthread_join(callers[i].thread, NULL);
        assert_int_equal(callers[i].failed, 0);
        assert_int_equal(callers[i].wrong, 0);
        check_batch_free(&callers[i].batch);
    }
    assert_int_equal(unlink(paths[0]) + unlink(paths[1]), 0);
    check_engine_free(&fresh);
    free_rig(&made);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_predicts_what_the_trained_engine_does),
        cmocka_unit_test(test_it_has_no_gradients_and_no_optimizer),
        cmocka_unit_test(test_it_never_measures_backward),
        cmocka_unit_test(test_what_trains_is_refused_and_changes_nothing),
        cmocka_unit_test(test_options_that_only_training_has_are_refused_by_name),
        cmocka_unit_test(test_weights_of_another_model_are_not_copied),
        cmocka_unit_test(test_threads_predict_at_once_while_weights_change),
        cmocka_unit_test(test_threads_predict_at_once_while_a_file_is_loaded),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}

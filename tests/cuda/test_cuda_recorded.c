/* SPDX-License-Identifier: Apache-2.0 */
/* The engine records a step and launches it as one. These tests count the launches of a step and
 * find every stage of a recorded step in the trace. */
#include "device/backend.h"
#include "support/engine_check.h"

#include <stdatomic.h>
#include <unistd.h>

/* The devices' backend; its copy `watched` counts the recordings that run. */
static const yoke_backend *whole;
static yoke_backend watched;
static atomic_int launches;

static yoke_status watched_run(yoke_recording *recording) {
    atomic_fetch_add(&launches, 1);
    return whole->record_run(recording);
}

static void watch(yoke_devices *devices) {
    whole = yoke_devices_at(devices, 0)->backend;
    watched = *whole;
    watched.record_run = watched_run;
    for (int k = 0; k < yoke_devices_count(devices); k++)
        yoke_devices_at(devices, k)->backend = &watched;
}

/* Buckets close at one byte: every parameter is a bucket of its own. */
static int count_buckets(const yoke_model *model) {
    int count = 0;
    for (int i = 0; i < yoke_model_tensor_count(model); i++) {
        yoke_tensor_info tensor = {.struct_size = sizeof tensor};
        EXPECT_OK(yoke_model_tensor(model, i, &tensor));
        count += tensor.trainable;
    }
    return count;
}

static check_engine make_engine(const yoke_model *model, int devices,
                                yoke_data_parallel_options options) {
    yoke_optimizer_options sgd = {.struct_size = sizeof sgd, .learning_rate = 0.1, .momentum = 0.9};
    options.batch = 12;
    options.first_bucket_bytes = options.bucket_bytes = 1;
    check_engine engine = check_engine_make(model, devices, options, &sgd);
    watch(engine.devices);
    return engine;
}

static int launches_of_step(const check_engine *engine, const check_batch *batch) {
    yoke_step_result result = {.struct_size = sizeof result};
    atomic_store(&launches, 0);
    EXPECT_OK(yoke_data_parallel_step(engine->parallel, &batch->batch, 0.01, &result));
    return atomic_load(&launches);
}

static int launches_of_evaluation(const check_engine *engine, const check_batch *batch) {
    yoke_step_result result = {.struct_size = sizeof result};
    atomic_store(&launches, 0);
    EXPECT_OK(yoke_data_parallel_evaluate(engine->parallel, &batch->batch, &result));
    return atomic_load(&launches);
}

/* A short batch, a device without rows and evaluation included. */
static void a_step_is_one_launch_a_device(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0.2);
    static const yoke_schedule schedules[] = {YOKE_SCHEDULE_OVERLAP, YOKE_SCHEDULE_SHARDED};
    for (int i = 0; i < 6; i++) {
        int devices = 1 + i / 2;
        yoke_data_parallel_options options = {.schedule = schedules[i % 2]};
        check_engine engine = make_engine(model, devices, options);
        check_batch batch = check_batch_make(12, 1), few = check_batch_make(4, 2);
        for (int step = 0; step < 3; step++) {
            assert_int_equal(launches_of_step(&engine, &batch), devices);
            assert_int_equal(launches_of_step(&engine, &few), devices < 3 ? devices : 2);
            assert_int_equal(launches_of_evaluation(&engine, &batch), devices);
        }
        check_batch_free(&few);
        check_batch_free(&batch);
        check_engine_free(&engine);
    }
    yoke_model_destroy(model);
}

/* Classic computes the loss on the root, between forward and backward. Accumulation adds up the
 * micro-batches' gradients between segments. */
static void what_comes_between_cuts_a_step_into_passes(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    for (int accumulate = 1; accumulate <= 2; accumulate++) {
        yoke_data_parallel_options options = {.schedule = accumulate == 1 ? YOKE_SCHEDULE_CLASSIC
                                                                          : YOKE_SCHEDULE_OVERLAP,
                                              .accumulate = accumulate};
        check_engine engine = make_engine(model, 2, options);
        check_batch batch = check_batch_make(12, 1);
        int buckets = count_buckets(model);
        int passes = accumulate == 1 ? 1 + buckets : 2 * (2 + buckets);
        assert_int_equal(launches_of_step(&engine, &batch), 2 * passes);
        check_batch_free(&batch);
        check_engine_free(&engine);
    }
    yoke_model_destroy(model);
}

static int count_stage(const char *text, const char *stage) {
    char name[32];
    int count = 0;
    snprintf(name, sizeof name, "\"name\":\"%s\"", stage);
    for (const char *at = strstr(text, name); at != NULL; at = strstr(at + 1, name))
        count++;
    return count;
}

static char *read_trace(yoke_data_parallel *parallel) {
    char path[] = "/tmp/yoke_recorded_XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    EXPECT_OK(yoke_trace_save(yoke_data_parallel_trace(parallel), path));
    FILE *file = fopen(path, "r");
    remove(path);
    assert_non_null(file);
    char *text = calloc(1, 1 << 20);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

static void every_stage_of_a_recorded_step_is_traced(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    check_engine engine = make_engine(model, 2, (yoke_data_parallel_options){.time_devices = true});
    check_batch batch = check_batch_make(12, 1);
    for (int step = 0; step < 5; step++)
        launches_of_step(&engine, &batch);
    yoke_stage_summary rows[YOKE_STAGE_COUNT];
    char *text = read_trace(engine.parallel);
    assert_int_equal(count_stage(text, "forward"), 5 * 2);
    assert_int_equal(count_stage(text, "loss"), 5 * 2);
    assert_int_equal(count_stage(text, "backward"), 5 * 2 * count_buckets(model));
    rows[0].struct_size = sizeof rows[0];
    int count =
        yoke_trace_summarize(yoke_data_parallel_trace(engine.parallel), rows, YOKE_STAGE_COUNT);
    for (int i = 0; i < count; i++)
        if (rows[i].stage == YOKE_STAGE_BACKWARD) assert_true(rows[i].median_ms > 0);
    free(text);
    check_batch_free(&batch);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

/* The caller prepares other numbers of rows between forward and backward. The fixed rule chooses
 * the algorithms: engines that each measure may choose differently. */
static void recording_leaves_the_batch_in_flight_alone(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0.2);
    check_batch batch = check_batch_make(12, 1);
    float *gradients[2];
    size_t count = 0;
    for (int i = 0; i < 2; i++) {
        check_engine engine = make_engine(
            model, 2, (yoke_data_parallel_options){.seed = 3, .algorithm = YOKE_ALGORITHM_DIRECT});
        EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &batch.batch, true, NULL));
        if (i == 1) EXPECT_OK(yoke_data_parallel_prepare(engine.parallel, 6, true));
        if (i == 1) EXPECT_OK(yoke_data_parallel_prepare(engine.parallel, 12, false));
        EXPECT_OK(yoke_data_parallel_backward(engine.parallel, NULL));
        gradients[i] = check_read_all(engine.parallel, model, true, &count);
        check_engine_free(&engine);
    }
    assert_memory_equal(gradients[0], gradients[1], count * sizeof(float));
    free(gradients[0]);
    free(gradients[1]);
    check_batch_free(&batch);
    yoke_model_destroy(model);
}

int main(void) {
    if (devices_gpus() == 0) {
        print_message("skipped: no usable GPU\n");
        return DEVICES_SKIPPED;
    }
    setenv("YOKE_TEST_BACKEND", "cuda", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_one_launch_a_device),
        cmocka_unit_test(what_comes_between_cuts_a_step_into_passes),
        cmocka_unit_test(every_stage_of_a_recorded_step_is_traced),
        cmocka_unit_test(recording_leaves_the_batch_in_flight_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

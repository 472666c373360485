/* SPDX-License-Identifier: Apache-2.0 */
/* Each call to a device in a step fails once: the step reports it, nobody waits for the
 * failed worker, running statistics are those before the step, the replicas agree and the engine
 * goes on. */
#include <unistd.h>

#include "device/backend.h"
#include "support/engine_check.h"

enum { DEVICES = 3, ROWS = 9, SECONDS_LIMIT = 900 };

/* The devices' table with calls that are counted, and of which one fails. */
static const yoke_backend *whole;
static yoke_backend breaking;
static int calls, fail_at; /* fail_at 0: none */

static yoke_status count_call(const yoke_device *device) {
    if (__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) != fail_at) return YOKE_OK;
    return FAIL(YOKE_ERROR_SYSTEM, "call %d on %s broke", fail_at, device->name);
}

static yoke_status breaking_upload(yoke_device *device, yoke_stream stream, void *to,
                                   const void *from, size_t bytes) {
    TRY(count_call(device));
    return whole->upload(device, stream, to, from, bytes);
}

static yoke_status breaking_download(yoke_device *device, yoke_stream stream, void *to,
                                     const void *from, size_t bytes) {
    TRY(count_call(device));
    return whole->download(device, stream, to, from, bytes);
}

static yoke_status breaking_copy(yoke_device *to_device, yoke_stream stream, void *to,
                                 yoke_device *from_device, const void *from, size_t bytes) {
    TRY(count_call(to_device));
    return whole->copy(to_device, stream, to, from_device, from, bytes);
}

static yoke_status breaking_sum(yoke_device *device, yoke_stream stream, float *to,
                                const float *const *from, int count, size_t elements) {
    TRY(count_call(device));
    return whole->sum(device, stream, to, from, count, elements);
}

static yoke_status breaking_square_sum(yoke_device *device, yoke_stream stream, const float *values,
                                       size_t elements, double *sum) {
    TRY(count_call(device));
    return whole->square_sum(device, stream, values, elements, sum);
}

static yoke_status breaking_update(yoke_device *device, yoke_stream stream,
                                   const yoke_update_step *step, float *weights,
                                   const float *gradients, float *const states[YOKE_UPDATE_STATES],
                                   size_t elements) {
    TRY(count_call(device));
    return whole->update(device, stream, step, weights, gradients, states, elements);
}

static void break_devices(const yoke_devices *devices) {
    whole = yoke_devices_at(devices, 0)->backend;
    breaking = *whole;
    breaking.upload = breaking_upload;
    breaking.download = breaking_download;
    breaking.copy = breaking_copy;
    breaking.sum = breaking_sum;
    breaking.square_sum = breaking_square_sum;
    breaking.update = breaking_update;
    for (int k = 0; k < DEVICES; k++)
        yoke_devices_at(devices, k)->backend = &breaking;
}

static void copy_tensors(const yoke_model *model, yoke_data_parallel *from,
                         yoke_data_parallel *to) {
    for (int i = 0; i < yoke_model_tensor_count(model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        EXPECT_OK(yoke_model_tensor(model, i, &info));
        if (info.integer) continue;
        float *values = malloc(info.count * sizeof *values);
        EXPECT_OK(yoke_data_parallel_read(from, info.name, values, info.count));
        EXPECT_OK(yoke_data_parallel_write(to, info.name, values, info.count));
        free(values);
    }
}

static double loss_of(yoke_data_parallel *parallel, const yoke_batch *batch) {
    yoke_step_result result = {.struct_size = sizeof result};
    EXPECT_OK(yoke_data_parallel_evaluate(parallel, batch, &result));
    return result.loss;
}

typedef struct test_rig {
    yoke_model *model;
    check_engine engine, twin; /* the twin gets the root's tensors: its replicas agree */
    check_batch batch;
} test_rig;

/* Fails call `number` of a step; false: the step has fewer. */
static bool fail_call(test_rig *rig, int number) {
    yoke_data_parallel *parallel = rig->engine.parallel;
    float before[8], after[8];
    EXPECT_OK(yoke_data_parallel_read(parallel, "bn1.running_mean", before, 8));
    calls = 0;
    fail_at = number;
    yoke_status status =
        yoke_data_parallel_step(parallel, &rig->batch.batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL);
    bool failed = calls >= number;
    fail_at = 0;
    assert_int_equal(status, failed ? YOKE_ERROR_SYSTEM : YOKE_OK);
    if (!failed) return false;
    assert_non_null(strstr(yoke_last_error(), "broke"));
    EXPECT_OK(yoke_data_parallel_read(parallel, "bn1.running_mean", after, 8));
    assert_memory_equal(before, after, sizeof before);
    copy_tensors(rig->model, parallel, rig->twin.parallel);
    double loss = loss_of(parallel, &rig->batch.batch);
    assert_true(loss == loss_of(rig->twin.parallel, &rig->batch.batch));
    EXPECT_OK(
        yoke_data_parallel_step(parallel, &rig->batch.batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL));
    return true;
}

static void fail_every_call(yoke_schedule schedule, double clip_norm, int accumulate) {
    yoke_optimizer_options sgd = {
        .struct_size = sizeof sgd, .learning_rate = 0.01, .clip_norm = clip_norm};
    yoke_data_parallel_options options = {.schedule = schedule,
                                          .algorithm = YOKE_ALGORITHM_DIRECT,
                                          .batch = ROWS,
                                          .accumulate = accumulate,
                                          .first_bucket_bytes = 256,
                                          .bucket_bytes = 1024};
    test_rig rig = {.model = check_model(true, 0), .batch = check_batch_make(ROWS, 2)};
    rig.engine = check_engine_make(rig.model, DEVICES, options, &sgd);
    rig.twin = check_engine_make(rig.model, DEVICES, options, &sgd);
    break_devices(rig.engine.devices);
    EXPECT_OK(yoke_data_parallel_step(rig.engine.parallel, &rig.batch.batch,
                                      YOKE_OPTIMIZER_LEARNING_RATE, NULL));
    int number = 1;
    while (fail_call(&rig, number))
        number++;
    assert_true(number > 3 * DEVICES);
    check_engine_free(&rig.twin);
    check_engine_free(&rig.engine);
    check_batch_free(&rig.batch);
    yoke_model_destroy(rig.model);
}

static void a_broken_call_ends_the_step_and_not_the_engine(void **state) {
    (void)state;
    for (int schedule = 0; schedule < 3; schedule++) {
        fail_every_call((yoke_schedule)schedule, 0, 1);
        fail_every_call((yoke_schedule)schedule, 0.5, 1);
        fail_every_call((yoke_schedule)schedule, 0, 2);
    }
}

/* A ReLU turns NaN into 0: the loss is finite and only the gradient tells. */
static void clipping_refuses_a_gradient_that_is_not_finite(void **state) {
    (void)state;
    yoke_optimizer_options sgd = {.struct_size = sizeof sgd, .learning_rate = 0.1, .clip_norm = 1};
    for (int schedule = 0; schedule < 3; schedule++) {
        yoke_model *model = check_model(false, 0);
        check_batch batch = check_batch_make(ROWS, 4);
        yoke_data_parallel_options options = {.schedule = (yoke_schedule)schedule, .batch = ROWS};
        check_engine engine = check_engine_make(model, DEVICES, options, &sgd);
        uint64_t before, after;
        EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &before));
        batch.inputs[0] = NAN;
        assert_int_equal(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                                 YOKE_OPTIMIZER_LEARNING_RATE, NULL),
                         YOKE_ERROR_NUMERIC);
        assert_non_null(strstr(yoke_last_error(), "first at input on replica 0"));
        EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &after));
        assert_true(before == after);
        batch.inputs[0] = 0;
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                          YOKE_OPTIMIZER_LEARNING_RATE, NULL));
        check_engine_free(&engine);
        check_batch_free(&batch);
        yoke_model_destroy(model);
    }
}

int main(void) {
    alarm(SECONDS_LIMIT); /* a worker that waits for a dead one ends the test */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_broken_call_ends_the_step_and_not_the_engine),
        cmocka_unit_test(clipping_refuses_a_gradient_that_is_not_finite),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}

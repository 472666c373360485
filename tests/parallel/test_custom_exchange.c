/* SPDX-License-Identifier: Apache-2.0 */
/* An exchange of the host program: the weights of the built-in one bit for bit where it adds in the
 * same order, its failures, what it may not be with, and its time on modelled links. RUN_ON_DEVICES
 */
#include <math.h>

#include "base/clock.h"
#include "support/engine_check.h"

enum { ROWS = 12, STEPS = 3 };

/* Device 0 adds up in the order of the devices, as the engine does, and sends the sum to all. */
typedef struct by_root {
    int calls, buckets, fails_at; /* fails_at: a call, from 1; 0: never */
    size_t elements;
    bool narrow;
} by_root;

static yoke_status send(const by_root *own, const yoke_bucket_gradients *bucket, int from, int to) {
    return (own->narrow ? bucket->send_bfloat16 : bucket->send)(bucket, from, to, 0, bucket->count);
}

static yoke_status all_reduce(void *payload, const yoke_bucket_gradients *bucket) {
    by_root *own = payload;
    yoke_status status = YOKE_OK;
    assert_true(bucket->struct_size == sizeof *bucket && bucket->devices >= 2);
    own->elements += bucket->count;
    if (bucket->bucket >= own->buckets) own->buckets = bucket->bucket + 1;
    if (++own->calls == own->fails_at) return yoke_error_raise(YOKE_ERROR_DATA, "the cable is out");
    for (int k = 1; k < bucket->devices && status == YOKE_OK; k++) {
        status = send(own, bucket, k, 0);
        for (size_t i = 0; i < bucket->count; i++)
            bucket->gradients[0][i] += bucket->inboxes[0][i];
    }
    for (int k = 1; k < bucket->devices && status == YOKE_OK; k++) {
        status = send(own, bucket, 0, k);
        memcpy(bucket->gradients[k], bucket->inboxes[k], bucket->count * sizeof(float));
    }
    return status;
}

static yoke_data_parallel_options options_of(yoke_schedule schedule,
                                             const yoke_custom_exchange *exchange) {
    return (yoke_data_parallel_options){.schedule = schedule,
                                        .algorithm = YOKE_ALGORITHM_DIRECT,
                                        .batch = ROWS,
                                        .first_bucket_bytes = 256,
                                        .bucket_bytes = 1024,
                                        .custom_exchange = exchange};
}

static uint64_t hash_after(const yoke_model *model, int devices, int rows,
                           const yoke_optimizer_options *optimizer,
                           yoke_data_parallel_options options) {
    check_engine engine = check_engine_make(model, devices, options, optimizer);
    check_batch batch = check_batch_make(rows, 3);
    uint64_t hash;
    for (int step = 0; step < STEPS; step++)
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                          YOKE_OPTIMIZER_LEARNING_RATE, NULL));
    EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &hash));
    check_batch_free(&batch);
    check_engine_free(&engine);
    return hash;
}

static void check_bits(int devices, int rows, const yoke_optimizer_options *optimizer,
                       yoke_data_parallel_options options) {
    by_root own = {.calls = 0};
    yoke_custom_exchange exchange = YOKE_CUSTOM_EXCHANGE_INIT;
    exchange.all_reduce = all_reduce;
    exchange.payload = &own;
    yoke_model *model = check_model(true, 0.25);
    uint64_t expected = hash_after(model, devices, rows, optimizer, options);
    options.custom_exchange = &exchange;
    assert_true(hash_after(model, devices, rows, optimizer, options) == expected);
    assert_int_equal(own.calls, devices > 1 ? STEPS * own.buckets : 0);
    if (devices > 1) assert_true(own.buckets > 1);
    yoke_model_destroy(model);
}

static void it_gives_the_bits_of_the_built_in_exchange(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    static const yoke_schedule schedules[] = {YOKE_SCHEDULE_OVERLAP, YOKE_SCHEDULE_CLASSIC};
    yoke_optimizer_options adamw = YOKE_ADAMW_OPTIONS_INIT, clipped = YOKE_SGD_OPTIONS_INIT;
    clipped.clip_norm = 0.01;
    for (int i = 0; i < 2; i++) {
        yoke_data_parallel_options options = options_of(schedules[i], NULL);
        check_bits(3, ROWS, NULL, options);
        check_bits(2, ROWS, &adamw, options);
        check_bits(3, ROWS, &clipped, options);
        check_bits(4, 2, NULL, options); /* two devices have no row */
        check_bits(1, ROWS, NULL, options);
        options.accumulate = 3;
        check_bits(2, ROWS, NULL, options);
        options.skip_finite_check = true;
        check_bits(3, ROWS, NULL, options);
    }
}

/* The step changes no weight; its error text stays. */
static void expect_failing_step(check_engine *engine, check_batch *batch, yoke_status expected) {
    uint64_t before, after;
    EXPECT_OK(yoke_data_parallel_hash(engine->parallel, &before));
    assert_int_equal(yoke_data_parallel_step(engine->parallel, &batch->batch,
                                             YOKE_OPTIMIZER_LEARNING_RATE, NULL),
                     expected);
    EXPECT_OK(yoke_data_parallel_hash(engine->parallel, &after));
    assert_true(before == after);
}

static void a_failure_is_the_steps_and_the_next_step_works(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    for (int schedule = 0; schedule < 2; schedule++) {
        by_root own = {.fails_at = 2};
        yoke_custom_exchange exchange = {sizeof exchange, all_reduce, &own};
        yoke_model *model = check_model(false, 0);
        check_engine engine =
            check_engine_make(model, 3, options_of((yoke_schedule)schedule, &exchange), NULL);
        check_batch batch = check_batch_make(ROWS, 3);
        uint64_t before, after;
        EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &before));
        expect_failing_step(&engine, &batch, YOKE_ERROR_DATA);
        assert_non_null(strstr(yoke_last_error(), "bucket 1: custom_exchange: the cable is out"));
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                          YOKE_OPTIMIZER_LEARNING_RATE, NULL));
        EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &after));
        assert_true(before != after);
        check_batch_free(&batch);
        check_engine_free(&engine);
        yoke_model_destroy(model);
    }
}

static void what_it_cannot_be_with_is_refused(void **state) {
    (void)state;
    by_root own = {.calls = 0};
    yoke_custom_exchange exchange = {sizeof exchange, all_reduce, &own};
    yoke_model *model = check_model(false, 0);
    if (!devices_are_cpus()) {
        check_refused(model, options_of(YOKE_SCHEDULE_OVERLAP, &exchange), "on GPUs");
        yoke_model_destroy(model);
        skip();
    }
    check_refused(model, options_of(YOKE_SCHEDULE_SHARDED, &exchange), "overlap and classic");
    check_refused(model, options_of(YOKE_SCHEDULE_PYTHON, &exchange), "overlap and classic");
    yoke_data_parallel_options options = options_of(YOKE_SCHEDULE_OVERLAP, &exchange);
    options.shards = 4;
    check_refused(model, options, "custom_exchange with shards");
    exchange.all_reduce = NULL;
    check_refused(model, options_of(YOKE_SCHEDULE_OVERLAP, &exchange), "no `all_reduce`");
    exchange.struct_size = 0;
    check_refused(model, options_of(YOKE_SCHEDULE_OVERLAP, &exchange), "struct_size");
    yoke_model_destroy(model);
}

/* A step cannot be shorter than its transfers: N - 1 copies into the root's link and as many out of
 * it, which one bucket does while the next one comes in, of float32 or of half as many bytes. */
static void it_takes_the_time_of_the_links(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    for (int schedule = 0; schedule < 2; schedule++)
        for (int narrow = 0; narrow < 2; narrow++) {
            by_root own = {.narrow = narrow};
            yoke_custom_exchange exchange = {sizeof exchange, all_reduce, &own};
            yoke_model *model = check_model(false, 0);
            yoke_data_parallel_options options = options_of((yoke_schedule)schedule, &exchange);
            options.link = "0.0005,100";
            check_engine engine = check_engine_make(model, 3, options, NULL);
            check_batch batch = check_batch_make(3, 3);
            uint64_t begin_ns = yoke_now_ns();
            EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                              YOKE_OPTIMIZER_LEARNING_RATE, NULL));
            double ms = 1e-6 * (double)(yoke_now_ns() - begin_ns);
            double least_ms = 2 * (narrow ? 2.0 : 4.0) * (double)own.elements / 0.0005 / 1e6;
            assert_true(ms >= least_ms);
            assert_true(least_ms > 5);
            check_batch_free(&batch);
            check_engine_free(&engine);
            yoke_model_destroy(model);
        }
}

/* An exchange that itself calls its engine. */
typedef struct caller {
    yoke_data_parallel *parallel;
    yoke_batch *batch;
    yoke_status step, hash;
    char said[400];
} caller;

static yoke_status call_engine(void *payload, const yoke_bucket_gradients *bucket) {
    caller *own = payload;
    by_root root = {.calls = 0};
    uint64_t hash;
    own->hash = yoke_data_parallel_hash(own->parallel, &hash);
    own->step = yoke_data_parallel_step(own->parallel, own->batch, 0.1, NULL);
    snprintf(own->said, sizeof own->said, "%s", yoke_last_error());
    return all_reduce(&root, bucket);
}

static void it_cannot_call_its_engine(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    for (int schedule = 0; schedule < 2; schedule++) {
        caller own = {.parallel = NULL};
        yoke_custom_exchange exchange = {sizeof exchange, call_engine, &own};
        yoke_model *model = check_model(false, 0);
        check_engine engine =
            check_engine_make(model, 3, options_of((yoke_schedule)schedule, &exchange), NULL);
        check_batch batch = check_batch_make(ROWS, 3);
        own.parallel = engine.parallel;
        own.batch = &batch.batch;
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                          YOKE_OPTIMIZER_LEARNING_RATE, NULL));
        assert_int_equal(own.hash, YOKE_ERROR_ARGUMENT);
        assert_int_equal(own.step, YOKE_ERROR_ARGUMENT);
        assert_non_null(strstr(own.said, "yoke_data_parallel_step: custom_exchange runs"));
        EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &(uint64_t){0}));
        check_batch_free(&batch);
        check_engine_free(&engine);
        yoke_model_destroy(model);
    }
}

static yoke_status spoil(void *payload, const yoke_bucket_gradients *bucket) {
    bucket->gradients[0][0] = (float)NAN;
    (void)payload;
    return YOKE_OK;
}

static void sums_that_are_no_numbers_change_no_weight(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    for (int schedule = 0; schedule < 2; schedule++) {
        yoke_custom_exchange exchange = {sizeof exchange, spoil, NULL};
        yoke_model *model = check_model(false, 0);
        check_engine engine =
            check_engine_make(model, 3, options_of((yoke_schedule)schedule, &exchange), NULL);
        check_batch batch = check_batch_make(ROWS, 3);
        expect_failing_step(&engine, &batch, YOKE_ERROR_NUMERIC);
        check_batch_free(&batch);
        check_engine_free(&engine);
        yoke_model_destroy(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_gives_the_bits_of_the_built_in_exchange),
        cmocka_unit_test(a_failure_is_the_steps_and_the_next_step_works),
        cmocka_unit_test(what_it_cannot_be_with_is_refused),
        cmocka_unit_test(it_takes_the_time_of_the_links),
        cmocka_unit_test(it_cannot_call_its_engine),
        cmocka_unit_test(sums_that_are_no_numbers_change_no_weight),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}

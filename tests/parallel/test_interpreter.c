/* SPDX-License-Identifier: Apache-2.0 */
/* The schedule python: nn.DataParallel with Python's costs. The weights are classic's; what Python
 * adds shows in the trace. RUN_ON_DEVICES */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/clock.h"
#include "support/engine_check.h"
#include "trace/spans.h"

enum { ROWS = 12, STEPS = 4, CALL_US = 200 };

/* conv, norm, relu, conv, add, relu, pool, flatten, linear. */
enum { LAYERS = 9 };

/* Of this program; pthread_create of the C library answers for the others. */
static int started, refused_from = -1; /* refused_from: -1: none is refused */

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                   void *argument) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    if (refused_from >= 0 && started >= refused_from) return EAGAIN;
    started++;
    return real(thread, attributes, start, argument);
}

static yoke_data_parallel_options options_of(yoke_schedule schedule, double interpreter_us) {
    yoke_data_parallel_options options = check_options(CHECK_BATCH, schedule);
    options.interpreter_us = interpreter_us;
    return options;
}

static check_engine trained(const yoke_model *model, int devices, double interpreter_us) {
    check_engine engine =
        check_engine_make(model, devices, options_of(YOKE_SCHEDULE_PYTHON, interpreter_us), NULL);
    check_batch batch = check_batch_make(ROWS, 3);
    for (int step = 0; step < STEPS; step++)
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                          YOKE_OPTIMIZER_LEARNING_RATE, NULL));
    check_batch_free(&batch);
    return engine;
}

static void weights_are_those_of_classic_bit_for_bit(void **state) {
    (void)state;
    yoke_optimizer_options sgd = YOKE_SGD_OPTIONS_INIT, adamw = YOKE_ADAMW_OPTIONS_INIT;
    yoke_model *model = check_model(true, 0.25);
    for (int devices = 1; devices <= 5; devices++) {
        const yoke_optimizer_options *optimizer = devices % 2 == 0 ? &adamw : &sgd;
        size_t count;
        yoke_data_parallel_options options = options_of(YOKE_SCHEDULE_CLASSIC, 0);
        options.accumulate = devices == 3 ? 2 : 1;
        float *expected = check_weights_after(model, devices, options, optimizer, &count);
        options.schedule = YOKE_SCHEDULE_PYTHON;
        options.interpreter_us = 1;
        float *found = check_weights_after(model, devices, options, optimizer, &count);
        if (memcmp(found, expected, count * sizeof *found) != 0) fail_msg("%d devices", devices);
        free(found);
        free(expected);
    }
    yoke_model_destroy(model);
}

/* Of one stage of a lane in the last step. */
typedef struct stage_sum {
    int count;
    uint64_t ns;
} stage_sum;

static stage_sum sum_stage(const yoke_trace *trace, int lane, yoke_stage stage) {
    stage_sum sum = {0};
    for (uint32_t i = 0; i < yoke_lane_count(trace, lane); i++) {
        const yoke_span *span = yoke_lane_span(trace, lane, i);
        if (span->stage != stage || span->step != STEPS - 1) continue;
        sum.count++;
        sum.ns += span->end_ns - span->begin_ns;
    }
    return sum;
}

/* Each lane calls all layers, and the root also copies them for all replicas. */
static void python_takes_its_time_for_every_layer_of_every_replica(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    for (int devices = 1; devices <= 3; devices++) {
        check_engine engine = trained(model, devices, CALL_US);
        const yoke_trace *trace = yoke_data_parallel_trace(engine.parallel);
        for (int lane = 0; lane < devices; lane++) {
            uint64_t calls = LAYERS;
            if (lane == 0 && devices > 1) calls += LAYERS * (uint64_t)devices;
            assert_true(sum_stage(trace, lane, YOKE_STAGE_PYTHON).ns >= calls * CALL_US * 1000);
        }
        check_engine_free(&engine);
    }
    yoke_model_destroy(model);
}

static bool overlaps(const yoke_span *a, const yoke_span *b) {
    return a->begin_ns < b->end_ns && b->begin_ns < a->end_ns;
}

static void one_thread_at_a_time_holds_the_lock(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    check_engine engine = trained(model, 3, 20);
    const yoke_trace *trace = yoke_data_parallel_trace(engine.parallel);
    int compared = 0;
    for (int lane = 1; lane < 3; lane++)
        for (uint32_t i = 0; i < yoke_lane_count(trace, lane); i++)
            for (uint32_t k = 0; k < yoke_lane_count(trace, lane - 1); k++) {
                const yoke_span *own = yoke_lane_span(trace, lane, i);
                const yoke_span *other = yoke_lane_span(trace, lane - 1, k);
                if (own->stage != YOKE_STAGE_PYTHON || other->stage != own->stage) continue;
                assert_false(overlaps(own, other));
                compared++;
            }
    assert_true(compared > 0);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

/* Whether a call of another lane ended within the wait. */
static bool has_cause(const yoke_trace *trace, int lane, const yoke_span *wait) {
    for (int other = 0; other < 3; other++)
        for (uint32_t i = 0; other != lane && i < yoke_lane_count(trace, other); i++) {
            const yoke_span *call = yoke_lane_span(trace, other, i);
            if (call->stage == YOKE_STAGE_PYTHON && call->end_ns > wait->begin_ns &&
                call->end_ns <= wait->end_ns)
                return true;
        }
    return false;
}

/* Of three threads two wait while one calls a layer, so long that a busy machine runs the others
 * meanwhile. A thread that loses its core right behind the end of a call seems to wait for none. */
static void waits_for_the_lock_name_their_cause(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    check_engine engine = trained(model, 3, 10 * CALL_US);
    const yoke_trace *trace = yoke_data_parallel_trace(engine.parallel);
    int waits = 0, unexplained = 0;
    for (int lane = 0; lane < 3; lane++)
        for (uint32_t i = 0; i < yoke_lane_count(trace, lane); i++) {
            const yoke_span *wait = yoke_lane_span(trace, lane, i);
            if (wait->stage != YOKE_STAGE_WAIT || wait->awaits != YOKE_STAGE_PYTHON) continue;
            waits++;
            unexplained += !has_cause(trace, lane, wait);
        }
    if (waits <= STEPS || (judges_clock() && 10 * unexplained >= waits))
        fail_msg("%d waits, %d of them for no call", waits, unexplained);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

static void spans_of_a_lane_follow_each_other(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    check_engine engine = trained(model, 2, 20);
    const yoke_trace *trace = yoke_data_parallel_trace(engine.parallel);
    for (int lane = 0; lane < 2; lane++) {
        uint64_t end = 0;
        for (uint32_t i = 0; i < yoke_lane_count(trace, lane); i++) {
            const yoke_span *span = yoke_lane_span(trace, lane, i);
            if (span->stage == YOKE_STAGE_STEP) continue;
            if (span->begin_ns < end)
                fail_msg("lane %d: %s begins before the span before it ends", lane,
                         yoke_stage_name(span->stage));
            end = span->end_ns;
        }
    }
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

/* The bytes that a forward without training copies: no weight has changed since the last one. */
static double copied_to_evaluate(yoke_schedule schedule) {
    yoke_model *model = check_model(true, 0);
    check_engine engine = check_engine_make(model, 3, options_of(schedule, 0), NULL);
    check_batch batch = check_batch_make(ROWS, 3);
    uint64_t bytes = 0;
    for (int i = 0; i < 2; i++) {
        yoke_trace_reset((yoke_trace *)yoke_data_parallel_trace(engine.parallel));
        EXPECT_OK(yoke_data_parallel_evaluate(engine.parallel, &batch.batch, NULL));
    }
    const yoke_trace *trace = yoke_data_parallel_trace(engine.parallel);
    for (int lane = 0; lane < 3; lane++)
        for (uint32_t i = 0; i < yoke_lane_count(trace, lane); i++)
            if (yoke_lane_span(trace, lane, i)->stage == YOKE_STAGE_REPLICATE)
                bytes += yoke_lane_span(trace, lane, i)->bytes;
    check_batch_free(&batch);
    check_engine_free(&engine);
    size_t weights = yoke_model_parameter_count(model) * sizeof(float);
    yoke_model_destroy(model);
    return (double)bytes / (double)weights;
}

static void every_forward_copies_all_weights_even_unchanged_ones(void **state) {
    (void)state;
    assert_true(copied_to_evaluate(YOKE_SCHEDULE_CLASSIC) == 0);
    assert_true(copied_to_evaluate(YOKE_SCHEDULE_PYTHON) >= 2 * 2); /* read and written, twice */
}

static int count_threads(void) {
    struct stat tasks;
    assert_int_equal(stat("/proc/self/task", &tasks), 0);
    return (int)tasks.st_nlink - 2;
}

/* A thread is listed for a moment after its end. */
static int settled_threads(int expected) {
    for (int look = 0; look < 600000 && count_threads() != expected; look++)
        usleep(1000);
    return count_threads();
}

static void no_thread_outlives_its_forward(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    check_engine engine = check_engine_make(model, 3, options_of(YOKE_SCHEDULE_PYTHON, 0), NULL);
    int before = count_threads();
    check_train(engine.parallel, 4);
    assert_int_equal(settled_threads(before), before);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

/* A single replica runs in the caller, as in nn.DataParallel. */
static void every_forward_starts_a_thread_for_each_replica_with_rows(void **state) {
    (void)state;
    static const int threads_of[] = {[1] = 0, [2] = 2, [3] = 3, [12] = 3};
    yoke_model *model = check_model(false, 0);
    check_engine engine = trained(model, 3, 0);
    for (int rows = 1; rows <= ROWS; rows += rows == 3 ? ROWS - 3 : 1) {
        check_batch batch = check_batch_make(rows, 5);
        int before = started;
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                          YOKE_OPTIMIZER_LEARNING_RATE, NULL));
        assert_int_equal(started - before, threads_of[rows]);
        EXPECT_OK(yoke_data_parallel_evaluate(engine.parallel, &batch.batch, NULL));
        assert_int_equal(started - before, 2 * threads_of[rows]);
        check_batch_free(&batch);
    }
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

static void a_thread_that_cannot_start_is_an_error_and_the_engine_works_on(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    check_engine engine = trained(model, 3, 0), other = trained(model, 3, 0);
    check_batch batch = check_batch_make(ROWS, 3);
    refused_from = started + 1;
    yoke_status status =
        yoke_data_parallel_step(engine.parallel, &batch.batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL);
    refused_from = -1;
    assert_int_equal(status, YOKE_ERROR_SYSTEM);
    if (strstr(yoke_last_error(), "cannot start worker thread") == NULL)
        fail_msg("%s", yoke_last_error());
    check_train(engine.parallel, 2);
    check_train(other.parallel, 2);
    assert_true(check_hash(engine.parallel) == check_hash(other.parallel));
    check_batch_free(&batch);
    check_engine_free(&other);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

static void what_it_cannot_imitate_is_refused(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    static const double impossible[] = {-1, 1e9, NAN, INFINITY};
    for (size_t i = 0; i < sizeof impossible / sizeof impossible[0]; i++)
        check_refused(model, options_of(YOKE_SCHEDULE_PYTHON, impossible[i]),
                      "0 to 1e+06 microseconds");
    yoke_data_parallel_options options = options_of(YOKE_SCHEDULE_PYTHON, 1);
    options.shards = 4;
    check_refused(model, options, "nn.DataParallel cuts a batch into as many shards as devices");
    options.shards = 0;
    options.synchronize_batch_norm = true;
    check_refused(model, options, "nn.DataParallel has none");
    yoke_model_destroy(model);
}

static void gpus_are_refused(void **state) {
    (void)state;
    if (devices_are_cpus()) skip();
    yoke_model *model = check_model(true, 0);
    check_refused(model, options_of(YOKE_SCHEDULE_PYTHON, 1),
                  "the classic schedule runs nn.DataParallel's stages there");
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest gpu_tests[] = {cmocka_unit_test(gpus_are_refused)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_those_of_classic_bit_for_bit),
        cmocka_unit_test(python_takes_its_time_for_every_layer_of_every_replica),
        cmocka_unit_test(one_thread_at_a_time_holds_the_lock),
        cmocka_unit_test(waits_for_the_lock_name_their_cause),
        cmocka_unit_test(spans_of_a_lane_follow_each_other),
        cmocka_unit_test(every_forward_copies_all_weights_even_unchanged_ones),
        cmocka_unit_test(no_thread_outlives_its_forward),
        cmocka_unit_test(every_forward_starts_a_thread_for_each_replica_with_rows),
        cmocka_unit_test(a_thread_that_cannot_start_is_an_error_and_the_engine_works_on),
        cmocka_unit_test(what_it_cannot_imitate_is_refused),
    };
    if (!devices_are_cpus()) return RUN_ON_DEVICES(gpu_tests, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

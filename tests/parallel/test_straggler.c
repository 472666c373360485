/* SPDX-License-Identifier: Apache-2.0 */
/* A straggler: one device computes more slowly, the weights stay the same, and the trace shows that
 * the others wait for it. RUN_ON_DEVICES */
#include "support/clock.h"
#include "support/engine_check.h"
#include "trace/spans.h"

enum { ROWS = 12, STEPS = 4, SLOW = 1 };
static const double FACTOR = 40;

static const yoke_schedule schedules[] = {YOKE_SCHEDULE_OVERLAP, YOKE_SCHEDULE_CLASSIC,
                                          YOKE_SCHEDULE_SHARDED, YOKE_SCHEDULE_PYTHON};

static yoke_data_parallel_options options_of(yoke_schedule schedule, double factor) {
    return (yoke_data_parallel_options){.schedule = schedule,
                                        .algorithm = YOKE_ALGORITHM_DIRECT,
                                        .batch = ROWS,
                                        .first_bucket_bytes = 256,
                                        .bucket_bytes = 1024,
                                        .straggler = SLOW,
                                        .straggler_factor = factor};
}

static check_engine trained(const yoke_model *model, int devices, yoke_schedule schedule,
                            double factor) {
    check_engine engine = check_engine_make(model, devices, options_of(schedule, factor), NULL);
    check_batch batch = check_batch_make(ROWS, 3);
    for (int step = 0; step < STEPS; step++)
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                          YOKE_OPTIMIZER_LEARNING_RATE, NULL));
    check_batch_free(&batch);
    return engine;
}

static void a_straggler_changes_no_weight(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    yoke_model *model = check_model(true, 0.25);
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++) {
        check_engine plain = trained(model, 3, schedules[i], 0);
        check_engine slow = trained(model, 3, schedules[i], 3);
        uint64_t expected, found;
        EXPECT_OK(yoke_data_parallel_hash(plain.parallel, &expected));
        EXPECT_OK(yoke_data_parallel_hash(slow.parallel, &found));
        assert_true(found == expected);
        check_engine_free(&plain);
        check_engine_free(&slow);
    }
    yoke_model_destroy(model);
}

static bool computes(yoke_stage stage) {
    return stage == YOKE_STAGE_FORWARD || stage == YOKE_STAGE_BACKWARD;
}

/* The least time, in ns, that a lane spent in forward and backward of a step. */
static uint64_t least_computing_ns(const yoke_trace *trace, int lane) {
    uint64_t least = UINT64_MAX;
    for (uint64_t step = 0; step < STEPS; step++) {
        uint64_t spent = 0;
        for (uint32_t i = 0; i < yoke_lane_count(trace, lane); i++) {
            const yoke_span *span = yoke_lane_span(trace, lane, i);
            if (span->step == step && computes(span->stage)) spent += span->end_ns - span->begin_ns;
        }
        if (spent < least) least = spent;
    }
    return least;
}

static void a_straggler_computes_by_the_factor_longer(void **state) {
    (void)state;
    if (!devices_are_cpus() || !judges_clock()) skip();
    yoke_model *model = check_model(false, 0);
    check_engine engine = trained(model, 2, YOKE_SCHEDULE_OVERLAP, FACTOR);
    const yoke_trace *trace = yoke_data_parallel_trace(engine.parallel);
    uint64_t slow = least_computing_ns(trace, SLOW), other = least_computing_ns(trace, 0);
    if ((double)slow < FACTOR / 4 * (double)other) /* the devices may share one core */
        fail_msg("%llu ns against %llu ns", (unsigned long long)slow, (unsigned long long)other);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

/* Whether a wait of the lane lasted until a forward or backward of the straggler had ended. */
static bool waited_for_straggler(const yoke_trace *trace, int lane, uint64_t step) {
    for (uint32_t i = 0; i < yoke_lane_count(trace, lane); i++) {
        const yoke_span *wait = yoke_lane_span(trace, lane, i);
        if (wait->stage != YOKE_STAGE_WAIT || wait->step != step) continue;
        for (uint32_t k = 0; k < yoke_lane_count(trace, SLOW); k++) {
            const yoke_span *slow = yoke_lane_span(trace, SLOW, k);
            if (computes(slow->stage) && slow->end_ns > wait->begin_ns &&
                slow->end_ns <= wait->end_ns)
                return true;
        }
    }
    return false;
}

static void the_others_wait_until_the_straggler_is_done(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    yoke_model *model = check_model(false, 0);
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++) {
        check_engine engine = trained(model, 3, schedules[i], FACTOR);
        const yoke_trace *trace = yoke_data_parallel_trace(engine.parallel);
        for (int lane = 0; lane < 3; lane += 2) {
            int waited = 0; /* in one step at least: other programs may delay the lane, too */
            for (uint64_t step = 0; step < STEPS; step++)
                waited += waited_for_straggler(trace, lane, step);
            assert_true(waited > 0);
        }
        check_engine_free(&engine);
    }
    yoke_model_destroy(model);
}

/* The share of the step that the straggler's spans fill; they follow each other. */
static double filled_share(const yoke_trace *trace, const yoke_span *step) {
    uint64_t filled = 0, end = step->begin_ns;
    for (uint32_t k = 0; k < yoke_lane_count(trace, SLOW); k++) {
        const yoke_span *span = yoke_lane_span(trace, SLOW, k);
        if (span->step != step->step) continue;
        assert_true(span->begin_ns >= end && span->end_ns <= step->end_ns);
        filled += span->end_ns - span->begin_ns;
        end = span->end_ns;
    }
    return (double)filled / (double)(step->end_ns - step->begin_ns);
}

/* Stages, waits and nothing else. */
static void waits_fill_the_gaps_of_a_step(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    yoke_model *model = check_model(false, 0);
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++) {
        check_engine engine = trained(model, 2, schedules[i], FACTOR);
        const yoke_trace *trace = yoke_data_parallel_trace(engine.parallel);
        double most = 0; /* of all steps: the caller's thread may be delayed between two jobs */
        for (uint32_t k = 0; k < yoke_lane_count(trace, 0); k++) {
            const yoke_span *step = yoke_lane_span(trace, 0, k);
            if (step->stage == YOKE_STAGE_STEP) most = fmax(most, filled_share(trace, step));
        }
        assert_true(most > 0);
        if (judges_clock()) assert_true(most > 0.9);
        check_engine_free(&engine);
    }
    yoke_model_destroy(model);
}

static void impossible_stragglers_are_refused(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    yoke_data_parallel_options options = options_of(YOKE_SCHEDULE_OVERLAP, 2);
    if (!devices_are_cpus()) check_refused(model, options, "only CPU devices can be slowed down");
    options.straggler = 2;
    check_refused(model, options, "straggler is 2: the devices are 0 to 1");
    options.straggler = -1;
    check_refused(model, options, "straggler is -1: the devices are 0 to 1");
    options.straggler = 0;
    static const double factors[] = {0.5, -1, NAN, INFINITY, 1e300};
    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        options.straggler_factor = factors[i];
        check_refused(model, options, "at least 1, or 0 for none");
    }
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_straggler_changes_no_weight),
        cmocka_unit_test(a_straggler_computes_by_the_factor_longer),
        cmocka_unit_test(the_others_wait_until_the_straggler_is_done),
        cmocka_unit_test(waits_fill_the_gaps_of_a_step),
        cmocka_unit_test(impossible_stragglers_are_refused),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}

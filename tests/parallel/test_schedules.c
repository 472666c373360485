/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule is the list of stages that it names: a step's bars are of those stages, each of them
 * has a bar, and they begin in the list's order. */
#include "support/engine_check.h"

#define CAPACITY 32

static const yoke_schedule all[] = {YOKE_SCHEDULE_OVERLAP, YOKE_SCHEDULE_CLASSIC,
                                    YOKE_SCHEDULE_SHARDED, YOKE_SCHEDULE_PYTHON};
static const char *const wanted[] = {
    "scatter replicate forward loss backward exchange gather ",
    "scatter replicate forward gather loss gather scatter backward reduce update ",
    "scatter replicate forward loss backward exchange gather ",
    "scatter replicate forward gather loss gather scatter backward reduce update "};

static void the_lists_are_those_of_the_documents(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        yoke_stage stages[CAPACITY];
        char text[256] = "";
        int count = yoke_schedule_stages(all[i], stages, CAPACITY);
        for (int k = 0; k < count; k++) {
            strcat(text, yoke_stage_name(stages[k]));
            strcat(text, " ");
        }
        assert_string_equal(text, wanted[i]);
        assert_int_equal(yoke_schedule_stages(all[i], stages, 2), count);
    }
    assert_int_equal(yoke_schedule_stages((yoke_schedule)99, NULL, 0), 0);
    assert_int_equal(yoke_schedule_stages(YOKE_SCHEDULE_CLASSIC, NULL, 4), 0);
}

static yoke_model *small_model(void) {
    yoke_model *model = NULL;
    yoke_linear_options fc = YOKE_LINEAR_OPTIONS_INIT;
    fc.name = "fc";
    fc.out_features = 4;
    EXPECT_OK(yoke_model_create(&model, "small", (yoke_shape){8, 1, 1, true}));
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, yoke_model_input(model), &fc), NULL));
    return model;
}

/* Stages that observers add, or that hold others. */
static bool is_extra(yoke_stage stage) {
    return stage == YOKE_STAGE_WAIT || stage == YOKE_STAGE_STEP || stage == YOKE_STAGE_PYTHON;
}

/* The root's bars of one step, which must be those of the list, in its order; a stage may have
 * several. Where replicas are whole already, replicate has none. */
static void expect_bars(const yoke_span_info *spans, size_t count, yoke_schedule schedule) {
    yoke_stage stages[CAPACITY];
    int listed = yoke_schedule_stages(schedule, stages, CAPACITY), at = 0;
    for (size_t i = 0; i < count; i++) {
        if (spans[i].lane != 0 || is_extra(spans[i].stage)) continue;
        while (at < listed && stages[at] != spans[i].stage)
            at++;
        if (at == listed)
            fail_msg("%s comes out of the order of the schedule", yoke_stage_name(spans[i].stage));
    }
    for (int k = 0; k < listed; k++) {
        bool found = stages[k] == YOKE_STAGE_REPLICATE;
        for (size_t i = 0; i < count && !found; i++)
            found = spans[i].stage == stages[k];
        if (!found) fail_msg("no bar of %s", yoke_stage_name(stages[k]));
    }
}

static void a_step_runs_the_list_of_its_schedule(void **state) {
    (void)state;
    float inputs[6 * 8] = {0};
    int32_t labels[6] = {0, 1, 2, 3, 0, 1};
    yoke_batch batch = {.struct_size = sizeof batch, .rows = 6, .inputs = inputs, .labels = labels};
    yoke_model *model = small_model();
    for (int i = 0; i < 4; i++) {
        yoke_data_parallel_options options = {.struct_size = sizeof options,
                                              .schedule = all[i],
                                              .algorithm = YOKE_ALGORITHM_DIRECT,
                                              .batch = 6,
                                              .time_devices = true};
        check_engine engine = check_engine_make(model, 2, options, NULL);
        yoke_span_info spans[512] = {{.struct_size = sizeof spans[0]}};
        EXPECT_OK(
            yoke_data_parallel_step(engine.parallel, &batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL));
        size_t count = yoke_trace_read(yoke_data_parallel_trace(engine.parallel), spans, 512);
        assert_in_range(count, 1, 512);
        expect_bars(spans, count, all[i]);
        check_engine_free(&engine);
    }
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lists_are_those_of_the_documents),
        cmocka_unit_test(a_step_runs_the_list_of_its_schedule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

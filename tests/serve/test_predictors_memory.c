/* SPDX-License-Identifier: Apache-2.0 */
/* Any allocation may fail: what fails says so, nothing leaks, and what was published still
 * predicts. A prediction whose plan exists allocates nothing. */
#include "serve/serve_rig.h"
#include "support/failing_allocator.h"

enum { ROWS = 4, CALLS = 5 };

static bool can_count(void) {
    return COUNTS && devices_are_cpus();
}

static yoke_model *make_model(void) {
    return rig_preset("mlp:width=16", yoke_shape_image(1, 4, 4), 10);
}

static yoke_status create(yoke_predictors **predictors, const yoke_model *model) {
    yoke_devices_options devices = {
        .struct_size = sizeof devices, .list = devices_of(1), .threads = 1};
    const yoke_predictors_options options = {.model = model,
                                             .devices = &devices,
                                             .algorithm = YOKE_ALGORITHM_DIRECT,
                                             .slots = 2,
                                             .plans = 2,
                                             .rows = ROWS};
    return yoke_predictors_create(predictors, &options);
}

/* What a server does; the rows are made before. */
static yoke_status use(yoke_predictors *predictors, const yoke_model *model, rig_rows *rows) {
    rig_constant from = {model, 0.25f, 0};
    TRY(yoke_predictors_publish(predictors, rig_read_constant, &from));
    for (int i = 0; i < CALLS; i++) {
        rows->rows = 1 + i % ROWS;
        TRY(rig_run(predictors, rows));
        if (i == 2) TRY(yoke_predictors_publish(predictors, rig_read_constant, &from));
    }
    return YOKE_OK;
}

static void expect_it_works(yoke_predictors *predictors, const yoke_model *model, rig_rows *rows,
                            const float *expected) {
    fail_at = 0;
    memset(rows->out[0], 0, ROWS * rows->out_row[0] * sizeof(float));
    EXPECT_OK(use(predictors, model, rows));
    assert_memory_equal(rows->out[0], expected, rows->out_row[0] * sizeof(float));
}

static void test_every_allocation_may_fail(void **state) {
    (void)state;
    if (!can_count()) skip();
    yoke_model *model = make_model();
    rig_rows rows = rig_rows_make(model, ROWS, 1);
    float expected[10];
    yoke_predictors *predictors = NULL;
    EXPECT_OK(create(&predictors, model));
    EXPECT_OK(use(predictors, model, &rows));
    memcpy(expected, rows.out[0], sizeof expected);
    yoke_predictors_destroy(predictors);
    long living = own_living;
    unsigned long first = counted(&own_allocations);
    int created = 0, survived = 0;
    for (unsigned long n = 1;; n++) {
        predictors = NULL;
        first = counted(&own_allocations);
        fail_at = first + n;
        yoke_status status = create(&predictors, model);
        bool exists = status == YOKE_OK;
        assert_int_equal(exists, predictors != NULL);
        if (exists) status = use(predictors, model, &rows);
        bool reached = counted(&own_allocations) >= first + n;
        if (status != (reached ? YOKE_ERROR_MEMORY : YOKE_OK))
            fail_msg("allocation %lu: %s: %s", n, yoke_status_name(status), yoke_last_error());
        if (exists) expect_it_works(predictors, model, &rows, expected);
        fail_at = 0;
        yoke_predictors_destroy(predictors);
        if (own_living != living)
            fail_msg("allocation %lu: %ld blocks leaked", n, own_living - living);
        created += !exists;
        survived += exists;
        if (!reached) break;
    }
    print_message("%d failures in create, %d later\n", created, survived - 1);
    assert_true(created > 100 && survived > 100);
    rig_rows_free(&rows);
    yoke_model_destroy(model);
}

static void test_a_prediction_allocates_nothing(void **state) {
    (void)state;
    if (!can_count()) skip();
    yoke_model *model = rig_preset("resnet20", yoke_shape_image(3, 16, 16), 10);
    yoke_predictors *predictors = NULL;
    EXPECT_OK(create(&predictors, model));
    rig_publish(predictors, model, 0.25f);
    rig_rows rows = rig_rows_make(model, ROWS, 1);
    for (int pass = 0; pass < 2; pass++) {
        unsigned long before = counted(&own_allocations);
        for (int i = 0; i < 2 * CALLS; i++) {
            rows.rows = i % 2 == 0 ? 1 : ROWS;
            EXPECT_OK(rig_run(predictors, &rows));
        }
        if (pass > 0) assert_int_equal(counted(&own_allocations) - before, 0);
    }
    rig_rows_free(&rows);
    yoke_predictors_destroy(predictors);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_a_prediction_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A batch without rows, with too many, or with arrays of different lengths is refused by every call
 * that takes one, with the sizes, and changes nothing. */
#include "support/engine_check.h"

static const yoke_optimizer_options sgd = {.struct_size = sizeof sgd, .learning_rate = 0.1};

enum { ROWS = 8 };

typedef struct test_rig {
    yoke_model *model;
    check_engine engine;
    check_batch batch;
    uint64_t hash;
} test_rig;

static int set_up(void **state) {
    test_rig *rig = calloc(1, sizeof *rig);
    yoke_data_parallel_options options = {
        .algorithm = YOKE_ALGORITHM_DIRECT, .batch = ROWS, .seed = 3, .bucket_bytes = 1024};
    rig->model = check_model(true, 0);
    rig->engine = check_engine_make(rig->model, 3, options, &sgd);
    rig->batch = check_batch_make(ROWS + 1, 1);
    rig->batch.batch.rows = ROWS;
    EXPECT_OK(yoke_data_parallel_hash(rig->engine.parallel, &rig->hash));
    *state = rig;
    return 0;
}

static int tear_down(void **state) {
    test_rig *rig = *state;
    check_batch_free(&rig->batch);
    check_engine_free(&rig->engine);
    yoke_model_destroy(rig->model);
    free(rig);
    return 0;
}

static void expect_refused(const test_rig *rig, const yoke_batch *batch, const char *words) {
    yoke_data_parallel *parallel = rig->engine.parallel;
    yoke_step_result result = {.struct_size = sizeof result};
    for (int call = 0; call < 5; call++) {
        yoke_status status = call == 0   ? yoke_data_parallel_step(parallel, batch, 0.1, &result)
                             : call == 1 ? yoke_data_parallel_evaluate(parallel, batch, &result)
                             : call == 2 ? yoke_data_parallel_forward(parallel, batch, true, NULL)
                             : call == 3 ? yoke_data_parallel_forward(parallel, batch, false, NULL)
                                         : yoke_data_parallel_scatter(parallel, batch);
        assert_int_equal(status, YOKE_ERROR_ARGUMENT);
        if (strstr(yoke_last_error(), words) == NULL)
            fail_msg("call %d: \"%s\" lacks \"%s\"", call, yoke_last_error(), words);
    }
    uint64_t hash;
    EXPECT_OK(yoke_data_parallel_hash(parallel, &hash));
    assert_true(hash == rig->hash);
}

static void batches_of_no_rows_or_too_many_are_refused(void **state) {
    test_rig *rig = *state;
    rig->batch.batch.rows = 0;
    expect_refused(rig, &rig->batch.batch, "a batch of 0 rows: this engine was made for 1 to 8");
    rig->batch.batch.rows = -1;
    expect_refused(rig, &rig->batch.batch, "a batch of -1 rows");
    rig->batch.batch.rows = ROWS + 1;
    expect_refused(rig, &rig->batch.batch, "a batch of 9 rows: this engine was made for 1 to 8");
}

static void a_batch_without_arrays_is_refused(void **state) {
    test_rig *rig = *state;
    yoke_batch none = {.struct_size = sizeof none, .rows = 4};
    expect_refused(rig, &none, "both are NULL");
    expect_refused(rig, NULL, "batch");
}

/* 8 rows of inputs with 2 labels: nn.DataParallel would train on 2 chunks and drop the rest. */
static void arrays_of_different_lengths_are_refused_with_both_sizes(void **state) {
    test_rig *rig = *state;
    yoke_batch batch = rig->batch.batch;
    batch.labels_count = 2;
    expect_refused(rig, &batch, "labels hold 2 values, but its 8 rows of 1 are 8");
    batch.labels_count = ROWS + 1; /* longer: a batch cut from too long an array says no count */
    expect_refused(rig, &batch, "labels hold 9 values, but its 8 rows of 1 are 8");
    batch.labels_count = ROWS;
    batch.inputs_count = (ROWS - 1) * CHECK_ROW;
    expect_refused(rig, &batch, "inputs hold 504 values, but its 8 rows of 72 are 576");
    batch.inputs_count = 1;
    expect_refused(rig, &batch, "inputs hold 1 values");
    batch.inputs_count = ROWS * CHECK_ROW;
    batch.targets_count = 3;
    expect_refused(rig, &batch, "targets hold 3 values, but its 8 rows of 5 are 40");
    batch.targets_count = 0;
    EXPECT_OK(yoke_data_parallel_step(rig->engine.parallel, &batch, 0.1, NULL));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(batches_of_no_rows_or_too_many_are_refused),
        TEST(a_batch_without_arrays_is_refused),
        TEST(arrays_of_different_lengths_are_refused_with_both_sizes),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}

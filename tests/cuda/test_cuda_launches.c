/* SPDX-License-Identifier: Apache-2.0 */
/* What each alternative takes from the launches of a step, counted by the simulated GPUs, which
 * count those of a graph one by one. */
#include "simcuda/control.h"
#include "support/preferring.h"

enum { ROWS = 12 };

/* Kernels, copies and fills of one step of bfloat16, behind a step that has prepared everything. */
static int works_of_step(const char *list, const char *const *names) {
    yoke_optimizer_options sgd = YOKE_SGD_OPTIONS_INIT;
    const yoke_data_parallel_options options = {
        .precision = YOKE_BFLOAT16, .algorithm = YOKE_ALGORITHM_DIRECT, .batch = ROWS};
    yoke_model *model = check_model(true, 0);
    check_engine engine = check_engine_preferring(model, list, options, &sgd, names);
    check_batch batch = check_batch_make(ROWS, 1);
    uint64_t before = 0;
    for (int i = 0; i < 2; i++) {
        before = simcuda_works_so_far();
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch, 0.05, NULL));
    }
    int works = (int)(simcuda_works_so_far() - before);
    check_batch_free(&batch);
    check_engine_free(&engine);
    yoke_model_destroy(model);
    return works;
}

static void each_seam_of_a_step_is_one_launch_less(void **state) {
    (void)state;
    static const char *const none[] = {NULL}, *const shadow[] = {"shadow in the update", NULL},
                             *const loss[] = {"one kernel", NULL},
                             *const both[] = {"shadow in the update", "one kernel", NULL};
    int without = works_of_step("cuda:0", none);
    assert_int_equal(works_of_step("cuda:0", shadow), without - 1); /* the pass over all weights */
    assert_int_equal(works_of_step("cuda:0", loss), without - 1);   /* the gradient of the loss */
    assert_int_equal(works_of_step("cuda:0+mapped", none), without - 1); /* the copy of the loss */
    assert_int_equal(works_of_step("cuda:0+mapped", both), without - 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_seam_of_a_step_is_one_launch_less),
    };
    setenv("YOKE_TEST_BACKEND", "cuda", 1);
    return RUN_ON_DEVICES(tests, NULL, NULL);
}

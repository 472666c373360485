/* SPDX-License-Identifier: Apache-2.0 */
/* The engine refuses stages called in a wrong order and then changes nothing; evaluation and
 * other calls between two stages do not disturb them. */
#include "support/engine_check.h"

static const yoke_optimizer_options sgd = {.struct_size = sizeof sgd, .learning_rate = 0.1};

typedef struct test_rig {
    yoke_model *model;
    check_engine engine;
    check_batch batch;
    yoke_data_parallel *parallel;
} test_rig;

static int set_up(void **state) {
    test_rig *rig = calloc(1, sizeof *rig);
    yoke_data_parallel_options options = {
        .algorithm = YOKE_ALGORITHM_DIRECT, .batch = 9, .seed = 3, .bucket_bytes = 1024};
    rig->model = check_model(false, 0);
    rig->engine = check_engine_make(rig->model, 3, options, &sgd);
    rig->parallel = rig->engine.parallel;
    rig->batch = check_batch_make(9, 1);
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

#define EXPECT_REFUSED(call, words)                                                                \
    do {                                                                                           \
        assert_int_equal((call), YOKE_ERROR_ARGUMENT);                                             \
        if (strstr(yoke_last_error(), words) == NULL)                                              \
            fail_msg("%s: \"%s\" lacks \"%s\"", #call, yoke_last_error(), words);                  \
    } while (0)

static void nothing_runs_before_scatter(void **state) {
    yoke_data_parallel *parallel = ((test_rig *)*state)->parallel;
    yoke_step_result result = {.struct_size = sizeof result};
    float bias[CHECK_CLASSES];
    EXPECT_REFUSED(yoke_data_parallel_forward_replicas(parallel, true), "comes after scatter");
    EXPECT_REFUSED(yoke_data_parallel_loss_replicas(parallel), "comes after forward");
    EXPECT_REFUSED(yoke_data_parallel_backward_replicas(parallel), "comes after loss");
    EXPECT_REFUSED(yoke_data_parallel_reduce(parallel), "comes after backward");
    EXPECT_REFUSED(yoke_data_parallel_update(parallel, YOKE_OPTIMIZER_LEARNING_RATE),
                   "call yoke_data_parallel_reduce first");
    EXPECT_REFUSED(yoke_data_parallel_gather(parallel, &result),
                   "call yoke_data_parallel_loss_replicas first");
    EXPECT_REFUSED(yoke_data_parallel_backward(parallel, NULL), "comes after forward");
    EXPECT_REFUSED(yoke_data_parallel_read_gradient(parallel, "fc.bias", bias, CHECK_CLASSES),
                   "no reduced");
}

static void stages_left_out_are_named(void **state) {
    test_rig *rig = *state;
    EXPECT_OK(yoke_data_parallel_scatter(rig->parallel, &rig->batch.batch));
    EXPECT_REFUSED(yoke_data_parallel_loss_replicas(rig->parallel),
                   "last stage of this batch was scatter");
    EXPECT_OK(yoke_data_parallel_forward_replicas(rig->parallel, true));
    EXPECT_REFUSED(yoke_data_parallel_backward_replicas(rig->parallel),
                   "last stage of this batch was forward");
    EXPECT_OK(yoke_data_parallel_loss_replicas(rig->parallel));
    EXPECT_REFUSED(yoke_data_parallel_reduce(rig->parallel), "last stage of this batch was loss");
    EXPECT_OK(yoke_data_parallel_backward_replicas(rig->parallel));
    EXPECT_REFUSED(yoke_data_parallel_update(rig->parallel, YOKE_OPTIMIZER_LEARNING_RATE),
                   "call yoke_data_parallel_reduce first");
    EXPECT_OK(yoke_data_parallel_reduce(rig->parallel));
    EXPECT_OK(yoke_data_parallel_update(rig->parallel, YOKE_OPTIMIZER_LEARNING_RATE));
}

static void backward_needs_a_training_forward_of_its_own(void **state) {
    test_rig *rig = *state;
    yoke_step_result result = {.struct_size = sizeof result};
    EXPECT_OK(yoke_data_parallel_forward(rig->parallel, &rig->batch.batch, false, NULL));
    EXPECT_REFUSED(yoke_data_parallel_backward(rig->parallel, NULL), "evaluation mode");
    EXPECT_OK(yoke_data_parallel_forward(rig->parallel, &rig->batch.batch, true, NULL));
    EXPECT_OK(yoke_data_parallel_backward(rig->parallel, NULL));
    EXPECT_REFUSED(yoke_data_parallel_backward(rig->parallel, NULL), "was backward");
    EXPECT_OK(yoke_data_parallel_forward(rig->parallel, &rig->batch.batch, true, NULL));
    EXPECT_OK(yoke_data_parallel_evaluate(rig->parallel, &rig->batch.batch, &result));
    EXPECT_REFUSED(yoke_data_parallel_backward(rig->parallel, NULL), "was load");
    EXPECT_OK(yoke_data_parallel_step(rig->parallel, &rig->batch.batch,
                                      YOKE_OPTIMIZER_LEARNING_RATE, &result));
    EXPECT_REFUSED(yoke_data_parallel_backward(rig->parallel, NULL), "was load");
}

/* The second batch has no labels, or wrong ones: the first one's must not be used for it. */
static void labels_of_an_earlier_batch_are_not_used(void **state) {
    test_rig *rig = *state;
    yoke_batch batch = rig->batch.batch;
    EXPECT_OK(yoke_data_parallel_scatter(rig->parallel, &batch));
    batch.labels = NULL;
    EXPECT_OK(yoke_data_parallel_scatter(rig->parallel, &batch));
    EXPECT_OK(yoke_data_parallel_forward_replicas(rig->parallel, true));
    EXPECT_REFUSED(yoke_data_parallel_loss_replicas(rig->parallel), "no labels");
    EXPECT_REFUSED(yoke_data_parallel_backward(rig->parallel, NULL), "no labels");
    rig->batch.labels[4] = 1000;
    EXPECT_REFUSED(yoke_data_parallel_scatter(rig->parallel, &rig->batch.batch), "label 1000");
}

static void preparing_in_between_disturbs_nothing(void **state) {
    test_rig *rig = *state;
    float *gradients[2];
    size_t count;
    for (int between = 0; between < 2; between++) {
        EXPECT_OK(yoke_data_parallel_scatter(rig->parallel, &rig->batch.batch));
        if (between) EXPECT_OK(yoke_data_parallel_prepare(rig->parallel, 2, true));
        EXPECT_OK(yoke_data_parallel_forward_replicas(rig->parallel, true));
        if (between) EXPECT_OK(yoke_data_parallel_prepare(rig->parallel, 4, false));
        EXPECT_OK(yoke_data_parallel_backward(rig->parallel, NULL));
        gradients[between] = check_read_all(rig->parallel, rig->model, true, &count);
    }
    assert_memory_equal(gradients[0], gradients[1], count * sizeof(float));
    free(gradients[0]);
    free(gradients[1]);
}

static void a_gradient_outlives_an_evaluation_but_no_step(void **state) {
    test_rig *rig = *state;
    float bias[CHECK_CLASSES], again[CHECK_CLASSES];
    yoke_step_result result = {.struct_size = sizeof result};
    EXPECT_OK(yoke_data_parallel_forward(rig->parallel, &rig->batch.batch, true, NULL));
    EXPECT_OK(yoke_data_parallel_backward(rig->parallel, NULL));
    EXPECT_OK(yoke_data_parallel_read_gradient(rig->parallel, "fc.bias", bias, CHECK_CLASSES));
    EXPECT_OK(yoke_data_parallel_evaluate(rig->parallel, &rig->batch.batch, &result));
    EXPECT_OK(yoke_data_parallel_read_gradient(rig->parallel, "fc.bias", again, CHECK_CLASSES));
    assert_memory_equal(bias, again, sizeof bias);
    rig->batch.batch.rows = 1; /* one replica computes: its gradient is no reduced one */
    EXPECT_OK(yoke_data_parallel_step(rig->parallel, &rig->batch.batch,
                                      YOKE_OPTIMIZER_LEARNING_RATE, &result));
    EXPECT_REFUSED(yoke_data_parallel_read_gradient(rig->parallel, "fc.bias", bias, CHECK_CLASSES),
                   "no reduced");
}

static void a_result_without_a_size_costs_no_update(void **state) {
    test_rig *rig = *state;
    uint64_t before, after;
    yoke_step_result result = {0};
    EXPECT_OK(yoke_data_parallel_hash(rig->parallel, &before));
    EXPECT_REFUSED(yoke_data_parallel_step(rig->parallel, &rig->batch.batch,
                                           YOKE_OPTIMIZER_LEARNING_RATE, &result),
                   "struct_size");
    EXPECT_REFUSED(yoke_data_parallel_evaluate(rig->parallel, &rig->batch.batch, &result),
                   "struct_size");
    EXPECT_OK(yoke_data_parallel_hash(rig->parallel, &after));
    assert_true(before == after);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(nothing_runs_before_scatter),
        TEST(stages_left_out_are_named),
        TEST(backward_needs_a_training_forward_of_its_own),
        TEST(labels_of_an_earlier_batch_are_not_used),
        TEST(preparing_in_between_disturbs_nothing),
        TEST(a_gradient_outlives_an_evaluation_but_no_step),
        TEST(a_result_without_a_size_costs_no_update),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* no_sync: gradients of several backward calls are the gradient of one large batch, whatever the
 * devices, and travel once. zero_grad forgets them. */
#include "support/engine_check.h"

#define EXPECT_REFUSED(call, words)                                                                \
    do {                                                                                           \
        assert_int_equal((call), YOKE_ERROR_ARGUMENT);                                             \
        if (strstr(yoke_last_error(), words) == NULL)                                              \
            fail_msg("%s: \"%s\" lacks \"%s\"", #call, yoke_last_error(), words);                  \
    } while (0)

static const yoke_optimizer_options sgd = {
    .struct_size = sizeof sgd, .kind = YOKE_SGD, .learning_rate = 0.1, .momentum = 0.9};

enum { ROWS = 14 };

typedef struct test_rig {
    yoke_model *model;
    check_engine engine;
    check_batch batch;
    yoke_data_parallel *parallel;
} test_rig;

static test_rig rig_make(int devices, yoke_schedule schedule, double dropout) {
    test_rig rig = {.model = check_model(false, dropout), .batch = check_batch_make(ROWS, 1)};
    rig.engine = check_engine_make(rig.model, devices, check_options(ROWS, schedule), &sgd);
    rig.parallel = rig.engine.parallel;
    return rig;
}

static void rig_free(test_rig *rig) {
    check_batch_free(&rig->batch);
    check_engine_free(&rig->engine);
    yoke_model_destroy(rig->model);
}

/* Rows first .. first + rows - 1, as a part of the whole batch. */
static yoke_batch part_of(const test_rig *rig, int first, int rows) {
    yoke_batch batch = rig->batch.batch;
    batch.inputs += (size_t)first * CHECK_ROW;
    batch.labels += first;
    batch.rows = rows;
    batch.first_row = first;
    batch.whole_rows = ROWS;
    return batch;
}

static void forward_and_backward(const test_rig *rig, int first, int rows,
                                 const float *output_gradients) {
    yoke_batch batch = part_of(rig, first, rows);
    EXPECT_OK(yoke_data_parallel_forward(rig->parallel, &batch, true, NULL));
    EXPECT_OK(yoke_data_parallel_backward(rig->parallel, output_gradients));
}

static float *gradient_of(const test_rig *rig, size_t *count) {
    return check_read_all(rig->parallel, rig->model, true, count);
}

static void expect_gradient(const test_rig *rig, const float *wanted, const char *what) {
    size_t count;
    float *gradient = gradient_of(rig, &count);
    double difference = check_relative(gradient, wanted, count);
    if (!(difference <= 1e-6)) fail_msg("%s: gradients differ by %g", what, difference);
    free(gradient);
}

/* Parts of the batch in several orders: the last may keep fewer devices busy than those before it,
 * or more. Dropout's masks follow the rows, so they are the large batch's. */
static void parts_of_a_batch_add_up_to_its_gradient(void **state) {
    (void)state;
    static const int cuts[][5] = {{5, 5, 3, 1}, {1, 5, 8}, {13, 1}, {1, 13}, {2, 2, 2, 2, 6}};
    for (int devices = 1; devices <= 4; devices++)
        for (int schedule = 0; schedule < 3; schedule++) {
            test_rig rig = rig_make(devices, (yoke_schedule)schedule, 0.25);
            size_t count;
            forward_and_backward(&rig, 0, ROWS, NULL);
            float *whole = gradient_of(&rig, &count);
            for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
                EXPECT_OK(yoke_data_parallel_no_sync(rig.parallel, true));
                for (int first = 0, part = 0; first < ROWS; first += cuts[i][part++]) {
                    bool last = first + cuts[i][part] == ROWS;
                    if (last) EXPECT_OK(yoke_data_parallel_no_sync(rig.parallel, false));
                    forward_and_backward(&rig, first, cuts[i][part], NULL);
                }
                expect_gradient(&rig, whole, "parts");
            }
            free(whole);
            rig_free(&rig);
        }
}

/* Where labels weigh differently, a part must say what the whole batch weighs. */
static void parts_of_weighted_labels_need_the_weight_of_the_whole(void **state) {
    (void)state;
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    loss.set_ignore_index = true;
    loss.ignore_index = -1;
    yoke_model *model = check_model_with(false, 0, &loss);
    check_engine engine =
        check_engine_make(model, 3, check_options(ROWS, YOKE_SCHEDULE_OVERLAP), &sgd);
    test_rig rig = {
        .model = model, .engine = engine, .batch = check_batch_make(ROWS, 1), .parallel = NULL};
    rig.parallel = engine.parallel;
    int32_t *labels = (int32_t *)rig.batch.batch.labels;
    for (int row = 3; row < 8; row++)
        labels[row] = -1;
    size_t count;
    yoke_step_result result = {.struct_size = sizeof result};
    forward_and_backward(&rig, 0, ROWS, NULL);
    float *whole = gradient_of(&rig, &count);
    EXPECT_OK(yoke_data_parallel_gather(rig.parallel, &result));
    assert_true(result.weight == ROWS - 5 && result.labels == ROWS - 5 && result.rows == ROWS);

    yoke_batch first = part_of(&rig, 0, 6), second = part_of(&rig, 6, ROWS - 6);
    EXPECT_REFUSED(yoke_data_parallel_scatter(rig.parallel, &first), "whole_weight");
    first.whole_weight = second.whole_weight = ROWS - 5;
    EXPECT_OK(yoke_data_parallel_no_sync(rig.parallel, true));
    EXPECT_OK(yoke_data_parallel_forward(rig.parallel, &first, true, NULL));
    EXPECT_OK(yoke_data_parallel_backward(rig.parallel, NULL));
    EXPECT_OK(yoke_data_parallel_no_sync(rig.parallel, false));
    EXPECT_OK(yoke_data_parallel_forward(rig.parallel, &second, true, NULL));
    EXPECT_OK(yoke_data_parallel_backward(rig.parallel, NULL));
    expect_gradient(&rig, whole, "parts");
    first.whole_weight = NAN;
    EXPECT_REFUSED(yoke_data_parallel_scatter(rig.parallel, &first), "whole_weight nan");
    free(whole);
    rig_free(&rig);
}

/* As .grad in PyTorch: the plain sum of what each backward gives alone, for a loss of the host's
 * own. yoke_data_parallel_reduce takes it without a further backward. */
static void gradients_of_the_hosts_own_loss_add_as_they_are(void **state) {
    (void)state;
    test_rig rig = rig_make(3, YOKE_SCHEDULE_OVERLAP, 0);
    float own[2][ROWS * CHECK_CLASSES], *alone[2];
    size_t count;
    for (int i = 0; i < 2; i++) {
        for (uint32_t k = 0; k < ROWS * CHECK_CLASSES; k++)
            own[i][k] = (float)check_noise(k + 100u * (uint32_t)i);
        forward_and_backward(&rig, 0, ROWS - 9 * i, own[i]);
        alone[i] = gradient_of(&rig, &count);
    }
    for (size_t k = 0; k < count; k++)
        alone[0][k] += alone[1][k];
    EXPECT_OK(yoke_data_parallel_no_sync(rig.parallel, true));
    for (int i = 0; i < 2; i++)
        forward_and_backward(&rig, 0, ROWS - 9 * i, own[i]);
    EXPECT_OK(yoke_data_parallel_no_sync(rig.parallel, false));
    EXPECT_OK(yoke_data_parallel_reduce(rig.parallel));
    expect_gradient(&rig, alone[0], "the sum");
    EXPECT_OK(yoke_data_parallel_update(rig.parallel, YOKE_OPTIMIZER_LEARNING_RATE));
    forward_and_backward(&rig, 0, ROWS, own[0]); /* off: it starts anew */
    free(alone[0]);
    alone[0] = gradient_of(&rig, &count);
    forward_and_backward(&rig, 0, ROWS, own[0]);
    expect_gradient(&rig, alone[0], "anew");
    free(alone[0]);
    free(alone[1]);
    rig_free(&rig);
}

/* They are no part of the batch in flight: an evaluation, or the forward of another batch, comes
 * and goes. */
static void gradients_that_wait_outlive_their_batch(void **state) {
    (void)state;
    for (int devices = 1; devices <= 3; devices++) {
        test_rig rig = rig_make(devices, YOKE_SCHEDULE_OVERLAP, 0);
        size_t count;
        yoke_step_result result = {.struct_size = sizeof result};
        forward_and_backward(&rig, 0, ROWS, NULL);
        float *whole = gradient_of(&rig, &count);
        EXPECT_OK(yoke_data_parallel_no_sync(rig.parallel, true));
        forward_and_backward(&rig, 0, 9, NULL);
        EXPECT_OK(yoke_data_parallel_evaluate(rig.parallel, &rig.batch.batch, &result));
        forward_and_backward(&rig, 9, ROWS - 9, NULL);
        EXPECT_OK(yoke_data_parallel_no_sync(rig.parallel, false));
        EXPECT_OK(yoke_data_parallel_evaluate(rig.parallel, &rig.batch.batch, &result));
        EXPECT_OK(yoke_data_parallel_reduce(rig.parallel));
        expect_gradient(&rig, whole, "after an evaluation");

        EXPECT_OK(yoke_data_parallel_no_sync(rig.parallel, true));
        forward_and_backward(&rig, 0, ROWS, NULL);
        EXPECT_OK(yoke_data_parallel_no_sync(rig.parallel, false));
        EXPECT_OK(yoke_data_parallel_forward(rig.parallel, &rig.batch.batch, true, NULL));
        EXPECT_OK(yoke_data_parallel_reduce(rig.parallel));
        expect_gradient(&rig, whole, "between forward and backward");
        EXPECT_OK(yoke_data_parallel_backward(rig.parallel, NULL));
        expect_gradient(&rig, whole, "of that forward");
        free(whole);
        rig_free(&rig);
    }
}

static void gradients_travel_once(void **state) {
    (void)state;
    test_rig rig = rig_make(2, YOKE_SCHEDULE_OVERLAP, 0);
    forward_and_backward(&rig, 0, 4, NULL);
    double once = check_bytes(rig.parallel, YOKE_STAGE_REDUCE);
    EXPECT_OK(yoke_data_parallel_no_sync(rig.parallel, true));
    yoke_trace_reset(yoke_data_parallel_trace(rig.parallel));
    for (int i = 0; i < 3; i++)
        forward_and_backward(&rig, 0, 4, NULL);
    assert_true(check_bytes(rig.parallel, YOKE_STAGE_REDUCE) == 0);
    EXPECT_OK(yoke_data_parallel_no_sync(rig.parallel, false));
    forward_and_backward(&rig, 0, 4, NULL);
    assert_true(check_bytes(rig.parallel, YOKE_STAGE_REDUCE) == once);
    assert_true((once > 0) == devices_are_cpus()); /* queued by hand, no span counts it */
    rig_free(&rig);
}

#define EXPECT_REFUSED(call, words)                                                                \
    do {                                                                                           \
        assert_int_equal((call), YOKE_ERROR_ARGUMENT);                                             \
        if (strstr(yoke_last_error(), words) == NULL)                                              \
            fail_msg("%s: \"%s\" lacks \"%s\"", #call, yoke_last_error(), words);                  \
    } while (0)

static void zero_grad_forgets_what_waits(void **state) {
    (void)state;
    test_rig rig = rig_make(3, YOKE_SCHEDULE_OVERLAP, 0);
    size_t count;
    forward_and_backward(&rig, 0, 6, NULL);
    float *alone = gradient_of(&rig, &count);
    EXPECT_OK(yoke_data_parallel_zero_grad(rig.parallel));
    EXPECT_REFUSED(yoke_data_parallel_update(rig.parallel, 0.1), "no gradient is on the root");
    EXPECT_REFUSED(yoke_data_parallel_reduce(rig.parallel), "comes after backward");
    EXPECT_OK(yoke_data_parallel_no_sync(rig.parallel, true));
    forward_and_backward(&rig, 0, ROWS, NULL);
    EXPECT_OK(yoke_data_parallel_zero_grad(rig.parallel));
    EXPECT_OK(yoke_data_parallel_no_sync(rig.parallel, false));
    forward_and_backward(&rig, 0, 6, NULL);
    expect_gradient(&rig, alone, "after zero_grad");
    yoke_batch batch = part_of(&rig, 0, 6);
    EXPECT_OK(yoke_data_parallel_forward(rig.parallel, &batch, true, NULL));
    EXPECT_OK(yoke_data_parallel_zero_grad(
        rig.parallel)); /* between forward and backward it is harmless */
    EXPECT_OK(yoke_data_parallel_backward(rig.parallel, NULL));
    expect_gradient(&rig, alone, "between");
    free(alone);
    rig_free(&rig);
}

static void nothing_is_mixed_with_gradients_that_wait(void **state) {
    (void)state;
    test_rig rig = rig_make(2, YOKE_SCHEDULE_CLASSIC, 0);
    const yoke_batch *batch = &rig.batch.batch;
    EXPECT_OK(yoke_data_parallel_no_sync(rig.parallel, true));
    EXPECT_REFUSED(yoke_data_parallel_step(rig.parallel, batch, 0.1, NULL), "no_sync is on");
    forward_and_backward(&rig, 0, 4, NULL);
    EXPECT_REFUSED(yoke_data_parallel_reduce(rig.parallel), "no_sync is on");
    EXPECT_REFUSED(yoke_data_parallel_update(rig.parallel, 0.1), "no gradient is on the root");
    EXPECT_OK(yoke_data_parallel_no_sync(rig.parallel, false));
    EXPECT_REFUSED(yoke_data_parallel_step(rig.parallel, batch, 0.1, NULL), "gradients wait");
    EXPECT_OK(yoke_data_parallel_zero_grad(rig.parallel));
    EXPECT_OK(yoke_data_parallel_step(rig.parallel, batch, 0.1, NULL));
    EXPECT_REFUSED(yoke_data_parallel_no_sync(NULL, true), "NULL");
    EXPECT_REFUSED(yoke_data_parallel_zero_grad(NULL), "NULL");
    rig_free(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_a_batch_add_up_to_its_gradient),
        cmocka_unit_test(parts_of_weighted_labels_need_the_weight_of_the_whole),
        cmocka_unit_test(gradients_of_the_hosts_own_loss_add_as_they_are),
        cmocka_unit_test(gradients_that_wait_outlive_their_batch),
        cmocka_unit_test(gradients_travel_once),
        cmocka_unit_test(zero_grad_forgets_what_waits),
        cmocka_unit_test(nothing_is_mixed_with_gradients_that_wait),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}

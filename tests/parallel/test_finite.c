/* SPDX-License-Identifier: Apache-2.0 */
/* A gradient that is not finite, although the loss is, ends the step that made it: NUMERIC names
 * the parameter, and training goes on as if the step had never been, to the bit. */
#include <unistd.h>

#include "support/ddp_check.h"

enum { SECONDS = 900, ROWS = 12, GOOD_STEPS = 2 };

/* How gradients become weights. */
typedef struct mode {
    yoke_schedule schedule;
    int devices, accumulate;
    yoke_optimizer_kind kind;
    bool clip, by_hand, one_bucket;
} mode;

static const mode modes[] = {
    {.schedule = YOKE_SCHEDULE_OVERLAP, .devices = 1},
    {.schedule = YOKE_SCHEDULE_OVERLAP, .devices = 1, .one_bucket = true},
    {.schedule = YOKE_SCHEDULE_OVERLAP, .devices = 3},
    {.schedule = YOKE_SCHEDULE_OVERLAP, .devices = 3, .kind = YOKE_ADAMW},
    {.schedule = YOKE_SCHEDULE_OVERLAP, .devices = 3, .clip = true},
    {.schedule = YOKE_SCHEDULE_OVERLAP, .devices = 2, .accumulate = 3},
    {.schedule = YOKE_SCHEDULE_SHARDED, .devices = 1},
    {.schedule = YOKE_SCHEDULE_SHARDED, .devices = 3},
    {.schedule = YOKE_SCHEDULE_SHARDED, .devices = 3, .kind = YOKE_ADAMW},
    {.schedule = YOKE_SCHEDULE_SHARDED, .devices = 2, .clip = true, .accumulate = 2},
    {.schedule = YOKE_SCHEDULE_CLASSIC, .devices = 1},
    {.schedule = YOKE_SCHEDULE_CLASSIC, .devices = 3, .kind = YOKE_ADAMW},
    {.schedule = YOKE_SCHEDULE_CLASSIC, .devices = 2, .accumulate = 2, .clip = true},
    {.schedule = YOKE_SCHEDULE_OVERLAP, .devices = 2, .kind = YOKE_LAMB},
    {.schedule = YOKE_SCHEDULE_OVERLAP, .devices = 3, .kind = YOKE_MUON},
    {.schedule = YOKE_SCHEDULE_CLASSIC, .devices = 2, .kind = YOKE_LAMB, .clip = true},
    {.schedule = YOKE_SCHEDULE_OVERLAP, .devices = 3, .by_hand = true},
    {.schedule = YOKE_SCHEDULE_SHARDED, .devices = 3, .by_hand = true},
    {.schedule = YOKE_SCHEDULE_CLASSIC, .devices = 2, .by_hand = true, .clip = true},
};

/* How a step comes to a finite loss with a gradient that is not. */
typedef enum spoil {
    NAN_INPUT, /* oneDNN's ReLU makes 0 of NaN, and the first convolution's gradient is NaN */
    OVERFLOWS  /* batch norm divides by a tiny std: forward hides it, backward multiplies */
} spoil;

/* conv1 - relu - conv2 - batch norm - relu - dropout - pool - fc: the batch norm sees no NaN. */
static yoke_model *hiding_model(void) {
    yoke_model *model = NULL;
    EXPECT_OK(yoke_model_create(&model, "hiding",
                                (yoke_shape){CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE, false}));
    yoke_conv2d_options conv = {.struct_size = sizeof conv,
                                .name = "conv1",
                                .out_channels = 8,
                                .kernel = 3,
                                .padding = 1,
                                .no_bias = true};
    yoke_batch_norm_options bn = {
        .struct_size = sizeof bn, .name = "bn", .epsilon = 1e-14, .momentum = 0.1};
    yoke_linear_options fc = {
        .struct_size = sizeof fc, .name = "fc", .out_features = CHECK_CLASSES};
    yoke_value x = yoke_relu(model, yoke_conv2d(model, yoke_model_input(model), &conv));
    conv.name = "conv2";
    x = yoke_relu(model, yoke_batch_norm(model, yoke_conv2d(model, x, &conv), &bn));
    x = yoke_dropout(model, x, 0.25); /* keyed by the number of the step */
    x = yoke_flatten(model, yoke_global_average_pool(model, x));
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, x, &fc), NULL));
    return model;
}

static yoke_data_parallel_options options_for(const mode *r) {
    return (yoke_data_parallel_options){.schedule = r->schedule,
                                        .algorithm = YOKE_ALGORITHM_DIRECT,
                                        .batch = ROWS,
                                        .accumulate = r->accumulate,
                                        .seed = 3,
                                        .first_bucket_bytes = r->one_bucket ? 1 << 20 : 64,
                                        .bucket_bytes = r->one_bucket ? 1 << 20 : 256};
}

static yoke_optimizer_options optimizer_for(const mode *r) {
    return (yoke_optimizer_options){.struct_size = sizeof(yoke_optimizer_options),
                                    .kind = r->kind,
                                    .learning_rate = 0.02,
                                    .momentum = 0.9,
                                    .weight_decay = 0.01,
                                    .beta1 = 0.9,
                                    .beta2 = 0.999,
                                    .epsilon = 1e-8,
                                    .clip_norm = r->clip ? 0.5 : 0};
}

static yoke_status step_by_hand(yoke_data_parallel *parallel, const yoke_batch *batch) {
    TRY(yoke_data_parallel_forward(parallel, batch, true, NULL));
    TRY(yoke_data_parallel_backward(parallel, NULL));
    return yoke_data_parallel_update(parallel, YOKE_OPTIMIZER_LEARNING_RATE);
}

static yoke_status step_on(const mode *r, yoke_data_parallel *parallel, const yoke_batch *batch) {
    if (r->by_hand) return step_by_hand(parallel, batch);
    return yoke_data_parallel_step(parallel, batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL);
}

static void step_well(const mode *r, yoke_data_parallel *parallel, int first) {
    for (int step = first; step < first + GOOD_STEPS; step++) {
        check_batch batch = check_batch_make(ROWS, (uint32_t)step);
        EXPECT_OK(step_on(r, parallel, &batch.batch));
        check_batch_free(&batch);
    }
}

/* Swaps the values of a tensor with `values`. */
static void swap_tensor(yoke_data_parallel *parallel, const char *name, float *values,
                        size_t count) {
    float *old = malloc(count * sizeof *old);
    EXPECT_OK(yoke_data_parallel_read(parallel, name, old, count));
    EXPECT_OK(yoke_data_parallel_write(parallel, name, values, count));
    memcpy(values, old, count * sizeof *old);
    free(old);
}

typedef struct extremes {
    float conv2[8 * 8 * 9], bn[8], fc[CHECK_CLASSES * 8];
} extremes;

static extremes make_extremes(void) {
    extremes made = {.fc = {0}};
    for (uint32_t i = 0; i < 8 * 8 * 9; i++)
        made.conv2[i] = 1e-6f * (float)check_noise(i);
    for (int i = 0; i < 8; i++) {
        made.bn[i] = 1e6f;
        made.fc[i] = 1e30f;
    }
    return made;
}

static void swap_extremes(yoke_data_parallel *parallel, extremes *values) {
    swap_tensor(parallel, "conv2.weight", values->conv2, 8 * 8 * 9);
    swap_tensor(parallel, "bn.weight", values->bn, 8);
    swap_tensor(parallel, "fc.weight", values->fc, CHECK_CLASSES * 8);
}

/* GPUs may report a bad step one call late: a step, which is undone with it, or a read. */
static yoke_status late(const mode *r, yoke_data_parallel *parallel, yoke_status status) {
    uint64_t hash;
    if (status != YOKE_OK || devices_are_cpus()) return status;
    if (r->devices < 3) return yoke_data_parallel_hash(parallel, &hash);
    check_batch next = check_batch_make(ROWS, 78);
    status = step_on(r, parallel, &next.batch);
    check_batch_free(&next);
    return status;
}

/* By hand the caller decides about running statistics; a step restores them. */
static uint64_t state_of(const mode *r, yoke_data_parallel *parallel, const yoke_model *model) {
    size_t count;
    if (!r->by_hand) return check_hash(parallel);
    float *weights = check_read_all(parallel, model, false, &count);
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < count * sizeof *weights; i++)
        hash = (hash ^ ((const unsigned char *)weights)[i]) * 1099511628211u;
    free(weights);
    return hash;
}

static void spoil_a_step(const mode *r, yoke_data_parallel *parallel, const yoke_model *model,
                         spoil how) {
    check_batch batch = check_batch_make(ROWS, 77);
    extremes values = make_extremes();
    if (how == NAN_INPUT) batch.inputs[(ROWS - 1) * CHECK_ROW + 5] = NAN;
    if (how == OVERFLOWS) swap_extremes(parallel, &values);
    uint64_t before = state_of(r, parallel, model);
    yoke_status status = late(r, parallel, step_on(r, parallel, &batch.batch));
    if (status != YOKE_ERROR_NUMERIC)
        fail_msg("schedule %d, %d devices: %s", (int)r->schedule, r->devices,
                 yoke_status_name(status));
    assert_non_null(strstr(yoke_last_error(), "the gradient of conv"));
    assert_non_null(strstr(yoke_last_error(), ".weight is not finite"));
    assert_true(before == state_of(r, parallel, model));
    if (how == OVERFLOWS) swap_extremes(parallel, &values);
    check_batch_free(&batch);
}

/* The twin trains without the bad step: it has the same weights, running statistics, optimizer's
 * state and number of steps. By hand the twin's forward of the bad batch gives the statistics. */
static void survive_a_step(const mode *r, spoil how) {
    yoke_model *model = hiding_model();
    yoke_optimizer_options optimizer = optimizer_for(r);
    check_engine engine = check_engine_make(model, r->devices, options_for(r), &optimizer);
    check_engine twin = check_engine_make(model, r->devices, options_for(r), &optimizer);
    step_well(r, engine.parallel, 0);
    step_well(r, twin.parallel, 0);
    spoil_a_step(r, engine.parallel, model, how);
    step_well(r, engine.parallel, GOOD_STEPS);
    step_well(r, twin.parallel, GOOD_STEPS);
    uint64_t hash = state_of(r, engine.parallel, model);
    if (hash != state_of(r, twin.parallel, model))
        fail_msg("schedule %d, %d devices, by hand %d: the bad step left a trace", (int)r->schedule,
                 r->devices, r->by_hand);
    check_engine_free(&twin);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

static void nan_through_relu_ends_the_step_and_leaves_no_trace(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip(); /* GPUs pass NaN on: the loss shows it */
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        survive_a_step(&modes[i], NAN_INPUT);
}

static void an_overflow_of_backward_ends_the_step_and_leaves_no_trace(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        survive_a_step(&modes[i], OVERFLOWS);
}

static void nan_output_gradients_by_hand_are_refused_at_the_update(void **state) {
    (void)state;
    const mode by_hand = {.schedule = YOKE_SCHEDULE_OVERLAP, .devices = 2, .by_hand = true};
    yoke_model *model = hiding_model();
    yoke_optimizer_options optimizer = optimizer_for(&by_hand);
    check_engine engine = check_engine_make(model, 2, options_for(&by_hand), &optimizer);
    check_batch batch = check_batch_make(ROWS, 1);
    float gradients[ROWS * CHECK_CLASSES];
    for (int i = 0; i < ROWS * CHECK_CLASSES; i++)
        gradients[i] = 0.01f;
    gradients[17] = NAN;
    EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &batch.batch, true, NULL));
    EXPECT_OK(yoke_data_parallel_backward(engine.parallel, gradients));
    uint64_t before = check_hash(engine.parallel);
    assert_int_equal(yoke_data_parallel_update(engine.parallel, 0.1), YOKE_ERROR_NUMERIC);
    assert_non_null(strstr(yoke_last_error(), "the gradient of fc.bias is not finite"));
    assert_true(before == check_hash(engine.parallel));
    gradients[17] = 0;
    EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &batch.batch, true, NULL));
    EXPECT_OK(yoke_data_parallel_backward(engine.parallel, gradients));
    EXPECT_OK(yoke_data_parallel_update(engine.parallel, 0.1));
    check_batch_free(&batch);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

static void a_gradient_updates_once(void **state) {
    (void)state;
    const mode by_hand = {.schedule = YOKE_SCHEDULE_CLASSIC, .devices = 2, .by_hand = true};
    yoke_model *model = hiding_model();
    yoke_optimizer_options optimizer = optimizer_for(&by_hand);
    check_engine engine = check_engine_make(model, 2, options_for(&by_hand), &optimizer);
    check_batch batch = check_batch_make(ROWS, 1);
    float bias[CHECK_CLASSES];
    EXPECT_OK(step_by_hand(engine.parallel, &batch.batch));
    uint64_t once = check_hash(engine.parallel);
    assert_int_equal(yoke_data_parallel_update(engine.parallel, 0.1), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "in the weights already"));
    EXPECT_OK(yoke_data_parallel_reduce(engine.parallel)); /* nothing new to reduce */
    assert_int_equal(yoke_data_parallel_update(engine.parallel, 0.1), YOKE_ERROR_ARGUMENT);
    assert_true(once == check_hash(engine.parallel));
    EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &batch.batch, true, NULL));
    EXPECT_OK(yoke_data_parallel_backward(engine.parallel, NULL));
    EXPECT_OK(yoke_data_parallel_read_gradient(engine.parallel, "fc.bias", bias, CHECK_CLASSES));
    EXPECT_OK(yoke_data_parallel_write_gradient(engine.parallel, "fc.bias", bias, CHECK_CLASSES));
    EXPECT_OK(yoke_data_parallel_update(engine.parallel, 0.1));
    EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch, 0.1, NULL));
    assert_int_equal(yoke_data_parallel_update(engine.parallel, 0.1), YOKE_ERROR_ARGUMENT);
    check_batch_free(&batch);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

/* The switch: gradients go unchecked, except by clipping. */
static void a_skipped_check_lets_the_gradient_pass(void **state) {
    (void)state;
    for (int schedule = 0; schedule < 3; schedule++) {
        const mode skipping = {.schedule = (yoke_schedule)schedule, .devices = 2};
        yoke_model *model = hiding_model();
        yoke_optimizer_options optimizer = optimizer_for(&skipping);
        yoke_data_parallel_options options = options_for(&skipping);
        check_engine twin = check_engine_make(model, 2, options, &optimizer);
        options.skip_finite_check = true;
        check_engine engine = check_engine_make(model, 2, options, &optimizer);
        step_well(&skipping, engine.parallel, 0);
        step_well(&skipping, twin.parallel, 0);
        assert_true(check_hash(engine.parallel) == check_hash(twin.parallel));
        check_batch batch = check_batch_make(ROWS, 77);
        batch.inputs[5] = NAN;
        if (devices_are_cpus()) EXPECT_OK(step_on(&skipping, engine.parallel, &batch.batch));
        check_batch_free(&batch);
        check_engine_free(&engine);
        check_engine_free(&twin);
        yoke_model_destroy(model);
    }
}

/* DDP: rank 1 alone has the NaN. */

static yoke_status numeric_only(yoke_data_parallel *parallel, const yoke_batch *batch) {
    yoke_status status =
        yoke_data_parallel_step(parallel, batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL);
    if (status == YOKE_ERROR_NUMERIC && strstr(yoke_last_error(), "gradient of conv1.weight"))
        return YOKE_OK;
    return FAIL(YOKE_ERROR_INTERNAL, "the bad step: %s: %s", yoke_status_name(status),
                yoke_last_error());
}

static yoke_status train_ranks(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    rank_rig rig = {0};
    uint64_t *hash = &plan->records[group->rank].hash;
    bool spoils = plan->records[group->rank].correct != 0;
    yoke_status status = begin_rank(&rig, plan, play, group);
    for (uint32_t step = 0; step < 4 && status == YOKE_OK; step++) {
        check_batch whole = check_batch_make(8, step);
        yoke_batch batch = part_of(plan->setting, &whole, group->world, group->rank);
        if (spoils && step == 2) {
            whole.inputs[5 * CHECK_ROW + 3] = NAN;
            status = numeric_only(rig.parallel, &batch);
            whole.inputs[5 * CHECK_ROW + 3] =
                (float)(2 * check_noise(5 * CHECK_ROW + 3 + 7919u * step));
        }
        if (status == YOKE_OK)
            status =
                yoke_data_parallel_step(rig.parallel, &batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL);
        check_batch_free(&whole);
    }
    if (status == YOKE_OK) status = yoke_data_parallel_hash(rig.parallel, hash);
    return end_rank(&rig, status);
}

static void ranks_agree_about_a_bad_gradient(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    for (int kind = 0; kind < 16; kind++) {
        yoke_model *model = hiding_model();
        const ddp_setting s = {.sharded = (kind & 1) != 0,
                               .clip = (kind & 2) != 0,
                               .adamw = (kind & 4) != 0,
                               .batch = 8,
                               .accumulate = kind & 8 ? 2 : 1};
        record clean[2] = {{0}}, spoilt[2] = {{.correct = 1}, {.correct = 1}};
        for (int run = 0; run < 2; run++) {
            course plan = {.setting = &s, .model = model, .records = run ? spoilt : clean};
            script play = {
                .world = 2, .timeout_ms = TIMEOUT_MS, .scene = train_ranks, .detail = &plan};
            outcome *outcomes = play_ranks(&play);
            expect_all_well(outcomes, play.world);
            free(outcomes);
        }
        for (int rank = 0; rank < 2; rank++)
            assert_true(clean[rank].hash == spoilt[rank].hash);
        yoke_model_destroy(model);
    }
}

int main(void) {
    alarm(SECONDS); /* a worker that waits for another one ends the test */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nan_through_relu_ends_the_step_and_leaves_no_trace),
        cmocka_unit_test(an_overflow_of_backward_ends_the_step_and_leaves_no_trace),
        cmocka_unit_test(nan_output_gradients_by_hand_are_refused_at_the_update),
        cmocka_unit_test(a_gradient_updates_once),
        cmocka_unit_test(a_skipped_check_lets_the_gradient_pass),
        cmocka_unit_test(ranks_agree_about_a_bad_gradient),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}

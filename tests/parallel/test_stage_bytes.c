/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes that the stage table shows are those that each stage must move, by hand calculation.
 * Every byte counts once where it is read and once where it is written. */
#include "support/ddp_check.h"

/* Whole cache lines: the flat buffer has no gaps. */
enum { IN = 16, HIDDEN = 32, OUT = 16, WEIGHTS = IN * HIDDEN + HIDDEN * OUT, ROWS = 12, FLOAT = 4 };

static const yoke_optimizer_options momentum = {
    .struct_size = sizeof momentum, .kind = YOKE_SGD, .learning_rate = 0.1, .momentum = 0.9};
enum {
    CHECK_FLOATS = 1, /* reads the gradient */
    UPDATE_FLOATS = 5 /* reads weight, gradient, velocity; writes weight, velocity */
};

static yoke_model *flat_model(void) {
    yoke_model *model = NULL;
    yoke_linear_options fc1 = YOKE_LINEAR_OPTIONS_INIT, fc2 = YOKE_LINEAR_OPTIONS_INIT;
    fc1.name = "fc1";
    fc1.out_features = HIDDEN;
    fc2.name = "fc2";
    fc2.out_features = OUT;
    fc1.no_bias = fc2.no_bias = true;
    EXPECT_OK(yoke_model_create(&model, "flat", (yoke_shape){IN, 1, 1, true}));
    yoke_value value = yoke_relu(model, yoke_linear(model, yoke_model_input(model), &fc1));
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, value, &fc2), NULL));
    assert_int_equal(yoke_model_parameter_count(model), WEIGHTS);
    return model;
}

typedef struct flat_batch {
    float inputs[ROWS * IN];
    int32_t labels[ROWS];
    yoke_batch batch;
} flat_batch;

static void fill_batch(flat_batch *made, int rows) {
    for (uint32_t i = 0; i < ROWS * IN; i++)
        made->inputs[i] = (float)check_noise(i);
    for (int i = 0; i < ROWS; i++)
        made->labels[i] = i % OUT;
    made->batch = (yoke_batch){.struct_size = sizeof made->batch,
                               .rows = rows,
                               .inputs = made->inputs,
                               .labels = made->labels};
}

static yoke_data_parallel_options flat_options(yoke_schedule schedule) {
    return (yoke_data_parallel_options){.struct_size = sizeof(yoke_data_parallel_options),
                                        .schedule = schedule,
                                        .algorithm = YOKE_ALGORITHM_DIRECT,
                                        .batch = ROWS,
                                        .first_bucket_bytes = 256,
                                        .bucket_bytes = 1024,
                                        .time_devices = true};
}

static void expect_bytes(yoke_data_parallel *parallel, yoke_stage stage, int floats) {
    double shown = check_bytes(parallel, stage);
    if (shown != (double)floats * FLOAT)
        fail_msg("%s shows %g bytes, it moves %d", yoke_stage_name(stage), shown, floats * FLOAT);
}

/* The first step begins with equal replicas, so the second one is looked at. */
static check_engine after_two_steps(const yoke_model *model, yoke_schedule schedule, int devices,
                                    int rows) {
    flat_batch batch;
    check_engine engine = check_engine_make(model, devices, flat_options(schedule), &momentum);
    fill_batch(&batch, rows);
    for (int step = 0; step < 2; step++) {
        yoke_trace_reset(yoke_data_parallel_trace(engine.parallel));
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                          YOKE_OPTIMIZER_LEARNING_RATE, NULL));
    }
    return engine;
}

/* nn.DataParallel: inputs and output gradients out, outputs in, gradients in, weights out. */
static void classic_moves_what_nn_data_parallel_moves(void **state) {
    (void)state;
    yoke_model *model = flat_model();
    for (int devices = 1; devices <= 4; devices++)
        for (int rows = 2; rows <= ROWS; rows += ROWS - 2) { /* 2: some devices are idle */
            int busy = rows < devices ? rows : devices;
            check_engine engine = after_two_steps(model, YOKE_SCHEDULE_CLASSIC, devices, rows);
            expect_bytes(engine.parallel, YOKE_STAGE_SCATTER, 2 * rows * IN + 2 * rows * OUT);
            expect_bytes(engine.parallel, YOKE_STAGE_GATHER, 2 * rows * OUT);
            expect_bytes(engine.parallel, YOKE_STAGE_REPLICATE, 2 * (devices - 1) * WEIGHTS);
            if (devices_are_cpus()) { /* queued: these stages show no bytes */
                expect_bytes(engine.parallel, YOKE_STAGE_REDUCE,
                             busy > 1 ? (busy + 1) * WEIGHTS : 0);
                expect_bytes(engine.parallel, YOKE_STAGE_UPDATE,
                             (CHECK_FLOATS + UPDATE_FLOATS) * WEIGHTS);
            }
            check_engine_free(&engine);
        }
    yoke_model_destroy(model);
}

/* Where every device owns a part, a bucket ends with a whole line of each: here a bucket is the
 * matrix of a layer. */
static int weights_in_parts(int owners) {
    int lines = 16 * owners;
    return (IN * HIDDEN + lines - 1) / lines * lines + (HIDDEN * OUT + lines - 1) / lines * lines;
}

/* Two passes: one sums, which checks on the way, or checks a gradient that needs no sum; after the
 * last bucket the other one updates and publishes. */
static void overlap_and_sharded_move_less_and_replicate_nothing(void **state) {
    (void)state;
    yoke_model *model = flat_model();
    for (int devices = 1; devices <= 4; devices++)
        for (int sharded = 0; sharded < 2; sharded++) {
            check_engine engine = after_two_steps(
                model, sharded ? YOKE_SCHEDULE_SHARDED : YOKE_SCHEDULE_OVERLAP, devices, ROWS);
            expect_bytes(engine.parallel, YOKE_STAGE_SCATTER, 2 * ROWS * IN);
            expect_bytes(engine.parallel, YOKE_STAGE_REPLICATE, 0);
            if (devices_are_cpus())
                expect_bytes(
                    engine.parallel, YOKE_STAGE_EXCHANGE,
                    ((devices > 1 ? devices + 1 : CHECK_FLOATS) + UPDATE_FLOATS + devices - 1) *
                        weights_in_parts(sharded ? devices : 1));
            check_engine_free(&engine);
        }
    yoke_model_destroy(model);
}

/* The row of an all-reduce counts the whole collective, as every rank sees it: it reads each rank's
 * gradients and writes the sum to each. An update is the rank's own. */
static yoke_status step_twice(yoke_process_group *group, const script *play) {
    const yoke_model *model = play->detail;
    double *shown = play->shared;
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = "cpu", .threads = 1, .unbound = true};
    yoke_data_parallel_options options = flat_options(YOKE_SCHEDULE_OVERLAP);
    flat_batch batch;
    options.process_group = group;
    fill_batch(&batch, ROWS / group->world);
    TRY(yoke_devices_open(&devices, &open));
    yoke_status status = yoke_data_parallel_create(&parallel, model, devices, &momentum, &options);
    if (status == YOKE_OK) status = yoke_data_parallel_step(parallel, &batch.batch, 0.1, NULL);
    if (status == YOKE_OK) {
        shown[2 * group->rank] = check_bytes(parallel, YOKE_STAGE_ALL_REDUCE);
        shown[2 * group->rank + 1] = check_bytes(parallel, YOKE_STAGE_UPDATE);
    }
    yoke_error error = yoke_error_take(status);
    yoke_data_parallel_destroy(parallel);
    yoke_devices_close(devices);
    return yoke_error_restore(&error);
}

static void ddp_all_reduces_each_gradient_once_and_every_rank_updates(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    yoke_model *model = flat_model();
    for (int world = 1; world <= 4; world++) {
        double shown[8] = {0};
        script play = {.world = world,
                       .timeout_ms = TIMEOUT_MS,
                       .scene = step_twice,
                       .detail = model,
                       .shared = shown};
        outcome *outcomes = play_threads(&play);
        expect_all_well(outcomes, world);
        free(outcomes);
        for (int rank = 0; rank < world; rank++) {
            assert_true(shown[2 * rank] == 2.0 * world * WEIGHTS * FLOAT);
            assert_true(shown[2 * rank + 1] == (double)UPDATE_FLOATS * WEIGHTS * FLOAT);
        }
    }
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classic_moves_what_nn_data_parallel_moves),
        cmocka_unit_test(overlap_and_sharded_move_less_and_replicate_nothing),
        cmocka_unit_test(ddp_all_reduces_each_gradient_once_and_every_rank_updates),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}

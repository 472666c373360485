/* SPDX-License-Identifier: Apache-2.0 */
/* A model of two inputs and two outputs on any number of devices: as in PyTorch, and the same by
 * hand, in whole steps and in ranks. */
#include "siamese.h"
#include "support/process_ranks.h"

enum { STEPS = 6 };

static const yoke_optimizer_options sgd = {
    .struct_size = sizeof sgd, .learning_rate = 0.05, .momentum = 0.9};

static yoke_data_parallel_options options_of(yoke_schedule schedule) {
    yoke_data_parallel_options options = pair_options(schedule);
    options.input_gradients = true;
    return options;
}

/* PyTorch. */

static void compare_entries(const json_t *wanted, const float *values, const char *what) {
    size_t i;
    const json_t *entry;
    assert_true(json_array_size(wanted) > 0);
    json_array_foreach(wanted, i, entry) {
        size_t at = (size_t)json_integer_value(json_array_get(entry, 0));
        near((double)values[at], json_number_value(json_array_get(entry, 1)), VALUE_TOLERANCE, 1,
             what);
    }
}

static void compare_first_step(const test_rig *rig, const pair_batch *batch,
                               const json_t *fixture) {
    pair_outputs outputs;
    float gradients[MAX_ROWS * PAIR_ROW];
    const json_t *wanted = json_object_get(fixture, "outputs");
    const json_t *slopes = json_object_get(fixture, "input_gradients");
    must(yoke_data_parallel_forward_outputs(rig->parallel, &batch->batch, false,
                                            (float *const[]){outputs.head, outputs.side}));
    compare_entries(json_array_get(wanted, 0), outputs.head, "output 0");
    compare_entries(json_array_get(wanted, 1), outputs.side, "output 1");
    pair_gradient(rig->parallel, batch);
    for (int k = 0; k < 2; k++) {
        must(yoke_data_parallel_read_input_gradients_of(rig->parallel, k, gradients));
        compare_entries(json_array_get(slopes, (size_t)k), gradients, "an input's gradient");
    }
    compare_tensors(rig, json_object_get(fixture, "gradients"), yoke_data_parallel_read_gradient);
}

static void train_as_pytorch(const json_t *fixture, int devices, yoke_schedule schedule) {
    test_rig rig = {.model = siamese_model((siamese_options){0})};
    check_engine engine = check_engine_make(rig.model, devices, options_of(schedule), &sgd);
    rig.parallel = engine.parallel;
    write_weights(&rig, json_object_get(fixture, "tensors"));
    for (int step = 0; step < STEPS; step++) {
        pair_batch batch;
        pair_batch_make(&batch, (int)real_at(fixture, "rows", (size_t)step), (uint32_t)step);
        if (step == 0) compare_first_step(&rig, &batch, fixture);
        near(pair_gradient(rig.parallel, &batch), real_at(fixture, "losses", (size_t)step),
             LOSS_TOLERANCE, 0, "loss");
        must(yoke_data_parallel_update(rig.parallel, real(fixture, "learning_rate")));
    }
    compare_tensors(&rig, json_object_get(fixture, "weights"), yoke_data_parallel_read);
    check_engine_free(&engine);
    yoke_model_destroy(rig.model);
}

static void two_inputs_and_two_outputs_train_as_in_pytorch(void **state) {
    (void)state;
    json_t *fixture = read_fixture("several");
    for (int devices = 1; devices <= 4; devices++)
        train_as_pytorch(fixture, devices, YOKE_SCHEDULE_OVERLAP);
    train_as_pytorch(fixture, 2, YOKE_SCHEDULE_CLASSIC);
    train_as_pytorch(fixture, 3, YOKE_SCHEDULE_SHARDED);
    json_decref(fixture);
}

/* Weights moved along the gradient g by e change the loss by e |g|^2. */
static void the_gradient_is_the_slope_of_a_loss_of_both_outputs(void **state) {
    (void)state;
    yoke_model *model = siamese_model((siamese_options){0});
    check_engine engine = check_engine_make(model, 3, options_of(YOKE_SCHEDULE_OVERLAP), &sgd);
    yoke_data_parallel *parallel = engine.parallel;
    pair_batch batch;
    pair_batch_make(&batch, 5, 1);
    pair_gradient(parallel, &batch);
    for (int i = 0; i < yoke_model_tensor_count(model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        float weights[512], slope[512], moved[512];
        double losses[2], square = 0;
        must(yoke_model_tensor(model, i, &info));
        pair_gradient(parallel, &batch);
        must(yoke_data_parallel_read(parallel, info.name, weights, info.count));
        must(yoke_data_parallel_read_gradient(parallel, info.name, slope, info.count));
        for (size_t k = 0; k < info.count; k++)
            square += (double)slope[k] * (double)slope[k];
        double step = 0.02 / sqrt(square);
        for (int side = 0; side < 2; side++) {
            for (size_t k = 0; k < info.count; k++)
                moved[k] = weights[k] + (float)(side == 0 ? step : -step) * slope[k];
            must(yoke_data_parallel_write(parallel, info.name, moved, info.count));
            losses[side] = pair_gradient(parallel, &batch);
        }
        must(yoke_data_parallel_write(parallel, info.name, weights, info.count));
        double measured = (losses[0] - losses[1]) / (2 * step);
        if (!(square > 0 && fabs(measured - square) <= 0.02 * square))
            fail_msg("%s: slope %g, gradient %g", info.name, measured, square);
    }
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

/* Whole steps. */

typedef struct run {
    float *weights;
    size_t count;
    double losses[STEPS];
} run;

static run train(const yoke_model *model, int devices, yoke_data_parallel_options options) {
    run made = {0};
    options.input_gradients = options.accumulate <= 1;
    check_engine engine = check_engine_make(model, devices, options, &sgd);
    for (int step = 0; step < STEPS; step++) {
        pair_batch batch;
        yoke_step_result result = {.struct_size = sizeof result};
        pair_batch_make(&batch, pair_rows(step), (uint32_t)step);
        must(yoke_data_parallel_step(engine.parallel, &batch.batch, YOKE_OPTIMIZER_LEARNING_RATE,
                                     &result));
        made.losses[step] = result.loss;
    }
    made.weights = check_read_all(engine.parallel, model, false, &made.count);
    check_engine_free(&engine);
    return made;
}

static void expect_like(run *got, const run *wanted, const char *what) {
    for (int step = 0; step < STEPS; step++)
        if (!(fabs(got->losses[step] - wanted->losses[step]) <= 1e-6 * wanted->losses[step]))
            fail_msg("%s, step %d: loss %.9g, wanted %.9g", what, step, got->losses[step],
                     wanted->losses[step]);
    assert_int_equal(got->count, wanted->count);
    double distance = check_relative(got->weights, wanted->weights, got->count);
    if (!(distance <= 2e-6)) fail_msg("%s: weights differ by %g", what, distance);
    free(got->weights);
}

/* Ragged batches, idle devices, micro-batches, dropout, every schedule. */
static void any_number_of_devices_learns_what_one_does(void **state) {
    (void)state;
    static const yoke_schedule schedules[] = {YOKE_SCHEDULE_OVERLAP, YOKE_SCHEDULE_CLASSIC,
                                              YOKE_SCHEDULE_SHARDED};
    yoke_model *model = siamese_model((siamese_options){.dropout = 0.2});
    run one = train(model, 1, options_of(YOKE_SCHEDULE_OVERLAP));
    for (int devices = 1; devices <= 4; devices++)
        for (int s = 0; s < 3; s++)
            for (int accumulate = 1; accumulate <= 3; accumulate += 2) {
                char what[64];
                yoke_data_parallel_options options = options_of(schedules[s]);
                options.accumulate = accumulate;
                snprintf(what, sizeof what, "%d devices, schedule %d, accumulate %d", devices,
                         (int)schedules[s], accumulate);
                run several = train(model, devices, options);
                expect_like(&several, &one, what);
            }
    free(one.weights);
    yoke_model_destroy(model);
}

/* Running statistics of a batch norm behind the second input, too. */
static void stages_by_hand_learn_what_whole_steps_do(void **state) {
    (void)state;
    yoke_model *model = siamese_model((siamese_options){.norm = true});
    check_engine engine = check_engine_make(model, 2, options_of(YOKE_SCHEDULE_OVERLAP), &sgd);
    run steps = train(model, 2, options_of(YOKE_SCHEDULE_OVERLAP)), hand = {0};
    for (int step = 0; step < STEPS; step++) {
        pair_batch batch;
        yoke_step_result result = {.struct_size = sizeof result};
        pair_batch_make(&batch, pair_rows(step), (uint32_t)step);
        must(yoke_data_parallel_forward(engine.parallel, &batch.batch, true, NULL));
        must(yoke_data_parallel_backward(engine.parallel, NULL));
        must(yoke_data_parallel_update(engine.parallel, YOKE_OPTIMIZER_LEARNING_RATE));
        must(yoke_data_parallel_gather(engine.parallel, &result));
        hand.losses[step] = result.loss;
    }
    hand.weights = check_read_all(engine.parallel, model, false, &hand.count);
    expect_like(&hand, &steps, "by hand");
    free(steps.weights);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

/* Gradients that a caller once gave output 1 must not stay for a loss that reads output 0. */
static void check_side_stays(yoke_schedule schedule, int accumulate) {
    enum { COUNT = PAIR_SIDE * PAIR_HIDDEN };
    yoke_model *model = siamese_model((siamese_options){0});
    yoke_optimizer_options plain = {.struct_size = sizeof plain, .learning_rate = 0.05};
    yoke_data_parallel_options options = options_of(schedule);
    options.accumulate = accumulate;
    options.input_gradients = false;
    check_engine engine = check_engine_make(model, 2, options, &plain);
    float before[COUNT], after[COUNT], head[2][PAIR_CLASSES];
    pair_batch batch;
    pair_batch_make(&batch, MAX_ROWS / accumulate, 1);
    pair_gradient(engine.parallel, &batch);
    must(yoke_data_parallel_read(engine.parallel, "side.weight", before, COUNT));
    must(yoke_data_parallel_read(engine.parallel, "head.bias", head[0], PAIR_CLASSES));
    pair_batch_make(&batch, MAX_ROWS, 1);
    for (int step = 0; step < 2; step++)
        must(yoke_data_parallel_step(engine.parallel, &batch.batch, YOKE_OPTIMIZER_LEARNING_RATE,
                                     NULL));
    must(yoke_data_parallel_read(engine.parallel, "side.weight", after, COUNT));
    must(yoke_data_parallel_read(engine.parallel, "head.bias", head[1], PAIR_CLASSES));
    assert_memory_equal(before, after, sizeof before);
    assert_memory_not_equal(head[0], head[1], sizeof head[0]);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

static void the_models_loss_gives_other_outputs_no_gradient(void **state) {
    (void)state;
    for (int schedule = 0; schedule <= YOKE_SCHEDULE_SHARDED; schedule++)
        for (int accumulate = 1; accumulate <= 2; accumulate++)
            check_side_stays((yoke_schedule)schedule, accumulate);
}

static void an_output_without_a_gradient_counts_as_zeros(void **state) {
    (void)state;
    yoke_model *model = siamese_model((siamese_options){0});
    check_engine engine = check_engine_make(model, 2, options_of(YOKE_SCHEDULE_OVERLAP), &sgd);
    pair_batch batch;
    pair_outputs outputs, gradients;
    float *const wanted[] = {NULL, outputs.side};
    float slope[2][PAIR_CLASSES * PAIR_HIDDEN];
    pair_batch_make(&batch, 5, 1);
    for (int form = 0; form < 2; form++) {
        const float *given[2] = {NULL, gradients.side};
        pair_gradient(engine.parallel, &batch); /* leaves gradients of both */
        must(yoke_data_parallel_forward_outputs(engine.parallel, &batch.batch, true, wanted));
        memset(&gradients, 0, sizeof gradients);
        for (int i = 0; i < 5 * PAIR_SIDE; i++)
            gradients.side[i] = outputs.side[i];
        if (form == 1) given[0] = gradients.head; /* zeros */
        must(yoke_data_parallel_backward_outputs(engine.parallel, given));
        must(yoke_data_parallel_read_gradient(engine.parallel, "head.weight", slope[form],
                                              PAIR_CLASSES * PAIR_HIDDEN));
        for (int i = 0; i < PAIR_CLASSES * PAIR_HIDDEN; i++)
            assert_true(slope[form][i] == 0);
        must(
            yoke_data_parallel_read_gradient(engine.parallel, "side.bias", slope[form], PAIR_SIDE));
        assert_true(slope[form][0] != 0);
    }
    assert_memory_equal(slope[0], slope[1], PAIR_SIDE * sizeof(float));
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

/* Ranks: each brings its rows of every input. */

typedef struct course {
    const yoke_model *model;
    run *runs; /* [world] */
} course;

static yoke_status train_in_rank(yoke_data_parallel *parallel, int world, int rank, run *made) {
    for (int step = 0; step < STEPS; step++) {
        pair_batch whole;
        yoke_step_result result = {.struct_size = sizeof result};
        pair_batch_make(&whole, pair_rows(step), (uint32_t)step);
        pair_batch_cut(&whole, world, rank);
        TRY(yoke_data_parallel_step(parallel, &whole.batch, YOKE_OPTIMIZER_LEARNING_RATE, &result));
        made->losses[step] = result.loss;
    }
    return YOKE_OK;
}

static yoke_status train_rank(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    run *made = &plan->runs[group->rank];
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = "cpu", .threads = 1, .unbound = true};
    yoke_data_parallel_options options = options_of(YOKE_SCHEDULE_OVERLAP);
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    options.process_group = group;
    yoke_status status = yoke_devices_open(&devices, &open);
    if (status == YOKE_OK)
        status = yoke_data_parallel_create(&parallel, plan->model, devices, &sgd, &options);
    if (status == YOKE_OK) status = train_in_rank(parallel, group->world, group->rank, made);
    if (status == YOKE_OK)
        made->weights = check_read_all(parallel, plan->model, false, &made->count);
    yoke_error error = yoke_error_take(status);
    yoke_data_parallel_destroy(parallel);
    yoke_devices_close(devices);
    return status == YOKE_OK ? YOKE_OK : yoke_error_restore(&error);
}

static void ranks_learn_what_devices_do(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    yoke_model *model = siamese_model((siamese_options){.dropout = 0.2});
    for (int world = 2; world <= 3; world++) {
        run ranks[3] = {0}, devices = train(model, world, options_of(YOKE_SCHEDULE_OVERLAP));
        course plan = {.model = model, .runs = ranks};
        script play = {
            .world = world, .timeout_ms = TIMEOUT_MS, .scene = train_rank, .detail = &plan};
        outcome *outcomes = play_threads(&play);
        expect_all_well(outcomes, world);
        free(outcomes);
        for (int rank = 0; rank < world; rank++)
            expect_like(&ranks[rank], &devices, "a rank");
        free(devices.weights);
    }
    yoke_model_destroy(model);
}

/* What nn.DataParallel cuts to the shortest, or pairs wrongly. */

static void expect_refused(yoke_data_parallel *parallel, const yoke_batch *batch,
                           const char *words) {
    float outputs[MAX_ROWS * PAIR_CLASSES];
    assert_int_equal(yoke_data_parallel_step(parallel, batch, 0, NULL), YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", yoke_last_error(), words);
    assert_int_equal(yoke_data_parallel_forward(parallel, batch, false, outputs),
                     YOKE_ERROR_ARGUMENT);
}

static void inputs_that_do_not_fit_the_model_are_refused(void **state) {
    (void)state;
    yoke_model *model = siamese_model((siamese_options){0}), *single = check_model(false, 0);
    check_engine engine = check_engine_make(model, 2, options_of(YOKE_SCHEDULE_OVERLAP), &sgd);
    pair_batch batch;
    pair_batch_make(&batch, 5, 1);
    yoke_batch bad = batch.batch;
    bad.more_inputs = NULL;
    expect_refused(engine.parallel, &bad, "the batch has 1 input, model 'siamese' reads 2");
    bad = batch.batch;
    bad.more_input_count = 0;
    expect_refused(engine.parallel, &bad, "the batch has 1 input, model 'siamese' reads 2");
    bad.more_input_count = 2;
    expect_refused(engine.parallel, &bad, "the batch has 3 inputs, model 'siamese' reads 2");
    const float *none[] = {NULL};
    bad = batch.batch;
    bad.more_inputs = none;
    expect_refused(engine.parallel, &bad, "input 1 of the batch, 'right', is NULL");
    bad = batch.batch;
    bad.more_inputs_counts = (const size_t[]){4 * PAIR_ROW};
    expect_refused(engine.parallel, &bad, "right hold 288 values, but its 5 rows of 72 are 360");
    float gradients[MAX_ROWS * PAIR_ROW];
    batch.batch.more_inputs_counts = (const size_t[]){5 * PAIR_ROW};
    pair_gradient(engine.parallel, &batch);
    assert_int_equal(yoke_data_parallel_read_input_gradients_of(engine.parallel, 2, gradients),
                     YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "input 2: model 'siamese' has 0 to 1"));
    check_engine_free(&engine);

    engine = check_engine_make(single, 2, options_of(YOKE_SCHEDULE_OVERLAP), &sgd);
    expect_refused(engine.parallel, &batch.batch, "the batch has 2 inputs, model 'small' reads 1");
    check_engine_free(&engine);
    yoke_model_destroy(single);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_inputs_and_two_outputs_train_as_in_pytorch),
        cmocka_unit_test(the_gradient_is_the_slope_of_a_loss_of_both_outputs),
        cmocka_unit_test(any_number_of_devices_learns_what_one_does),
        cmocka_unit_test(stages_by_hand_learn_what_whole_steps_do),
        cmocka_unit_test(the_models_loss_gives_other_outputs_no_gradient),
        cmocka_unit_test(an_output_without_a_gradient_counts_as_zeros),
        cmocka_unit_test(ranks_learn_what_devices_do),
        cmocka_unit_test(inputs_that_do_not_fit_the_model_are_refused),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Synchronised batch norm: any number of devices, or of ranks, computes what one device computes
 * over the whole batch. Calls wrapped by the linker (-Wl,--wrap) fail on one of them. */
#include <stdatomic.h>

#include "bench/floor/floor.h"
#include "model/graph.h"
#include "support/ddp_check.h"

/* A model with every form of batch norm: of the inputs; with ReLU; with add and ReLU; alone; and,
 * if `flat`, of one pixel. */

static yoke_value norm(yoke_model *model, yoke_value value, const char *name) {
    yoke_batch_norm_options options = {
        .struct_size = sizeof options, .name = name, .epsilon = 1e-5, .momentum = 0.1};
    return yoke_batch_norm(model, value, &options);
}

static yoke_value convolve(yoke_model *model, yoke_value value, const char *name) {
    yoke_conv2d_options options = {.struct_size = sizeof options,
                                   .name = name,
                                   .out_channels = 8,
                                   .kernel = 3,
                                   .padding = 1,
                                   .no_bias = true};
    return yoke_conv2d(model, value, &options);
}

static yoke_value connect(yoke_model *model, yoke_value value, const char *name, int features) {
    yoke_linear_options options = {
        .struct_size = sizeof options, .name = name, .out_features = features};
    return yoke_linear(model, value, &options);
}

static yoke_model *make_model(bool flat) {
    yoke_model *model = NULL;
    EXPECT_OK(yoke_model_create(&model, "norms",
                                (yoke_shape){CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE, false}));
    yoke_value x = norm(model, yoke_model_input(model), "bn0");
    x = yoke_relu(model, norm(model, convolve(model, x, "conv1"), "bn1"));
    yoke_value y = norm(model, convolve(model, x, "conv2"), "bn2");
    x = norm(model, yoke_relu(model, yoke_add(model, y, x)), "bn3");
    x = yoke_flatten(model, yoke_global_average_pool(model, x));
    x = connect(model, x, "fc1", 12);
    x = yoke_relu(model, flat ? norm(model, x, "bn4") : x);
    EXPECT_OK(yoke_model_finish(model, connect(model, x, "fc2", CHECK_CLASSES), NULL));
    return model;
}

/* Against the whole batch in double. */

static float *read_tensor(yoke_data_parallel *parallel, const yoke_tensor *tensor, bool gradient) {
    float *values = malloc(tensor->count * sizeof *values);
    EXPECT_OK(gradient
                  ? yoke_data_parallel_read_gradient(parallel, tensor->name, values, tensor->count)
                  : yoke_data_parallel_read(parallel, tensor->name, values, tensor->count));
    return values;
}

/* Scales, shifts and running statistics away from 1 and 0; all tensors into the reference. */
static void stir(yoke_data_parallel *parallel, yoke_float64_model *r) {
    for (int i = 0; i < r->model->tensor_count; i++) {
        const yoke_tensor *tensor = &r->model->tensors[i];
        if (tensor->integer) continue;
        float *values = read_tensor(parallel, tensor, false);
        for (size_t k = 0; k < tensor->count; k++) {
            if (tensor->ndim == 1) values[k] += (float)(0.6 * check_noise((uint32_t)(97 * k) + 5));
            r->tensors[i][k] = (double)values[k];
        }
        EXPECT_OK(yoke_data_parallel_write(parallel, tensor->name, values, tensor->count));
        free(values);
    }
}

/* A batch norm behind it makes the gradient of some shifts 0. */
static void expect_values(const char *name, const float *got, const double *wanted, size_t count) {
    double largest = 0.1, distance = 0;
    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs(wanted[i]));
        distance = fmax(distance, fabs((double)got[i] - wanted[i]));
    }
    if (!(distance <= 5e-5 * largest)) fail_msg("%s: off by %g of %g", name, distance, largest);
}

static void expect_reference(yoke_data_parallel *parallel, yoke_float64_model *r,
                             const float *outputs) {
    size_t inputs = (size_t)r->rows * CHECK_ROW;
    float *input_gradients = malloc(inputs * sizeof *input_gradients);
    expect_values("outputs", outputs, r->values[r->model->outputs[0].value],
                  (size_t)(r->rows * CHECK_CLASSES));
    EXPECT_OK(yoke_data_parallel_read_input_gradients(parallel, input_gradients));
    expect_values("gradients of the inputs", input_gradients, r->gradients[0], inputs);
    free(input_gradients);
    for (int i = 0; i < r->model->tensor_count; i++) {
        const yoke_tensor *tensor = &r->model->tensors[i];
        if (tensor->integer) continue;
        float *values = read_tensor(parallel, tensor, tensor->trainable);
        expect_values(tensor->name, values,
                      tensor->trainable ? r->tensor_gradients[i] : r->tensors[i], tensor->count);
        free(values);
    }
}

static void compare_with_reference(int devices, int rows, yoke_schedule schedule) {
    yoke_model *model = make_model(true);
    yoke_float64_model *r = NULL;
    check_batch batch = check_batch_make(rows, 11);
    float outputs[16 * CHECK_CLASSES];
    EXPECT_OK(yoke_float64_create(&r, model, rows));
    check_engine engine = check_engine_make(model, devices,
                                            (yoke_data_parallel_options){
                                                .schedule = schedule,
                                                .algorithm = YOKE_ALGORITHM_DIRECT,
                                                .batch = 9,
                                                .seed = 5,
                                                .first_bucket_bytes = 256,
                                                .bucket_bytes = 1024,
                                                .input_gradients = true,
                                                .synchronize_batch_norm = true,
                                            },
                                            NULL);
    stir(engine.parallel, r);
    r->labels = batch.labels;
    r->loss_scale = 1.0 / rows;
    yoke_float64_forward(r, (const float *const[]){batch.inputs});
    yoke_float64_loss(r);
    yoke_float64_backward(r);
    EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &batch.batch, true, outputs));
    EXPECT_OK(yoke_data_parallel_backward(engine.parallel, NULL));
    expect_reference(engine.parallel, r, outputs);
    check_engine_free(&engine);
    check_batch_free(&batch);
    yoke_float64_destroy(r);
    yoke_model_destroy(model);
}

/* 9 rows on 4 devices are 3, 3, 3, 0; 5 on 4 are 2, 2, 1, 0; 2 leave two idle. */
static void devices_compute_what_the_whole_batch_gives_in_double(void **state) {
    (void)state;
    static const int rows[] = {9, 7, 5, 3, 2};
    for (int devices = 1; devices <= 4; devices++)
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
            compare_with_reference(devices, rows[i],
                                   i % 2 == 0 ? YOKE_SCHEDULE_OVERLAP : YOKE_SCHEDULE_CLASSIC);
}

/* Whole steps of devices. */

static record train_devices(const ddp_setting *s, const yoke_model *model, int devices,
                            yoke_schedule schedule) {
    record result = {0};
    yoke_optimizer_options optimizer = optimizer_of(s);
    yoke_data_parallel_options options = options_of(s);
    options.schedule = schedule;
    check_engine engine = check_engine_make(model, devices, options, &optimizer);
    EXPECT_OK(train(engine.parallel, s, 1, 0, &result));
    EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &result.hash));
    result.weights = check_read_all(engine.parallel, model, false, &result.count);
    check_engine_free(&engine);
    return result;
}

static const ddp_setting settings[] = {
    {.batch = 9, .accumulate = 1, .steps = 4, .synchronized = true},
    {.batch = 9, .accumulate = 2, .steps = 4, .synchronized = true},
    {.batch = 5, .accumulate = 1, .steps = 3, .synchronized = true}, /* the third has 2 rows */
    {.batch = 8, .accumulate = 1, .steps = 4, .synchronized = true, .clip = true},
};
enum { SETTINGS = sizeof settings / sizeof settings[0] };

static void every_schedule_trains_as_one_device(void **state) {
    (void)state;
    yoke_model *model = make_model(true);
    for (int i = 0; i < SETTINGS; i++) {
        record one = train_devices(&settings[i], model, 1, YOKE_SCHEDULE_OVERLAP);
        for (int devices = 2; devices <= 4; devices++) {
            record several[3];
            for (int k = 0; k < 3; k++) {
                several[k] = train_devices(&settings[i], model, devices, (yoke_schedule)k);
                expect_near(&one, &several[k], 1e-4, settings[i].steps);
                if (!settings[i].clip) assert_int_equal(several[k].hash, several[0].hash);
            }
            free_records(several, 3);
        }
        free_records(&one, 1);
    }
    yoke_model_destroy(model);
}

/* Whole steps of ranks. */

static void expect_ranks_as_devices(const ddp_setting *s, const yoke_model *model, int world) {
    record ranks[RANKS] = {0};
    run_ranks(s, model, world, ranks);
    record several = run_devices(s, model, world);
    for (int rank = 0; rank < world; rank++)
        expect_same(&ranks[rank], &several, s->steps);
    free_records(ranks, world);
    free_records(&several, 1);
}

/* own_buffers: the hash compares each rank's own running statistics with those of the root. 5 rows
 * on 4 ranks leave one without rows, and the short batch of 2 rows leaves two. */
static void ranks_train_as_devices_to_the_bit(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    static const ddp_setting kinds[] = {
        {.batch = 9, .accumulate = 1, .steps = 4, .own_buffers = true, .synchronized = true},
        {.batch = 9, .accumulate = 1, .steps = 4, .uncounted = true, .synchronized = true},
        {.batch = 9, .accumulate = 1, .steps = 4, .sharded = true, .synchronized = true},
        {.batch = 5, .accumulate = 1, .steps = 3, .own_buffers = true, .synchronized = true},
        {.batch = 5, .accumulate = 1, .steps = 3, .sharded = true, .synchronized = true},
    };
    yoke_model *model = make_model(true);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        for (int world = 2; world <= 4; world++)
            expect_ranks_as_devices(&kinds[i], model, world);
    yoke_model_destroy(model);
}

/* 7 rows on 2 ranks are 4 and 3: with 3 micro-batches 2, 2 and 1, 1, 1. One device takes the same
 * micro-batches when the rows are in their order. */

enum { CUT_ROWS = 7, CUT_STEPS = 3 };

static check_batch cut_batch(uint32_t seed, bool in_order_of_micro_batches) {
    static const int order[CUT_ROWS] = {0, 1, 4, 2, 3, 5, 6};
    check_batch from = check_batch_make(CUT_ROWS, seed);
    if (!in_order_of_micro_batches) return from;
    check_batch made = check_batch_make(CUT_ROWS, seed);
    for (int row = 0; row < CUT_ROWS; row++) {
        memcpy(made.inputs + row * CHECK_ROW, from.inputs + order[row] * CHECK_ROW,
               CHECK_ROW * sizeof(float));
        made.labels[row] = from.labels[order[row]];
    }
    check_batch_free(&from);
    return made;
}

static yoke_status train_cut(yoke_data_parallel *parallel, const ddp_setting *s, int world,
                             int rank, record *result) {
    for (int step = 0; step < CUT_STEPS; step++) {
        check_batch whole = cut_batch((uint32_t)step, world == 1);
        yoke_batch batch = part_of(s, &whole, world, rank);
        yoke_step_result gave = {.struct_size = sizeof gave};
        yoke_status status =
            yoke_data_parallel_step(parallel, &batch, YOKE_OPTIMIZER_LEARNING_RATE, &gave);
        check_batch_free(&whole);
        TRY(status);
        result->losses[step] = gave.loss;
    }
    return yoke_data_parallel_hash(parallel, &result->hash);
}

static yoke_status train_cut_rank(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    record *result = &plan->records[group->rank];
    rank_rig rig = {0};
    yoke_status status = begin_rank(&rig, plan, play, group);
    if (status == YOKE_OK)
        status = train_cut(rig.parallel, plan->setting, group->world, group->rank, result);
    if (status == YOKE_OK)
        result->weights = check_read_all(rig.parallel, plan->model, false, &result->count);
    return end_rank(&rig, status);
}

static void ranks_go_through_equally_many_micro_batches(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    yoke_model *model = make_model(false);
    const ddp_setting s = {
        .batch = CUT_ROWS, .accumulate = 3, .own_buffers = true, .synchronized = true};
    record ranks[2] = {0}, one = {0};
    course plan = {.setting = &s, .model = model, .records = ranks};
    script play = {.world = 2, .timeout_ms = TIMEOUT_MS, .scene = train_cut_rank, .detail = &plan};
    outcome *outcomes = play_ranks(&play);
    expect_all_well(outcomes, 2);
    free(outcomes);
    yoke_optimizer_options optimizer = optimizer_of(&s);
    check_engine engine = check_engine_make(model, 1, options_of(&s), &optimizer);
    EXPECT_OK(train_cut(engine.parallel, &s, 1, 0, &one));
    one.weights = check_read_all(engine.parallel, model, false, &one.count);
    check_engine_free(&engine);
    expect_same(&ranks[0], &ranks[1], CUT_STEPS);
    expect_near(&one, &ranks[0], 1e-4, CUT_STEPS);
    free_records(ranks, 2);
    free_records(&one, 1);
    yoke_model_destroy(model);
}

/* Values and calls that fail. Nobody may wait for a participant that does not come: alarm ends a
 * test that hangs. */

enum { DEADLINE_SECONDS = 900 };

static struct {
    atomic_int rows;     /* forward over this many rows fails with `status`; 0: none */
    atomic_int segments; /* backward fails at this many calls from now; 0: none */
    yoke_status status;
} planted;

yoke_status __real_yoke_replica_forward(yoke_replica *replica, int rows, bool training,
                                        const yoke_plan_step *step);
yoke_status __wrap_yoke_replica_forward(yoke_replica *replica, int rows, bool training,
                                        const yoke_plan_step *step);
yoke_status __wrap_yoke_replica_forward(yoke_replica *replica, int rows, bool training,
                                        const yoke_plan_step *step) {
    if (rows == atomic_load(&planted.rows)) return FAIL(planted.status, "planted in forward");
    return __real_yoke_replica_forward(replica, rows, training, step);
}

yoke_status __real_yoke_replica_backward_segment(yoke_replica *replica, int segment,
                                                 const yoke_plan_step *step);
yoke_status __wrap_yoke_replica_backward_segment(yoke_replica *replica, int segment,
                                                 const yoke_plan_step *step);
yoke_status __wrap_yoke_replica_backward_segment(yoke_replica *replica, int segment,
                                                 const yoke_plan_step *step) {
    if (atomic_load(&planted.segments) > 0 && atomic_fetch_sub(&planted.segments, 1) == 1)
        return FAIL(planted.status, "planted in backward");
    return __real_yoke_replica_backward_segment(replica, segment, step);
}

static void plant(int rows, int segments, yoke_status status) {
    planted.status = status;
    atomic_store(&planted.rows, rows);
    atomic_store(&planted.segments, segments);
}

static yoke_status step_once(yoke_data_parallel *parallel, const yoke_batch *batch) {
    return yoke_data_parallel_step(parallel, batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL);
}

static const ddp_setting eight = {.batch = 8, .accumulate = 1, .synchronized = true};

/* 8 rows on 3 devices are 3, 3, 2. A lane that fails, or whose own values are not finite, ends the
 * step on all; the next step is that of an engine that never failed. */
static void expect_step_to_fail(yoke_schedule schedule, int rows, int segments,
                                yoke_status status) {
    uint64_t hashes[2];
    yoke_model *model = make_model(true);
    check_batch batch = check_batch_make(8, 3);
    for (int i = 0; i < 2; i++) {
        yoke_data_parallel_options options = options_of(&eight);
        options.schedule = schedule;
        check_engine engine = check_engine_make(model, 3, options, NULL);
        if (i == 1) {
            plant(rows, segments, status);
            assert_int_equal(step_once(engine.parallel, &batch.batch), status);
            plant(0, 0, YOKE_OK);
        }
        EXPECT_OK(step_once(engine.parallel, &batch.batch));
        EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &hashes[i]));
        check_engine_free(&engine);
    }
    assert_int_equal(hashes[0], hashes[1]);
    check_batch_free(&batch);
    yoke_model_destroy(model);
}

static void a_device_that_fails_keeps_no_other_waiting(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    alarm(DEADLINE_SECONDS);
    for (int schedule = 0; schedule < 3; schedule++) {
        expect_step_to_fail((yoke_schedule)schedule, 2, 0, YOKE_ERROR_DEVICE);
        expect_step_to_fail((yoke_schedule)schedule, 2, 0, YOKE_ERROR_NUMERIC);
    }
    expect_step_to_fail(YOKE_SCHEDULE_CLASSIC, 0, 3, YOKE_ERROR_DEVICE);
    alarm(0);
}

static void a_nonfinite_row_is_named_and_spoils_nothing(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    yoke_model *model = make_model(true);
    alarm(DEADLINE_SECONDS);
    for (int i = 0; i < 6; i++) {
        check_batch batch = check_batch_make(8, 3);
        yoke_data_parallel_options options = options_of(&eight);
        uint64_t before, after;
        float *value = &batch.inputs[7 * CHECK_ROW + 2], kept = *value;
        options.schedule = (yoke_schedule)(i % 3);
        options.accumulate = 1 + i / 3;
        check_engine engine = check_engine_make(model, 3, options, NULL);
        EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &before));
        *value = NAN;
        assert_int_equal(step_once(engine.parallel, &batch.batch), YOKE_ERROR_NUMERIC);
        EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &after));
        assert_int_equal(before, after);
        if (strstr(yoke_last_error(), "first at input on replica ") == NULL && i / 3 == 0)
            fail_msg("%s", yoke_last_error());
        *value = kept;
        EXPECT_OK(step_once(engine.parallel, &batch.batch));
        check_engine_free(&engine);
        check_batch_free(&batch);
    }
    alarm(0);
    yoke_model_destroy(model);
}

static void a_rank_with_a_nonfinite_row_stops_all(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    static const ddp_setting kinds[] = {
        {.batch = 8, .accumulate = 1, .norm = true, .synchronized = true},
        {.batch = 8, .accumulate = 1, .norm = true, .sharded = true, .synchronized = true},
        {.batch = 8, .accumulate = 2, .norm = true, .synchronized = true},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        expect_spoilt_batch_refused(&kinds[i]);
}

static yoke_status step_rank(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    rank_rig rig = {0};
    check_batch whole = check_batch_make(8, 3);
    yoke_batch batch = part_of(plan->setting, &whole, group->world, group->rank);
    yoke_status status = begin_rank(&rig, plan, play, group);
    if (status == YOKE_OK) status = step_once(rig.parallel, &batch);
    status = end_rank(&rig, status);
    check_batch_free(&whole);
    return status;
}

/* 8 rows on 3 ranks are 3, 3, 2: rank 2 fails. */
static void a_rank_that_fails_keeps_no_other_waiting(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    static const yoke_status statuses[] = {YOKE_ERROR_DEVICE, YOKE_ERROR_NUMERIC};
    yoke_model *model = make_model(true);
    course plan = {.setting = &eight, .model = model};
    script play = {.world = 3, .timeout_ms = TIMEOUT_MS, .scene = step_rank, .detail = &plan};
    for (int i = 0; i < 2; i++) {
        plant(2, 0, statuses[i]);
        outcome *outcomes = play_ranks(&play);
        plant(0, 0, YOKE_OK);
        assert_int_equal(outcomes[2].error.status, statuses[i]);
        for (int rank = 0; rank < 2; rank++) {
            assert_int_not_equal(outcomes[rank].error.status, YOKE_OK);
            assert_int_not_equal(outcomes[rank].error.status, YOKE_ERROR_TIMEOUT);
        }
        free(outcomes);
    }
    yoke_model_destroy(model);
}

/* By hand: a failing call, or a label that rank 2 alone refuses, ends all ranks with its text. */

static yoke_status pass_by_hand(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    bool mislabels = plan->records->correct < 0;
    rank_rig rig = {0};
    check_batch whole = check_batch_make(8, 3);
    if (mislabels && group->rank == 2) whole.labels[7] = CHECK_CLASSES;
    yoke_batch batch = part_of(plan->setting, &whole, group->world, group->rank);
    yoke_status status = begin_rank(&rig, plan, play, group);
    if (status == YOKE_OK) status = yoke_data_parallel_forward(rig.parallel, &batch, true, NULL);
    if (status == YOKE_OK) status = yoke_data_parallel_backward(rig.parallel, NULL);
    status = end_rank(&rig, status);
    check_batch_free(&whole);
    return status;
}

static void a_rank_that_fails_by_hand_ends_all_with_its_text(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    static const struct {
        int label, rows, segments;
        yoke_status status;
        const char *text;
    } cases[] = {
        {-1, 0, 0, YOKE_ERROR_ARGUMENT, "rank 2: row 1 of the batch has label 5"},
        {0, 2, 0, YOKE_ERROR_DEVICE, "rank 2: forward, replica 0 on cpu:0: planted in forward"},
        {0, 0, 3, YOKE_ERROR_DEVICE, "planted in backward"},
    };
    yoke_model *model = make_model(true);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        record detail = {.correct = cases[i].label};
        course plan = {.setting = &eight, .model = model, .records = &detail};
        script play = {
            .world = 3, .timeout_ms = TIMEOUT_MS, .scene = pass_by_hand, .detail = &plan};
        plant(cases[i].rows, cases[i].segments, cases[i].status);
        outcome *outcomes = play_ranks(&play);
        plant(0, 0, YOKE_OK);
        for (int rank = 0; rank < play.world; rank++) {
            const yoke_error *error = &outcomes[rank].error;
            const char *text =
                rank == 2 && i < 2 ? cases[i].text + strlen("rank 2: ") : cases[i].text;
            if (error->status != cases[i].status || strstr(error->text, text) == NULL)
                fail_msg("case %zu, rank %d: %s: %s", i, rank, yoke_status_name(error->status),
                         error->text);
        }
        free(outcomes);
    }
    yoke_model_destroy(model);
}

/* What is refused, and what is not. */

static void one_row_on_each_device_is_enough_but_one_row_is_not(void **state) {
    (void)state;
    yoke_model *model = make_model(true);
    yoke_data_parallel_options options = options_of(&eight);
    check_engine engine = check_engine_make(model, 2, options, NULL);
    check_batch two = check_batch_make(2, 1), one = check_batch_make(1, 1);
    EXPECT_OK(step_once(engine.parallel, &two.batch));
    assert_int_equal(step_once(engine.parallel, &one.batch), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "more than 1 value per channel"));
    EXPECT_OK(step_once(engine.parallel, &two.batch));
    check_engine_free(&engine);
    options.synchronize_batch_norm = false;
    engine = check_engine_make(model, 2, options, NULL);
    assert_int_equal(step_once(engine.parallel, &two.batch), YOKE_ERROR_ARGUMENT);
    check_engine_free(&engine);
    check_batch_free(&one);
    check_batch_free(&two);
    yoke_model_destroy(model);
}

static void kernels_are_timed_on_one_device_alone(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip(); /* they are recorded, and hosts wait within these */
    yoke_model *model = make_model(true);
    check_engine engine = check_engine_make(model, 2, options_of(&eight), NULL);
    double milliseconds = 0;
    alarm(DEADLINE_SECONDS);
    EXPECT_OK(bench_kernel_time(engine.parallel, BENCH_KERNELS_IN_ORDER, 2, &milliseconds));
    assert_true(milliseconds > 0);
    alarm(0);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_compute_what_the_whole_batch_gives_in_double),
        cmocka_unit_test(every_schedule_trains_as_one_device),
        cmocka_unit_test(ranks_train_as_devices_to_the_bit),
        cmocka_unit_test(ranks_go_through_equally_many_micro_batches),
        cmocka_unit_test(a_device_that_fails_keeps_no_other_waiting),
        cmocka_unit_test(a_nonfinite_row_is_named_and_spoils_nothing),
        cmocka_unit_test(a_rank_with_a_nonfinite_row_stops_all),
        cmocka_unit_test(a_rank_that_fails_keeps_no_other_waiting),
        cmocka_unit_test(a_rank_that_fails_by_hand_ends_all_with_its_text),
        cmocka_unit_test(one_row_on_each_device_is_enough_but_one_row_is_not),
        cmocka_unit_test(kernels_are_timed_on_one_device_alone),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
